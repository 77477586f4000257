"""The windows of a convolution as an array, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vkconv import _core
from vkconv._axes import per_axis
from vkconv._borders import add, parse, sources
from vkconv._types import Array, Axes, Padding, PaddingMode, Pads


def unfold(
    input: Array,
    kernel: Axes,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
) -> Array:
    """Gather the window of every output of a convolution.

    Parameters
    ----------
    input : ndarray of shape (N, spatial..., C)
    kernel, stride, dilation : int or sequence with one int for each spatial axis
    padding, pads, padding_mode
        As in `conv_general`.

    Returns
    -------
    ndarray of shape (N, output..., kernel..., C)

    Examples
    --------
    >>> vkconv.unfold(np.arange(4.0).reshape(1, 4, 1), 2)[0, :, :, 0]
    array([[0., 1.],
           [1., 2.],
           [2., 3.]])
    """
    if not isinstance(input, np.ndarray):
        raise TypeError(f"input must be a NumPy array, got {type(input).__name__}")
    rank = _checked_rank(input.ndim, "input")
    kernel = per_axis(kernel, rank, "kernel")
    stride, dilation = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    x = add(input, kernel, stride, padding, dilation, pads, padding_mode)
    return np.ascontiguousarray(_windows(x, kernel, stride, dilation))


def fold(
    windows: Array,
    input_shape: Sequence[int],
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
) -> Array:
    """Add windows up where they were gathered: the adjoint of `unfold`.

    Parameters
    ----------
    windows : ndarray of shape (N, output..., kernel..., C)
    input_shape : sequence of int
        (N, spatial..., C).
    stride, padding, dilation, pads, padding_mode
        As in the call of `unfold`.

    Returns
    -------
    ndarray of shape input_shape

    Examples
    --------
    >>> vkconv.fold(np.ones((1, 3, 2, 1)), (1, 4, 1))[0, :, 0]
    array([1., 2., 2., 1.])
    """
    rank = _checked_rank(len(input_shape), "input_shape")
    if windows.ndim != 2 * rank + 2:
        raise ValueError(f"windows has {windows.ndim} dimensions, wanted {2 * rank + 2} for the input_shape")
    kernel = windows.shape[1 + rank : -1]
    stride, dilation = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    mode, _ = parse(padding_mode)
    numbers = _core.resolved_pads(tuple(input_shape)[1:-1], kernel, stride, padding, dilation, pads)
    axes = list(zip(input_shape[1:-1], numbers, kernel, stride, dilation, strict=True))
    outputs = [(n + lo + hi - d * (k - 1) - 1) // s + 1 for n, (lo, hi), k, s, d in axes]
    wanted = (input_shape[0], *outputs, *kernel, input_shape[-1])
    if windows.shape != wanted:
        raise ValueError(f"windows has shape {windows.shape}, wanted {wanted}")
    sums = windows.astype(np.result_type(windows, np.float32)) if windows.itemsize < 4 else windows
    for a, (extent, (lo, _), k, s, d) in reversed(list(enumerate(axes))):
        sums = _added(sums, 1 + a, 1 + rank + a, extent, range(-lo, k * d - lo, d), s, mode)
    return sums.astype(windows.dtype, copy=False)


def _added(windows: Array, axis: int, taps: int, extent: int, starts: Sequence[int], stride: int, mode: str) -> Array:
    """Windows added up along one axis. Tap k of output i was gathered `starts[k] + i stride` after the first of
    `extent` elements, or is what repeats one of them there."""
    line = np.moveaxis(windows, (axis, taps), (0, 1))
    shape = [extent if a == axis else n for a, n in enumerate(windows.shape) if a != taps]
    made = np.zeros(shape, windows.dtype)
    target = np.moveaxis(made, axis, 0)
    for k, start in enumerate(starts):
        places = start + np.arange(len(line)) * stride
        begin, end = np.searchsorted(places, (0, extent))
        target[start + begin * stride : start + end * stride : stride] += line[begin:end, k]
        if mode not in ("zeros", "constant"):
            outside = np.r_[:begin, end : len(line)]
            for i, source in zip(outside, sources(places[outside], extent, mode, axis), strict=True):
                target[source] += line[i, k]
    return made


def _checked_rank(dimensions: int, name: str) -> int:
    """The spatial axes of an array with as many dimensions."""
    if dimensions not in (3, 4, 5):
        raise ValueError(f"{name} has {dimensions} dimensions, wanted 3 to 5")
    return dimensions - 2


def _windows(x: Array, kernel: Axes, stride: Axes, dilation: Axes) -> Array:
    """A view (N, output..., kernel..., C) of x."""
    axes = list(zip(x.shape[1:-1], x.strides[1:-1], kernel, stride, dilation, strict=True))  # type: ignore[arg-type]
    output = tuple((n - d * (k - 1) - 1) // s + 1 for n, _, k, s, d in axes)
    shape = (x.shape[0], *output, *(a[2] for a in axes), x.shape[-1])
    strides = (x.strides[0], *(b * s for _, b, _, s, _ in axes), *(b * d for _, b, _, _, d in axes), x.strides[-1])
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)
