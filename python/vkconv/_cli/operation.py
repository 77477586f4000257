"""One operation of the demo: a call of a public function that can be explained, timed and checked."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import vkconv
from vkconv import _check
from vkconv._axes import per_axis
from vkconv._types import Array

TIMING_SECONDS = 0.2
TIMING_CALLS = 15


@dataclass(frozen=True)
class Answer:
    """What one device made of an operation."""

    output: Array
    problem: str
    plan: str
    seconds: float
    error: float

    def right(self) -> bool:
        """Whether the error is within the rounding of the output's dtype."""
        return self.error <= _check.tolerance(self.output.dtype.name)


@dataclass
class Operation:
    """`function(*operands, **options)`, and the way to its fp64 answer on some output pixels."""

    title: str
    function: Callable[..., Array]
    operands: tuple[Array | tuple[int, ...], ...]
    options: dict[str, Any]
    exact: Callable[[Array], tuple[Array, Array, Array]]  # output -> its sample, the sample in fp64, its magnitudes

    def run(self, device: str) -> Answer:
        """Explains, computes, checks and times it on `device`."""
        options = self.options | {"device": device}
        told = vkconv.explain(self.function, *self.operands, **options)
        if told.plan is None:
            raise vkconv.Error(f"{self.title}: {told.reason}")
        output = self.function(*self.operands, **options)
        sample, y64, magnitude = self.exact(output)
        error = _check.relative_error(sample, y64, magnitude)
        seconds = median_seconds(lambda: self.function(*self.operands, **options))
        return Answer(output, told.problem, told.plan, seconds, error)


def median_seconds(call: Callable[[], Any]) -> float:
    """Of a few calls; a slow one is timed once."""
    times: list[float] = []
    while not times or (sum(times) < TIMING_SECONDS and len(times) < TIMING_CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _checked_by(x: Array, w: Array, geometry: dict[str, Any], work: float) -> Callable[[Array], Any]:
    """The fp64 answer is computed once and kept for the other devices."""
    kept: list[tuple[Any, Array, Array]] = []

    def exact(y: Array) -> tuple[Array, Array, Array]:
        if not kept:
            where = _check.grid(y.shape[1:-1], work / max(1, w.size * y.shape[0]))
            kept.append((where, *_check.exact(x, w, where, **geometry)))
        where, y64, magnitude = kept[0]
        return y[np.ix_(np.arange(y.shape[0]), *where)], y64, magnitude

    return exact


def _geometry(rank: int, stride: Any, padding: Any, dilation: Any = 1, groups: int = 1) -> dict[str, Any]:
    """That of conv_general, one value an axis."""
    return {
        "stride": per_axis(stride, rank, "stride"),
        "pads": [(p, p) for p in per_axis(padding, rank, "padding")],
        "kernel_dilation": per_axis(dilation, rank, "dilation"),
        "input_dilation": (1,) * rank,
        "groups": groups,
        "flip": False,
    }


def convolution(
    title: str,
    function: Callable[..., Array],
    x: Array,
    w: Array,
    *,
    stride: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    groups: int = 1,
    work: float = _check.WORK_LIMIT,
    **options: Any,
) -> Operation:
    """conv1d, conv2d, conv3d or a depthwise one, checked on as many pixels as `work` multiply-adds allow."""
    rank = x.ndim - 2
    depthwise = function.__name__.startswith("depthwise")
    geometry = _geometry(rank, stride, padding, dilation, x.shape[-1] if depthwise else groups)
    options |= {"stride": stride, "padding": padding, "dilation": dilation}
    if not depthwise:
        options["groups"] = groups
    return Operation(title, function, (x, w), options, _checked_by(x, w, geometry, work))


def transposed(
    title: str, function: Callable[..., Array], x: Array, w: Array, *, stride: int, padding: int = 0, groups: int = 1,
    work: float = _check.WORK_LIMIT,
) -> Operation:  # fmt: skip
    """conv_transpose1d, 2d or 3d."""
    rank = x.ndim - 2
    geometry = {
        "stride": (1,) * rank,
        "pads": [(k - 1 - padding, k - 1 - padding) for k in w.shape[1:-1]],
        "kernel_dilation": (1,) * rank,
        "input_dilation": (stride,) * rank,
        "groups": groups,
        "flip": True,
    }
    options = {"stride": stride, "padding": padding, "groups": groups}
    return Operation(title, function, (x, w), options, _checked_by(x, w, geometry, work))


def input_gradient(
    title: str, grad: Array, w: Array, shape: tuple[int, ...], *, stride: int, padding: int
) -> Operation:
    """conv_input_grad, checked as the convolution of `grad` that it is."""
    geometry = _geometry(len(shape) - 2, stride, padding)
    swapped, dual = _check.input_grad_problem(w, grad.shape[1:-1], shape[1:-1], **geometry)
    exact = _checked_by(grad, swapped, dual, _check.WORK_LIMIT)
    options = {"stride": stride, "padding": padding}
    return Operation(title, vkconv.conv_input_grad, (grad, w, shape), options, exact)


def weight_gradient(
    title: str, grad: Array, x: Array, shape: tuple[int, ...], *, stride: int, padding: int
) -> Operation:
    """conv_weight_grad, checked whole."""
    geometry = _geometry(len(shape) - 2, stride, padding)
    kept: list[tuple[Array, Array]] = []

    def exact(dw: Array) -> tuple[Array, Array, Array]:
        if not kept:
            kept.append(_check.exact_weight_grad(grad, x, shape[1:-1], **geometry))
        return (dw, *kept[0])

    options = {"stride": stride, "padding": padding}
    return Operation(title, vkconv.conv_weight_grad, (grad, x, shape), options, exact)
