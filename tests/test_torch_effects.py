"""What the code of a module does beside computing its result happens in every call, and in none of `accelerate`."""

from __future__ import annotations

import functools
import logging
import random
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import fx, nn  # noqa: E402

from test_torch_accelerate import runs  # noqa: E402 - after the skip
from vkconv import torch as vt  # noqa: E402
from vkconv.torch._effects import State  # noqa: E402


@dataclass
class Meter:
    count: int = 0
    values: list = field(default_factory=list)

    calls = 0

    def update(self, value=None) -> None:
        self.count += 1
        self.values.append(value)


class Slots:
    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count = 0


STORE: list = []
NAMED: dict = {}
TENSOR = torch.zeros(3)
TOTAL = [0]
LAST = None


class Kept(nn.Module):
    """A module with state of many kinds, of which its code changes some."""

    shared = Meter()

    def __init__(self, code) -> None:
        super().__init__()
        self.code, self.first, self.second = code, nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)
        self.meter, self.slots, self.array, self.objects = Meter(), Slots(), np.zeros(3), np.array([None, 0])
        self.recent, self.nested, self.pair, self.seen = deque(maxlen=2), {"a": [0, {"b": 0}]}, ([0],), set()
        self.bytes, self.counts, self.ordered = bytearray(2), Counter(), OrderedDict(a=0)
        self.tensor, self.tensors, self.draws = torch.zeros(3), [torch.zeros(3)], random.Random(3)
        self.generator, self.added = np.random.default_rng(3), functools.partial(Meter.update, self.meter)

    def forward(self, x):
        y = F.relu(self.first(x))
        factor = self.code(self, y)
        return self.second(y) * (factor if type(factor) is int else 1)


def count_globally(m, y):
    TOTAL[0] += 1


def count_in_function(m, y):
    count_in_function.count = getattr(count_in_function, "count", 0) + 1


def rebind(m, y):
    global LAST  # noqa: PLW0603
    LAST = y


def remember(m, y, values=[]):  # noqa: B006 - which is what it is about
    values.append(len(values))
    return len(values)


def counted_around():
    count = 0

    def code(m, y):
        nonlocal count
        count += 1
        m.nested["calls"] = count

    return code


def write(m, name, value):
    setattr(m, name, value)


CODE = {
    "appended": lambda m, y: STORE.append(y),
    "a number appended": lambda m, y: STORE.append(1),
    "kept by a name": lambda m, y: NAMED.update(last=y),
    "counted globally": count_globally,
    "bound globally": rebind,
    "counted in the function": count_in_function,
    "in a default": remember,
    "around the function": counted_around(),
    "counted by an object": lambda m, y: m.meter.update(),
    "kept by an object": lambda m, y: m.meter.update(y),
    "kept by an attribute": lambda m, y: write(m.meter, "last", y),
    "kept in slots": lambda m, y: write(m.slots, "last", y),
    "counted in slots": lambda m, y: write(m.slots, "count", m.slots.count + 1),
    "counted by a class": lambda m, y: write(Meter, "calls", Meter.calls + 1),
    "of the module's class": lambda m, y: m.shared.update(),
    "an array": lambda m, y: write(m, "array", m.array.__iadd__(1)),
    "an array of objects": lambda m, y: m.objects.__setitem__(0, y),
    "a queue": lambda m, y: m.recent.append(y),
    "a queue of numbers": lambda m, y: m.recent.append(1),
    "nested": lambda m, y: m.nested["a"][1].update(b=m.nested["a"][1]["b"] + 1),
    "in a tuple": lambda m, y: m.pair[0].append(1),
    "a set": lambda m, y: m.seen.add(len(m.seen)),
    "bytes": lambda m, y: m.bytes.append(1),
    "a counter": lambda m, y: m.counts.update("a"),
    "an order": lambda m, y: m.ordered.update(a=m.ordered["a"] + 1),
    "a partial function": lambda m, y: m.added(),
    "a tensor": lambda m, y: write(m, "tensor", m.tensor.__iadd__(1)),
    "a tensor's method": lambda m, y: m.tensor.add_(1),
    "a tensor by out": lambda m, y: torch.add(m.tensor, 1, out=m.tensor),
    "a view of a tensor": lambda m, y: m.tensor[1:].fill_(2),
    "a tensor of a list": lambda m, y: m.tensors[0].mul_(2).add_(1),
    "a global tensor": lambda m, y: TENSOR.add_(1),
    "Python's random numbers": lambda m, y: 1 if random.random() < 2 else 2,
    "own random numbers": lambda m, y: 1 if m.draws.random() < 2 else 2,
    "NumPy's random numbers": lambda m, y: 1 if np.random.rand() < 2 else 2,
    "own ones of NumPy": lambda m, y: 1 if m.generator.random() < 2 else 2,
    "PyTorch's random numbers": lambda m, y: 1 if torch.rand(()).item() < 2 else 2,
}


def state(m) -> str:
    """All that the codes change, in words; of tensors that were computed only that they are tensors."""

    def words(value):
        if isinstance(value, torch.Tensor | fx.Proxy):
            return type(value).__name__ if getattr(value, "ndim", 4) == 4 else value.tolist()
        if isinstance(value, dict):
            return {k: words(v) for k, v in value.items()}
        if isinstance(value, list | tuple | deque | set):
            return [words(v) for v in value]
        return repr(value)

    objects = m.meter, m.shared, count_in_function
    slots = [getattr(m.slots, name, None) for name in Slots.__slots__]
    numbers = random.getstate(), m.draws.getstate(), np.random.get_state(), m.generator.bit_generator.state
    own = [m.array, list(m.objects), m.recent, m.nested, m.pair, m.seen, m.bytes, m.counts, m.ordered, m.tensor]
    variables = [Meter.calls, STORE, NAMED, TENSOR, TOTAL, LAST, remember.__defaults__, torch.get_rng_state()]
    return str(words([*map(dict, map(vars, objects)), slots, *numbers, *own, m.tensors, *variables]))


def forget(model) -> nn.Module:
    """The model with the state that everything has at first."""
    rebind(model, None)
    TOTAL[0] = 0
    for kept in (STORE, NAMED, remember.__defaults__[0], vars(count_in_function), model.shared.values):
        kept.clear()
    Meter.calls = model.shared.count = 0
    TENSOR.zero_()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    return model


@pytest.mark.parametrize("name", CODE)
@torch.no_grad()
def test_effects_happen_in_calls_alone(name):
    torch.manual_seed(0)
    model, x = Kept(CODE[name]).eval(), torch.randn(1, 3, 6, 6)
    before = state(forget(model))
    fast = vt.accelerate(model)
    assert not isinstance(runs(fast), fx.GraphModule)
    assert state(model) == before == state(fast)
    states, results = [], []
    for m in (fast, model):
        first = state(forget(m)) if name != "around the function" else ""
        results.append([m(x), m(x)])
        states.append(state(m))
        assert states[-1] != first
    if name != "around the function":  # which both share
        assert states[0] == states[1]
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


class Hidden:
    """Objects that nothing leads to but their number."""

    def __init__(self) -> None:
        self.items: list = []


@pytest.mark.parametrize("keep", ["list", "dict", "set", "deque", "object"])
@torch.no_grad()
def test_no_proxy_is_left_anywhere(keep):
    kept = {"list": [], "dict": {}, "set": set(), "deque": deque(), "object": Hidden()}[keep]
    held = vars(kept) if keep == "object" else kept
    logging.getLogger("test_torch_effects").kept = kept  # no code of a user's

    def code(m, y):
        kept = logging.getLogger("test_torch_effects").kept
        if keep == "object":
            kept.last = y
        elif keep == "dict":
            kept["last"] = y
        else:
            (kept.add if keep == "set" else kept.append)(y)

    model = Kept(code).eval()
    fast = vt.accelerate(model)
    assert len(held) == (keep == "object") and not isinstance(runs(fast), fx.GraphModule)
    fast(torch.ones(1, 3, 6, 6))
    last = held["last"] if isinstance(held, dict) else next(iter(held))
    assert type(last) is torch.Tensor


def test_graphs_are_looked_into():
    model = fx.symbolic_trace(nn.Sequential(nn.Conv2d(3, 4, 3), Kept(lambda m, y: None).second))
    model.kept = Meter()
    graph = State([model])
    model.kept.count = 1
    assert graph.restore() and model.kept == Meter()


HARMLESS = {
    "nothing": lambda m, y: None,
    "a new tensor": lambda m, y: float(torch.zeros(3).add_(1).sum()),
    "a new list": lambda m, y: [y].append(y),
    "what is there": lambda m, y: m.nested["a"][0] + len(m.array) + m.meter.count + float(m.tensor.sum()),
    "the same again": lambda m, y: m.nested.update(a=m.nested["a"]),
    "a tensor by what was computed": lambda m, y: m.tensor.add_(y.mean()).sum(),
}


@pytest.mark.parametrize("name", HARMLESS)
@torch.no_grad()
def test_code_without_effects_is_traced(name):
    model = Kept(HARMLESS[name]).eval()
    fast = vt.accelerate(model)
    assert isinstance(runs(fast), fx.GraphModule)
    for _ in range(2):
        torch.testing.assert_close(fast(torch.ones(1, 3, 6, 6)), model(torch.ones(1, 3, 6, 6)), rtol=1e-4, atol=1e-5)


def test_an_exception_in_a_trace_leaves_nothing_behind():
    def code(m, y):
        STORE.append(y)
        m.meter.update(y)
        return 1 if y.sum() > 0 else 2

    model = forget(Kept(code).eval())
    fast = vt.accelerate(model)
    assert STORE == [] and fast.meter == model.meter == Meter()
