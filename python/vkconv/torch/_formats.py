"""Memory formats inside a graph and of its results."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import fx, nn

from vkconv.torch._arrays import contiguous, is_channels_last
from vkconv.torch._chain import Chain
from vkconv.torch._graphs import module_of, name_of
from vkconv.torch._prepared import Prepared

_IN_MEMORY = frozenset((
    "as_strided", "as_strided_", "data_ptr", "is_contiguous", "resize_", "set_", "storage", "stride", "untyped_storage",
    "view_as_complex", "bernoulli", "bernoulli_", "normal_", "rand_like", "randint_like", "randn_like", "uniform_",
))  # fmt: skip


def asks_for_format(graph: fx.Graph) -> bool:
    """Whether code that reads tensors, or draws random ones, in the order of their memory would find another one where
    channels come last."""
    return not _IN_MEMORY.isdisjoint(map(name_of, graph.nodes))


def normalize_contiguous(made: fx.GraphModule) -> None:
    """Group norms of sequences read contiguous ones: else PyTorch makes them so, in ten times the time."""
    graph = made.graph
    for node in list(graph.nodes):
        if node.target is not F.group_norm and type(module_of(made, node)) is not nn.GroupNorm:
            continue
        read = node.args[0] if node.args else None
        if isinstance(read, fx.Node) and _rank(module_of(made, read)) == 1:
            with graph.inserting_before(node):
                node.replace_input_with(read, graph.call_function(contiguous, (read,)))


def _rank(layer: nn.Module | None) -> int | None:
    """The spatial axes of what the layer computes."""
    if isinstance(layer, Chain):
        return layer.first().geometry.rank
    return layer.geometry.rank if isinstance(layer, Prepared) else None


def return_in_format(graph: fx.Graph) -> None:
    """What reads the results of the graph finds the memory format that it would have without vkconv."""
    input = next(node for node in graph.nodes if node.op == "placeholder")
    output = next(node for node in graph.nodes if node.op == "output")
    for node in output.all_input_nodes:
        if node.op not in ("placeholder", "get_attr"):
            with graph.inserting_before(output):
                output.replace_input_with(node, graph.call_function(in_format_of, (input, node)))


def in_format_of(input: Any, result: Any) -> Any:
    """`result`, contiguous unless `input` is channels last."""
    last = isinstance(input, torch.Tensor) and is_channels_last(input)
    return contiguous(result) if isinstance(result, torch.Tensor) and not last else result
