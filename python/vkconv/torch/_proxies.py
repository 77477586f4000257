"""What stands for values while a module is traced.

It refuses questions that only the values can answer, and what no graph does again. A trace that has refused anything is
none, whatever the code makes of the exception.
"""

from __future__ import annotations

import builtins
import dis
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from vkconv.torch._writes import IN_PLACE

_ASKING_FOR_OTHERS = ("torch", "torch._jit_internal")  # torch.is_tensor and torch.jit.isinstance
_TYPES = {"shape": torch.Size, "dtype": torch.dtype, "device": torch.device, "ndim": int}  # of a tensor's attributes
_FIELDS = {field for kind in vars(torch.return_types).values() for field in getattr(kind, "__match_args__", ())}
_ASKING_FOR_CLASS = ("LOAD_ATTR", "LOAD_METHOD", "MATCH_CLASS")


def _refused(reason: str) -> Callable[..., Any]:
    return lambda self, *arguments: self.tracer.refuse(reason)


class Proxy(fx.Proxy):
    """What no tensor has, a wrapper of tensors may have: no trace knows which its input is."""

    tracer: Any

    def __getattr__(self, k: str) -> fx.proxy.Attribute:
        field = self.node.op == "call_function" and k in _FIELDS
        if k.startswith("__") or not (field or hasattr(_type_of(self), k)):
            self.tracer.refuse(f"{k} is no attribute of a tensor")
        return Attribute(self, k)

    def __setattr__(self, k: str, value: Any) -> None:
        if not _asked_by_torch():
            if type(value) is Proxy and _is_written_into(value.node, self.node, k):
                return
            self.tracer.refuse(f"{k} is assigned")
        object.__setattr__(self, k, value)

    def __hash__(self) -> int:
        if not _asked_by_torch():
            self.tracer.refuse("a value is looked up")
        return id(self)

    def __repr__(self) -> str:
        """Without an exception, which loggers would print. Messages of `torch._assert` are made in every call."""
        if not _asked_by_torch() and "_assert" not in sys._getframe(1).f_code.co_names:
            self.tracer.refused = True
        return fx.Proxy.__repr__(self)

    __str__ = __repr__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """C looks here too, for every operator: what looks is known where it is code that has no other reason to."""
        frame = sys._getframe(1)
        if not _asked_by_torch() and dis.opname[frame.f_code.co_code[frame.f_lasti]] in _ASKING_FOR_CLASS:
            self.tracer.refuse("the trace depends on a type")
        return type(self)

    keys = property(_refused("a tensor has no keys"))
    __len__ = _refused("the trace depends on a length")
    __int__ = __float__ = _refused("the trace depends on a value")
    __copy__ = __deepcopy__ = __reduce_ex__ = _refused("a trace has no copies")


class Attribute(Proxy, fx.proxy.Attribute):
    """The same of `x.data`."""


def _in_place(function: Callable[[Any, Any], Any]) -> Callable[[fx.Proxy, Any], fx.Proxy]:
    """`x += y` writes into x, which may have other names, where a proxy of torch.fx makes x = x + y of it."""
    return lambda self, other: self.tracer.create_proxy("call_function", function, (self, other), {})


for _function in IN_PLACE:
    setattr(Proxy, f"__{_function.__name__}__", _in_place(_function))


def _asked_by_torch() -> bool:
    """Whether the method that calls this was called by torch.fx, or by vkconv."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith(("torch.fx.", "vkconv."))


def _is_written_into(result: fx.Node, owner: fx.Node, attribute: str) -> bool:
    """Whether the result is what `owner.attribute += y` has written and assigns, which is there already."""
    first = result.args[0] if result.target in IN_PLACE else None
    return isinstance(first, fx.Node) and (first.target, first.args) == (getattr, (owner, attribute))


def _type_of(proxy: fx.Proxy) -> type:
    """Of an attribute of a tensor, or a part of its shape; else that of tensors."""
    return _TYPES.get(proxy.attr, torch.Tensor) if type(proxy) is Attribute else _type_of_result(proxy.node)


def _type_of_result(node: fx.Node) -> type:
    if node.target is getattr:
        return _TYPES.get(str(node.args[1]), torch.Tensor)
    if (node.op, node.target) == ("call_method", "size"):
        return torch.Size if len(node.args) == 1 and not node.kwargs else int
    if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
        whole = _type_of_result(node.args[0])
        if whole is torch.Size:
            return whole if isinstance(node.args[1], slice) else int
    return torch.Tensor


@contextmanager
def no_questions_of_type() -> Iterator[None]:
    """A proxy is no tensor: code that asks for its type would take the path of other types."""
    names = ("isinstance", "callable")
    plainly = {name: getattr(builtins, name) for name in names}
    for name in names:
        setattr(builtins, name, _refusing(plainly[name], plainly["isinstance"]))
    try:
        yield
    finally:
        for name in names:
            setattr(builtins, name, plainly[name])


def _refusing(plainly: Callable[..., bool], is_instance: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def asked(value: Any, *kinds: Any) -> bool:
        if is_instance(value, fx.Proxy):
            asking = sys._getframe(1).f_globals.get("__name__", "")
            if not asking.startswith("torch.") or asking in _ASKING_FOR_OTHERS:
                value.tracer.refuse("the trace depends on a type")
        return plainly(value, *kinds)

    return asked
