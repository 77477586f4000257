"""python -m vkconv tune PROBLEM...: the fastest algorithm of each by measurement."""

from __future__ import annotations

import argparse
import dataclasses

import vkconv
from vkconv._cli import render


def tune(arguments: argparse.Namespace) -> int:
    """Tunes, prints and saves; the status is 1 when a problem was skipped."""
    found = vkconv.tune(
        arguments.problems, seconds=arguments.seconds, device=arguments.device, prepared=arguments.prepared
    )
    if arguments.json:
        print(render.as_json(dataclasses.asdict(found)))
    else:
        _print(found)
    if arguments.out:
        found.save(arguments.out)
    if arguments.out and not arguments.json:
        count = len(found.choices)
        took = f"{count} choice{'s' * (count != 1)} added" if count else "no choices to add"
        print(f"\n{took}; VKCONV_TUNING_FILE={arguments.out} takes what the file has")
    return 1 if found.skipped else 0


def _print(found: vkconv.Tuning) -> None:
    rows = [
        (
            c.problem,
            c.planned,
            render.milliseconds(c.planned_seconds),
            c.algorithm,
            render.milliseconds(c.seconds),
            f"{c.planned_seconds / c.seconds:.2f}x",
        )
        for c in found.choices
    ]
    rows += [(problem, "the plan is the fastest", "", "", "", "") for problem in found.kept]
    rows += [(problem, f"skipped: {reason}", "", "", "", "") for problem, reason in found.skipped.items()]
    columns = ("problem", "planned", "ms", "tuned", "ms ", "gain")
    render.table("tuning", columns, rows, right=("ms", "ms ", "gain"))
