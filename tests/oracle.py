"""Convolution in double precision, straight from its definition and independent of vkconv's code.

Layouts are vkconv's: input (N, *space, C), weight (O, *kernel, C/groups), output (N, *out, O). Everything is NumPy,
one multiply of whole slices a kernel tap. Taps that fall on padding or between dilated elements are never touched, so
an infinite weight over padding contributes nothing.

Two formulations that share no index algebra:
  `conv_general` gathers: which inputs an output reads; `conv_transpose` scatters: which outputs an input reaches.
The gradients are the exact adjoints of the gather.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
Pads = Sequence[tuple[int, int]]


def f64(a: Any) -> Array:
    """The same numbers as doubles, in a fresh contiguous array of the native byte order."""
    return np.array(a, dtype=np.float64, order="C")


def per_axis(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    return (int(value),) * rank if np.ndim(value) == 0 else tuple(int(v) for v in value)


def pad_pairs(padding: int | Sequence[int] | Pads, rank: int) -> list[tuple[int, int]]:
    """`padding` as one (lo, hi) an axis; a number or one number an axis is symmetric."""
    if np.ndim(padding) == 2:
        return [(int(lo), int(hi)) for lo, hi in padding]
    return [(p, p) for p in per_axis(padding, rank)]


def dilated(extent: int, dilation: int) -> int:
    return (extent - 1) * dilation + 1 if extent > 0 else 0


def output_extent(
    n_in: int, kernel: int, stride: int, dilation: int, input_dilation: int, pads: tuple[int, int]
) -> int:
    return (dilated(n_in, input_dilation) + sum(pads) - dilated(kernel, dilation)) // stride + 1


def named_pads(
    mode: str, space: Sequence[int], kernel: Sequence[int], stride: Any = 1, dilation: Any = 1, input_dilation: Any = 1
) -> list[tuple[int, int]]:
    """'valid', 'full', 'same' / 'same_lower': the least padding with ceil(extent / stride) outputs, the odd element
    behind or in front, and 'causal': all in front along the first axis, 'same' along the others."""
    rank, pairs = len(space), []
    for n, k, s, d, t in zip(
        space, kernel, per_axis(stride, rank), per_axis(dilation, rank), per_axis(input_dilation, rank), strict=True
    ):
        size, reach = dilated(n, t), (k - 1) * d
        total = max((math.ceil(size / s) - 1) * s + reach + 1 - size, 0)
        same = (total // 2, total - total // 2)
        pairs.append(
            {
                "valid": (0, 0),
                "full": (reach, reach),
                "causal": same if pairs else (reach, 0),
                "same": same,
                "same_lower": same[::-1],
            }[mode]
        )
    return pairs


def progression(n_in: int, n_out: int, stride: int, offset: int, step_in: int) -> tuple[slice, slice] | None:
    """All (o, i) with o * stride + offset == i * step_in inside [0, n_out) x [0, n_in), as slices of each."""
    g = math.gcd(stride, step_in)
    if offset % g:
        return None
    period = step_in // g
    first = -(offset // g) * pow(stride // g, -1, period) % period if period > 1 else 0
    low = max(0, -(offset // stride))  # least o whose position is not negative
    first += -((first - low) // period) * period
    last = min(n_out - 1, ((n_in - 1) * step_in - offset) // stride)
    if first > last:
        return None
    count = (last - first) // period + 1
    i = (first * stride + offset) // step_in
    i_step = period * stride // step_in
    return slice(first, last + 1, period), slice(i, i + (count - 1) * i_step + 1, i_step)


Tap = tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]]


def taps(
    space: Sequence[int],
    kernel: Sequence[int],
    out: Sequence[int],
    stride: Any,
    pads: Pads,
    dilation: Any,
    input_dilation: Any,
    flip: bool,
) -> Iterator[Tap]:
    """Every kernel position with the outputs it contributes to and the inputs it reads there."""
    rank = len(space)
    axes = []
    for n, k, o, s, (lo, _), d, t in zip(
        space,
        kernel,
        out,
        per_axis(stride, rank),
        pads,
        per_axis(dilation, rank),
        per_axis(input_dilation, rank),
        strict=True,
    ):
        pairs = ((k - 1 - i if flip else i, progression(n, o, s, i * d - lo, t)) for i in range(k))
        axes.append([(i, *pair) for i, pair in pairs if pair])
    for chosen in itertools.product(*axes):
        yield tuple(c[0] for c in chosen), tuple(c[1] for c in chosen), tuple(c[2] for c in chosen)


def grouped(a: Array, groups: int) -> Array:
    """(..., channels) as (groups, pixels, channels / groups)."""
    return a.reshape(math.prod(a.shape[:-1]), groups, a.shape[-1] // groups).transpose(1, 0, 2)


def ungrouped(a: Array, shape: Sequence[int]) -> Array:
    return a.transpose(1, 0, 2).reshape(*shape, a.shape[0] * a.shape[2])


def at_tap(w: Array, tap: tuple[int, ...], groups: int) -> Array:
    """One tap of the weight as (groups, O / groups, C / groups)."""
    plane = w[(slice(None), *tap)]
    return plane.reshape(groups, w.shape[0] // groups, w.shape[-1])


def conv_general(
    x: Array,
    w: Array,
    stride: Any = 1,
    padding: Any = 0,
    kernel_dilation: Any = 1,
    input_dilation: Any = 1,
    groups: int = 1,
    flip: bool = False,
    *,
    bias: Array | None = None,
) -> Array:
    x, w = f64(x), f64(w)
    space, kernel, rank = x.shape[1:-1], w.shape[1:-1], x.ndim - 2
    pads, t = pad_pairs(padding, rank), per_axis(input_dilation, rank)
    out = tuple(map(output_extent, space, kernel, per_axis(stride, rank), per_axis(kernel_dilation, rank), t, pads))
    if min(out) <= 0:
        raise ValueError(f"output extents {out}")
    y = np.zeros((x.shape[0], *out, w.shape[0]))
    with np.errstate(all="ignore"):
        for tap, o, i in taps(space, kernel, out, stride, pads, kernel_dilation, t, flip):
            part = x[(slice(None), *i)]
            product = grouped(part, groups) @ at_tap(w, tap, groups).transpose(0, 2, 1)
            y[(slice(None), *o)] += ungrouped(product, part.shape[:-1])
        return y if bias is None else y + f64(bias)


def conv_input_grad(
    grad: Array,
    w: Array,
    input_shape: Sequence[int],
    stride: Any = 1,
    padding: Any = 0,
    kernel_dilation: Any = 1,
    input_dilation: Any = 1,
    groups: int = 1,
    flip: bool = False,
) -> Array:
    grad, w = f64(grad), f64(w)
    pads = pad_pairs(padding, grad.ndim - 2)
    dx = np.zeros(tuple(input_shape))
    with np.errstate(all="ignore"):
        for tap, o, i in taps(
            input_shape[1:-1], w.shape[1:-1], grad.shape[1:-1], stride, pads, kernel_dilation, input_dilation, flip
        ):
            part = grad[(slice(None), *o)]
            dx[(slice(None), *i)] += ungrouped(grouped(part, groups) @ at_tap(w, tap, groups), part.shape[:-1])
    return dx


def conv_weight_grad(
    grad: Array,
    x: Array,
    weight_shape: Sequence[int],
    stride: Any = 1,
    padding: Any = 0,
    kernel_dilation: Any = 1,
    input_dilation: Any = 1,
    groups: int = 1,
    flip: bool = False,
) -> Array:
    grad, x = f64(grad), f64(x)
    pads = pad_pairs(padding, grad.ndim - 2)
    dw = np.zeros(tuple(weight_shape))
    with np.errstate(all="ignore"):
        for tap, o, i in taps(
            x.shape[1:-1], weight_shape[1:-1], grad.shape[1:-1], stride, pads, kernel_dilation, input_dilation, flip
        ):
            g = grouped(grad[(slice(None), *o)], groups)
            product = g.transpose(0, 2, 1) @ grouped(x[(slice(None), *i)], groups)
            dw[(slice(None), *tap)] = product.reshape(weight_shape[0], weight_shape[-1])
    return dw


def conv_bias_grad(grad: Array) -> Array:
    return f64(grad).sum(axis=tuple(range(grad.ndim - 1)))


def conv_transpose(
    x: Array,
    w: Array,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    output_padding: Any = 0,
    groups: int = 1,
    *,
    bias: Array | None = None,
) -> Array:
    """Every input element adds its multiple of the kernel to the outputs it reaches that the padding leaves."""
    x, w = f64(x), f64(w)
    rank, n, o_channels = x.ndim - 2, x.shape[0], w.shape[0]
    s, p, d, e = (per_axis(v, rank) for v in (stride, padding, dilation, output_padding))
    space, kernel = x.shape[1:-1], w.shape[1:-1]
    out = tuple(dilated(space[a], s[a]) + (kernel[a] - 1) * d[a] - 2 * p[a] + e[a] for a in range(rank))
    y = np.zeros((n, *out, o_channels))
    with np.errstate(all="ignore"):
        for tap in itertools.product(*map(range, kernel)):
            reached = [landing(space[a], out[a], s[a], tap[a] * d[a] - p[a]) for a in range(rank)]
            part = x[(slice(None), *(source for source, _ in reached))]
            product = grouped(part, groups) @ at_tap(w, tap, groups).transpose(0, 2, 1)
            y[(slice(None), *(target for _, target in reached))] += ungrouped(product, part.shape[:-1])
    return y if bias is None else y + f64(bias)


def landing(n_in: int, n_out: int, stride: int, offset: int) -> tuple[slice, slice]:
    """The i in [0, n_in) whose i * stride + offset is in [0, n_out), and these, as slices."""
    first = max(0, math.ceil(-offset / stride))
    end = max(first, min(n_in, math.ceil((n_out - offset) / stride)))
    start = first * stride + offset
    return slice(first, end), slice(start, start + (end - first) * stride, stride)


def border_sources(shape: Sequence[int], pads: Pads, mode: str) -> Array:
    """For each element of an input of this shape with a border around its spatial axes, the flat index of the one that
    it repeats: -1 for a constant. What negative numbers crop still counts as an element that the border repeats."""
    axes = [np.arange(shape[0])]
    for n, (lo, hi) in zip(shape[1:-1], pads, strict=True):
        i = np.arange(-lo, n + hi)
        mirrored, again = i % (2 * n), i % max(2 * n - 2, 1)
        axes.append(
            {
                "edge": np.clip(i, 0, n - 1),
                "circular": i % n,
                "symmetric": np.minimum(mirrored, 2 * n - 1 - mirrored),
                "reflect": np.minimum(again, 2 * n - 2 - again),
                "constant": np.where((i >= 0) & (i < n), i, -1),
            }[mode]
        )
    grid = np.ix_(*axes, np.arange(shape[-1]))
    flat = np.zeros((), int)
    for n, index in zip(shape, grid, strict=True):
        flat = flat * n + index
    return np.where(np.logical_or.reduce(np.broadcast_arrays(*(g < 0 for g in grid))), -1, flat)


def bordered(x: Array, sources: Array, constant: float = 0.0) -> Array:
    return np.append(f64(x).ravel(), constant)[sources]


def border_adjoint(grad: Array, sources: Array, shape: Sequence[int]) -> Array:
    """What falls on the border is added to the element that it repeats."""
    sums = np.zeros(math.prod(shape) + 1)
    with np.errstate(invalid="ignore"):
        np.add.at(sums, sources, grad)
    return sums[:-1].reshape(shape)


def magnitude(
    op: Callable[..., Array], a: Array, b: Array, *args: Any, bias: Array | None = None, **kwargs: Any
) -> Array:
    """The sum of |x||w| behind every element that `op(a, b, ...)` returns."""
    if bias is not None:
        kwargs["bias"] = np.abs(f64(bias))
    return op(np.abs(f64(a)), np.abs(f64(b)), *args, **kwargs)


def activate(y: Array, name: str | None, alpha: float = 0.0, beta: float = 0.0) -> Array:
    """The fused activations; `alpha` is the slope of leaky_relu or the lower bound of clip, `beta` its upper bound."""
    with np.errstate(all="ignore"):
        if name in (None, "identity"):
            return y
        if name == "gelu":
            return 0.5 * y * (1 + np.vectorize(math.erf, otypes=[float])(y / math.sqrt(2)))
        sigmoid = 1 / (1 + np.exp(-y))
        return {
            "relu": np.maximum(y, 0),
            "relu6": np.clip(y, 0, 6),
            "leaky_relu": np.where(y < 0, alpha * y, y),
            "silu": y * sigmoid,
            "sigmoid": sigmoid,
            "tanh": np.tanh(y),
            "hardswish": y * np.clip(y + 3, 0, 6) / 6,
            "clip": np.clip(y, alpha, beta),
        }[name]
