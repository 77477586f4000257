"""Convolutions of tensors, with the signatures of `torch.nn.functional`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vkconv import _axes
from vkconv.torch import _ops
from vkconv.torch._apply import apply
from vkconv.torch._arrays import has_strides
from vkconv.torch._watchers import follows_pytorchs_alone

Axes = int | Sequence[int]
Padding = Axes | str

# As they are on import: a program may put vkconv's functions in their place.
_CONV = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


def per_axis(value: Axes, rank: int, name: str) -> list[int]:
    """One number for each spatial axis."""
    return list(_axes.per_axis(value, rank, name, one_for_all=True))


def pads_of(padding: Padding, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """The low sides of all axes, then the high sides. 'same' puts an odd element at the high end, as PyTorch does."""
    rank = len(kernel)
    if padding == "valid":
        return [0] * (2 * rank)
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ValueError("padding='same' is for a stride of 1")
        totals = [d * (int(k) - 1) for d, k in zip(dilation, kernel, strict=True)]  # a trace has tensors
        return [t // 2 for t in totals] + [t - t // 2 for t in totals]
    if isinstance(padding, str):
        raise ValueError(f"padding is {padding!r}, wanted numbers, 'valid' or 'same'")
    return per_axis(padding, rank, "padding") * 2


def _nonnegative(pads: list[int]) -> list[int]:
    """vkconv would crop, which PyTorch refuses."""
    if min(pads) < 0:
        raise ValueError(f"padding is {min(pads)}, wanted at least 0")
    return pads


def _batched(run: Callable[[Tensor], Tensor], input: Tensor, rank: int) -> Tensor:
    if input.dim() == rank + 1:
        return run(input.unsqueeze(0)).squeeze(0)
    if input.dim() != rank + 2:
        raise ValueError(f"input has {input.dim()} dimensions, wanted {rank + 2}, or {rank + 1} without a batch")
    return run(input)


def _pytorchs(input: Tensor) -> bool:
    """Whether PyTorch's own convolution has to run: vkconv has none of integers or without strides, ONNX none of
    vkconv's, and PyTorch no derivatives of the parts of complex numbers in an empty tensor."""
    if torch.onnx.is_in_onnx_export() or follows_pytorchs_alone():
        return True
    if not isinstance(input, Tensor):
        return False
    if input.is_complex() and input.numel() == 0:
        return True
    return not has_strides(input) or not (input.is_floating_point() or input.is_complex())


_REFUSALS = (ArithmeticError, AttributeError, IndexError, RuntimeError, TypeError, ValueError)


def _refused(theirs: Callable[..., Tensor], *arguments: object) -> None:
    """Raises what PyTorch raises for arguments that it refuses too."""
    with torch.no_grad():
        theirs(*arguments)


def _differs(input: Tensor, bias: Tensor | None) -> bool:
    """Whether the bias has another dtype, which PyTorch takes in some calls."""
    return isinstance(bias, Tensor) and isinstance(input, Tensor) and bias.dtype != input.dtype


def _in_dtype_of(input: Tensor, bias: Tensor | None) -> Tensor | None:
    """The bias, where it has another dtype."""
    return bias.to(input.dtype) if bias is not None and _differs(input, bias) else None


def _conv(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Axes,
    padding: Padding,
    dilation: Axes,
    groups: int,
) -> Tensor:
    if _pytorchs(input):
        return _CONV[rank](input, weight, bias, stride, padding, dilation, groups)
    try:
        strides, dilations = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
        pads = _nonnegative(pads_of(padding, weight.shape[2:], strides, dilations))
        if _differs(input, bias) and not torch.is_autocast_enabled("cpu"):  # vkconv adds float32 to halves
            raise TypeError("bias has another dtype than input")
        return _batched(lambda x: apply(_ops.conv, x, weight, bias, strides, pads, dilations, groups), input, rank)
    except _REFUSALS:
        _refused(_CONV[rank], input, weight, bias, stride, padding, dilation, groups)
        if (same := _in_dtype_of(input, bias)) is None:
            raise
    return _conv(rank, input, weight, same, stride, padding, dilation, groups)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv1d` by vkconv, on the CPU: same arguments, same result, gradients included.

    Examples
    --------
    >>> conv1d(torch.ones(1, 3, 8), torch.ones(4, 3, 3), padding=1).shape
    torch.Size([1, 4, 8])
    """
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv2d` by vkconv, on the CPU: same arguments, same result, gradients included.

    The result has the memory format that PyTorch's has: `channels_last` where input or weight do, else contiguous.
    `channels_last` is faster: nothing is copied.

    Examples
    --------
    >>> conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3), stride=2, padding=1).shape
    torch.Size([1, 4, 4, 4])
    """
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: Padding = 0,
    dilation: Axes = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv3d` by vkconv, on the CPU: same arguments, same result, gradients included.

    Examples
    --------
    >>> conv3d(torch.ones(1, 3, 4, 8, 8), torch.ones(4, 3, 3, 3, 3), padding='same').shape
    torch.Size([1, 4, 4, 8, 8])
    """
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Axes,
    padding: Axes,
    output_padding: Axes,
    groups: int,
    dilation: Axes,
) -> Tensor:
    # A trace would keep the output's extents for inputs of any.
    if torch.jit.is_tracing() or _pytorchs(input):
        return _TRANSPOSED[rank](input, weight, bias, stride, padding, output_padding, groups, dilation)
    try:
        strides, dilations = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
        pads = _nonnegative(per_axis(padding, rank, "padding"))
        extra = per_axis(output_padding, rank, "output_padding")
        small = all(0 <= e < max(s, d) for s, d, e in zip(strides, dilations, extra, strict=True))
        # What output_padding adds at the high end is not taken away there.
        sides = pads + [p - e for p, e in zip(pads, extra, strict=True)]

        def run(x: Tensor) -> Tensor:
            both = [(p, p) for p in pads]
            spatial = list(_axes.transposed_extents(x.shape[2:], weight.shape[2:], strides, both, dilations, extra))
            if not small or min(spatial) < 1:  # which PyTorch refuses or not, depending on its algorithm
                return _TRANSPOSED[rank](x, weight, bias, stride, padding, output_padding, groups, dilation)
            return apply(_ops.conv_input_grad, x, weight, bias, spatial, strides, sides, dilations, groups)

        return _batched(run, input, rank)
    except _REFUSALS:
        _refused(_TRANSPOSED[rank], input, weight, bias, stride, padding, output_padding, groups, dilation)
        if (same := _in_dtype_of(input, bias)) is None:
            raise
    return _conv_transpose(rank, input, weight, same, stride, padding, output_padding, groups, dilation)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    groups: int = 1,
    dilation: Axes = 1,
) -> Tensor:
    """`torch.nn.functional.conv_transpose1d` by vkconv, on the CPU: same arguments, same result, gradients included.

    Examples
    --------
    >>> conv_transpose1d(torch.ones(1, 3, 8), torch.ones(3, 4, 4), stride=2, padding=1).shape
    torch.Size([1, 4, 16])
    """
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    groups: int = 1,
    dilation: Axes = 1,
) -> Tensor:
    """`torch.nn.functional.conv_transpose2d` by vkconv, on the CPU: same arguments, same result, gradients included.

    Examples
    --------
    >>> conv_transpose2d(torch.ones(1, 3, 8, 8), torch.ones(3, 4, 3, 3), stride=2).shape
    torch.Size([1, 4, 17, 17])
    """
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Axes = 1,
    padding: Axes = 0,
    output_padding: Axes = 0,
    groups: int = 1,
    dilation: Axes = 1,
) -> Tensor:
    """`torch.nn.functional.conv_transpose3d` by vkconv, on the CPU: same arguments, same result, gradients included.

    Examples
    --------
    >>> conv_transpose3d(torch.ones(1, 3, 4, 4, 4), torch.ones(3, 4, 2, 2, 2), stride=2).shape
    torch.Size([1, 4, 8, 8, 8])
    """
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


for _name in ("_conv", "_conv_transpose"):  # one node of a graph that torch.fx traces
    torch.fx.wrap(_name)
# What torch.jit.script compiles calls no Python: there PyTorch's own convolution runs, in releases that still script.
if _register := getattr(getattr(torch.jit, "_builtins", None), "_register_builtin", None):
    for _function in (conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d):
        _register(_function, f"aten::{_function.__name__}")
