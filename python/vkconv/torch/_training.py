"""Contiguous images in models that train: channels last between the layers of every module that cannot tell.

PyTorch keeps a format from layer to layer, and a convolution of channels that do not lie side by side copies its
operands, its result and their gradients. So the image is copied where it enters such a module, and its results where
they leave; the module's own code runs in between.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, fx, nn

from vkconv.torch._arrays import in_channels_last, is_channels_last
from vkconv.torch._formats import Rows, all_contiguous, draws, reads_contiguous
from vkconv.torch._graphs import module_of, name_of
from vkconv.torch._modules import TRAINABLE, OwnHook, all_are_hooked
from vkconv.torch._shortcut import Parts
from vkconv.torch._trace import trace
from vkconv.torch._watchers import knows_savers, noticed, stored, tracing
from vkconv.torch._writes import Writes

_ENTERED = "_vkconv_entered"  # of a tensor that a hook made: that hook
_MOST_MODES = 64  # combinations of parts that train


class ChannelsLast(OwnHook):
    """Runs before the forward of `module`, and after it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.parts: Parts | None = None
        self.kept = dict[tuple[Any, ...], bool]()  # by the parts that train, and those that draw numbers

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def attach(self) -> None:
        module = self.module
        for name in ("_forward_pre_hooks", "_forward_hooks"):  # which a shallow copy shares
            module.__dict__[name] = OrderedDict(module.__dict__[name])
        module.register_forward_pre_hook(self)
        module.register_forward_hook(self)

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], *result: Any) -> Any:
        if torch.compiler.is_compiling() or len(inputs) != 1 or type(inputs[0]) is not Tensor:
            return None
        if result:
            return all_contiguous(result[0]) if getattr(inputs[0], _ENTERED, None) is self else None
        return self._enter(inputs[0]) if module is self.module else None  # no clone that took over its hooks

    def _enter(self, input: Tensor) -> tuple[Tensor] | None:
        if input.dim() not in (4, 5) or is_channels_last(input) or noticed(input) or stored() or not self._keeps():
            return None
        made = in_channels_last(input)
        if made is input:
            return None
        setattr(made, _ENTERED, self)
        return (made,)

    def _keeps(self) -> bool:
        """Whether the module computes the same in either format, with the parts that train now."""
        if tracing() or all_are_hooked():
            return False
        if self.parts is None or self.parts.changed():
            self.parts = Parts(self.module)
            self.kept.clear()
        modes = tuple([(m.training, draws(m)) for m in self.parts.modules])
        if modes not in self.kept:
            if len(self.kept) == _MOST_MODES:
                return False
            self.kept[modes] = not self.parts.hooked() and knows_savers and _keeps_format(self.module)
        return self.kept[modes] and not any(map(_asks_for_last, self.parts.modules))


def _asks_for_last(layer: Any) -> bool:
    """Whether PyTorch's result would be channels last by the format of the weights."""
    return type(layer) in TRAINABLE.values() and is_channels_last(layer.weight)


def _keeps_format(module: nn.Module) -> bool:
    """Whether the module's code computes the same of an image whose channels come last."""
    graph = trace(module)
    if graph is None:
        return False
    writes = Writes(module, graph)
    return not any(_sees(module, node) or writes.into_input(node) for node in graph.nodes)


def _sees(module: nn.Module, node: fx.Node) -> bool:
    """Whether the node would not compute the same, or not as fast; or gives away what hooks do not find."""
    if node.op == "output":
        return any(n.op == "placeholder" or isinstance(n.target, type) for n in node.all_input_nodes)
    if name_of(node) in ("view", "view_as"):
        return node.all_input_nodes[0].op != "get_attr" and not Rows(module).are_read_by(node)
    return node.target is F.instance_norm or reads_contiguous(module_of(module, node))
