"""python -m vkconv bench PROBLEM...: measured times beside the planner's estimates."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from typing import Any

import vkconv
from vkconv import _check
from vkconv._cli import render
from vkconv._cli.operation import median_seconds
from vkconv._problem_call import problem_call
from vkconv._tune import Expected, Runs, Skipped, Task

Reference = tuple[Runs, Expected]


def _row(
    problem: str, call: Any, algorithm: str, estimate: float, options: dict[str, Any], reference: Reference | None
) -> dict[str, Any]:
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
    elif reference:
        runs, expected = reference
        row["right"] = expected.met_by(runs.of(algorithm)())
    return row


def _reference(told: vkconv.Explanation, limit: float) -> Reference | None:
    """What checks gradients and activations: the reference loop nest, where that takes less than `limit` seconds."""
    runs = Runs(Task(told.device, told.problem, prepared=False))
    with contextlib.suppress(Skipped):
        return runs, Expected(runs, limit)
    return None


def bench(arguments: argparse.Namespace) -> int:
    """Times each problem by the plan chosen, or by every algorithm; the status is 1 when an answer is wrong."""
    rows: list[dict[str, Any]] = []
    for text in arguments.problems:
        told = vkconv.explain(text, device=arguments.device)
        if told.plan is None:
            raise vkconv.Error(f"{told.problem}: {told.reason}")
        call, reference = problem_call(told.problem), _reference(told, arguments.limit)
        able = [c for c in told.candidates if c.seconds is not None]
        if not arguments.all:
            able = [c for c in able if c.algorithm == told.algorithm]
        with render.Progress(len(able)) as progress:
            for c in sorted(able, key=lambda c: c.seconds or 0.0):
                progress.step(f"{told.problem} {c.algorithm}")
                seconds = math.nan if c.seconds is None else c.seconds
                if seconds > arguments.limit:
                    print(f"{c.algorithm}: left out, estimated to take {seconds:.2g} s", file=sys.stderr)
                    continue
                options = {"device": arguments.device, "algorithm": c.algorithm}
                rows.append(_row(told.problem, call, c.algorithm, seconds, options, reference))
                rows[-1]["chosen"] = c.algorithm == told.algorithm
    if arguments.json:
        print(render.as_json(rows))
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
        columns = ("", "algorithm", "estimate, ms", "measured, ms", "check")
        render.table(problem, columns, cells, right=("estimate, ms", "measured, ms"))
