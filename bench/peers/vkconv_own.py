"""vkconv itself: weights given to every call, and weights prepared."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import vkconv
from bench.cases import Case
from bench.peers import Array, Peer, Refusal, Run


def contenders(device: str, modes: list[str]) -> list[Peer]:
    builders = {"vkconv": _per_call, "vkconv_prepared": _prepared}
    return [Peer(mode, vkconv.version, partial(builders[mode], device), gradients=mode == "vkconv") for mode in modes]


def _arguments(case: Case, device: str) -> dict[str, Any]:
    return case.as_general | {"device": device}


def _per_call(device: str, case: Case, first: Array, second: Array, threads: int) -> Run:
    vkconv.set_num_threads(threads)
    function, operands = {
        "forward": (vkconv.conv_general, (first, second)),
        "input_grad": (vkconv.conv_input_grad, (first, second, case.x)),
        "weight_grad": (vkconv.conv_weight_grad, (first, second, case.w)),
    }[case.direction]
    call = partial(function, *operands, **_arguments(case, device))
    plan = vkconv.explain(call.func, *call.args, **call.keywords)
    if plan.plan is None:
        raise Refusal(plan.reason)
    return Run(call, np.asarray, plan=plan.plan)


def _prepared(device: str, case: Case, x: Array, w: Array, threads: int) -> Run:
    vkconv.set_num_threads(threads)
    convolve = vkconv.prepare(w, **_arguments(case, device))
    plan = vkconv.explain(convolve, x)
    if plan.plan is None:
        raise Refusal(plan.reason)
    return Run(lambda: convolve(x), np.asarray, plan=plan.plan)
