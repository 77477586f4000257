"""The windows of a convolution as an array, and back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from vkconv._axes import per_axis
from vkconv._borders import Adjoint, add
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
    return np.ascontiguousarray(_windows(x, kernel, stride, dilation, writeable=False))


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
    adjoint = Adjoint(input_shape, kernel, stride, padding, dilation, pads, padding_mode)
    sums = np.zeros(adjoint.shape, np.result_type(windows, np.float32) if windows.itemsize < 4 else windows.dtype)
    places = _windows(sums, kernel, stride, dilation, writeable=True)
    if places.shape != windows.shape:
        raise ValueError(f"windows has shape {windows.shape}, wanted {places.shape}")
    for tap in itertools.product(*map(range, kernel)):
        at = (slice(None),) * (1 + rank) + tap
        places[at] += windows[at]  # the windows of one tap share no element
    made: Array = adjoint(sums).astype(windows.dtype, copy=False)
    return made


def _checked_rank(dimensions: int, name: str) -> int:
    """The spatial axes of an array with as many dimensions."""
    if dimensions not in (3, 4, 5):
        raise ValueError(f"{name} has {dimensions} dimensions, wanted 3 to 5")
    return dimensions - 2


def _windows(x: Array, kernel: Axes, stride: Axes, dilation: Axes, writeable: bool) -> Array:
    """A view (N, output..., kernel..., C) of x."""
    axes = list(zip(x.shape[1:-1], x.strides[1:-1], kernel, stride, dilation, strict=True))  # type: ignore[arg-type]
    output = tuple((n - d * (k - 1) - 1) // s + 1 for n, _, k, s, d in axes)
    shape = (x.shape[0], *output, *(a[2] for a in axes), x.shape[-1])
    strides = (x.strides[0], *(b * s for _, b, _, s, _ in axes), *(b * d for _, b, _, _, d in axes), x.strides[-1])
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=writeable)
