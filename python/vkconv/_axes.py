"""What is said of each spatial axis: checks of arguments against their number, and extents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vkconv._types import Axes


def per_axis(value: Axes, rank: int, name: str, *, one_for_all: bool = False) -> tuple[int, ...]:
    """One number for each of `rank` axes; `one_for_all`: so is a sequence of one number, as frameworks have it.

    The numbers stay as they are: those of a trace may be symbols.
    """
    if getattr(value, "ndim", None) == 0:  # an array that is a number
        value = value.item()  # type: ignore[union-attr]
    values = tuple(value) if isinstance(value, Iterable) else (value,) * rank
    if one_for_all and len(values) == 1:
        values *= rank
    if len(values) != rank:
        raise ValueError(f"{name} has {_values(len(values))}, wanted an integer or {_values(rank)}")
    return values


def _values(count: int) -> str:
    return f"{count} value{'' if count == 1 else 's'}"


def check_ranks(rank: int, **arrays: Any) -> None:
    """Every array has `rank` spatial axes; the keywords are the names that the error gives."""
    for name, array in arrays.items():
        if array.ndim != rank + 2:
            raise ValueError(f"{name} has {array.ndim} dimensions, wanted {rank + 2}")


def dilated(extent: int, dilation: int) -> int:
    """What so many elements span, `dilation` apart."""
    return (extent - 1) * dilation + 1 if extent else 0


def output_extents(
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    kernel_dilation: Sequence[int],
    input_dilation: Sequence[int],
) -> tuple[int, ...]:
    """Of a convolution, along each spatial axis."""
    axes = zip(spatial, kernel, stride, pads, kernel_dilation, input_dilation, strict=True)
    return tuple((dilated(n, e) + lo + hi - dilated(k, d)) // s + 1 for n, k, s, (lo, hi), d, e in axes)


def transposed_extents(
    spatial: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> tuple[int, ...]:
    """Of a transposed convolution, along each spatial axis."""
    axes = zip(spatial, kernel, stride, pads, dilation, output_padding, strict=True)
    return tuple((n - 1) * s - lo - hi + d * (k - 1) + e + 1 for n, k, s, (lo, hi), d, e in axes)
