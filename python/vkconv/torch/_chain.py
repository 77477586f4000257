"""Layers that follow each other in a graph, computed in one call of the extension."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn

from vkconv import _core
from vkconv.torch._arrays import channels_first, channels_last
from vkconv.torch._channels import ChannelStep
from vkconv.torch._graphs import call_new, module_of
from vkconv.torch._prepared import ONCE, Prepared, PreparedLinear
from vkconv.torch._sources import Sources, tensors_in
from vkconv.torch._watchers import differentiated, followed, noticed, stored

_SUMS = (torch.float32, torch.float64)  # dtypes in which sums run, and which an addend then has


class Chain(nn.Module):
    """What `layers`, a graph of prepared layers only, computes. The graph runs where something follows its parts."""

    def __init__(self, layers: fx.GraphModule) -> None:
        super().__init__()
        self.layers = layers
        nodes = list(layers.graph.nodes)
        places = {node: i for i, node in enumerate(nodes)}
        calls = [n for n in nodes if n.op == "call_module"]
        self._calls = [(layers.get_submodule(n.target), *(places[a] for a in n.args)) for n in calls]
        self._convolution = next(i for i, (step, *_) in enumerate(self._calls) if isinstance(step, Prepared))
        self._inputs, self._results = len(nodes) - len(calls) - 1, [places[n] for n in nodes[-1].all_input_nodes]
        self._stores = [store for layer, *_ in self._calls for store in layer.stores()]
        self._packed: tuple[Any, Sources] | None = None

    def first(self) -> Prepared:
        layer: Prepared = self._calls[self._convolution][0]
        return layer

    def forward(self, *inputs: Tensor) -> Any:
        first = self.first()
        if any(map(noticed, inputs)) or stored() or not first.fits(*inputs):
            return self.layers(*inputs)
        sources = tensors_in(self._stores)
        if torch.is_autocast_enabled("cpu") or (followed() and differentiated(*inputs, *sources)):
            return self.layers(*inputs)
        try:
            made = self._packed_of(sources)(*(channels_last(first.as_batch(x)) for x in inputs))
        except (TypeError, ValueError):  # each layer knows what else it can take
            return self.layers(*inputs)
        results = [first.of_batch(channels_first(y), inputs[0]) for y in made]
        return results if len(results) > 1 else results[0]

    def _packed_of(self, sources: list[Tensor]) -> Any:
        known = self._packed
        if known is None or known[1].changed(sources):
            if any(layer.is_computed() for layer, *_ in self._calls):
                raise TypeError("something is computed in every call")
            steps = [(layer.packed(), input, second[0] if second else None) for layer, input, *second in self._calls]
            known = self._packed = _core.prepare_chain(self._inputs, steps, self._results), Sources(sources)
        return known[0]


def chain(made: fx.GraphModule) -> None:
    """Make one of layers that follow each other in the graph of `made`."""
    run: list[fx.Node] = []
    kind = None
    for node in list(made.graph.nodes):
        layer = module_of(made, node)
        following = _kind(layer, node) if isinstance(layer, Prepared | ChannelStep) else None
        if run and following != kind:
            _replace(made, run)
            run = []
        kind = following
        if kind is not None:
            run.append(node)


def _kind(step: Prepared | ChannelStep, node: fx.Node) -> Any:
    """What layers of a chain have in common; None of a layer that cannot be part of one."""
    layer = step.beside if isinstance(step, ChannelStep) else step
    dtype = layer.layer.weight.dtype
    if (len(node.args) > 1 or layer is not step) and dtype not in _SUMS:
        return None
    if layer.geometry.padding_mode in ONCE:  # inside a chain nothing compares its pads with its input
        return None
    return layer.geometry.rank, isinstance(layer, PreparedLinear), dtype


def _replace(made: fx.GraphModule, run: list[fx.Node]) -> None:
    steps = [made.get_submodule(str(node.target)) for node in run]
    if all(isinstance(step, ChannelStep) for step in steps):
        return
    if len(run) == 1 and isinstance(steps[0], PreparedLinear) and len(run[0].args) == 1 and steps[0].is_plain():
        made.set_submodule(str(run[0].target), steps[0].layer)
        return
    inside, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in dict.fromkeys(a for n in run for a in n.all_input_nodes if a not in run):
        copies[node] = inside.placeholder(node.name)
    inputs = tuple(copies)
    for node in run:
        copies[node] = inside.node_copy(node, copies.__getitem__)
    results = [n for n in run if any(user not in run for user in n.users)]
    inside.output([copies[n] for n in results] if len(results) > 1 else copies[results[0]])
    with made.graph.inserting_after(run[-1]):
        call = call_new(made, "chain", Chain(fx.GraphModule(made, inside)), inputs)
    for i, node in enumerate(results):
        with made.graph.inserting_after(call):
            result = made.graph.call_function(operator.getitem, (call, i)) if len(results) > 1 else call
        node.replace_all_uses_with(result, delete_user_cb=lambda user: user not in run)
    for node in reversed(run):
        made.graph.erase_node(node)
