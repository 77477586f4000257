"""What stands around an operator: autocast, memory formats and complex numbers, as PyTorch has them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vkconv.torch import _ops
from vkconv.torch._arrays import contiguous, is_channels_last
from vkconv.torch._autograd import Operator, call


def apply(op: Operator, input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    """`_ops.conv` or `_ops.conv_input_grad`; the result is contiguous unless input or weight are channels last."""
    if torch.is_autocast_enabled("cpu"):
        input, weight, bias = _autocast(input), _autocast(weight), None if bias is None else _autocast(bias)
    dense = not (is_channels_last(input) or is_channels_last(weight))
    run = _complex if input.is_complex() and weight.is_complex() else call
    return run(op, input, weight, bias, *geometry, dense=dense)


def _autocast(tensor: Tensor) -> Tensor:
    """Autocast leaves float64 and complex numbers as they are."""
    narrowed = tensor.is_floating_point() and tensor.dtype != torch.float64
    return tensor.to(torch.get_autocast_dtype("cpu")) if narrowed else tensor


def _complex(op: Operator, input: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any, dense: bool) -> Tensor:
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i as one real convolution: real and imaginary parts are channels."""
    # Input gradients go through the transpose. Lazy conjugates and their negative parts have no rule under `vmap`.
    re, im = _parts(torch.conj_physical(weight) if op is _ops.conv_input_grad else weight).unbind(-1)
    rows = torch.stack([torch.stack([re, -im], 2), torch.stack([im, re], 2)], 1)
    y = call(
        op,
        _parts(input).movedim(-1, 2).flatten(1, 2),
        rows.flatten(0, 1).flatten(1, 2),
        None if bias is None else _parts(bias).flatten(),
        *geometry,
        dense=dense,
    )
    made = torch.complex(*y.unflatten(1, (-1, 2)).unbind(2))
    return contiguous(made) if dense else made


def _parts(value: Tensor) -> Tensor:
    return torch.view_as_real(value.resolve_conj())
