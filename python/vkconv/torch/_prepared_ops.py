"""The operators `vkconv::prepared_conv` and `vkconv::prepared_conv_add` of PyTorch, which torch.compile can trace.

A packed convolution is no tensor: its operators carry a number that stands for it in this process.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vkconv.torch import _ops, _shapes
from vkconv.torch._autograd import mapped

_handles = itertools.count()
_by_handle: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def handle_of(prepared: Any) -> int:
    """A new handle of a `Prepared`."""
    handle = next(_handles)
    _by_handle[handle] = prepared
    return handle


def of_handle(handle: int) -> Any:
    """The one whose operators carry this handle."""
    return _by_handle[handle]


@torch.library.custom_op("vkconv::prepared_conv", mutates_args=(), device_types="cpu")
def prepared_conv(input: Tensor, handle: int) -> Tensor:
    """What the Prepared with this handle computes."""
    return of_handle(handle).convolved(input)


@torch.library.custom_op("vkconv::prepared_conv_add", mutates_args=(), device_types="cpu")
def prepared_conv_add(input: Tensor, addend: Tensor, handle: int) -> Tensor:
    """The same, with an addend of the output's shape in the dtype sums run in."""
    return of_handle(handle).convolved(input, addend)


def _fake(input: Tensor, handle: int) -> Tensor:
    prepared = of_handle(handle)
    batch, spatial, channels = prepared.output_shape(input)
    _shapes.require_prepared(input, prepared.in_channels(), spatial)
    return _ops.empty_channels_last(input, batch, spatial, channels)


def _mapped(op: Any) -> Callable[..., tuple[Tensor, int]]:
    """The rule of `torch.vmap`: one larger batch."""

    def rule(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        *tensors, handle = arguments
        whole = [mapped(t, d, info.batch_size) for t, d in zip(tensors, in_dims, strict=False)]
        return op(*(t.flatten(0, 1) for t in whole), handle).unflatten(0, whole[0].shape[:2]), 0

    return rule


prepared_conv.register_fake(_fake)
prepared_conv_add.register_fake(lambda input, addend, handle: _fake(input, handle))
for _op in (prepared_conv, prepared_conv_add):
    _op.register_vmap(_mapped(_op))
