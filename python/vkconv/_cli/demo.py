"""python -m vkconv demo: a photograph through a bank of filters, then the hard cases, on every device, all checked."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import vkconv
from vkconv._cli import hard_cases, photo, render
from vkconv._cli.operation import Answer, Operation
from vkconv._types import Array

COLUMNS = ("op", "problem", "plan", "device", "ms", "error")
RIGHT = ("ms", "error")


class Report:
    """Collects rows and what went wrong."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []  # to be printed
        self.told: list[dict[str, Any]] = []
        self.checked = 0
        self.wrong: list[str] = []

    def add(self, operation: Operation, device: str, answer: Answer) -> None:
        """One answer, right or wrong."""
        self.checked += 1
        mark = "" if answer.right() else "  WRONG"
        if mark:
            self.wrong.append(f"{operation.title} on {device}: {answer.problem}, {answer.plan}")
        ms = render.milliseconds(answer.seconds)
        self.rows.append((operation.title, answer.problem, answer.plan, device, ms, f"{answer.error:.1e}{mark}"))
        told = (operation.title, answer.problem, answer.plan, device, answer.seconds * 1e3, answer.error)
        self.told.append(dict(zip(COLUMNS, told, strict=True)))

    def run(self, operation: Operation, device: str) -> Answer | None:
        """Runs the operation and adds its answer, or the reason why there is none."""
        try:
            answer = operation.run(device)
        except (ValueError, MemoryError, vkconv.Error) as error:
            self.rows.append((operation.title, "", "FAILED", device, "", ""))
            self.wrong.append(f"{operation.title} on {device}: {error}")
            return None
        self.add(operation, device, answer)
        return answer

    def flush(self, title: str) -> None:
        """Prints the rows so far."""
        render.table(title, COLUMNS, self.rows, RIGHT)
        self.rows.clear()


def chosen_devices(wanted: list[str] | None) -> list[vkconv.Device]:
    """The CPU and the best Vulkan device, or those that were asked for."""
    known = [d for d in vkconv.devices() if not d.unusable]
    vulkan = next((d for d in known if d.name.startswith("vulkan")), None)
    if wanted is None:
        if vulkan is None:
            print(f"Vulkan is left out: {vkconv.no_vulkan_reason() or 'no usable device'}")
        return [d for d in (known[0], vulkan) if d is not None]
    by_name = {d.name: d for d in known} | ({"vulkan": vulkan} if vulkan else {})
    missing = [name for name in wanted if name not in by_name]
    if missing:
        raise ValueError(f"no usable device '{missing[0]}'; there are {', '.join(by_name)}")
    return [by_name[name] for name in wanted]


def filter_photo(picture: Array, device: vkconv.Device, report: Report) -> dict[str, Array]:
    """The answers of the whole bank on one device, by title."""
    results: dict[str, Array] = {}
    with render.Progress(photo.FILTERS) as progress:
        while operations := photo.filters(picture, results):
            for operation in operations:
                progress.step(f"{operation.title} on {device.name}")
                answer = report.run(operation, device.name)
                if answer is None:
                    return {}
                results[operation.title] = answer.output
    return results


def run_hard_cases(device: vkconv.Device, report: Report) -> None:
    """All of them on one device."""
    operations = hard_cases.cases(device)
    before = vkconv.plan_cache_info(device.name)
    with render.Progress(len(operations)) as progress:
        for operation in operations:
            progress.step(f"{operation.title} on {device.name}")
            report.run(operation, device.name)
    report.flush(f"hard cases on {device.name} ({device.description})")
    after = vkconv.plan_cache_info(device.name)
    print(f"  plan cache: {after.misses - before.misses} plans made, {after.hits - before.hits} taken from the cache")
    tiled_unfold(device, report)


def tiled_unfold(device: vkconv.Device, report: Report) -> None:
    """Unfolding in tiles gives the bits of unfolding at once."""
    for problem, workspace_bytes, same in hard_cases.tiled_unfold(device.name):
        report.checked += 1
        verdict = "the same bits" if same else "NOT the bits"
        print(f"  unfold_gemm in tiles of {render.size(workspace_bytes)}: {verdict} as whole, {problem}")
        if not same:
            report.wrong.append(f"tiled unfold_gemm on {device.name}: {problem}")


def inverse_transform(report: Report) -> None:
    """The inverse STFT within its limits of time and memory."""
    operation = hard_cases.inverse_transform()
    extra = hard_cases.extra_memory_bytes(operation, "cpu")
    start = time.perf_counter()
    operation.function(*operation.operands, **operation.options, device="cpu")
    seconds = time.perf_counter() - start
    took = f"{render.milliseconds(seconds)} ms, {extra / hard_cases.MIB:.0f} MiB extra, 20 of them the output"
    print(f"\ninverse STFT on cpu, 86.6 GB if unfolded: {took} (limits: 1000 ms, 64 MiB)")
    report.checked += 1
    if seconds > hard_cases.SECONDS_LIMIT or extra > hard_cases.EXTRA_LIMIT_BYTES:
        report.wrong.append("the inverse STFT went over its limits")


def demo(arguments: argparse.Namespace) -> int:
    """Runs it all; the status is 1 when an answer is wrong or a limit is passed."""
    with contextlib.redirect_stdout(sys.stderr if arguments.json else sys.stdout):
        report = _run(arguments)
    if arguments.json:
        print(render.as_json({"answers": report.told, "wrong": report.wrong}))
    return 1 if report.wrong else 0


def _run(arguments: argparse.Namespace) -> Report:
    start = time.perf_counter()
    picture = photo.load(arguments.photo)
    devices = chosen_devices(arguments.device)
    report = Report()
    print(f"photograph: {picture.shape[2]}x{picture.shape[1]} pixels; devices: {', '.join(d.name for d in devices)}")
    sheet = Path(arguments.out)
    for device in devices:
        software = device.kind == "software"
        if software:
            print(f"{device.name} is emulated on the CPU: it gets every second pixel of the photograph")
        seen = picture[:, ::2, ::2] if software else picture
        results = filter_photo(seen, device, report)
        if results and (device is devices[0]):
            photo.contact_sheet(photo.pictures(seen, results), sheet)
    report.flush("filters, every pixel against fp64 (error: largest |y - y64| / sum |x||w|)")
    for device in devices:
        run_hard_cases(device, report)
    if any(d.name == "cpu" for d in devices):
        inverse_transform(report)
    seconds = time.perf_counter() - start
    print(f"\n{report.checked} answers checked, {len(report.wrong)} wrong or missing, in {seconds:.0f} s; see {sheet}")
    for line in report.wrong:
        print(f"  {line}")
    return report
