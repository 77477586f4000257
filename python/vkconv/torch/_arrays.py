"""Tensors with the channels first, as PyTorch has them, as arrays with the channels last, and back, sharing memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vkconv import _core
from vkconv._types import Array
from vkconv.torch._watchers import differentiated, followed, noticed, stored

_MOST_AXES, _DTYPES = 5, (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # of vkconv's arrays


def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes  # noqa: PLC0415 - only bfloat16 needs it
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("bfloat16 tensors need the package ml_dtypes: pip install ml_dtypes") from error
    return np.dtype(ml_dtypes.bfloat16)


def has_strides(tensor: torch.Tensor) -> bool:
    """Not so are sparse and nested tensors, and those in oneDNN's layouts."""
    return tensor.layout is torch.strided and not tensor.is_nested


def to_array(tensor: torch.Tensor) -> Array:
    """The same memory as an array of the same axes."""
    if not tensor.is_cpu:
        raise TypeError(f"the tensor is on {tensor.device}, wanted one on the CPU")
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy(force=True).view(_bfloat16())
    return tensor.numpy(force=True)


def to_tensor(array: Array) -> torch.Tensor:
    """The same memory as a tensor of the same axes."""
    if array.dtype.kind == "V":  # ml_dtypes' bfloat16
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def channels_last(tensor: torch.Tensor) -> Array:
    """(N, C, spatial...) as an array (N, spatial..., C): a view, without a copy."""
    array = to_array(tensor)
    return array.transpose(0, *range(2, array.ndim), 1)  # NumPy's views take less time than PyTorch's


def side_by_side(weight: Array) -> Array:
    """The same numbers with channels side by side, which packing reads faster than it reads others."""
    return weight if weight.shape[-1] == 1 or weight.strides[-1] == weight.itemsize else _core.dense(weight)


def channels_first(array: Array) -> torch.Tensor:
    """(N, spatial..., C) as a tensor (N, C, spatial...), in PyTorch's memory format `channels_last`."""
    return to_tensor(array.transpose(0, -1, *range(1, array.ndim - 1)))


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in PyTorch's contiguous format, which it tells from `channels_last` by the strides of axes of
    one element too: a tensor with one channel may be contiguous and count as channels last."""
    if not has_strides(tensor):
        return tensor
    made = tensor if tensor.is_contiguous() else _dense(tensor)
    both = 1 in made.shape[1:] and is_channels_last(made)
    return made.clone(memory_format=torch.contiguous_format) if both else made  # no view: it may be written in place


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """PyTorch's copy from channels last takes eight times as long as one of a contiguous tensor, vkconv's twice."""
    return to_tensor(_core.dense(to_array(tensor))) if _copies(tensor) else tensor.contiguous()


def _copies(tensor: torch.Tensor) -> bool:
    """Whether vkconv's copies, which nothing follows, will do."""
    known = tensor.dtype in _DTYPES and tensor.dim() <= _MOST_AXES
    return known and not (stored() or noticed(tensor) or (followed() and differentiated(tensor)))


def with_channels_beside(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers, as several operators read them fastest: each would copy channels that lie apart."""
    if tensor.stride(1) == 1 or tensor.shape[1] == 1 or not _copies(tensor):
        return tensor
    return channels_first(_core.dense(channels_last(tensor)))


def is_channels_last(tensor: torch.Tensor) -> bool:
    """PyTorch's rule for the memory format that a convolution takes from its operands.

    Strides fall from the batch over the spatial axes to the channels. Where axes of one element leave both formats
    possible, it is not channels last; tensors with one spatial axis have no such format.
    """
    if not has_strides(tensor) or tensor.dim() < 4 or tensor.numel() == 0:
        return False
    least, strides, extents = 0, tensor.stride(), tensor.shape
    for a in (1, *range(tensor.dim() - 1, 1, -1), 0):
        if strides[a] < least or (a == 0 and least == strides[1]):
            return False
        least = strides[a] * extents[a]
    return strides[1] > 0
