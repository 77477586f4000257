"""The windows of a convolution as an array, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vkconv import _core
from vkconv._axes import output_extents
from vkconv._borders import bordered, sources, split
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
    _core.require_array(input, "input")
    if input.ndim not in (3, 4, 5):
        raise ValueError(f"input has {input.ndim} dimensions, wanted 3 to 5")
    rank = input.ndim - 2
    kernel = _core.parsed_axes(kernel, "kernel", rank, 1)
    stride, dilation = _core.parsed_axes(stride, "stride", rank, 1), _core.parsed_axes(dilation, "dilation", rank, 1)
    _core.parsed_border(padding_mode)
    numbers = _core.resolved_pads(input.shape[1:-1], kernel, stride, padding, dilation, pads)
    outputs = output_extents(input.shape[1:-1], kernel, stride, numbers, dilation, (1,) * rank)
    if 0 in outputs:  # a word of padding leaves an empty axis empty
        return np.empty((len(input), *outputs, *kernel, input.shape[-1]), input.dtype)
    border, kept = split(numbers)
    x = bordered(input, border, padding_mode)[kept]
    made: Array = _windows(x, kernel, stride, dilation).copy()  # contiguous ones too, which are read-only
    return made


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
    _core.require_array(windows, "windows")
    if windows.ndim not in (4, 6, 8):
        raise ValueError(f"windows has {windows.ndim} dimensions, wanted 4, 6 or 8: batch, outputs, kernel, channels")
    rank = windows.ndim // 2 - 1
    input_shape = _core.parsed_shape(input_shape, "input_shape", rank + 2)
    kernel = windows.shape[1 + rank : -1]
    if 0 in kernel:
        raise ValueError(f"windows has the kernel {kernel}, wanted at least 1 along each axis")
    stride, dilation = _core.parsed_axes(stride, "stride", rank, 1), _core.parsed_axes(dilation, "dilation", rank, 1)
    mode, _ = _core.parsed_border(padding_mode)
    numbers = _core.resolved_pads(input_shape[1:-1], kernel, stride, padding, dilation, pads)
    axes = list(zip(input_shape[1:-1], numbers, kernel, stride, dilation, strict=True))
    outputs = output_extents(input_shape[1:-1], kernel, stride, numbers, dilation, (1,) * rank)
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


def _windows(x: Array, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """A view (N, output..., kernel..., C) of x."""
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    one_in, taps = ([slice(None, None, step) for step in axes] for axes in (stride, dilation))
    kept = (slice(None), *one_in, slice(None), *taps)
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(1, x.ndim - 1)))
    return np.moveaxis(windows[kept], x.ndim - 1, -1)
