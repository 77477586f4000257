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
    return [Peer(mode, vkconv.version, partial(builders[mode], device)) for mode in modes]


def _arguments(case: Case, device: str) -> dict[str, Any]:
    return case.as_general | {"device": device}


def _per_call(device: str, case: Case, x: Array, w: Array, threads: int) -> Run:
    vkconv.set_num_threads(threads)
    arguments = _arguments(case, device)
    plan = vkconv.explain(vkconv.conv_general, x, w, **arguments)
    if plan.plan is None:
        raise Refusal(plan.reason)
    return Run(lambda: vkconv.conv_general(x, w, **arguments), np.asarray, plan=plan.plan)


def _prepared(device: str, case: Case, x: Array, w: Array, threads: int) -> Run:
    vkconv.set_num_threads(threads)
    convolve = vkconv.prepare(w, **_arguments(case, device))
    plan = vkconv.explain(convolve, x)
    if plan.plan is None:
        raise Refusal(plan.reason)
    return Run(lambda: convolve(x), np.asarray, plan=plan.plan)
