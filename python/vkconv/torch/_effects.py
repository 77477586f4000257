"""What code changes while it is traced, beside making a graph, and how that is put back."""

from __future__ import annotations

import functools
import gc
import operator
import pickle
import random
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ATOMS = frozenset((bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Tensor,
                    torch.nn.Parameter, torch.Size, slice, range))  # fmt: skip
# Functions and classes of these keep nothing of a module's. Objects of the latter change by themselves, or are many.
LIBRARIES = frozenset(("torch", "vkconv", "numpy", *sys.stdlib_module_names)) - {"__main__"}
_OPAQUE = ("torch.fx.", "torch._", "logging", "threading")
_MOST = 1_000_000  # containers and objects
_MISSING = object()
_CODE = (FunctionType, staticmethod, classmethod, property)
Read: TypeAlias = Callable[[Any], Any]
Write: TypeAlias = Callable[[Any, Any], None]


class State:
    """What Python code may reach from `roots` and change: attributes, containers, arrays, generators of random numbers,
    and the variables that functions name. Tensors are left out, see `WritesRefused`."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self._kept: list[tuple[Any, Write, Read, Any]] = []
        self._seen: set[int] = set()
        self._slots: dict[type, list[str]] = {}
        self._named, self._methods = {"forward"}, dict[str, list[Any]]()  # those that no code has named so far
        self._waiting = [random._inst, np.random.mtrand._rand, *roots]
        while self._waiting:
            value = self._waiting.pop()
            if type(value) not in _ATOMS and id(value) not in self._seen:
                self._seen.add(id(value))
                self._visit(value)
                if len(self._kept) > _MOST:
                    raise ValueError("the module holds more than a trace can compare")

    def restore(self) -> bool:
        """Whether anything has changed, which is then put back."""
        changed = False
        for value, write, read, before in self._kept:
            if not _same(read(value), before):
                changed = True
                write(value, before)
        return changed

    def _keep(self, value: Any, read: Read, write: Write) -> None:
        before = read(value)
        self._kept.append((value, write, read, before))
        if isinstance(before, list):
            self._waiting.extend(before)

    def _visit(self, value: Any) -> None:
        if type(value) in _KINDS:
            self._keep(value, *_KINDS[type(value)])
        elif isinstance(value, FunctionType):
            self._visit_function(value)
        elif isinstance(value, type):
            if not _of_library(value):
                self._visit_class(value)
        elif isinstance(value, MethodType | BuiltinMethodType):
            self._waiting.extend((value.__self__, getattr(value, "__func__", None)))
        elif isinstance(value, staticmethod | classmethod):
            self._waiting.append(value.__func__)
        elif isinstance(value, property):
            self._waiting.extend((value.fget, value.fset))
        elif isinstance(value, functools.partial):
            self._waiting.extend((value.func, value.args, value.keywords))
        elif isinstance(value, tuple | frozenset):
            self._waiting.extend(value)
        elif not isinstance(value, ModuleType | torch.Tensor) and not _is_opaque(value):
            self._visit_object(value)

    def _visit_object(self, value: Any) -> None:
        for kind, (read, write) in _KINDS.items():
            if isinstance(value, kind):
                self._keep(value, read, write)
                break
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict and id(attributes) not in self._seen:
            self._seen.add(id(attributes))
            self._keep(attributes, _read_dict, _write_dict)
        if type(value) not in self._slots:
            self._slots[type(value)] = [n for cls in type(value).__mro__ for n in _names_of_slots(cls)]
        if slots := self._slots[type(value)]:
            self._keep(value, *_of_attributes(slots))
        self._waiting.append(type(value))

    def _visit_class(self, cls: type) -> None:
        """What it keeps, and of modules such methods as code names: those of other objects may lead through whole
        libraries."""
        before = _read_class(cls)
        self._kept.append((cls, _write_class, _read_class, before))
        self._waiting.extend(cls.__mro__)
        for name, value in list(vars(cls).items()):
            if not isinstance(value, _CODE):
                self._waiting.append(value)
            elif issubclass(cls, torch.nn.Module):
                (self._waiting if name in self._named else self._methods.setdefault(name, [])).append(value)

    def _visit_function(self, function: FunctionType) -> None:
        """Variables of the module and of functions around it, and what it keeps for its next call."""
        if _of_library(function):
            return
        self._waiting.extend((function.__defaults__, function.__kwdefaults__, getattr(function, "__wrapped__", None)))
        for cell in function.__closure__ or ():
            if id(cell) not in self._seen:
                self._seen.add(id(cell))
                self._keep(cell, *_of_attributes(["cell_contents"]))
        self._waiting.append(vars(function))
        names = set(_names_in(function.__code__))
        for name in names - self._named:
            self._waiting.extend(self._methods.pop(name, ()))
        self._named |= names
        for space in (function.__globals__, *self._modules(function, names)):
            named = [n for n in names if n in space]
            self._keep(space, *_of_items(named))

    @staticmethod
    def _modules(function: FunctionType, names: set[str]) -> Iterator[dict[str, Any]]:
        """The variables of modules that the function names."""
        for value in (function.__globals__.get(name) for name in names):
            if isinstance(value, ModuleType) and value.__name__.partition(".")[0] not in LIBRARIES:
                yield vars(value)


def _same(a: Any, b: Any) -> bool:
    """Lists hold the same objects; what else stands for a state is equal."""
    if isinstance(a, list):
        return len(a) == len(b) and all(map(operator.is_, a, b))
    return bool(a == b)


def _is_opaque(value: Any) -> bool:
    """Whether the object is none whose attributes code of a user's changes."""
    kind = type(value).__module__
    return kind.startswith("vkconv.") or (kind.startswith(_OPAQUE) and not isinstance(value, torch.nn.Module))


def _of_library(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in LIBRARIES


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
        elif isinstance(constant, str):  # of getattr
            yield constant


def _names_of_slots(cls: type) -> list[str]:
    slots = cls.__dict__.get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [n for n in names if n not in ("__dict__", "__weakref__") and not n.startswith("__")]


def _read_dict(value: dict[Any, Any]) -> list[Any]:
    return [item for pair in dict.items(value) for item in pair]


def _write_dict(value: dict[Any, Any], before: list[Any]) -> None:
    value.clear()
    value.update(zip(before[::2], before[1::2], strict=True))


def _read_class(value: type) -> list[Any]:
    return [item for pair in vars(value).items() if not pair[0].startswith("__") for item in pair]


def _write_class(value: type, before: list[Any]) -> None:
    attributes = dict(zip(before[::2], before[1::2], strict=True))
    for name in [n for n in vars(value) if not n.startswith("__") and n not in attributes]:
        delattr(value, name)
    for name, attribute in attributes.items():
        if vars(value).get(name, _MISSING) is not attribute:
            setattr(value, name, attribute)


def _of_attributes(names: list[str]) -> tuple[Read, Write]:
    """Those attributes that there are."""

    def write(value: Any, before: list[Any]) -> None:
        for name, attribute in zip(names, before, strict=True):
            if attribute is not _MISSING:
                object.__setattr__(value, name, attribute)  # which frozen instances take too
            elif _attribute(value, name) is not _MISSING:
                object.__delattr__(value, name)

    return lambda value: [_attribute(value, name) for name in names], write


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, _MISSING)
    except ValueError:  # of an empty cell
        return _MISSING


def _of_items(names: list[str]) -> tuple[Read, Write]:
    def write(space: dict[str, Any], before: list[Any]) -> None:
        space.update(zip(names, before, strict=True))

    return lambda space: [space.get(name, _MISSING) for name in names], write


def _write_set(value: set[Any], before: list[Any]) -> None:
    value.clear()
    value.update(before)


def _write_deque(value: deque[Any], before: list[Any]) -> None:
    value.clear()
    value.extend(before)


def _read_array(value: np.ndarray[Any, Any]) -> Any:
    return list(value.flat) if value.dtype.hasobject else (value.shape, value.tobytes())


def _write_array(value: np.ndarray[Any, Any], before: Any) -> None:
    if value.dtype.hasobject:
        for i, item in zip(np.ndindex(value.shape), before, strict=True):
            value[i] = item
    else:
        np.copyto(value, np.frombuffer(before[1], value.dtype).reshape(before[0]))


_KINDS: dict[type, tuple[Read, Write]] = {
    dict: (_read_dict, _write_dict),
    OrderedDict: (_read_dict, _write_dict),
    list: (list.copy, lambda value, before: operator.setitem(value, slice(None), before)),
    set: (list, _write_set),
    deque: (list, _write_deque),
    bytearray: (bytes, lambda value, before: operator.setitem(value, slice(None), before)),
    np.ndarray: (_read_array, _write_array),
    random.Random: (random.Random.getstate, random.Random.setstate),
    np.random.RandomState: (
        lambda value: pickle.dumps(value.get_state(legacy=False)),
        lambda value, before: value.set_state(pickle.loads(before)),
    ),
    np.random.Generator: (
        lambda value: pickle.dumps(value.bit_generator.state),
        lambda value, before: setattr(value.bit_generator, "state", pickle.loads(before)),
    ),
}


class WritesRefused(TorchDispatchMode):
    """Operators that run at once, not on proxies, may neither draw random numbers nor write into a tensor that was
    there before: no graph would do that again."""

    def __init__(self) -> None:
        super().__init__()
        self.any = False
        self._own: dict[int, Any] = {}  # memory that they have made, which stays so that no other has its address

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        schema = func._schema
        if torch.Tag.nondeterministic_seeded in func.tags or (schema.is_mutable and self._writes(schema, args, named)):
            self.any = True
            raise ValueError("a trace would lose what code does beside it")
        result = func(*args, **named)
        if func is torch.ops.aten.lift_fresh.default or all(r.alias_info is None for r in schema.returns):
            for storage in map(_storage, tree_leaves(result)):
                if storage is not None:
                    self._own[storage._cdata] = storage
        return result

    def _writes(self, schema: Any, args: Any, named: dict[str, Any]) -> bool:
        """Whether the operator writes into memory that is not of the trace."""
        given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | named
        written = (given.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
        return any(getattr(_storage(t), "_cdata", None) not in self._own for v in written for t in tree_leaves(v))


def _storage(value: Any) -> Any:
    known = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage() if known else None


def take_back(proxies: list[weakref.ref[fx.Proxy]]) -> bool:
    """Whether something still holds one of these, which takes part in no graph any more; lists, dictionaries, sets and
    objects then lose it."""
    left = _alive(proxies)
    for generation in range(3):  # of which the first has what a trace leaves, unless collections run meanwhile
        if not left:
            return False
        del left
        gc.collect(generation)
        left = _alive(proxies)
    for holder in gc.get_referrers(*left):
        if holder is not left:
            _drop(holder, left)
    return bool(left)


def _alive(proxies: list[weakref.ref[fx.Proxy]]) -> list[fx.Proxy]:
    return [p for p in (r() for r in proxies) if p is not None]


@contextmanager
def without_collections() -> Iterator[None]:
    """What lives after a while is older to the garbage collector, which then takes long to look at it again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _drop(holder: Any, values: list[Any]) -> None:
    if isinstance(holder, dict):
        for key in [k for k, v in holder.items() if any(v is p for p in values)]:
            del holder[key]
    elif isinstance(holder, list | deque):
        kept = [v for v in holder if not any(v is p for p in values)]
        holder.clear()
        holder.extend(kept)
    elif isinstance(holder, set):
        holder.difference_update([v for v in holder if any(v is p for p in values)])
    elif isinstance(getattr(holder, "__dict__", None), dict):
        _drop(vars(holder), values)
