"""Forwards that `accelerate` makes shorter, and their own code where that would differ."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import fx, nn

from vkconv.torch._fusion import Steps, fuse
from vkconv.torch._modules import StandIn, all_are_hooked, hooks, own_forward, stand_in
from vkconv.torch._trace import MissingError, lacks, takes_one, trace
from vkconv.torch._watchers import tracing


class Shortcut(StandIn):
    """The forward of `module` with its convolutions and what follows them in one, made when it is first wanted.

    The module's own code runs while a part of it is in training mode, and always where nothing could be made of it.
    After a change of its children or of their hooks the shortcut is made anew. `code` runs in the place of the
    module's own, if given.
    """

    def __init__(self, module: nn.Module, code: Callable[..., Any] | None = None) -> None:
        self.module, self.code = module, code
        self.run: Steps | fx.GraphModule | None = None
        self.made_of: _Parts | None = None
        self.none = False  # nothing could be made, and no hooks that may go were the reason
        self._name()

    def _name(self) -> None:
        """Callers may name the argument as the module's forward does."""
        _, first, *others = inspect.signature(type(self.module).forward).parameters.values()
        self.defaults = {p.name: p.default for p in others}
        own = Shortcut._forward_with_options if others else Shortcut._forward
        code = own.__code__.replace(co_varnames=("self", first.name, *own.__code__.co_varnames[2:]))
        default = None if first.default is inspect.Parameter.empty else (first.default,)
        self.__dict__["forward"] = MethodType(FunctionType(code, globals(), "forward", default), self)

    def forward(self, *values: Any, **named: Any) -> Any:
        """Behind that of the object: what is read from a file may ask for a forward before the object has its own."""
        return self.__dict__["forward"](*values, **named)

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self.module, "code": self.code}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _forward(self, input: Any) -> Any:
        return self._run(input)

    def _forward_with_options(self, input: Any, *values: Any, **named: Any) -> Any:
        if (values or named) and not self._are_defaults(values, named):
            return self._own(input, *values, **named)
        return self._run(input)

    def _own(self, *values: Any, **named: Any) -> Any:
        return self.code(*values, **named) if self.code else type(self.module).forward(self.module, *values, **named)

    def _are_defaults(self, values: tuple[Any, ...], named: dict[str, Any]) -> bool:
        """Whether these, given for the parameters after the first, are what the trace took for them."""
        own = self.defaults
        if len(values) > len(own) or not named.keys() <= set(list(own)[len(values) :]):
            return False
        return all(map(operator.is_, values, own.values())) and all(own[n] is v for n, v in named.items())

    def _run(self, input: Any) -> Any:
        run = self._shorter()
        if run is not None and not lacks(input):
            try:
                return run.forward(input)
            except MissingError:
                self.none = True
        return self._own(input)

    def _shorter(self) -> Steps | fx.GraphModule | None:
        """What runs instead of the module's code, if it may."""
        if self.module.training or self.none:
            return None
        if not torch.compiler.is_compiling():
            if tracing() or all_are_hooked():  # which sees every child's call
                return None
            if self.made_of is None or self.made_of.changed():
                if torch.jit.is_tracing():  # which would record what is read for it
                    return None
                self.make()
        return None if self.made_of is None or self.made_of.training() else self.run

    def make(self) -> None:
        """Follow the module as it is now."""
        module, parts = self.module, _Parts(self.module)
        run: Steps | fx.GraphModule | None = None
        if type(module).forward is nn.Sequential.forward and type(module).__iter__ is nn.Sequential.__iter__:
            for child in module.children():
                make_all(child)
            steps = Steps(list(module._modules.values()))
            if len(steps.layers) < len(module) or any(map(_is_shorter, parts.modules[1:])):
                run = steps
        elif not parts.training():
            graph = trace(module)
            run = None if graph is None else fuse(module, graph)
        self.run, self.made_of = run, None if parts.training() else parts
        self.none = run is None and self.made_of is not None and not parts.hooked()


def _is_shorter(module: nn.Module) -> bool:
    """Whether something else runs in the place of its code."""
    shortcut = stand_in(module)
    if isinstance(shortcut, Shortcut):
        return not shortcut.none
    return not {"forward", "_conv_forward"}.isdisjoint(vars(module))


def make_all(module: nn.Module) -> None:
    """Every shortcut in `module` that calls of it take."""
    shortcut = stand_in(module)
    if isinstance(shortcut, Shortcut):
        shortcut.make()
        if shortcut.run is not None:
            return
    for child in module.children():
        make_all(child)


def shortens(module: nn.Module) -> bool:
    """Whether the forward takes one argument, and options, so that a trace or a sequence may stand in for it."""
    if not own_forward(module) or isinstance(module, torch.jit.ScriptModule):
        return False
    _, *parameters = inspect.signature(type(module).forward).parameters.values()
    return takes_one(parameters)


class _Parts:
    """What a shortcut was made of."""

    def __init__(self, module: nn.Module) -> None:
        self.modules = list(module.modules())
        self.children = [m._modules for m in self.modules if m._modules]
        self.childless = [m._modules for m in self.modules if not m._modules]
        self.graphs = [m for m in self.modules if isinstance(m, fx.GraphModule)]
        self.hooks = [h for m in self.modules for h in hooks(m)]
        self.state = self._state()

    def _state(self) -> tuple[list[Any], list[int], list[Any]]:
        forwards = [type(g).forward for g in self.graphs]  # which another graph makes anew
        return [list(c.values()) for c in self.children], list(map(len, self.hooks)), forwards

    def changed(self) -> bool:
        return any(self.childless) or self.state != self._state()

    def hooked(self) -> bool:
        return any(self.hooks)

    def training(self) -> bool:
        return True in [m.training for m in self.modules]
