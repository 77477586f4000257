"""Folds batch norm, addition and activation into the convolution before them, in the graph of a module."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import fx, nn

from vkconv._types import Activation
from vkconv.torch._arrays import contiguous
from vkconv.torch._chain import chain
from vkconv.torch._channels import ChannelStep, excite
from vkconv.torch._computed import Computed, functions_to_layers
from vkconv.torch._formats import in_format_of, normalize_contiguous, reads_contiguous, return_in_format
from vkconv.torch._graphs import IDENTITIES, MULTIPLICATIONS, Attribute, call_new, computes, module_of
from vkconv.torch._modules import TRAINABLE, plain, runs_known_code, stand_in
from vkconv.torch._prepared import CONVOLUTIONS, NORMS, TRANSPOSED, Prepared, prepare

_MODULES: dict[type[nn.Module], Callable[[Any], Activation | None]] = {
    nn.ReLU: lambda m: "relu",
    nn.ReLU6: lambda m: "relu6",
    nn.LeakyReLU: lambda m: ("leaky_relu", m.negative_slope),
    nn.SiLU: lambda m: "silu",
    nn.GELU: lambda m: "gelu" if m.approximate == "none" else None,
    nn.Sigmoid: lambda m: "sigmoid",
    nn.Tanh: lambda m: "tanh",
    nn.Hardswish: lambda m: "hardswish",
    nn.Hardsigmoid: lambda m: "hardsigmoid",
    nn.Hardtanh: lambda m: ("clip", m.min_val, m.max_val),
}
_FUNCTIONS: dict[Any, Activation] = {
    F.relu: "relu",
    torch.relu: "relu",
    torch.relu_: "relu",
    F.relu6: "relu6",
    F.silu: "silu",
    F.gelu: "gelu",
    F.sigmoid: "sigmoid",
    torch.sigmoid: "sigmoid",
    F.tanh: "tanh",
    torch.tanh: "tanh",
    F.hardswish: "hardswish",
    F.hardsigmoid: "hardsigmoid",
}
_METHODS: dict[str, Activation] = {
    "relu": "relu", "relu_": "relu", "sigmoid": "sigmoid", "sigmoid_": "sigmoid", "tanh": "tanh", "tanh_": "tanh"
}  # fmt: skip
LAYERS = (*TRAINABLE, *TRAINABLE.values(), nn.Linear)
_STATISTICS = ("running_mean", "running_var", "weight", "bias")
_BATCH_NORM = ("input", *_STATISTICS, "training", "momentum", "eps")  # the arguments of F.batch_norm
_DROPS = (
    *((F.__name__, name) for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")),
    ("torchvision.ops.stochastic_depth", "stochastic_depth"),
)
_ADDITIONS = (operator.add, operator.iadd, torch.add)
_TO_FIRST, _TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # where the channels of images go
_VIEWS = {"view": "reshape", "view_as": "reshape_as"}


def fuse(module: nn.Module, graph: fx.Graph) -> fx.GraphModule | None:
    """The module of `graph`, with every convolution and what follows it in one; None where that changes nothing."""
    made = fx.GraphModule(module, graph)
    _read_attributes_late(module, made)
    functions_to_layers(made)
    Fusion(made).run()
    excite(made)
    for node in reversed(list(graph.nodes)):  # what nothing reads, as heads for training alone
        if not node.users and isinstance(module_of(made, node), Attribute | Prepared | ChannelStep):
            graph.erase_node(node)
    chain(made)
    for node in graph.nodes:
        node.type = None  # annotations, which may be strings that only their module understands
        # Between the convolutions of a graph everything is channels last, which `view` refuses.
        if node.op == "call_method" and node.target in _VIEWS and not _is_dtype(node):
            node.target = _VIEWS[node.target]
    normalize_contiguous(made)
    return_in_format(graph)
    graph.lint()
    made.delete_all_unused_submodules()
    made.recompile()
    return made if any(isinstance(m, Prepared) for m in made.modules()) else None


def _read_attributes_late(module: nn.Module, made: fx.GraphModule) -> None:
    """Parameters and buffers may be replaced after the trace."""
    for i, node in enumerate(made.graph.nodes):
        if node.op == "get_attr":
            path, _, name = str(node.target).rpartition(".")
            node.op, node.target = "call_module", f"attribute_{i}"
            made.add_submodule(node.target, Attribute(module.get_submodule(path), name))


def preparable(module: nn.Module | None) -> bool:
    """A convolution or linear layer whose weights vkconv can pack."""
    if isinstance(module, Computed):
        return True
    return module is not None and type(module) in LAYERS and plain(module) and _packable(module)


def inherits(module: nn.Module) -> bool:
    """A convolution by a subclass, whose forward may call that of PyTorch's class."""
    if type(module) in LAYERS or not isinstance(module, CONVOLUTIONS) or not _packable(module):
        return False
    return any(type(module)._conv_forward is base._conv_forward for base in CONVOLUTIONS)


def _packable(layer: nn.Module) -> bool:
    weight: Any = layer._parameters.get("weight")
    if isinstance(layer, TRANSPOSED):
        axes = zip(layer.output_padding, layer.stride, layer.dilation, strict=True)
        if any(extra >= max(others) for extra, *others in axes):  # which PyTorch refuses
            return False
    return type(weight) is nn.Parameter and weight.is_floating_point() and weight.device.type in ("cpu", "meta")


def _is_dtype(node: fx.Node) -> bool:
    return (len(node.args) == 2 and isinstance(node.args[1], torch.dtype)) or "dtype" in node.kwargs


def folds(norm: Any, conv: Any) -> bool:
    """Whether the batch norm can be part of the weights of `conv` before it. One of another rank refuses batches, or
    takes an image without a batch for one."""
    if isinstance(conv, nn.Linear) or not isinstance(norm, NORMS[len(conv.kernel_size) - 1]) or norm.training:
        return False
    return norm.running_var is not None and len(norm.running_var) == conv.out_channels


def activation_of(module: nn.Module | None) -> Activation | None:
    known = _MODULES.get(type(module)) if module is not None else None
    return known(module) if known else None


def _order_of(node: fx.Node) -> tuple[Any, ...]:
    """The axes of a permutation; none of any other node."""
    if node.target is not torch.permute and (node.op, node.target) != ("call_method", "permute"):
        return ()
    axes = node.args[1:]
    return tuple(axes[0]) if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes


class Steps:
    """A sequence whose layers may each compute what several of its children do."""

    def __init__(self, children: list[nn.Module]) -> None:
        layers = []
        while children:
            layer, count = _fold_next(children)
            layers.append(layer)
            children = children[count:]
        self.layers = layers
        self.any_format = [_any_format(layer) for layer in layers]

    def forward(self, input: Any) -> Any:
        x = input
        for layer, any_format in zip(self.layers, self.any_format, strict=True):
            if reads_contiguous(layer) and isinstance(x, torch.Tensor):
                x = contiguous(x)
            x = layer(x if any_format else in_format_of(input, x))
        return in_format_of(input, x)


def _fold_next(children: list[Any]) -> tuple[Any, int]:
    """The first child with the batch norm and activation that follow it, and how many children that are."""
    layer, *following = children[:3]
    if not preparable(layer):
        return layer, 1
    rest = [m if m is not None and plain(m) else None for m in following]
    norm = rest.pop(0) if rest and type(rest[0]) in NORMS and folds(rest[0], layer) else None
    activation = activation_of(rest[0]) if rest else None
    if isinstance(layer, nn.Linear) and activation is None:
        return layer, 1
    return prepare(layer, norm, activation, any_format=True), 1 + (norm is not None) + (activation is not None)


def _any_format(layer: nn.Module) -> bool:
    """Layers of PyTorch and vkconv do not care where channels lie; nor do graphs between their convolutions. A sequence
    gives all its layers the format of its own input."""
    if not plain(layer):
        return False
    run = getattr(stand_in(layer), "run", None)
    if isinstance(run, Steps):
        return all(run.any_format)
    if run is None and type(layer) is nn.Sequential:
        return all(map(_any_format, layer.children()))
    return run is not None or runs_known_code(layer)


class Fusion:
    """One pass over the graph of `made`."""

    def __init__(self, made: fx.GraphModule) -> None:
        self.made, self.graph, self.prepare = made, made.graph, functools.cache(prepare)

    def run(self) -> None:
        for node in list(self.graph.nodes):
            if self._returns_input(node):
                node.replace_all_uses_with(node.args[0])
                self.graph.erase_node(node)
        for node in list(self.graph.nodes):
            if preparable(self._module(node)) and len(node.args) == 1 and not node.kwargs:
                self._drop_checks_of_rank(node)
                self._fuse_at(node, self._scale(node))

    def _returns_input(self, node: fx.Node) -> bool:
        """An identity, or what drops parts of its input in training."""
        if type(self._module(node)) in IDENTITIES:
            return len(node.args) == 1 and not node.kwargs
        function = getattr(node.target, "__module__", ""), getattr(node.target, "__name__", "")
        if not node.args or function not in _DROPS:
            return False
        given = inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments
        return given.get("training") is False

    def _drop_checks_of_rank(self, conv: fx.Node) -> None:
        """Those that every result of the convolution passes: some batch norms have them."""
        rank = len(getattr(self._module(conv), "kernel_size", ())) + 2
        for asked in [n for n in conv.users if n.target is getattr and n.args[1] == "ndim"]:
            for equal in [n for n in asked.users if n.target is operator.eq and n.args[1] == rank]:
                for check in [n for n in equal.users if n.target is torch._assert]:
                    self.graph.erase_node(check)
                if not equal.users:
                    self.graph.erase_node(equal)
            if not asked.users:
                self.graph.erase_node(asked)

    def _module(self, node: fx.Node) -> nn.Module | None:
        """What the node calls, unless hooks make that more than its type says."""
        module = module_of(self.made, node)
        return module if module is not None and plain(module) else None

    def _scale(self, linear: fx.Node) -> Attribute | None:
        """The parameter by which every channel of a linear layer's result is multiplied once it has become an image:
        the layer scale of ConvNeXt. The permutation then comes after the multiplication and the addition."""
        layer, permuted = self._module(linear), self._only_user(linear)
        if not isinstance(layer, nn.Linear) or permuted is None or _order_of(permuted) != _TO_FIRST:
            return None
        scaled = self._only_user(permuted)
        if scaled is None or not computes(scaled, MULTIPLICATIONS, "mul"):
            return None
        (other,) = (a for a in scaled.args if a is not permuted)
        scale = self._parameter(other, layer.out_features)
        if scale is None:
            return None
        scaled.replace_all_uses_with(permuted)
        self.graph.erase_node(scaled)
        if not other.users:
            self.graph.erase_node(other)
        self._add_before_permuting(linear, permuted)
        return scale

    def _parameter(self, node: Any, channels: int) -> Attribute | None:
        """The parameter that the node is, with one number for each channel of an image."""
        if node.op == "call_method" and node.target == "reshape" and node.args[1:] == (1, -1, 1, 1):
            found, shape = self._module(node.args[0]), [channels]
        else:
            found, shape = self._module(node), [channels, 1, 1]
        if not isinstance(found, Attribute) or found.name not in found.owner._parameters:
            return None
        return found if list(found().shape) == shape else None

    def _add_before_permuting(self, linear: fx.Node, permuted: fx.Node) -> None:
        """permuted + image as a permutation of linear + permuted image."""
        total = self._only_user(permuted)
        if total is None or not computes(total, _ADDITIONS, "add"):
            return
        (image,) = (a for a in total.args if a is not permuted)
        if total.args[0] is image and total.target is operator.iadd:
            return
        readers = [m.layer if isinstance(m := self._module(user), Prepared) else m for user in image.users]
        nodes = list(self.graph.nodes)
        if not any(isinstance(m, nn.Conv2d) for m in readers) or nodes.index(image) > nodes.index(linear):
            return
        with self.graph.inserting_before(linear):
            rows = self.graph.call_method("permute", (image, *_TO_LAST))
        with self.graph.inserting_before(total):
            summed = self.graph.call_function(operator.add, (linear, rows))
            result = self.graph.call_method("permute", (summed, *_TO_FIRST))
        total.replace_all_uses_with(result)
        self.graph.erase_node(total)
        self.graph.erase_node(permuted)

    def _fuse_at(self, node: fx.Node, scale: Attribute | None = None) -> None:
        conv = self._module(node)
        last, place, addend, into = node, node, None, None
        following = self._only_user(last)
        norm = None if following is None else self._norm(following, conv)
        if norm is not None:
            last, following = following, self._only_user(following)
        # A transposed convolution is decomposed into phases, each of which would need its part of an addend.
        if following is not None and isinstance(conv, (*CONVOLUTIONS, nn.Linear, Computed)):
            addend = self._addend(following, node, last)
            if addend is not None:
                into = self._in_place(following, last)
                last = place = following
                following = self._only_user(last)
        activation = None if following is None else self._activation(following)
        if addend is not None and activation == "hardsigmoid":  # which becomes part of the weights
            activation = None
        if following is not None and activation is not None:
            last = following
        made = self.prepare(conv, norm, activation, any_format=True, scale=scale, into=into)
        with self.graph.inserting_before(place):  # what comes later may write into what is read here
            self._replace(node, last, made, addend)

    def _norm(self, node: fx.Node, conv: Any) -> Any:
        """The batch norm by running statistics that the node computes; of a function, the module that has them."""
        if node.target is not F.batch_norm:
            module = self._module(node)
            return module if type(module) in NORMS and folds(module, conv) else None
        given = dict(zip(_BATCH_NORM, node.args, strict=False)) | node.kwargs
        read = [self._module(given[n]) if isinstance(given.get(n), fx.Node) else None for n in _STATISTICS]
        owner = getattr(read[0], "owner", None)
        if not isinstance(owner, NORMS) or not folds(owner, conv) or owner.eps != given.get("eps"):
            return None
        own = (
            isinstance(a, Attribute) and (a.owner, a.name) == (owner, n) for a, n in zip(read, _STATISTICS, strict=True)
        )
        return owner if given.get("training") is False and all(own) else None

    @staticmethod
    def _only_user(node: fx.Node) -> fx.Node | None:
        """The one node that reads the result, as its first argument or as a term of a sum."""
        users = list(node.users)
        return users[0] if len(users) == 1 and list(users[0].all_input_nodes).count(node) == 1 else None

    def _addend(self, node: fx.Node, conv: fx.Node, last: fx.Node) -> fx.Node | None:
        """What `node` adds to `last`, when the convolution may run in its place instead."""
        method = node.op == "call_method" and node.target in ("add", "add_")
        if not (method or (node.op == "call_function" and node.target in _ADDITIONS)):
            return None
        if len(node.args) != 2 or node.kwargs or not all(isinstance(a, fx.Node) for a in node.args):
            return None
        first, second = node.args
        if first is second or (self._in_place(node, last) == "addend" and not self._is_lost(first)):
            return None
        between = conv.next
        while between is not node:
            if between is not last and not self._pure(between):
                return None
            between = between.next
        other = second if first is last else first
        return other if isinstance(other, fx.Node) else None

    @staticmethod
    def _in_place(total: fx.Node, result: fx.Node) -> str | None:
        """Which term is written into: the result of a layer, or what is added to it."""
        if total.target not in (operator.iadd, "add_"):
            return None
        return "result" if total.args[0] is result else "addend"

    def _is_lost(self, term: fx.Node) -> bool:
        """Whether nothing but the sum reads the term, whose memory is its own: what is written there shows nowhere."""
        if len(term.users) != 1:
            return False
        if term.target is operator.getitem and isinstance(term.args[0], fx.Node):
            return self._is_lost(term.args[0])
        return self._is_layer(term) or term.target in (operator.add, torch.add, torch.cat)

    def _pure(self, node: fx.Node) -> bool:
        """A node that writes into none of its arguments, as far as can be known."""
        return node.op == "placeholder" or self._is_layer(node) or isinstance(self._module(node), Attribute)

    def _is_layer(self, node: fx.Node) -> bool:
        module = self._module(node)
        return type(module) in (*LAYERS, *NORMS) or isinstance(module, Prepared)

    def _activation(self, node: fx.Node) -> Activation | None:
        module = self._module(node)
        if module is not None:
            return activation_of(module) if len(node.args) == 1 and not node.kwargs else None
        options = {k: v for k, v in node.kwargs.items() if (k, v) not in (("inplace", False), ("inplace", True))}
        if len(node.args) != 1 or options:
            return None
        return _METHODS.get(str(node.target)) if node.op == "call_method" else _FUNCTIONS.get(node.target)

    def _replace(self, first: fx.Node, last: fx.Node, made: nn.Module, addend: fx.Node | None) -> None:
        arguments = (first.args[0],) if addend is None else (first.args[0], addend)
        replacement = call_new(self.made, str(first.target).replace(".", "_"), made, arguments)
        last.replace_all_uses_with(replacement)
        node = last
        while node is not first:
            before = next(n for n in node.all_input_nodes if n is not addend)
            self.graph.erase_node(node)
            node = before
        self.graph.erase_node(first)
