"""Convolution, input gradient and weight gradient as three functions of two arrays and a geometry.

Each is linear in both arrays, and the derivatives of each are the other two: adapters for frameworks define gradients
of any order with them. Arrays may have axes of a `vmap` before their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from vkconv import _core
from vkconv._axes import dilated, output_extents
from vkconv._gradients import conv_input_grad, conv_weight_grad
from vkconv._ops import conv_general
from vkconv._types import Array, Axes, NumericPadding, Padding

Pads = tuple[tuple[int, int], ...]


_LEAST_PADDING = -(2**62)  # the core's
_LONG = 2**31  # an extent that every kernel fits


def each(value: Axes, rank: int, name: str, least: int = _LEAST_PADDING) -> tuple[int, ...]:
    """One integer, of `least` or more, for each spatial axis; one in a sequence is all axes', as frameworks have it."""
    if getattr(value, "ndim", None) == 0:  # an array that is a number
        value = value.item()  # type: ignore[union-attr]
    if _is_sequence(value) and len(value) == 1:  # type: ignore[arg-type]
        value = (*value,) * rank  # type: ignore[misc]
    return tuple(_core.parsed_axes(value, name, rank, least))


def _is_sequence(value: object) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _checked_groups(groups: int, flip: bool) -> int:
    if not isinstance(flip, bool):
        raise TypeError(f"flip must be a bool, got {type(flip).__name__}")
    return _core.parsed_axes((groups,), "groups", 1, 1)[0]


@dataclass(frozen=True)
class Geometry:
    """Everything but the arrays, hashable."""

    stride: tuple[int, ...]
    pads: Pads
    kernel_dilation: tuple[int, ...]
    input_dilation: tuple[int, ...]
    groups: int
    flip: bool

    @staticmethod
    def of(
        spatial: Sequence[int], kernel: Sequence[int], stride: Axes, padding: Padding, kernel_dilation: Axes = 1,
        input_dilation: Axes = 1, groups: int = 1, flip: bool = False, pads: Sequence[tuple[int, int]] | None = None,
    ) -> Geometry:  # fmt: skip
        """`pads`, if given, are instead of `padding`. Raises where an axis has no output."""
        rank = len(spatial)
        strides = each(stride, rank, "stride", 1)
        dilations = each(kernel_dilation, rank, "dilation", 1), each(input_dilation, rank, "input_dilation", 1)
        if pads is None and not isinstance(padding, str):
            padding, pads = 0, pairs(padding, rank)
        steps = strides
        if not isinstance(padding, str):  # numbers depend on no extent, which may be a symbol of a trace
            spatial, kernel = (
                [n if isinstance(n, int | np.integer) else other for n in extents]
                for extents, other in ((spatial, _LONG), (kernel, 1))
            )
            steps = (1,) * rank  # longer ones may leave the last elements of a padding unread, which cuts them off
        signal = [dilated(n, e) for n, e in zip(spatial, dilations[1], strict=True)]
        pads = tuple(_core.resolved_pads(signal, kernel, steps, padding, dilations[0], pads))
        return Geometry(strides, pads, *dilations, _checked_groups(groups, flip), flip)

    def outputs(self, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
        """0 along an axis without elements that a word of padding leaves empty."""
        return output_extents(spatial, kernel, self.stride, self.pads, self.kernel_dilation, self.input_dilation)

    @staticmethod
    def transposed(
        spatial: Sequence[int], kernel: Sequence[int], stride: Axes, padding: NumericPadding, dilation: Axes,
        output_padding: Axes, groups: int,
    ) -> Geometry:  # fmt: skip
        """A transposed convolution of these extents is a convolution of the dilated signal with the mirrored kernel."""
        rank = len(kernel)
        dilations, extra = each(dilation, rank, "dilation", 1), each(output_padding, rank, "output_padding", 0)
        if isinstance(padding, str):
            raise ValueError(f"padding is {padding!r}, wanted numbers: a transposed convolution has no named padding")
        given = pairs(padding, rank)
        strides = each(stride, rank, "stride", 1)
        reach = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        for axis, (n, s, r, (lo, hi), e) in enumerate(zip(spatial, strides, reach, given, extra, strict=True)):
            whole = max(n - 1, 0) * s + min(n, 1) + r + e
            if whole - lo - hi < 1:
                sides = f"{lo}" if lo == hi else f"{lo} and {hi}"
                raise ValueError(
                    f"padding {sides} leaves no output along spatial axis {axis}: it is taken from {whole} elements"
                )
        pads = tuple((r - lo, r - hi + e) for r, (lo, hi), e in zip(reach, given, extra, strict=True))
        return Geometry((1,) * rank, pads, dilations, strides, _checked_groups(groups, True), True)


def pairs(padding: NumericPadding, rank: int) -> Pads:
    """Padding in MLX's and vkconv's forms as one pair for each axis."""
    sides: Any = padding if _is_sequence(padding) else ()
    if len(sides) == 0 or not _is_sequence(sides[0]):
        return tuple((p, p) for p in each(padding, rank, "padding"))  # type: ignore[arg-type]
    if len(sides) != 2:
        count = f"{len(sides)} sequence{'' if len(sides) == 1 else 's'}"
        raise ValueError(f"padding has {count}, wanted the pair (lo..., hi...)")
    if not _is_sequence(sides[1]):
        raise TypeError(f"padding must be a pair of sequences (lo..., hi...), got {type(sides[1]).__name__}")
    lo, hi = (each(side, rank, "padding") for side in sides)
    return tuple(zip(lo, hi, strict=True))


@lru_cache(1024)
def check_operands(
    channels: int, weight_shape: tuple[int, ...], dtype: np.dtype[Any], weight_dtype: np.dtype[Any], groups: int
) -> None:
    """Raises what the core does where dtypes and channels do not fit each other, for arrays without values."""
    weight = np.broadcast_to(np.zeros((), weight_dtype), weight_shape)
    one_output = np.broadcast_to(np.zeros((), dtype), (1, *weight_shape[1:-1], channels))
    _core.problem_of(lambda: conv_general(one_output, weight, groups=groups, device="cpu"))


def named(function: Any, name: str, doc: str) -> Any:
    """The function, made for one of several ranks, with its public name, which also takes the place of {} in `doc`."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc.format(name)
    return function


def conv(input: Array, weight: Array, geometry: Geometry) -> Array:
    """`vkconv.conv_general`, for each element of the leading axes."""
    return _mapped(lambda x, w: conv_general(x, w, **vars(geometry)), input, weight, geometry, merge=True)


def input_grad(grad: Array, weight: Array, extents: tuple[int, ...], geometry: Geometry) -> Array:
    """`vkconv.conv_input_grad` for an input of these spatial extents."""
    channels = weight.shape[-1] * geometry.groups

    def one(g: Array, w: Array) -> Array:
        return conv_input_grad(g, w, (g.shape[0], *extents, channels), **vars(geometry))

    return _mapped(one, grad, weight, geometry, merge=True)


def weight_grad(grad: Array, input: Array, extents: tuple[int, ...], geometry: Geometry) -> Array:
    """`vkconv.conv_weight_grad` for a kernel of these extents."""
    shape = (grad.shape[-1], *extents, input.shape[-1] // geometry.groups)
    return _mapped(lambda g, x: conv_weight_grad(g, x, shape, **vars(geometry)), grad, input, geometry, merge=False)


def _mapped(one: Any, a: Array, b: Array, geometry: Geometry, merge: bool) -> Array:
    """Over leading axes, each of which has extent 1 or that of the other array. `merge`: the first axis of `a` is a
    batch, so that leading axes of `a` alone become part of it."""
    own = len(geometry.stride) + 2
    if a.ndim == own and b.ndim == own:
        alone: Array = one(a, b)
        return alone
    leading = np.broadcast_shapes(a.shape[:-own], b.shape[:-own])
    made: Array
    if merge and b.size == np.prod(b.shape[-own:]):
        made = one(a.reshape(-1, *a.shape[-own + 1 :]), b.reshape(b.shape[-own:]))
        return made.reshape(*leading, a.shape[-own], *made.shape[1:])
    whole_a = np.broadcast_to(a, leading + a.shape[-own:])
    whole_b = np.broadcast_to(b, leading + b.shape[-own:])
    made = np.stack([one(whole_a[i], whole_b[i]) for i in np.ndindex(leading)])
    return made.reshape(*leading, *made.shape[1:])
