"""Convolutions that code calls as functions, by weights that it computes of parameters: weight standardization."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from vkconv.torch import _functional
from vkconv.torch._functional import per_axis
from vkconv.torch._graphs import Attribute, call_new, module_of, name_of
from vkconv.torch._sources import Stores
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


class Computed(nn.Module):
    """In the place of a layer of PyTorch: `weights` computes weight and bias of attributes of the model's modules."""

    padding_mode = "zeros"

    def __init__(self, weights: fx.GraphModule, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
        super().__init__()
        read = [m for m in weights.children() if isinstance(m, Attribute)]
        stores = [store for m in read for store in (m.owner._parameters, m.owner._buffers)]
        self.__dict__.update(weights=weights, _stores=stores)  # no children: the model owns them
        rows, columns, *kernel = self.weight.shape
        rank = len(kernel)
        self.out_channels, self.in_channels, self.groups = rows, columns * groups, groups
        self.kernel_size = tuple(kernel)
        self.stride, self.dilation = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
        self.padding = padding if isinstance(padding, str) else per_axis(padding, rank, "padding")

    @property
    def weight(self) -> Tensor:
        return self.__dict__["weights"]()[0]

    @property
    def bias(self) -> Tensor | None:
        return self.__dict__["weights"]()[1]

    def stores(self) -> Stores:
        """Where everything is that the weights are computed of."""
        return self.__dict__["_stores"]

    def source(self) -> Any:
        """One of the tensors that they are computed of, whose dtype they have."""
        return next((t for store in self.stores() for t in store.values() if t is not None), None)


def functions_to_layers(made: fx.GraphModule) -> None:
    """Put a `Computed` in the place of each convolution that the graph calls as a function whose weights depend on no
    input, and vkconv's functions in that of the others."""
    for node in list(made.graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in CONVOLUTIONS:
            _replace(made, node)
        elif node.target in TRANSPOSED:
            node.target = TRANSPOSED[node.target]


def _replace(made: fx.GraphModule, node: fx.Node) -> None:
    given = _DEFAULTS | dict(zip(("input", "weight", *_DEFAULTS), node.args, strict=False)) | node.kwargs
    input, weight, bias = given.pop("input"), given.pop("weight"), given.pop("bias")
    settings = not any(isinstance(v, fx.Node) for v in tree_leaves(list(given.values())))
    steps = _Steps(made)
    known = settings and steps.take(weight) and (bias is None or steps.take(bias))
    layer = _layer(steps.module(weight, bias), given) if known else None
    if layer is None:
        node.target = CONVOLUTIONS[node.target]
        return
    with made.graph.inserting_before(node):
        node.replace_all_uses_with(call_new(made, "computed", layer, (input,)))
    made.graph.erase_node(node)
    steps.erase_unused()


def _layer(weights: fx.GraphModule, settings: dict[str, Any]) -> Computed | None:
    """None where there are no weights yet, or none that vkconv can pack."""
    try:
        layer = Computed(weights, **settings)
        weight = layer.weight
    except Exception:  # whatever code raises on parameters without a shape
        return None
    return layer if weight.is_floating_point() and weight.device.type in ("cpu", "meta") else None


def _is_function_of_arguments(node: fx.Node) -> bool:
    """Whether the node calls what PyTorch or Python computes of the arguments alone."""
    if node.op == "call_function":
        module = getattr(node.target, "__module__", None) or "torch"
        if not module.startswith(("torch", "_operator", "builtins", "math")):
            return False
    elif node.op != "call_method":
        return False
    operators = getattr(torch.ops.aten, name_of(node).rstrip("_"), None)
    overloads = [getattr(operators, o) for o in operators.overloads()] if operators else []
    return not any(torch.Tag.nondeterministic_seeded in o.tags for o in overloads)


class _Steps:
    """The nodes of a graph that make weights of attributes alone."""

    def __init__(self, made: fx.GraphModule) -> None:
        self.made, self.writes = made, Writes(made, made.graph)
        self.graph, self.copies = fx.Graph(), dict[fx.Node, fx.Node]()

    def take(self, node: Any) -> bool:
        """Whether the node is one of them; then it and those before it are copied."""
        if not isinstance(node, fx.Node) or node in self.copies:
            return isinstance(node, fx.Node)
        if not isinstance(module_of(self.made, node), Attribute) and not _is_function_of_arguments(node):
            return False
        if any(map(self.writes.into_first, (node, *node.users))) or not all(map(self.take, node.all_input_nodes)):
            return False
        self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
        return True

    def module(self, weight: fx.Node, bias: fx.Node | None) -> fx.GraphModule:
        """What computes both."""
        self.graph.output((self.copies[weight], None if bias is None else self.copies[bias]))
        return fx.GraphModule(self.made, self.graph)

    def erase_unused(self) -> None:
        for node in reversed(list(self.copies)):
            if not node.users:
                self.made.graph.erase_node(node)
