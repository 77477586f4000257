"""Writes that a graph could lose: where channels come last, what PyTorch has as a view of a tensor may be a copy, and
what it has as a copy the tensor itself."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Iterator
from typing import Any

from torch import fx, nn
from torch.utils._pytree import tree_leaves

from vkconv.torch._graphs import IDENTITIES, module_of, name_of

_MAY_COPY = frozenset(("contiguous", "flatten", "ravel", "reshape", "reshape_as", "unflatten", "view", "view_as"))
_LAYERS_THAT_MAY_COPY = (nn.Flatten, nn.Unflatten)
_VIEWS = frozenset((
    "adjoint", "chunk", "detach", "diagonal", "dsplit", "expand", "expand_as", "getattr", "getitem", "hsplit",
    "moveaxis", "movedim", "narrow", "permute", "select", "split", "split_with_sizes", "squeeze", "swapaxes",
    "swapdims", "t", "tensor_split", "transpose", "unbind", "unfold", "unsqueeze", "vsplit",
    # Some give the tensor itself, where nothing is to be done.
    "alpha_dropout", "atleast_1d", "atleast_2d", "atleast_3d", "bfloat16", "broadcast_to", "conj", "cpu", "double",
    "dropout", "dropout1d", "dropout2d", "dropout3d", "einsum", "feature_alpha_dropout", "feature_dropout", "float",
    "half", "imag", "pos", "positive", "real", "resolve_conj", "resolve_neg", "stochastic_depth", "sum_to_size", "to",
    "type", "type_as", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "view_as_real",
))  # fmt: skip
# The functions behind `x += y` and its like.
IN_PLACE = tuple(getattr(operator, f"i{name}") for name in (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"
))  # fmt: skip


class Writes:
    """Those of the graph of `module`."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        self.module, self.nodes = module, list(graph.nodes)

    def are_kept(self) -> bool:
        """Whether nothing that may be a copy is read after a write into another name of the same tensor."""
        order = {node: i for i, node in enumerate(self.nodes)}
        for write in self.nodes:
            for target in self.written(write):
                root = target
                while (whole := self._source(root)) is not None:
                    root = whole
                names = [] if root.op == "placeholder" else list(self._names(root, write))
                read = (user for name in names if name is not target for user in name.users)
                if any(map(self._may_copy, names)) and any(order[user] > order[write] for user in read):
                    return False
        return True

    def written(self, node: fx.Node) -> list[fx.Node]:
        """What the node writes into."""
        if node.kwargs.get("out") is not None:
            return _nodes(node.kwargs["out"])
        return _nodes(_first(node)) if self._in_place(node) else []

    def _names(self, node: fx.Node, write: fx.Node) -> Iterator[fx.Node]:
        """The node and its views, but for those of the result of `write`."""
        yield node
        for user in node.users:
            if user is not write and self._source(user) is node:
                yield from self._names(user, write)

    def _source(self, node: fx.Node) -> fx.Node | None:
        """The node whose memory the result has, or would have if that were contiguous."""
        view = name_of(node) in _VIEWS or self._may_copy(node) or type(self._layer(node)) in IDENTITIES
        found = self.written(node) or (_nodes(_first(node)) if view else [])
        return found[0] if found else None

    def _may_copy(self, node: fx.Node) -> bool:
        if name_of(node) in _MAY_COPY or type(self._layer(node)) in _LAYERS_THAT_MAY_COPY:
            return True
        return name_of(node) == "to" and "memory_format" in node.kwargs

    def _in_place(self, node: fx.Node) -> bool:
        """Whether the node writes into its first argument."""
        if node.op == "call_module":
            return bool(getattr(self._layer(node), "inplace", False))
        place = _place_of_inplace(node.target) if node.op == "call_function" else None
        inplace = node.args[place] if place is not None and place < len(node.args) else node.kwargs.get("inplace")
        if node.target in IN_PLACE or inplace not in (None, False):
            return True
        name = name_of(node)  # operator has and_
        return name.endswith("_") and not name.endswith("__") and not hasattr(operator, name)

    def _layer(self, node: fx.Node) -> nn.Module | None:
        return module_of(self.module, node)


def _first(node: fx.Node) -> Any:
    """The first argument, or that of `einsum` behind its equation."""
    if not node.args:
        return node.kwargs.get("input", node.kwargs.get("self"))
    return node.args[1:] if name_of(node) == "einsum" else node.args[0]


def _nodes(argument: Any) -> list[fx.Node]:
    return [a for a in tree_leaves(argument) if isinstance(a, fx.Node)]


@functools.lru_cache(1024)
def _place_of_inplace(function: Any) -> int | None:
    """Which argument of the function tells whether it writes into its first."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of what is written in C
        return None
    return names.index("inplace") if "inplace" in names else None
