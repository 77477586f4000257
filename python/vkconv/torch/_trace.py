"""The graph of a module, when `torch.fx` can be sure of it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from vkconv.torch._code import hidden
from vkconv.torch._effects import State, WritesRefused, take_back, without_collections
from vkconv.torch._formats import asks_for_format
from vkconv.torch._modules import TRAINABLE, plain, runs_known_code
from vkconv.torch._proxies import Proxy, no_questions_of_type
from vkconv.torch._writes import Writes

_one_at_a_time = threading.RLock()  # what a trace changes is seen by every thread
_SIMPLE = (bool, int, float, str)
_CONTAINERS = (dict, list, tuple, torch.Size, fx.immutable_collections.immutable_dict,
               fx.immutable_collections.immutable_list)  # fmt: skip


class _Tracer(fx.Tracer):
    proxy_buffer_attributes = True  # buffers change

    def __init__(self) -> None:
        super().__init__()
        self.modes, self.proxies, self.refused = _modes(), list[weakref.ref[fx.Proxy]](), False
        self.thread = threading.get_ident()  # others find modules changed by torch.fx, too

    def refuse(self, reason: str) -> NoReturn:
        self.refused = True
        raise TypeError(f"no trace: {reason}")

    def to_bool(self, obj: fx.Proxy) -> bool:
        self.refuse("it depends on a value")

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        self.refuse("it depends on a length")

    def proxy(self, node: fx.Node) -> fx.Proxy:
        made = Proxy(node, self)
        self.proxies.append(weakref.ref(made))
        return made

    @functools.cached_property
    def _names(self) -> dict[int, str]:
        """Of the tensors that the module has, by `id`."""
        named = [*self.root.named_parameters(), *self.root.named_buffers()]
        return {id(tensor): name for name, tensor in reversed(named)}

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, fx.Proxy]) -> Any:
        """That of torch.fx looks through all tensors of the module every time."""
        name = self._names.get(id(attr_val))
        if name is None or threading.get_ident() != self.thread:
            return attr_val
        if name not in parameter_proxy_cache:
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
        return parameter_proxy_cache[name]

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if _modes() != self.modes:
            self.refuse("it would lose the modes that code runs in")
        if reason := hidden(sys._getframe(1), _graph_in_mode.__code__):
            self.refuse(reason)
        return super().create_node(*args, **kwargs)

    def is_leaf_module(self, m: nn.Module, qualified_name: str) -> bool:
        if "_conv_forward" in vars(m) or type(m) in TRAINABLE.values():
            return True
        if super().is_leaf_module(m, qualified_name):
            if runs_known_code(m):
                return True
        elif plain(m) and not m.training:
            return False
        self.refuse(f"{qualified_name} cannot be traced, and may want contiguous tensors")

    def call_module(self, m: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        made = super().call_module(m, forward, args, kwargs)
        own = "_conv_forward" in vars(m)  # the code of a subclass, whose results may be any
        return self.create_proxy("call_function", given, (made,), {}) if own else made

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        """Parameters after the first keep their defaults."""
        function, arguments = super().create_args_for_root(root_fn, is_module, concrete_args)
        module, first, *others = arguments
        for other in others:
            self.graph.erase_node(other.node)
        return function, [module, first, *(root_fn.__defaults__ or ())[-len(others) :]] if others else arguments

    def create_arg(self, a: Any) -> Any:
        kind = type(a)
        if kind is OrderedDict:
            return self.create_node("call_function", kind, (self.create_arg(list(map(list, a.items()))),), {})
        other = issubclass(kind, (dict, list, tuple)) and kind not in _CONTAINERS and not hasattr(kind, "_fields")
        if other or (dataclasses.is_dataclass(kind) and not _holds_arguments(kind)):
            self.refuse(f"it would make something else of {kind}")
        return super().create_arg(a)


def _holds_arguments(kind: type) -> bool:
    """Whether the fields of a dataclass are what its instances were made of."""
    return all(f.init for f in dataclasses.fields(kind)) and not hasattr(kind, "__post_init__")


class MissingError(TypeError):
    """A layer has given None, where the trace took it for a tensor."""


def lacks(value: Any) -> bool:
    """Whether it is None or holds None."""
    return not isinstance(value, torch.Tensor) and any(v is None for v in tree_leaves(value))


def given(result: Any) -> Any:
    if lacks(result):
        raise MissingError
    return result


def takes_one(parameters: list[inspect.Parameter]) -> bool:
    """Whether a call may give the first of these parameters only."""
    if not parameters or any(p.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters):
        return False
    return all(p.default is None or isinstance(p.default, _SIMPLE) for p in parameters[1:])


def trace(module: nn.Module) -> fx.Graph | None:
    """None when what the module does may depend on more than one tensor, on its type or value, or on earlier calls."""
    _, *parameters = inspect.signature(type(module).forward).parameters.values()
    if not takes_one(parameters):
        return None
    if any(m.training for m in module.modules()):
        return None
    if any(hasattr(fx.GraphModule, name) for name in (*module._modules, *module._parameters, *module._buffers)):
        return None  # "graph" and "code" are its own
    with _one_at_a_time, without_collections():
        return _traced(module)


def _traced(module: nn.Module) -> fx.Graph | None:
    """The graph that two traces agree about. Where code asks for modes, they do not."""
    try:
        state = State((module,))
    except Exception:  # of objects that stand for others
        return None
    graphs = []
    for mode in (True, False):
        graph = _graph_in_mode(module, state, mode)
        if graph is None or asks_for_format(graph) or not Writes(module, graph).are_kept():
            return None
        graphs.append(graph)
    return graphs[0] if str(graphs[0]) == str(graphs[1]) else None


def _graph_in_mode(module: nn.Module, state: State, mode: bool) -> fx.Graph | None:
    """None where code raises an exception on meeting a proxy, or does more than compute, which is taken back."""
    with torch.set_grad_enabled(mode), torch.autocast("cpu", torch.bfloat16, enabled=mode), WritesRefused() as writes:
        tracer = _Tracer()
        try:
            with no_questions_of_type():
                graph = tracer.trace(module)
        except Exception:  # whatever user code raises
            graph = None
    proxies, refused = tracer.proxies, tracer.refused
    del tracer
    changed = state.restore()
    held = take_back(proxies)
    return None if refused or writes.any or changed or held else graph


def _modes() -> tuple[Any, ...]:
    """What of PyTorch's state changes the results of operators."""
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *autocast
