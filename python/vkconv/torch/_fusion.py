"""Folds batch norm, addition and activation into the convolution before them, in the graph of a module."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import fx, nn

from vkconv._types import Activation
from vkconv.torch._modules import TRAINABLE, plain
from vkconv.torch._prepared import CONVOLUTIONS, NORMS, FrozenConv, FrozenLinear, freeze

_MODULES: dict[type[nn.Module], Callable[[Any], Activation | None]] = {
    nn.ReLU: lambda m: "relu",
    nn.ReLU6: lambda m: "relu6",
    nn.LeakyReLU: lambda m: ("leaky_relu", m.negative_slope),
    nn.SiLU: lambda m: "silu",
    nn.GELU: lambda m: "gelu" if m.approximate == "none" else None,
    nn.Sigmoid: lambda m: "sigmoid",
    nn.Tanh: lambda m: "tanh",
    nn.Hardswish: lambda m: "hardswish",
    nn.Hardtanh: lambda m: ("clip", m.min_val, m.max_val),
}
_FUNCTIONS: dict[Any, Activation] = {
    F.relu: "relu",
    torch.relu: "relu",
    torch.relu_: "relu",
    F.relu6: "relu6",
    F.silu: "silu",
    F.gelu: "gelu",
    F.sigmoid: "sigmoid",
    torch.sigmoid: "sigmoid",
    F.tanh: "tanh",
    torch.tanh: "tanh",
    F.hardswish: "hardswish",
}
_METHODS: dict[str, Activation] = {
    "relu": "relu", "relu_": "relu", "sigmoid": "sigmoid", "sigmoid_": "sigmoid", "tanh": "tanh", "tanh_": "tanh"
}  # fmt: skip
FROZEN = (*TRAINABLE, nn.Linear)
_ADDITIONS = (operator.add, operator.iadd, torch.add)


def fuse(module: nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """The module of `graph`, with every convolution and what follows it in one."""
    made = fx.GraphModule(module, graph)
    Fusion(made).run()
    for node in graph.nodes:
        node.type = None  # annotations, which may be strings that only their module understands
        # The results of vkconv are channels last, which `view` refuses.
        if node.op == "call_method" and node.target == "view" and not _is_dtype(node):
            node.target = "reshape"
    graph.lint()
    made.delete_all_unused_submodules()
    made.recompile()
    return made


def _is_dtype(node: fx.Node) -> bool:
    return (len(node.args) == 2 and isinstance(node.args[1], torch.dtype)) or "dtype" in node.kwargs


class Fusion:
    """One pass over the graph of `made`."""

    def __init__(self, made: fx.GraphModule) -> None:
        self.made, self.graph = made, made.graph

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if type(self._module(node)) in FROZEN and len(node.args) == 1 and not node.kwargs:
                self._fuse_at(node)

    def _module(self, node: fx.Node) -> nn.Module | None:
        """What the node calls, unless hooks make that more than its type says."""
        module = self.made.get_submodule(str(node.target)) if node.op == "call_module" else None
        return module if module is not None and plain(module) else None

    def _fuse_at(self, node: fx.Node) -> None:
        conv = self._module(node)
        last, norm, addend = node, None, None
        following = self._only_user(last)
        if following is not None and self._folds(following, conv):
            last, norm = following, self._module(following)
            following = self._only_user(last)
        # A transposed convolution is decomposed into phases, each of which would need its part of an addend.
        if following is not None and isinstance(conv, (*CONVOLUTIONS, nn.Linear)):
            addend = self._addend(following, node, last)
            if addend is not None:
                last = following
                following = self._only_user(last)
        activation = None if following is None else self._activation(following)
        if following is not None and activation is not None:
            last = following
        self._replace(node, last, freeze(conv, norm, activation), addend)

    @staticmethod
    def _only_user(node: fx.Node) -> fx.Node | None:
        """The one node that reads the result, as its first argument or as a term of a sum."""
        users = list(node.users)
        return users[0] if len(users) == 1 and list(users[0].all_input_nodes).count(node) == 1 else None

    def _folds(self, node: fx.Node, conv: Any) -> bool:
        norm: Any = self._module(node)
        if type(norm) not in NORMS or isinstance(conv, nn.Linear):
            return False
        return norm.running_var is not None and len(norm.running_var) == conv.out_channels

    def _addend(self, node: fx.Node, conv: fx.Node, last: fx.Node) -> fx.Node | None:
        """What `node` adds to `last`, when the convolution may run in its place instead."""
        method = node.op == "call_method" and node.target in ("add", "add_")
        if not (method or (node.op == "call_function" and node.target in _ADDITIONS)):
            return None
        if len(node.args) != 2 or node.kwargs or not all(isinstance(a, fx.Node) for a in node.args):
            return None
        first, second = node.args
        in_place = node.target in (operator.iadd, "add_")
        if first is second or (in_place and first is not last):
            return None
        between = conv.next
        while between is not node:
            if between is not last and not self._pure(between):
                return None
            between = between.next
        other = second if first is last else first
        return other if isinstance(other, fx.Node) else None

    def _pure(self, node: fx.Node) -> bool:
        """A node that writes into none of its arguments, as far as can be known."""
        known = (*FROZEN, *NORMS, FrozenConv, FrozenLinear, nn.Identity)
        return type(self._module(node)) in known or node.op in ("placeholder", "get_attr")

    def _activation(self, node: fx.Node) -> Activation | None:
        module = self._module(node)
        if module is not None:
            known = _MODULES.get(type(module))
            return known(module) if known and len(node.args) == 1 and not node.kwargs else None
        options = {k: v for k, v in node.kwargs.items() if (k, v) not in (("inplace", False), ("inplace", True))}
        if len(node.args) != 1 or options:
            return None
        return _METHODS.get(str(node.target)) if node.op == "call_method" else _FUNCTIONS.get(node.target)

    def _replace(self, first: fx.Node, last: fx.Node, made: nn.Module, addend: fx.Node | None) -> None:
        name = f"{str(first.target).replace('.', '_')}_{len(self.made._modules)}"
        self.made.add_submodule(name, made)
        with self.graph.inserting_before(last):
            arguments = (first.args[0],) if addend is None else (first.args[0], addend)
            replacement = self.graph.call_module(name, arguments)
        last.replace_all_uses_with(replacement)
        node = last
        while node is not first:
            before = next(n for n in node.all_input_nodes if n is not addend)
            self.graph.erase_node(node)
            node = before
        self.graph.erase_node(first)
