"""The operators `vkconv::conv`, `vkconv::conv_input_grad` and `vkconv::conv_weight_grad` of PyTorch.

Each is registered with a fake, by the rules of _shapes.py, so that torch.compile can trace it; their derivatives are in
_autograd.py. Shapes are PyTorch's, (N, C, spatial...) and (O, C / groups, kernel...); every result but the weight
gradient has the memory format `channels_last`. `pads` are the low sides of all spatial axes, then the high sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vkconv
from vkconv._axes import transposed_extents
from vkconv._types import Array
from vkconv.torch import _shapes
from vkconv.torch._arrays import channels_first, channels_last, side_by_side, to_array


def _geometry(stride: Sequence[int], pads: Sequence[int], dilation: Sequence[int], groups: int) -> dict[str, Any]:
    rank = len(stride)
    return {
        "stride": tuple(stride),
        "pads": list(zip(pads[:rank], pads[rank:], strict=True)),
        "kernel_dilation": tuple(dilation),
        "groups": groups,
    }


def empty_channels_last(like: Tensor, batch: int, spatial: Sequence[int], channels: int) -> Tensor:
    return like.new_empty((batch, *spatial, channels)).movedim(-1, 1)


@torch.library.custom_op("vkconv::conv", mutates_args=(), device_types="cpu")
def conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Correlation of `input` with `weight`, and `bias` added."""
    y = vkconv.conv_general(
        channels_last(input),
        side_by_side(channels_last(weight)),
        **_geometry(stride, pads, dilation, groups),
        bias=None if bias is None else to_array(bias),
        device="cpu",
    )
    return channels_first(y)


@conv.register_fake
def _(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    return empty_channels_last(
        input, *_shapes.conv(input, weight, bias, _shapes.Window(stride, pads, dilation, groups))
    )


@torch.library.custom_op("vkconv::conv_input_grad", mutates_args=(), device_types="cpu")
def conv_input_grad(
    grad: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    spatial: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Gradient of `conv` with respect to an input with the extents `spatial`; with `bias` added, a transposed
    convolution."""
    channels = weight.shape[1] * groups
    g, w, geometry = (
        channels_last(grad),
        side_by_side(channels_last(weight)),
        _geometry(stride, pads, dilation, groups),
    )
    if bias is None:
        shape = (grad.shape[0], *spatial, channels)
        return channels_first(vkconv.conv_input_grad(g, w, shape, **geometry, device="cpu"))
    none = (0,) * len(stride)
    smallest = transposed_extents(g.shape[1:-1], w.shape[1:-1], stride, geometry["pads"], dilation, none)
    y = vkconv.conv_transpose(
        g,
        transposed_weight(w, groups),
        tuple(stride),
        pads=geometry["pads"],
        dilation=tuple(dilation),
        output_padding=[n - least for n, least in zip(spatial, smallest, strict=True)],
        groups=groups,
        bias=to_array(bias),
        device="cpu",
    )
    return channels_first(y)


def transposed_weight(weight: Array, groups: int) -> Array:
    """(C, kernel..., O / groups), the weight of the convolution that is transposed, as (O, kernel..., C / groups)."""
    kernel = weight.shape[1:-1]
    grouped = weight.reshape(groups, weight.shape[0] // groups, *kernel, weight.shape[-1])
    return np.swapaxes(grouped, 1, -1).reshape(groups * weight.shape[-1], *kernel, weight.shape[0] // groups)


@conv_input_grad.register_fake
def _(
    grad: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    spatial: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    window = _shapes.Window(stride, pads, dilation, groups)
    return empty_channels_last(grad, *_shapes.input_grad(grad, weight, bias, spatial, window))


@torch.library.custom_op("vkconv::conv_weight_grad", mutates_args=(), device_types="cpu")
def conv_weight_grad(
    grad: Tensor,
    input: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Gradient of `conv` with respect to a weight with the extents `kernel`; contiguous."""
    result = grad.new_empty((grad.shape[1], input.shape[1] // groups, *kernel))
    out = channels_last(result)
    vkconv.conv_weight_grad(
        channels_last(grad),
        channels_last(input),
        out.shape,
        **_geometry(stride, pads, dilation, groups),
        device="cpu",
        out=out,
    )
    return result


@conv_weight_grad.register_fake
def _(
    grad: Tensor,
    input: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    return grad.new_empty(_shapes.weight_grad(grad, input, kernel, _shapes.Window(stride, pads, dilation, groups)))
