"""The libraries that vkconv is timed beside: one module a library, imported only when asked for.

A module has `peers()`, its Peer objects (one a way of using the library), and fails to import where the library is not
installed. A peer gets the arrays channels last and may keep them in whatever layout it likes best before its time
counts; what is timed is one call from its own input layout to its own output layout.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.cases import Case

Array = np.ndarray[Any, np.dtype[Any]]
CPU_MODULES = ("pytorch", "onnx_runtime", "jax_cpu", "mlx_cpu", "ncnn_cpu")
VULKAN_MODULES = ("ncnn_vulkan",)


NO_GRADIENTS = "its gradients are not timed"


class Refusal(Exception):  # noqa: N818 - an answer, not a failure
    """Why a peer does not run a case."""


@dataclass(frozen=True)
class Run:
    """One prepared call of a library and the way from its result to a channels-last NumPy array."""

    call: Callable[[], Any]
    output: Callable[[Any], Array]
    keep: object = None  # what must live as long as the call
    plan: str = ""  # how the library says it computes this


@dataclass(frozen=True)
class Peer:
    """One way of using a library. `build` takes a case, its two operands and a number of threads.

    It raises Refusal for what the library does not do; only peers with `gradients` are asked for them.
    """

    name: str
    version: str
    build: Callable[[Case, Array, Array, int], Run]
    gradients: bool = False

    def run(self, case: Case, operands: tuple[Array, Array], threads: int) -> Run:
        if case.direction != "forward" and not self.gradients:
            raise Refusal(NO_GRADIENTS)
        return self.build(case, *operands, threads)


@dataclass
class Found:
    """The peers that are there, and those that are not with the reason."""

    peers: list[Peer] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)


def find(wanted: str, device: str = "cpu") -> Found:
    """`auto` is every installed peer on the device, `none` no peer, else comma-separated modules, libraries or peers.

    A library is all its peers (torch is torch and torch_cl), so that none is timed in its slower layout by accident.
    """
    found = Found()
    names = set(wanted.split(","))
    modules = CPU_MODULES if device == "cpu" else VULKAN_MODULES
    for module in () if wanted == "none" else modules:
        try:
            peers = importlib.import_module(f"bench.peers.{module}").peers()
        except ImportError as error:
            found.absent[module] = str(error)
            continue
        found.peers += [p for p in peers if wanted == "auto" or names & {module, p.name, p.name.partition("_")[0]}]
    return found


def channels_first(a: Array) -> Array:
    """(N, ..., C) or (O, k..., C) as a contiguous (N, C, ...)."""
    return np.ascontiguousarray(np.moveaxis(a, -1, 1))


def channels_last(a: Array) -> Array:
    return np.moveaxis(a, 1, -1)


def transposed_weight(w: Array, groups: int) -> Array:
    """(O, k..., C/groups) as the (C, O/groups, k...) that PyTorch and ONNX take for a transposed convolution."""
    o, *k, c = w.shape
    by_group = w.reshape(groups, o // groups, *k, c)
    return np.ascontiguousarray(np.moveaxis(by_group, -1, 1).reshape(groups * c, o // groups, *k))
