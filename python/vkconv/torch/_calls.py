"""Convolutions that a module's own code calls as functions: TensorFlow's padding, standardized or modulated weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from vkconv.torch._computed import CONVOLUTIONS, TRANSPOSED, arguments_of
from vkconv.torch._modules import StandIn, own_forward
from vkconv.torch._prepared import PreparedInherited
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
        named = kwargs or {}
        if func in CONVOLUTIONS and self.prepared is not None:
            given = arguments_of(args, named)
            if given and _is_layers(self.prepared.layer, given):
                return self.prepared.forward(given["input"], given["weight"], given["bias"])
        return CONVOLUTIONS.get(func, TRANSPOSED.get(func, func))(*args, **named)


def _is_layers(layer: Any, given: dict[str, Any]) -> bool:
    """Whether a call is the one that the layer's own forward makes: with its weights, in its geometry."""
    if given["weight"] is not layer.weight or given["bias"] is not layer.bias or layer.padding_mode != "zeros":
        return False
    return all(_alike(given[name], getattr(layer, name)) for name in ("stride", "padding", "dilation", "groups"))


def _alike(value: Any, own: Any) -> bool:
    """One number stands for all axes."""
    return bool(value == own) or (isinstance(own, tuple) and all(value == n for n in own))
