"""Borders around copies of arrays, for what is no convolution: windows, filters of more than three axes.

The operations read their borders from the input itself, see cpp/core/border.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkconv import _core
from vkconv._types import Array, PaddingMode, PlainPads


def sources(outside: Array, extent: int, name: str, axis: int) -> Array:
    """The elements that those at the indices `outside` an axis of `extent` elements repeat."""
    if len(outside) and extent == 0:
        raise ValueError(f"input has no elements along axis {axis}, of which padding_mode {name!r} could repeat one")
    if name == "edge":
        return np.clip(outside, 0, extent - 1)
    if name == "circular":
        return outside % extent
    # reflect has the period a b c b, symmetric a b c c b a
    period = max(2 * (extent - 1), 1) if name == "reflect" else 2 * extent
    inside = outside % period
    return np.where(inside < extent, inside, period - inside - (name == "symmetric"))


def split(pads: PlainPads) -> tuple[PlainPads, tuple[slice, ...]]:
    """What is added around the spatial axes, and what is kept of the result (all but what negative numbers crop)."""
    border = [(max(lo, 0), max(hi, 0)) for lo, hi in pads]
    kept = [slice(-lo if lo < 0 else None, hi if hi < 0 else None) for lo, hi in pads]
    return border, (slice(None), *kept)


def bordered(input: Array, border: PlainPads, mode: PaddingMode, first_axis: int = 1) -> Array:
    """A copy of `input` with `border` around the axes from `first_axis` on."""
    name, value = _core.parsed_border(mode)
    shape, inner = list(input.shape), [slice(None)] * input.ndim
    for axis, (lo, hi) in enumerate(border, first_axis):
        shape[axis] += lo + hi
        inner[axis] = slice(lo, lo + input.shape[axis])
    if name in ("zeros", "constant"):
        made = np.full(shape, value, input.dtype)
        made[tuple(inner)] = input
        return made
    made = np.empty(shape, input.dtype)
    made[tuple(inner)] = input
    for axis, (lo, hi) in enumerate(border, first_axis):  # the axes before are complete, those after are not
        extent, at, source = input.shape[axis], list[Any](inner), list[Any](inner)
        outside = np.concatenate([np.arange(-lo, 0), np.arange(extent, extent + hi)])
        at[axis], source[axis] = lo + outside, lo + sources(outside, extent, name, axis)
        made[tuple(at)] = made[tuple(source)]
        inner[axis] = slice(None)
    return made
