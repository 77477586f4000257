"""Transposed convolutions. Their padding is numbers only: the words have no agreed meaning here."""

from __future__ import annotations

from vkconv import _core
from vkconv._types import Activation, AnyArray, ArrayT, Axes, NumericPadding, Pads, Precision


def conv_transpose(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: NumericPadding = 0,
    dilation: Axes = 1,
    output_padding: Axes = 0,
    groups: int = 1,
    *,
    pads: Pads | None = None,
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Transposed convolution along one, two or three spatial axes.

    Every input element adds ``weight`` times its value to the output, ``stride`` steps from its neighbour's. It is the
    gradient of a convolution with the same stride, padding and dilation with respect to its input.

    Parameters
    ----------
    input : ndarray of shape (N, spatial..., C)
    weight : ndarray of shape (O, kernel..., C / groups)
        Output channels first, as in MLX (PyTorch's transposed weight has the input channels first).
    stride, dilation : int or sequence with one int for each spatial axis
    padding : int, sequence or pair of sequences
        Elements taken away from both ends of the output; more than ``dilation * (kernel - 1)`` is allowed.
    output_padding : int or sequence with one int for each spatial axis
        Elements added at the high end of the output.
    groups : int
    pads, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, spatial..., O)
        Spatial extent ``(input - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1``.

    Examples
    --------
    >>> x, w = np.ones((1, 4, 4, 3), np.float32), np.ones((2, 3, 3, 3), np.float32)
    >>> vkconv.conv_transpose(x, w, stride=2).shape
    (1, 9, 9, 2)
    """
    return _core.conv_transpose(
        0, input, weight, stride, padding, dilation, output_padding, groups,
        pads, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def conv_transpose1d(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: NumericPadding = 0,
    dilation: Axes = 1,
    output_padding: Axes = 0,
    groups: int = 1,
    *,
    pads: Pads | None = None,
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Transposed convolution along one spatial axis.

    See `conv_transpose`.

    Parameters
    ----------
    input : ndarray of shape (N, W, C)
    weight : ndarray of shape (O, KW, C / groups)
        Output channels first, as in MLX (PyTorch's transposed weight has the input channels first).
    stride, dilation : int or sequence of 1 int
    padding : int, sequence or pair of sequences
        Elements taken away from both ends of the output; more than ``dilation * (kernel - 1)`` is allowed.
    output_padding : int or sequence of 1 int
        Elements added at the high end of the output.
    groups : int
    pads, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, W, O)
        Spatial extent ``(input - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1``.

    Examples
    --------
    >>> x, w = np.ones((1, 4, 3), np.float32), np.ones((2, 3, 3), np.float32)
    >>> vkconv.conv_transpose1d(x, w, stride=2).shape
    (1, 9, 2)
    """
    return _core.conv_transpose(
        1, input, weight, stride, padding, dilation, output_padding, groups,
        pads, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def conv_transpose2d(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: NumericPadding = 0,
    dilation: Axes = 1,
    output_padding: Axes = 0,
    groups: int = 1,
    *,
    pads: Pads | None = None,
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Transposed convolution along two spatial axes.

    See `conv_transpose`.

    Parameters
    ----------
    input : ndarray of shape (N, H, W, C)
    weight : ndarray of shape (O, KH, KW, C / groups)
        Output channels first, as in MLX (PyTorch's transposed weight has the input channels first).
    stride, dilation : int or sequence of 2 ints
    padding : int, sequence or pair of sequences
        Elements taken away from both ends of the output; more than ``dilation * (kernel - 1)`` is allowed.
    output_padding : int or sequence of 2 ints
        Elements added at the high end of the output.
    groups : int
    pads, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, H, W, O)
        Spatial extent ``(input - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1``.

    Examples
    --------
    >>> x, w = np.ones((1, 4, 4, 3), np.float32), np.ones((2, 3, 3, 3), np.float32)
    >>> vkconv.conv_transpose2d(x, w, stride=2).shape
    (1, 9, 9, 2)
    """
    return _core.conv_transpose(
        2, input, weight, stride, padding, dilation, output_padding, groups,
        pads, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def conv_transpose3d(
    input: ArrayT,
    weight: AnyArray,
    stride: Axes = 1,
    padding: NumericPadding = 0,
    dilation: Axes = 1,
    output_padding: Axes = 0,
    groups: int = 1,
    *,
    pads: Pads | None = None,
    bias: AnyArray | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Transposed convolution along three spatial axes.

    See `conv_transpose`.

    Parameters
    ----------
    input : ndarray of shape (N, D, H, W, C)
    weight : ndarray of shape (O, KD, KH, KW, C / groups)
        Output channels first, as in MLX (PyTorch's transposed weight has the input channels first).
    stride, dilation : int or sequence of 3 ints
    padding : int, sequence or pair of sequences
        Elements taken away from both ends of the output; more than ``dilation * (kernel - 1)`` is allowed.
    output_padding : int or sequence of 3 ints
        Elements added at the high end of the output.
    groups : int
    pads, bias, activation, precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (N, D, H, W, O)
        Spatial extent ``(input - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1``.

    Examples
    --------
    >>> x, w = np.ones((1, 2, 4, 4, 3), np.float32), np.ones((2, 3, 3, 3, 3), np.float32)
    >>> vkconv.conv_transpose3d(x, w, stride=2).shape
    (1, 5, 9, 9, 2)
    """
    return _core.conv_transpose(
        3, input, weight, stride, padding, dilation, output_padding, groups,
        pads, bias, activation, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip
