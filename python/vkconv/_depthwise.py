"""Depthwise convolutions."""

from __future__ import annotations

from vkconv import _core
from vkconv._types import Activation, AnyArray, ArrayT, Axes, Padding, PaddingMode, Pads, Precision


def depthwise_conv(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Convolve every channel with its own kernels, along one, two or three spatial axes.

    Parameters
    ----------
    input : ndarray of shape (N, spatial..., C)
    weight : ndarray of shape (C * multiplier, kernel..., 1)
        Output channel ``c * multiplier + m`` is input channel ``c`` convolved with ``weight[c * multiplier + m]``.
    stride, dilation : int or sequence with one int for each spatial axis
    padding, pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, spatial..., C * multiplier)

    Examples
    --------
    >>> x, w = np.ones((1, 8, 8, 3), np.float32), np.ones((6, 3, 3, 1), np.float32)
    >>> vkconv.depthwise_conv(x, w, padding=1).shape
    (1, 8, 8, 6)
    """
    return _core.depthwise_conv(
        0, input, weight, stride, padding, dilation,
        pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def depthwise_conv1d(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Convolve every channel with its own kernels, along one spatial axis.

    Parameters
    ----------
    input : ndarray of shape (N, W, C)
    weight : ndarray of shape (C * multiplier, KW, 1)
        Output channel ``c * multiplier + m`` is input channel ``c`` convolved with ``weight[c * multiplier + m]``.
    stride, dilation : int or sequence of 1 int
    padding, pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, W, C * multiplier)

    Examples
    --------
    >>> x, w = np.ones((1, 8, 3), np.float32), np.ones((6, 3, 1), np.float32)
    >>> vkconv.depthwise_conv1d(x, w, padding=1).shape
    (1, 8, 6)
    """
    return _core.depthwise_conv(
        1, input, weight, stride, padding, dilation,
        pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def depthwise_conv2d(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Convolve every channel with its own kernels, along two spatial axes.

    Parameters
    ----------
    input : ndarray of shape (N, H, W, C)
    weight : ndarray of shape (C * multiplier, KH, KW, 1)
        Output channel ``c * multiplier + m`` is input channel ``c`` convolved with ``weight[c * multiplier + m]``.
    stride, dilation : int or sequence of 2 ints
    padding, pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, H, W, C * multiplier)

    Examples
    --------
    >>> x, w = np.ones((1, 8, 8, 3), np.float32), np.ones((6, 3, 3, 1), np.float32)
    >>> vkconv.depthwise_conv2d(x, w, padding=1).shape
    (1, 8, 8, 6)
    """
    return _core.depthwise_conv(
        2, input, weight, stride, padding, dilation,
        pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def depthwise_conv3d(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Convolve every channel with its own kernels, along three spatial axes.

    Parameters
    ----------
    input : ndarray of shape (N, D, H, W, C)
    weight : ndarray of shape (C * multiplier, KD, KH, KW, 1)
        Output channel ``c * multiplier + m`` is input channel ``c`` convolved with ``weight[c * multiplier + m]``.
    stride, dilation : int or sequence of 3 ints
    padding, pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, D, H, W, C * multiplier)

    Examples
    --------
    >>> x, w = np.ones((1, 4, 8, 8, 3), np.float32), np.ones((6, 3, 3, 3, 1), np.float32)
    >>> vkconv.depthwise_conv3d(x, w, padding=1).shape
    (1, 4, 8, 8, 6)
    """
    return _core.depthwise_conv(
        3, input, weight, stride, padding, dilation,
        pads, padding_mode, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip
