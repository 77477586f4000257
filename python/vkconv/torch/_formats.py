"""Memory formats inside a graph and of its results."""

from __future__ import annotations

import operator
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
    "view_as_complex", "bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_",
    "native_dropout", "normal_", "rand_like", "randint_like", "randn_like", "random_", "uniform_",
))  # fmt: skip
_DROPOUTS = frozenset(("alpha_dropout", "alpha_dropout_", "dropout", "dropout_"))


def asks_for_format(graph: fx.Graph) -> bool:
    """Whether code that reads tensors, or draws random ones, in the order of their memory would find another one where
    channels come last."""
    return any(name_of(n) in _IN_MEMORY or (name_of(n) in _DROPOUTS and _trains(n)) for n in graph.nodes)


def _trains(dropout: fx.Node) -> bool:
    """Whether it may draw a number for every element. `torch` and `torch.nn.functional` have two names for that."""
    named = [value for name, value in dropout.kwargs.items() if name in ("training", "train")]
    return False not in (*dropout.args[2:3], *named)


_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def reads_contiguous(layer: nn.Module | None) -> bool:
    """Whether the layer makes its input contiguous where it is not, in ten times the time that vkconv takes for it."""
    return type(layer) in _INSTANCE_NORMS


def normalize_contiguous(made: fx.GraphModule) -> None:
    """Instance norms, and group norms of sequences, find their input contiguous."""
    graph = made.graph
    for node in list(graph.nodes):
        layer, read = module_of(made, node), node.args[0] if node.args else None
        if not isinstance(read, fx.Node):
            continue
        of_groups = node.target is F.group_norm or type(layer) is nn.GroupNorm
        if (
            reads_contiguous(layer)
            or node.target is F.instance_norm
            or (of_groups and _rank(module_of(made, read)) == 1)
        ):
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
    readers = [output]
    for reader in readers:
        for node in reader.all_input_nodes:
            if isinstance(node.target, type):  # a named tuple, dataclass or ordered dictionary of results
                readers.append(node)
            elif node.op not in ("placeholder", "get_attr"):
                with graph.inserting_before(reader):
                    reader.replace_input_with(node, graph.call_function(in_format_of, (input, node)))


def in_format_of(input: Any, result: Any) -> Any:
    """`result`, or each image of several, contiguous unless `input` is channels last."""
    if isinstance(input, torch.Tensor) and is_channels_last(input):
        return result
    if isinstance(result, torch.Tensor):
        return contiguous(result)
    return _images_contiguous(result) if isinstance(result, tuple | list) else result


def _images_contiguous(results: Any) -> Any:
    """Other tensors may be views of each other, which copies would not be."""
    made = [contiguous(r) if isinstance(r, torch.Tensor) and is_channels_last(r) else r for r in results]
    if all(map(operator.is_, made, results)):
        return results
    return type(results)(*made) if hasattr(results, "_fields") else type(results)(made)
