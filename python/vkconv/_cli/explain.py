"""python -m vkconv explain PROBLEM"""

from __future__ import annotations

import argparse
import dataclasses

import vkconv
from vkconv._cli import render


def explain(arguments: argparse.Namespace) -> int:
    """Prints the plan and the candidates; the status is 1 when nothing can run the problem."""
    told = vkconv.explain(
        arguments.problem,
        device=arguments.device,
        algorithm=arguments.algorithm,
        workspace_limit=arguments.workspace_limit,
    )
    if arguments.json:
        print(render.as_json(dataclasses.asdict(told)))
        return 0 if told.plan else 1
    print(f"problem    {told.problem}")
    print(f"device     {told.device}")
    print(f"plan       {told.plan_text}")
    print(f"workspace  {render.size(told.workspace_bytes)}")
    rows = [
        (
            "*" if c.algorithm == told.algorithm else "",
            c.algorithm,
            "" if c.seconds is None else render.milliseconds(c.seconds),
            c.reason,
        )
        for c in sorted(told.candidates, key=lambda c: (c.seconds is None, c.seconds or 0.0))
    ]
    render.table("algorithms", ("", "algorithm", "estimate, ms", "cannot run because"), rows, right=("estimate, ms",))
    return 0 if told.plan else 1
