"""Weights of convolutions that compute what follows them too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def normalized(weight: Tensor, bias: Tensor | None, norm: Any, transposed_groups: int | None) -> tuple[Tensor, Tensor]:
    """Weight and bias of the convolution followed by the batch norm of `norm`'s running statistics. A transposed one
    has `transposed_groups`."""
    scale = torch.rsqrt(norm.running_var.detach().double() + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.detach().double()
    shift = (0 if bias is None else bias.detach().double()) - norm.running_mean.detach().double()
    shift = shift * scale
    if norm.bias is not None:
        shift = shift + norm.bias.detach().double()
    ones = (1,) * (weight.dim() - 2)
    if transposed_groups is not None:
        # (C, O / groups, kernel...): the rows of a group of inputs make a group of outputs.
        grouped = weight.double().unflatten(0, (transposed_groups, -1))
        folded = (grouped * scale.view(transposed_groups, 1, -1, *ones)).flatten(0, 1)
    else:
        folded = weight.double() * scale.view(-1, 1, *ones)
    wide = torch.promote_types(weight.dtype, torch.float32)  # the dtype sums run in
    return folded.to(weight.dtype), shift.to(wide)


def hardened(weight: Tensor, bias: Tensor | None, channels: int) -> tuple[Tensor, Tensor]:
    """Weight and bias of the convolution whose results between 0 and 1 are hardsigmoid(x) = clip(x / 6 + 1/2, 0, 1)."""
    wide = torch.promote_types(weight.dtype, torch.float32)
    shift = torch.zeros(channels, dtype=torch.float64) if bias is None else bias.detach().double()
    return (weight.double() / 6).to(weight.dtype), (shift / 6 + 0.5).to(wide)
