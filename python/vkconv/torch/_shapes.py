"""Shapes of the operators' results, for calls without numbers, which refuse what calls with numbers do, in their words.

A compiler's symbols may stand for extents. Of those is refused only what no value of theirs allows: a question would
bind them, and the call with numbers asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Shape = tuple[int, list[int], int]  # batch, spatial extents, channels
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class Window:
    """Where the kernel of a convolution goes."""

    def __init__(self, stride: Sequence[int], pads: Sequence[int], dilation: Sequence[int], groups: int) -> None:
        self.rank, self.groups = len(stride), groups
        self.stride, self.pads, self.dilation = stride, pads, dilation
        named = [("stride", n) for n in stride] + [("kernel_dilation", n) for n in dilation] + [("groups", groups)]
        for name, n in named:
            if _surely(n < 1):
                raise ValueError(f"{name} is {n}, wanted at least 1")

    def over(self, spatial: Sequence[int], kernel: Sequence[int]) -> list[int]:
        """The spatial extents of the output for an input with `spatial`."""
        extents = []
        for a, (n, k) in enumerate(zip(spatial, kernel, strict=True)):
            if _surely(k < 1):
                raise ValueError("weight has a kernel extent of 0, wanted at least 1")
            lo, hi, reach = self.pads[a], self.pads[self.rank + a], self.dilation[a] * (k - 1) + 1
            if _surely(n + lo + hi < reach):
                raise ValueError(
                    f"input is smaller than the kernel along spatial axis {a}: extent {n} with padding {lo} and {hi}, "
                    f"kernel reach {reach}"
                )
            extents.append((n + lo + hi - reach) // self.stride[a] + 1)
        return extents

    def require(self, **tensors: Tensor) -> None:
        """The dimensions of tensors and a dtype that they share."""
        (first, leading), *_ = tensors.items()
        for name, tensor in tensors.items():
            if tensor.dtype not in _DTYPES:
                raise TypeError(f"{name} has dtype {_text(tensor)}, wanted float32, float16, bfloat16 or float64")
            if tensor.dim() != self.rank + 2:
                raise ValueError(f"{name} has {tensor.dim()} dimensions, wanted {self.rank + 2}")
            if tensor.dtype != leading.dtype:
                raise TypeError(f"{name} has dtype {_text(tensor)}, {first} has {_text(leading)}: they must agree")

    def require_channels(self, inputs: int, outputs: int, columns: int | None = None) -> None:
        """Those of input and output, and of the weight."""
        for channels, what in ((inputs, "channels of input"), (outputs, "output channels of weight")):
            if _surely(channels % self.groups != 0):
                raise ValueError(f"groups is {self.groups}, which does not divide the {channels} {what}")
        if columns is not None and _surely(columns * self.groups != inputs):
            of = "channel" if columns == 1 else "channels"
            raise ValueError(
                f"weight has {columns} input {of} per group, input has {inputs} in {self.groups} "
                f"{'group' if self.groups == 1 else 'groups'}: channels are the last axis"
            )


def conv(input: Tensor, weight: Tensor, bias: Tensor | None, window: Window) -> Shape:
    window.require(input=input, weight=weight)
    window.require_channels(input.shape[1], weight.shape[0], weight.shape[1])
    _require_bias(bias, input, weight.shape[0])
    return input.shape[0], window.over(input.shape[2:], weight.shape[2:]), weight.shape[0]


def input_grad(grad: Tensor, weight: Tensor, bias: Tensor | None, spatial: Sequence[int], window: Window) -> Shape:
    window.require(grad=grad, weight=weight)
    channels = weight.shape[1] * window.groups
    window.require_channels(channels, weight.shape[0])
    _require_bias(bias, grad, channels)
    if bias is None:
        _require_output(grad, grad.shape[0], window.over(spatial, weight.shape[2:]), weight.shape[0])
    elif _surely(grad.shape[1] != weight.shape[0]):  # a transposed convolution, whose output may be larger
        raise ValueError(f"weight has {weight.shape[0]} input channels, input has {grad.shape[1]}")
    return grad.shape[0], list(spatial), channels


def weight_grad(grad: Tensor, input: Tensor, kernel: Sequence[int], window: Window) -> list[int]:
    window.require(grad=grad, input=input)
    window.require_channels(input.shape[1], grad.shape[1])
    _require_output(grad, input.shape[0], window.over(input.shape[2:], kernel), grad.shape[1])
    return [grad.shape[1], input.shape[1] // window.groups, *kernel]


def require_prepared(input: Tensor, channels: int, spatial: Sequence[int]) -> None:
    """What packed weights for `channels` need, with the extents of the output."""
    if _surely(input.shape[1] != channels):
        raise ValueError(f"input has {input.shape[1]} channels, wanted {channels}")
    if any(_surely(n < 1) for n in spatial):
        raise ValueError(f"input has the extents {tuple(input.shape[2:])}, which leave no output")


def _require_bias(bias: Tensor | None, beside: Tensor, channels: int) -> None:
    if bias is None:
        return
    sums = torch.promote_types(beside.dtype, torch.float32)
    if bias.dtype not in (beside.dtype, sums):
        wanted = str(sums).removeprefix("torch.") if sums == beside.dtype else "the dtype of input or float32"
        raise TypeError(f"bias has dtype {_text(bias)}, wanted {wanted}")
    if bias.dim() != 1 or _surely(bias.shape[0] != channels):
        raise ValueError(f"bias has shape {tuple(bias.shape)}, wanted ({channels},), one value for each output channel")


def _require_output(grad: Tensor, batch: int, spatial: Sequence[int], channels: int) -> None:
    got, wanted = (grad.shape[0], *grad.shape[2:], grad.shape[1]), (batch, *spatial, channels)
    if any(_surely(a != b) for a, b in zip(got, wanted, strict=True)):
        raise ValueError(f"grad has shape {got}, wanted {wanted}, that of the convolution's output")


def _surely(condition: Any) -> bool:
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # noqa: PLC0415 - loaded where symbols are

    return bool(statically_known_true(condition))


def _text(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
