"""What the passes over a graph ask of its nodes, and how they put a module into it."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn

MULTIPLICATIONS = (operator.mul, torch.mul)
# Layers that give their input in eval mode, in which alone a graph runs.
IDENTITIES = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout,
              nn.FeatureAlphaDropout)  # fmt: skip


class Attribute(nn.Module):
    """A parameter, buffer or other tensor of `owner`, as it is at the time."""

    def __init__(self, owner: nn.Module, name: str) -> None:
        super().__init__()
        self.owner, self.name = owner, name

    def forward(self) -> Any:
        return getattr(self.owner, self.name)

    def values(self) -> list[Any]:
        """As of a dictionary that holds it alone."""
        return [getattr(self._modules["owner"], self.name)]


def module_of(made: nn.Module, node: fx.Node) -> nn.Module | None:
    """The module that the node calls."""
    return made.get_submodule(str(node.target)) if node.op == "call_module" else None


def name_of(node: fx.Node) -> str:
    """Of the function or method that the node calls."""
    function: Any = node.target
    return function if node.op == "call_method" else str(getattr(function, "__name__", ""))


def computes(node: fx.Node, functions: tuple[Any, ...], method: str) -> bool:
    """Whether it applies one of these, without options, to two different results."""
    known = node.target == method if node.op == "call_method" else node.target in functions
    return known and not node.kwargs and len(set(node.args)) == 2 and all(isinstance(a, fx.Node) for a in node.args)


def call_new(made: fx.GraphModule, name: str, module: nn.Module, arguments: tuple[fx.Node, ...]) -> fx.Node:
    """A call, where nodes are inserted now, of a module that becomes part of `made` under a name of its own."""
    name = f"{name}_{len(made._modules)}"
    made.add_submodule(name, module)
    return made.graph.call_module(name, arguments)
