"""python -m vkconv explain PROBLEM"""

from __future__ import annotations

import argparse
import dataclasses

import vkconv
from vkconv._cli import render


def explain(arguments: argparse.Namespace) -> int:
    """Prints the plan and the candidates; the status is 1 when nothing can run the problem."""
    device = arguments.device
    told = vkconv.explain(
        arguments.problem,
        device=vkconv.describe_device(device) if device in vkconv.described_devices() else device,
        algorithm=arguments.algorithm,
        workspace_limit=arguments.workspace_limit,
    )
    print(render.as_json(dataclasses.asdict(told)) if arguments.json else told)
    return 0 if told.plan else 1
