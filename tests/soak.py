"""Many calls in one process while its memory, threads and descriptors are watched.

    python tests/soak.py --device cpu --calls 200000 --shapes 2000 --distinct 10000

Random problems of every kind are called over and over: resident memory may grow by 8 MiB after the first tenth of the
calls, device memory, threads and open files not at all, and every repeated call gives the bits of the first. Then come
shapes that are each called once: what is remembered of them is bounded. (By 256 pipelines on a software Vulkan device,
3 MB each, so that shapes called once are for the CPU.)
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fuzz
import vkconv

GROWTH_BYTES = 8 << 20
PROGRESS_SECONDS = 0.5
M_MMAP_THRESHOLD, MMAP_BYTES = -3, 128 << 10  # of <malloc.h>; the value glibc begins with


@dataclass(frozen=True)
class Usage:
    """What the process holds when no call runs and every cache that may be emptied is empty."""

    resident_bytes: int
    device_bytes: int
    threads: int
    descriptors: int
    on_host: bool

    @staticmethod
    def now(device: str) -> Usage:
        gc.collect()
        vkconv.trim_memory(device)
        ctypes.CDLL(None).malloc_trim(0)
        status = Path("/proc/self/status").read_text()
        resident = int(status.split("VmRSS:")[1].split()[0]) << 10
        threads, descriptors = (len(list(Path("/proc/self", name).iterdir())) for name in ("task", "fd"))
        return Usage(resident, vkconv.memory_info(device).used, threads, descriptors, device == "cpu")

    def growth_since(self, before: Usage) -> list[str]:
        """What grew more than it may."""
        grown = []
        if self.resident_bytes - before.resident_bytes > GROWTH_BYTES:
            grown.append(f"resident memory by {(self.resident_bytes - before.resident_bytes) / 2**20:.1f} MiB")
        # A thread of the CPU's pool keeps scratch memory from the first time that it meets a kernel that wants some.
        slack = {"device_bytes": GROWTH_BYTES if self.on_host else 0, "threads": 0, "descriptors": 0}
        for name, more in slack.items():
            if getattr(self, name) > getattr(before, name) + more:
                grown.append(f"{name} from {getattr(before, name)} to {getattr(self, name)}")
        return grown


@dataclass(frozen=True)
class Report:
    calls: int
    before: Usage
    after: Usage
    wrong: int  # calls with other bits than the first of their problem

    @property
    def failures(self) -> list[str]:
        return self.after.growth_since(self.before) + [f"{self.wrong} answers changed"] * (self.wrong > 0)

    def __str__(self) -> str:
        growth = (self.after.resident_bytes - self.before.resident_bytes) / 2**20
        held = f"{growth:+.2f} MiB resident, {self.after.device_bytes} device bytes, {self.after.threads} threads"
        return f"{self.calls} calls: {held}, {self.after.descriptors} descriptors; {self.failures or 'nothing grew'}"


class Job:
    """One problem with its arrays."""

    def __init__(self, case: fuzz.Case, device: str) -> None:
        self.case, self.operands, self.options = case, fuzz.operands(case), {"device": device}
        if case.limit is not None:
            self.options["workspace_limit"] = case.limit
        self.first: int | None = None

    def __call__(self) -> bool:
        """Calls it; whether the answer has the bits of the first."""
        answer = fuzz.call(self.case, self.operands, self.options)
        bits = zlib.crc32(np.ascontiguousarray(answer).view(np.uint8))
        self.first = bits if self.first is None else self.first
        return bits == self.first


def shown(calls: Iterable[Any], total: int, what: str) -> Iterator[Any]:
    """The items, with a line of progress where a person looks."""
    start = last = time.monotonic()
    for i, call in enumerate(calls):
        if sys.stderr.isatty() and time.monotonic() - last > PROGRESS_SECONDS:
            last = time.monotonic()
            bar = "#" * (30 * i // total)
            print(f"\r{what} [{bar:30}] {i:,} of {total:,}, {i / (last - start):.0f}/s ", end="", file=sys.stderr)
        yield call
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def watched(device: str, jobs: Iterable[Job], total: int, what: str) -> Report:
    """Runs the jobs; the first tenth fills what may be kept."""
    before, wrong = None, 0
    for i, job in enumerate(shown(jobs, total, what)):
        if i == total // 10:
            before = Usage.now(device)
        wrong += not job()
    assert before is not None
    return Report(total, before, Usage.now(device), wrong)


def repeated(device: str, calls: int, shapes: int, seed: int = 0) -> Report:
    """`calls` calls over `shapes` problems in random order, each at least once in the first tenth."""
    assert 10 * shapes <= calls
    jobs = [Job(case, device) for case in fuzz.cases(seed, shapes)]
    with ThreadPoolExecutor() as pool:  # through Vulkan a first call compiles kernels, for a quarter of a second
        list(shown(pool.map(Job.__call__, jobs), shapes, "first calls"))
    rng = np.random.default_rng(seed)
    order = (job for _ in range(calls // shapes) for job in rng.permutation(np.array(jobs, object)))
    return watched(device, order, calls // shapes * shapes, "repeated")


def distinct(device: str, shapes: int, seed: int = 1) -> Report:
    """`shapes` problems, each called once."""
    return watched(device, (Job(case, device) for case in fuzz.cases(seed, shapes)), shapes, "distinct")


def fix_allocator() -> None:
    """Arrays from MMAP_BYTES on go back to the system when freed: glibc raises that bound with every one it frees, and
    arrays of all sizes then leave holes in its heap, tens of MiB resident that nothing holds."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--shapes", type=int, default=2_000)
    parser.add_argument("--distinct", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    fix_allocator()
    reports = {f"{args.shapes} shapes": repeated(args.device, args.calls, args.shapes, args.seed)}
    if args.distinct:
        reports["a shape each"] = distinct(args.device, args.distinct, args.seed + 1)
    for name, report in reports.items():
        print(f"{args.device}, {name}: {report}")
    return 1 if any(report.failures for report in reports.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
