"""Memory formats inside a graph and of its results."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import fx, nn

from vkconv.torch._arrays import contiguous, is_channels_last
from vkconv.torch._chain import Chain
from vkconv.torch._channels import POOLINGS, POOLS, is_one
from vkconv.torch._graphs import module_of, name_of
from vkconv.torch._prepared import Prepared

_IN_MEMORY = frozenset((
    "as_strided", "as_strided_", "data_ptr", "is_contiguous", "resize_", "set_", "storage", "stride", "untyped_storage",
    "view_as_complex", "bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_",
    "native_dropout", "normal_", "rand_like", "randint_like", "randn_like", "random_", "uniform_",
))  # fmt: skip
_DROPOUTS = frozenset(("alpha_dropout", "alpha_dropout_", "dropout", "dropout_"))
_KEEP_AXES = _DROPOUTS | {"adaptive_avg_pool2d", "gelu", "hardswish", "max_pool2d", "relu", "relu_", "silu"}
_OF_ELEMENTS = (nn.AlphaDropout, nn.Dropout, nn.GELU, nn.Hardswish, nn.ReLU, nn.SiLU)


def asks_for_format(module: nn.Module, graph: fx.Graph) -> bool:
    """Whether code that reads tensors, or draws random ones, in the order of their memory would find another one where
    channels come last."""
    drawn = (n for n in graph.nodes if draws(module_of(module, n)) or (name_of(n) in _DROPOUTS and _trains(n)))
    return any(name_of(n) in _IN_MEMORY for n in graph.nodes) or not all(map(Rows(module).are_read_by, drawn))


def draws(layer: nn.Module | None) -> bool:
    """Whether the layer draws a number for every element."""
    return isinstance(layer, nn.Dropout | nn.AlphaDropout) and layer.training and layer.p > 0


def _trains(dropout: fx.Node) -> bool:
    """Whether it may draw a number for every element. `torch` and `torch.nn.functional` have two names for that."""
    named = [value for name, value in dropout.kwargs.items() if name in ("training", "train")]
    return False not in (*dropout.args[2:3], *named)


class Rows:
    """Where the features of an image lie side by side, whatever the format of images is."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def are_read_by(self, node: fx.Node) -> bool:
        return bool(node.args) and isinstance(node.args[0], fx.Node) and self._are(node.args[0])

    def _are(self, node: fx.Node) -> bool:
        """Whether the node makes them: a linear layer, a pool of whole images, images flattened, or what changes each
        number of such rows."""
        layer: Any = module_of(self.module, node)
        pools = (type(layer) in POOLS and is_one(layer.output_size)) or (
            node.target in POOLINGS and len(node.args) == 2 and is_one(node.args[1])
        )
        if pools or type(layer) is nn.Linear:
            return True
        if isinstance(layer, nn.Flatten) or name_of(node) == "flatten":
            axes = (layer.start_dim, layer.end_dim) if isinstance(layer, nn.Flatten) else node.args[1:]
            read = node.args[0] if node.args else None
            of_layer = isinstance(read, fx.Node) and (read.op == "call_module" or name_of(read) in _KEEP_AXES)
            return of_layer and not node.kwargs and axes in ((1,), (1, -1))
        return (type(layer) in _OF_ELEMENTS or name_of(node) in _KEEP_AXES) and self.are_read_by(node)


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
    """`result`, or each of several, contiguous unless `input` is channels last."""
    last = isinstance(input, torch.Tensor) and is_channels_last(input)
    return result if last else all_contiguous(result)


def all_contiguous(result: Any) -> Any:
    """Tensors, in tuples, lists and dictionaries too, in PyTorch's contiguous format."""
    if isinstance(result, torch.Tensor):
        return contiguous(result)
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(all_contiguous, result))
    if type(result) in (tuple, list):
        return type(result)(map(all_contiguous, result))
    return {key: all_contiguous(value) for key, value in result.items()} if type(result) is dict else result
