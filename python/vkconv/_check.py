"""Answers of a convolution in fp64 by the definition, for whoever wants to check a result: the demo, the bench.

The sum is written over taps: every tap adds one matrix product of shifted pixels and weights. Only the output pixels
of a grid are computed, all of them or the corners and a random choice, so an array of any size can be checked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Grid = tuple[npt.NDArray[np.int64], ...]
Taps = Iterator[tuple[tuple[int, ...], Array]]

WORK_LIMIT = 3e8  # multiply-adds that a check may cost: about a second


def grid(extents: Sequence[int], limit: float, seed: int = 0) -> Grid:
    """At most `limit` output pixels as one list of coordinates an axis: all, or the ends and random ones between."""
    rng = np.random.default_rng(seed)
    counts = list(extents)
    while math.prod(counts) > max(limit, 2 ** len(counts)) and max(counts) > 2:
        counts[int(np.argmax(counts))] = max(2, max(counts) // 2)
    axes = []
    for extent, count in zip(extents, counts, strict=True):
        if count == extent:
            axes.append(np.arange(extent, dtype=np.int64))
        else:
            inner = rng.choice(np.arange(1, extent - 1), size=count - 2, replace=False)
            axes.append(np.sort(np.concatenate([[0], inner, [extent - 1]])).astype(np.int64))
    return tuple(axes)


class Geometry(NamedTuple):
    """The keyword arguments of conv_general, one value an axis."""

    stride: Sequence[int]
    pads: Sequence[tuple[int, int]]
    kernel_dilation: Sequence[int]
    input_dilation: Sequence[int]
    groups: int
    flip: bool


def _shifted_pixels(x: Array, extents: Sequence[int], where: Grid, g: Geometry) -> Taps:
    """Each tap of the weight with the input pixels it meets on the grid, zero where it meets none."""
    for tap in itertools.product(*(range(k) for k in extents)):
        index, inside = [], []
        for a, position in enumerate(where):
            q = position * g.stride[a] + tap[a] * g.kernel_dilation[a] - g.pads[a][0]
            at = q // g.input_dilation[a]
            inside.append((q % g.input_dilation[a] == 0) & (at >= 0) & (at < x.shape[1 + a]))
            index.append(np.clip(at, 0, max(x.shape[1 + a] - 1, 0)))
        if not all(mask.any() for mask in inside):
            continue
        pixels = x[np.ix_(np.arange(x.shape[0]), *index)].astype(np.float64)
        mask = inside[0]
        for other in inside[1:]:
            mask = mask[..., None] & other
        of_weight = tuple(k - 1 - t for t, k in zip(tap, extents, strict=True)) if g.flip else tap
        yield of_weight, np.where(mask[None, ..., None], pixels, 0.0)


def exact(x: Array, w: Array, where: Grid, **geometry: Any) -> tuple[Array, Array]:
    """The output on the grid in fp64, and the sums of |x||w| that scale its rounding error."""
    g = Geometry(**geometry)
    shape = (x.shape[0], *(len(p) for p in where))
    y = np.zeros((g.groups, math.prod(shape), w.shape[0] // g.groups))
    magnitude = np.zeros_like(y)
    for tap, pixels in _shifted_pixels(x, w.shape[1:-1], where, g):
        at: tuple[Any, ...] = (slice(None), *tap)
        weight = w[at].astype(np.float64).reshape(g.groups, y.shape[2], w.shape[-1]).swapaxes(1, 2)
        columns = np.ascontiguousarray(pixels.reshape(math.prod(shape), g.groups, w.shape[-1]).swapaxes(0, 1))
        y += columns @ weight
        magnitude += np.abs(columns) @ np.abs(weight)
    return _ungroup(y, shape), _ungroup(magnitude, shape)


def input_grad_problem(
    w: Array, grad_extents: Sequence[int], extents: Sequence[int], **geometry: Any
) -> tuple[Array, dict[str, Any]]:
    """The weight and the geometry by which the gradient of an input of these extents is a convolution of the output's.

    Input and output channels of each group change places, as do stride and input dilation.
    """
    g = Geometry(**geometry)
    rank = len(extents)
    reach = [(k - 1) * d for k, d in zip(w.shape[1:-1], g.kernel_dilation, strict=True)]
    low = [r - lo for r, (lo, _) in zip(reach, g.pads, strict=True)]
    read = [(n - 1) * t + 1 + r for n, t, r in zip(extents, g.input_dilation, reach, strict=True)]
    high = [n - (e - 1) * s - 1 - lo for n, e, s, lo in zip(read, grad_extents, g.stride, low, strict=True)]
    by_group = np.swapaxes(w.reshape(g.groups, w.shape[0] // g.groups, *w.shape[1:]), 1, -1)
    dual = g._replace(
        stride=g.input_dilation, input_dilation=g.stride, pads=list(zip(low, high, strict=True)), flip=not g.flip
    )
    return by_group.reshape(-1, *by_group.shape[2 : 2 + rank], by_group.shape[-1]), dual._asdict()


def exact_weight_grad(grad: Array, x: Array, extents: Sequence[int], **geometry: Any) -> tuple[Array, Array]:
    """The gradient of a weight with kernels of these extents in fp64, and its sums of |grad||x|."""
    g = Geometry(**geometry)
    where: Grid = tuple(np.arange(n, dtype=np.int64) for n in grad.shape[1:-1])
    outputs, inputs = grad.shape[-1] // g.groups, x.shape[-1] // g.groups
    rows = np.moveaxis(grad.astype(np.float64).reshape(-1, g.groups, outputs), 0, 2)
    dw = np.zeros((g.groups, outputs, *extents, inputs))
    magnitude = np.zeros_like(dw)
    for tap, pixels in _shifted_pixels(x, extents, where, g):
        columns = np.moveaxis(pixels.reshape(-1, g.groups, inputs), 1, 0)
        at: tuple[Any, ...] = (slice(None), slice(None), *tap)
        dw[at] = rows @ columns
        magnitude[at] = np.abs(rows) @ np.abs(columns)
    shape = (grad.shape[-1], *extents, inputs)
    return dw.reshape(shape), magnitude.reshape(shape)


def relative_error(y: Array, y64: Array, magnitude: Array) -> float:
    """The largest |y - y64| / sum |x||w|; infinite when y holds anything but finite numbers."""
    if y.size == 0:
        return 0.0
    difference = np.abs(y.astype(np.float64) - y64)
    if not np.isfinite(difference).all():
        return math.inf
    return float(np.max(difference / np.maximum(magnitude, np.finfo(np.float64).tiny)))


def tolerance(dtype_name: str) -> float:
    """What relative_error may reach: 64 units of roundoff of the fp32 sums, and one rounding to a 16-bit output."""
    roundoff = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype_name]
    sums = 64 * min(roundoff, 2.0**-24)
    return sums if roundoff <= 2.0**-24 else sums + roundoff


def check(y: Array, x: Array, w: Array, *, work: float = WORK_LIMIT, **geometry: Any) -> float:
    """relative_error of a convolution's output, over as many of its pixels as `work` multiply-adds allow.

    `geometry` is that of Geometry.
    """
    cost_of_pixel = max(1, math.prod(w.shape) * y.shape[0])
    where = grid(y.shape[1:-1], work / cost_of_pixel)
    y64, magnitude = exact(x, w, where, **geometry)
    return relative_error(y[np.ix_(np.arange(y.shape[0]), *where)], y64, magnitude)


def _ungroup(y: Array, shape: tuple[int, ...]) -> Array:
    return np.reshape(y.swapaxes(0, 1), (*shape, y.shape[0] * y.shape[2]))
