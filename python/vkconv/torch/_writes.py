"""Writes that a graph could lose: where channels come last, what PyTorch has as a view of a tensor may be a copy."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from torch import fx, nn

from vkconv.torch._graphs import name_of

_MAY_COPY = frozenset(("contiguous", "flatten", "ravel", "reshape", "reshape_as", "unflatten", "view", "view_as"))
_VIEWS = frozenset((
    "adjoint", "chunk", "detach", "diagonal", "dsplit", "expand", "expand_as", "getattr", "getitem", "hsplit",
    "moveaxis", "movedim", "narrow", "permute", "select", "split", "split_with_sizes", "squeeze", "swapaxes",
    "swapdims", "t", "tensor_split", "transpose", "unbind", "unfold", "unsqueeze", "vsplit",
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
        for write in filter(self.into_first, self.nodes):
            root = target = write.args[0]
            while self._aliases(root):
                root = root.args[0]
            names = [] if root.op == "placeholder" else list(self._names(root, write))
            read = (user for name in names if name is not target for user in name.users)
            if any(name_of(n) in _MAY_COPY for n in names) and any(order[user] > order[write] for user in read):
                return False
        return True

    def _names(self, node: fx.Node, write: fx.Node) -> Iterator[fx.Node]:
        """The node and its views, but for those of the result of `write`."""
        yield node
        for user in node.users:
            if user is not write and self._aliases(user) and user.args[0] is node:
                yield from self._names(user, write)

    def _aliases(self, node: fx.Node) -> bool:
        """Whether the result is the first argument's memory, or would be if that were contiguous."""
        views = name_of(node) in _MAY_COPY | _VIEWS
        return self.into_first(node) or (views and bool(node.args) and isinstance(node.args[0], fx.Node))

    def into_first(self, node: fx.Node) -> bool:
        """Whether the node writes into its first argument."""
        if not node.args or not isinstance(node.args[0], fx.Node):
            return False
        if node.op == "call_module":
            return bool(getattr(self.module.get_submodule(str(node.target)), "inplace", False))
        if node.target in IN_PLACE or node.kwargs.get("inplace") is True:
            return True
        name = name_of(node)  # operator has and_
        return name.endswith("_") and not name.endswith("__") and not hasattr(operator, name)
