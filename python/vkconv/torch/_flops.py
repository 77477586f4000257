"""What PyTorch's `FlopCounterMode` counts: two operations for each weight and pixel that meet, padding included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from vkconv.torch._prepared_ops import of_handle

_vkconv = torch.ops.vkconv


def _operations(weight: Sequence[int], pixels: Sequence[int]) -> int:
    """`pixels` are those of the convolution's result, (N, O, spatial...): every weight meets each of them."""
    return 2 * math.prod(weight) * pixels[0] * math.prod(pixels[2:])


@register_flop_formula(_vkconv.conv)
def _conv(input: Any, weight: Any, *geometry: Any, out_shape: Any) -> int:
    return _operations(weight, out_shape)


@register_flop_formula(_vkconv.conv_input_grad)
def _conv_input_grad(grad: Any, weight: Any, *geometry: Any, out_shape: Any) -> int:
    return _operations(weight, grad)


@register_flop_formula(_vkconv.conv_weight_grad)
def _conv_weight_grad(grad: Any, input: Any, *geometry: Any, out_shape: Any) -> int:
    return _operations(out_shape, grad)


@register_flop_formula([_vkconv.prepared_conv, _vkconv.prepared_conv_add])
def _prepared_conv(input: Any, *addend_and_handle: Any, out_shape: Any) -> int:
    prepared = of_handle(addend_and_handle[-1])
    return _operations(prepared.layer.weight.shape, input if prepared.geometry.transposed else out_shape)
