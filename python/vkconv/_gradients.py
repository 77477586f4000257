"""Gradients of `vkconv.conv_general` with respect to input, weight and bias.

They take the forward convolution's geometry and the shapes it had. Gradients of the other operations follow: conv1d,
conv2d and conv3d call ``kernel_dilation`` ``dilation``, a depthwise convolution has ``groups=C``.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkconv import _core
from vkconv._types import AnyArray, ArrayT, Axes, Padding, PaddingMode, Pads, Precision


def conv_input_grad(
    grad: ArrayT,
    weight: AnyArray,
    input_shape: Sequence[int],
    stride: Axes = 1,
    padding: Padding = 0,
    kernel_dilation: Axes = 1,
    input_dilation: Axes = 1,
    groups: int = 1,
    flip: bool = False,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Gradient with respect to the input.

    Parameters
    ----------
    grad : ndarray of shape (N, spatial..., O)
        Gradient with respect to the convolution's output.
    weight : ndarray of shape (O, kernel..., C / groups)
    input_shape : sequence of int
        (N, spatial..., C). Several input extents can have the same output extent, so it must be said.
    stride, padding, kernel_dilation, input_dilation, groups, flip, pads, padding_mode
        As in the forward call.
    precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape input_shape

    Raises
    ------
    ValueError
        When ``grad`` does not have the shape of the output.

    Examples
    --------
    >>> w = np.ones((4, 3, 3, 3), np.float32)
    >>> vkconv.conv_input_grad(np.ones((1, 4, 4, 4), np.float32), w, (1, 8, 8, 3), stride=2, padding=1).shape
    (1, 8, 8, 3)
    """
    return _core.conv_input_grad(
        grad, weight, input_shape, stride, padding, kernel_dilation, input_dilation, groups, flip,
        pads, padding_mode, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def conv_weight_grad(
    grad: ArrayT,
    input: AnyArray,
    weight_shape: Sequence[int],
    stride: Axes = 1,
    padding: Padding = 0,
    kernel_dilation: Axes = 1,
    input_dilation: Axes = 1,
    groups: int = 1,
    flip: bool = False,
    *,
    pads: Pads | None = None,
    padding_mode: PaddingMode = "zeros",
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Gradient with respect to the weight.

    Parameters
    ----------
    grad : ndarray of shape (N, spatial..., O)
        Gradient with respect to the convolution's output.
    input : ndarray of shape (N, spatial..., C)
    weight_shape : sequence of int
        (O, kernel..., C / groups).
    stride, padding, kernel_dilation, input_dilation, groups, flip, pads, padding_mode
        As in the forward call.
    precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape weight_shape

    Raises
    ------
    ValueError
        When ``grad`` does not have the shape of the output.

    Examples
    --------
    >>> x, g = np.ones((1, 8, 8, 3), np.float32), np.ones((1, 8, 8, 4), np.float32)
    >>> vkconv.conv_weight_grad(g, x, (4, 3, 3, 3), padding=1).shape
    (4, 3, 3, 3)
    """
    return _core.conv_weight_grad(
        grad, input, weight_shape, stride, padding, kernel_dilation, input_dilation, groups, flip,
        pads, padding_mode, precision, device, algorithm, workspace_limit, out,
    )  # fmt: skip


def conv_bias_grad(
    grad: ArrayT,
    *,
    precision: Precision | None = None,
    device: str | None = None,
    algorithm: str | None = None,
    workspace_limit: int | None = None,
    out: ArrayT | None = None,
) -> ArrayT:
    """Gradient with respect to the bias: the sum over batch and spatial axes.

    Parameters
    ----------
    grad : ndarray of shape (N, spatial..., O)
    precision, device, algorithm, workspace_limit, out
        As in every operation, see `help(vkconv)`.

    Returns
    -------
    ndarray of shape (O,)

    Examples
    --------
    >>> vkconv.conv_bias_grad(np.ones((2, 8, 3), np.float32))
    array([16., 16., 16.], dtype=float32)
    """
    return _core.conv_bias_grad(grad, precision, device, algorithm, workspace_limit, out)
