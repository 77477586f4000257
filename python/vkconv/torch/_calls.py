"""Convolutions that a module's own code calls as functions: TensorFlow's padding, standardized or modulated weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vkconv.torch._computed import CONVOLUTIONS, TRANSPOSED
from vkconv.torch._functional import Axes, Padding, pads_of, per_axis
from vkconv.torch._modules import StandIn, own_forward
from vkconv.torch._prepared import Geometry, PreparedInherited
from vkconv.torch._watchers import stored, tracing

_NAME = re.compile(r"conv(_transpose)?[123]d")


def calls_functions(module: nn.Module) -> bool:
    """Whether the code of the module's forward names a convolution, or something that is called like one."""
    if not own_forward(module) or isinstance(module, torch.jit.ScriptModule):
        return False
    code = getattr(type(module).forward, "__code__", None)
    return code is not None and any(map(_NAME.search, code.co_names))


class FunctionCalls(StandIn):
    """The forward of `module`, whose calls of convolutions are vkconv's. Its own weights are packed once by `prepared`,
    computed ones are given with every call."""

    def __init__(self, module: nn.Module, prepared: PreparedInherited | None = None) -> None:
        self.module, self.prepared = module, prepared

    def forward(self, *arguments: Any, **named: Any) -> Any:
        run = type(self.module).forward
        if stored() or torch.compiler.is_compiling() or tracing():
            return run(self.module, *arguments, **named)
        with _Redirected(self.prepared):
            return run(self.module, *arguments, **named)


class _Redirected(TorchFunctionMode):
    def __init__(self, prepared: PreparedInherited | None) -> None:
        super().__init__()
        self.prepared = prepared

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in CONVOLUTIONS:
            return self._convolution(CONVOLUTIONS[func], *args, **given)
        return TRANSPOSED.get(func, func)(*args, **given)

    def _convolution(
        self,
        function: Callable[..., Tensor],
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Axes = 1,
        padding: Padding = 0,
        dilation: Axes = 1,
        groups: int = 1,
    ) -> Tensor:
        own = self.prepared
        if own is not None and weight is own.layer.weight and bias is own.layer.bias:
            rank = own.geometry.rank
            strides, dilations = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
            pads = pads_of(padding, weight.shape[2:], strides, dilations)
            if Geometry(tuple(strides), tuple(pads), tuple(dilations), groups) == own.geometry:
                return own.forward(input, weight, bias)
        return function(input, weight, bias, stride, padding, dilation, groups)
