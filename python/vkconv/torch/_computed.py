"""Convolutions that code calls as functions, by weights that it computes of parameters: weight standardization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from vkconv.torch import _functional
from vkconv.torch._functional import per_axis
from vkconv.torch._graphs import Attribute, call_new, module_of, name_of
from vkconv.torch._writes import Writes

# PyTorch's functions and vkconv's.
CONVOLUTIONS: dict[Any, Any] = {
    torch.conv1d: _functional.conv1d,
    torch.conv2d: _functional.conv2d,
    torch.conv3d: _functional.conv3d,
}
TRANSPOSED: dict[Any, Any] = {
    torch.conv_transpose1d: _functional.conv_transpose1d,
    torch.conv_transpose2d: _functional.conv_transpose2d,
    torch.conv_transpose3d: _functional.conv_transpose3d,
}
_DEFAULTS = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}


_NAMES = ("input", "weight", *_DEFAULTS)


def arguments_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Those of a call of a convolution by their names; None of a call that lacks some or has others."""
    given = _DEFAULTS | dict(zip(_NAMES, args, strict=False)) | dict(kwargs)
    return given if given.keys() == set(_NAMES) and len(args) <= len(_NAMES) else None


class Computed(nn.Module):
    """In the place of a layer of PyTorch, whose weight and bias graphs compute of attributes of the model's modules."""

    padding_mode = "zeros"

    def __init__(
        self,
        weight: fx.GraphModule,
        bias: fx.GraphModule | None,
        shape: Sequence[int],
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
    ) -> None:
        super().__init__()
        read = [m for graph in (weight, bias) if graph for m in graph.children() if isinstance(m, Attribute)]
        # No children: the model owns them.
        self.__dict__.update(_weight=weight, _bias=bias, _read=read)
        rows, columns, *kernel = shape
        rank = len(kernel)
        self.out_channels, self.in_channels, self.groups = rows, columns * groups, groups
        self.kernel_size = tuple(kernel)
        self.stride, self.dilation = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
        self.padding = padding if isinstance(padding, str) else per_axis(padding, rank, "padding")

    @property
    def weight(self) -> Any:
        return self._weight()

    @property
    def bias(self) -> Any:
        return self._bias and self._bias()

    def stores(self) -> Any:
        """Where everything is that they are computed of."""
        return self._read

    def source(self) -> Any:
        """One of the tensors that they are computed of, whose dtype they have."""
        return self._read[0]() if self._read else None


def functions_to_layers(made: fx.GraphModule) -> None:
    """Put a `Computed` in the place of each convolution that the graph calls as a function whose weights depend on no
    input, and vkconv's functions in that of the others."""
    for node in list(made.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in CONVOLUTIONS:
            given = arguments_of(node.args, node.kwargs)
            if given is None or not _replace(made, node, **given):
                node.target = CONVOLUTIONS[node.target]
        elif node.target in TRANSPOSED:
            node.target = TRANSPOSED[node.target]


def _replace(made: fx.GraphModule, node: fx.Node, input: Any, weight: Any, bias: Any, **settings: Any) -> bool:
    """Whether a layer could take the node's place."""
    steps = [_Steps(made, result) for result in (weight, bias) if result is not None]
    constant = not any(isinstance(v, fx.Node) for v in tree_leaves(list(settings.values())))
    layer = _layer(settings, *(s.module() for s in steps)) if constant and all(s.are_known for s in steps) else None
    if layer is None:
        return False
    with made.graph.inserting_before(node):
        node.replace_all_uses_with(call_new(made, "computed", layer, (input,)))
    made.graph.erase_node(node)
    for step in reversed([n for n in made.graph.nodes if any(n in s.copies for s in steps)]):
        if not step.users:
            made.graph.erase_node(step)
    return True


def _layer(settings: dict[str, Any], weight: fx.GraphModule, bias: fx.GraphModule | None = None) -> Computed | None:
    """None where there are no weights yet, or none that vkconv can pack."""
    try:
        now = weight()
        layer = Computed(weight, bias, now.shape, **settings)
    except Exception:  # whatever code raises on parameters without a shape
        return None
    return layer if now.is_floating_point() and now.device.type in ("cpu", "meta") else None


def _is_function_of_arguments(node: fx.Node) -> bool:
    """Whether the node calls what PyTorch or Python computes of the arguments alone."""
    if node.op == "call_function":
        module = getattr(node.target, "__module__", None) or "torch"
        if module.partition(".")[0] not in ("torch", "_operator", "builtins", "math"):
            return False
    elif node.op != "call_method":
        return False
    operators = getattr(torch.ops.aten, name_of(node).rstrip("_"), None)
    overloads = [getattr(operators, o) for o in operators.overloads()] if operators else []
    return not any(torch.Tag.nondeterministic_seeded in o.tags for o in overloads)


class _Steps:
    """The nodes of a graph that make a result of attributes alone."""

    def __init__(self, made: fx.GraphModule, result: Any) -> None:
        self.made, self.writes, self.result = made, Writes(made, made.graph), result
        self.graph, self.copies = fx.Graph(), dict[fx.Node, fx.Node]()
        self.are_known = isinstance(result, fx.Node) and self._take(result)

    def _take(self, node: fx.Node) -> bool:
        """Whether the node is one of them; then it and those before it are copied."""
        if node in self.copies:
            return True
        if not isinstance(module_of(self.made, node), Attribute) and not _is_function_of_arguments(node):
            return False
        if any(map(self.writes.written, (node, *node.users))) or not all(map(self._take, node.all_input_nodes)):
            return False
        self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
        return True

    def module(self) -> fx.GraphModule:
        """What computes the result."""
        self.graph.output(self.copies[self.result])
        return fx.GraphModule(self.made, self.graph)
