"""python -m vkconv bench PROBLEM...: measured times beside the planner's estimates."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import vkconv
from vkconv import _check
from vkconv._cli import render
from vkconv._cli.operation import median_seconds
from vkconv._types import Array

_PASSES: dict[str, Callable[..., Array]] = {
    "fwd": vkconv.conv_general,
    "igrad": vkconv.conv_input_grad,
    "wgrad": vkconv.conv_weight_grad,
}
_HEAD = re.compile(r"(fwd|igrad|wgrad)_(\w+)_n(\d+)c(\d+)o(\d+)(?:g(\d+))?_i([\dx]+)_k([\dx]+)((?:_.+)?)")
_AXES = {"s": "stride", "d": "kernel_dilation", "t": "input_dilation"}


def _dtype(name: str) -> np.dtype[Any]:
    if name == "bf16":
        import ml_dtypes

        bf16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bf16
    return np.dtype({"f32": np.float32, "f16": np.float16, "f64": np.float64}[name])


def call_of(problem: str) -> tuple[Callable[..., Array], tuple[Any, ...], dict[str, Any]]:
    """The operation, operands of random numbers and options that are a problem string, in the form explain gives it."""
    found = _HEAD.fullmatch(problem)
    if not found:
        raise ValueError(f"bench has no call for the problem {problem}")
    kind, dtype, *counts, space, kernel, rest = found.groups()
    batch, channels, outputs, groups = (int(c or 1) for c in counts)
    extents, taps = (tuple(map(int, text.split("x"))) for text in (space, kernel))
    ones = (1,) * len(extents)
    geometry: dict[str, Any] = {"stride": ones, "pads": [(0, 0)] * len(ones), "kernel_dilation": ones}
    geometry |= {"input_dilation": ones, "groups": groups, "flip": False}
    options, bias = _options(rest.split("_")[1:] if rest else [], geometry)
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32).astype(_dtype(dtype))

    x_shape, w_shape = (batch, *extents, channels), (outputs, *taps, channels // groups)
    if kind == "fwd":
        extra = {"bias": normal(outputs)} if bias else {}
        return _PASSES[kind], (normal(*x_shape), normal(*w_shape)), geometry | options | extra
    sides = zip(
        extents, taps, *(geometry[k] for k in ("stride", "pads", "kernel_dilation", "input_dilation")), strict=True
    )
    out = [((n - 1) * e + lo + hi - d * (k - 1)) // s + 1 for n, k, s, (lo, hi), d, e in sides]
    grad = normal(batch, *out, outputs)
    other, shape = (normal(*w_shape), x_shape) if kind == "igrad" else (normal(*x_shape), w_shape)
    return _PASSES[kind], (grad, other, shape), geometry | options


def _options(tokens: list[str], geometry: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Fills the geometry in; what is left are keyword arguments, and whether there is a bias."""
    options: dict[str, Any] = {}
    bias = False
    for token in " ".join(tokens).replace("leaky relu", "leaky_relu").split():
        letter, number = token[0], re.fullmatch(r"(leaky_relu|clip)(-?[\d.e+-]+)(?::(.+))?", token)
        if letter in _AXES and re.fullmatch(r"[\dx]+", token[1:]):
            geometry[_AXES[letter]] = tuple(map(int, token[1:].split("x")))
        elif letter == "p" and re.fullmatch(r"[-\d:x]+", token[1:]):
            sides = [side.partition(":") for side in token[1:].split("x")]
            geometry["pads"] = [(int(lo), int(hi or lo)) for lo, _, hi in sides]
        elif token == "bias":
            bias = True
        elif token in ("highest", "fast"):
            options["precision"] = token
        elif number:
            options["activation"] = (number[1], *(float(v) for v in number.groups()[1:] if v))
        else:
            options["activation"] = token
    return options, bias


def _row(problem: str, call: Any, algorithm: str, estimate: float, options: dict[str, Any]) -> dict[str, Any]:
    function, operands, keywords = call
    y = function(*operands, **keywords, **options)
    seconds = median_seconds(lambda: function(*operands, **keywords, **options))
    row: dict[str, Any] = {"problem": problem, "algorithm": algorithm, "estimate_ms": estimate * 1e3}
    row |= {"ms": seconds * 1e3, "error": None, "right": None}
    if function is vkconv.conv_general and not {"bias", "activation"} & keywords.keys():
        geometry = {k: v for k, v in keywords.items() if k != "precision"}
        row["error"] = _check.check(y, *operands, **geometry)
        # Winograd's transforms may cost 64 units of roundoff more than sums do.
        row["right"] = row["error"] <= 2 * _check.tolerance(y.dtype.name)
    return row


def bench(arguments: argparse.Namespace) -> int:
    """Times each problem by the plan chosen, or by every algorithm; the status is 1 when an answer is wrong."""
    rows: list[dict[str, Any]] = []
    for text in arguments.problems:
        told = vkconv.explain(text, device=arguments.device)
        if told.plan is None:
            raise vkconv.Error(f"{told.problem}: {told.reason}")
        call = call_of(told.problem)
        able = [c for c in told.candidates if c.seconds is not None]
        if not arguments.all:
            able = [c for c in able if c.algorithm == told.algorithm]
        with render.Progress(len(able)) as progress:
            for c in sorted(able, key=lambda c: c.seconds or 0.0):
                progress.step(f"{told.problem} {c.algorithm}")
                seconds = math.nan if c.seconds is None else c.seconds
                if seconds > arguments.limit:
                    print(f"{c.algorithm}: left out, estimated to take {seconds:.0f} s", file=sys.stderr)
                    continue
                options = {"device": arguments.device, "algorithm": c.algorithm}
                rows.append(_row(told.problem, call, c.algorithm, seconds, options))
                rows[-1]["chosen"] = c.algorithm == told.algorithm
    if arguments.json:
        print(json.dumps(rows, indent=2))
    else:
        _print(rows)
    return 1 if any(row["right"] is False for row in rows) else 0


def _print(rows: list[dict[str, Any]]) -> None:
    for problem in dict.fromkeys(row["problem"] for row in rows):
        cells = [
            (
                "*" if row["chosen"] else "",
                row["algorithm"],
                f"{row['estimate_ms']:.3g}",
                f"{row['ms']:.3g}",
                {None: "", True: "right", False: "WRONG"}[row["right"]],
            )
            for row in rows
            if row["problem"] == problem
        ]
        columns = ("", "algorithm", "estimate, ms", "measured, ms", "fp64 check")
        render.table(problem, columns, cells, right=("estimate, ms", "measured, ms"))
