"""What squeeze-and-excitation blocks do between their convolutions, as steps of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, fx, nn

from vkconv.torch._graphs import MULTIPLICATIONS, call_new, computes, module_of
from vkconv.torch._modules import plain
from vkconv.torch._prepared import Prepared, PreparedLinear
from vkconv.torch._sources import Stores

_POOLS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
_POOLINGS = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)


class ChannelStep(nn.Module):
    """A step without weights; `beside` is a convolution that reads or makes what it does."""

    def __init__(self, beside: Prepared) -> None:
        super().__init__()
        self.__dict__["beside"] = beside

    def stores(self) -> Stores:
        return ()

    def is_computed(self) -> bool:
        return False

    def packed(self) -> None:
        """The operands tell the extension which step it is."""


class ChannelMeans(ChannelStep):
    """The mean of every channel, as an image of one pixel. `axes` are as the code has them: those counted from the
    first are others, or none, in an image without a batch."""

    def __init__(self, beside: Prepared, axes: Sequence[int]) -> None:
        super().__init__(beside)
        self.axes = list(axes)

    def forward(self, input: Tensor) -> Tensor:
        return input.mean(self.axes, keepdim=True)


class ChannelProduct(ChannelStep):
    """Every channel times its number in an image of one pixel."""

    def forward(self, input: Tensor, factors: Tensor) -> Tensor:
        return input * factors


def excite(made: fx.GraphModule) -> None:
    """Make steps of the mean and the product of every block x * convolutions(mean(x)) in the graph of `made` whose x a
    convolution computes: an image from elsewhere may be contiguous, and would be copied."""
    for node in list(made.graph.nodes):
        last, beside = node, None
        while (layer := _only_reader(made, last)) is not None:
            last, beside = next(iter(last.users)), beside or layer
        axes = None if beside is None else _axes_of_means(made, node, beside.geometry.rank)
        if beside is None or axes is None or len(last.users) != 1:
            continue
        image, product = node.args[0], next(iter(last.users))
        from_convolution = isinstance(module_of(made, image), Prepared)
        if from_convolution and computes(product, MULTIPLICATIONS, "mul") and set(product.args) == {image, last}:
            _step(made, node, ChannelMeans(beside, axes), (image,))
            _step(made, product, ChannelProduct(beside), (image, last))


def _only_reader(made: fx.GraphModule, node: fx.Node) -> Prepared | None:
    """The convolution that alone reads the result, and nothing else."""
    users = list(node.users)
    layer = module_of(made, users[0]) if len(users) == 1 and len(users[0].args) == 1 else None
    return layer if isinstance(layer, Prepared) and not isinstance(layer, PreparedLinear) else None


def _axes_of_means(made: fx.GraphModule, node: fx.Node, rank: int) -> Sequence[int] | None:
    """All `rank` spatial axes, where the node takes the mean of every channel over them and keeps them."""
    if not node.args or not isinstance(node.args[0], fx.Node):
        return None
    if node.op == "call_module":
        pool: Any = module_of(made, node)
        return range(-rank, 0) if type(pool) is _POOLS[rank - 1] and plain(pool) and _is_one(pool.output_size) else None
    if node.target is _POOLINGS[rank - 1]:
        return range(-rank, 0) if len(node.args) == 2 and not node.kwargs and _is_one(node.args[1]) else None
    if (node.op, node.target) != ("call_method", "mean") and node.target is not torch.mean:
        return None
    given = dict(zip(("input", "dim", "keepdim"), node.args, strict=False)) | node.kwargs
    if given.keys() != {"input", "dim", "keepdim"} or given["keepdim"] is not True:
        return None
    dims: Any = given["dim"]
    dims = [dims] if isinstance(dims, int) else dims
    spatial = isinstance(dims, list | tuple) and sorted(d % (rank + 2) for d in dims) == list(range(2, rank + 2))
    return dims if spatial else None


def _is_one(size: Any) -> bool:
    return size == 1 or (isinstance(size, list | tuple) and set(size) == {1})


def _step(made: fx.GraphModule, node: fx.Node, step: ChannelStep, arguments: tuple[Any, ...]) -> None:
    with made.graph.inserting_before(node):
        replacement = call_new(made, "step", step, arguments)
    node.replace_all_uses_with(replacement)
    made.graph.erase_node(node)
