"""Convolutions with fixed weights."""

from __future__ import annotations

from vkconv import _core
from vkconv._core import PreparedConv
from vkconv._types import Activation, AnyArray, Axes, NumericPadding, Padding, PaddingMode, Pads, Precision


def prepare(
    weight: AnyArray,
    bias: AnyArray | None = None,
    *,
    stride: Axes = 1,
    padding: Padding = 0,
    kernel_dilation: Axes = 1,
    input_dilation: Axes = 1,
    groups: int = 1,
    flip: bool = False,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
) -> PreparedConv:
    """Make a convolution of ``weight`` and ``bias`` that is called as ``conv(input, out=None, addend=None)``.

    ``addend``, an array of the output's shape in float32 (float64 for float64), is added before the activation: the
    shortcut of a residual block costs no pass of its own.

    Weight and bias are copied, so later changes of the arrays have no effect, and stay on the device in the layouts
    the plans ask for. Inputs may have any batch and any size. The device is chosen now and kept. Calls from many
    threads are safe, and give the same bits as `vkconv.conv_general` with the same arguments.

    Parameters
    ----------
    weight : ndarray of shape (O, kernel..., C / groups)
    bias : ndarray of shape (O,), optional
    stride, padding, kernel_dilation, input_dilation, groups, flip, pads, padding_mode
        As in `vkconv.conv_general`.
    activation, precision, device, algorithm, workspace_limit
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    PreparedConv

    Examples
    --------
    >>> conv = vkconv.prepare(np.ones((4, 3, 3, 3), np.float32), padding='same', activation='relu')
    >>> conv(np.ones((1, 8, 8, 3), np.float32)).shape
    (1, 8, 8, 4)
    >>> conv(np.ones((2, 5, 7, 3), np.float32)).shape
    (2, 5, 7, 4)
    """
    return _core.prepare(
        weight, bias, stride, padding, kernel_dilation, input_dilation, groups, flip, pads, padding_mode, False, 0,
        activation, precision, device, algorithm, workspace_limit,
    )  # fmt: skip


def prepare_transpose(
    weight: AnyArray,
    bias: AnyArray | None = None,
    *,
    stride: Axes = 1,
    padding: NumericPadding = 0,
    dilation: Axes = 1,
    output_padding: Axes = 0,
    groups: int = 1,
    pads: Pads | None = None,
    activation: Activation | None = None,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
) -> PreparedConv:
    """Make a transposed convolution of ``weight`` and ``bias``: `prepare` for `vkconv.conv_transpose`.

    Parameters
    ----------
    weight : ndarray of shape (O, kernel..., C / groups)
    bias : ndarray of shape (O,), optional
    stride, padding, dilation, output_padding, groups, pads
        As in `vkconv.conv_transpose`.
    activation, precision, device, algorithm, workspace_limit
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    PreparedConv

    Examples
    --------
    >>> up = vkconv.prepare_transpose(np.ones((2, 3, 3, 3), np.float32), stride=2)
    >>> up(np.ones((1, 4, 4, 3), np.float32)).shape
    (1, 9, 9, 2)
    """
    return _core.prepare(
        weight, bias, stride, padding, dilation, 1, groups, False, pads, "zeros", True, output_padding,
        activation, precision, device, algorithm, workspace_limit,
    )  # fmt: skip
