"""ncnn on its first Vulkan device, the one that vkconv's `vulkan` names too when it is the only one: 2D layers."""

from __future__ import annotations

from importlib.metadata import version

import ncnn

from bench.cases import Case
from bench.peers import Array, Peer, Refusal, Run
from bench.peers.ncnn_cpu import build

RANK = 2  # ncnn runs the others on the CPU


def peers() -> list[Peer]:
    if ncnn.get_gpu_count() == 0:
        raise ImportError("ncnn finds no Vulkan device")
    return [Peer("ncnn_vulkan", version("ncnn"), _build)]


def _build(case: Case, x: Array, w: Array, threads: int) -> Run:
    if case.rank != RANK:
        raise Refusal("no Vulkan layer")
    return build(case, x, w, threads, vulkan=True)
