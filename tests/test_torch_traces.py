"""What a trace of a module would freeze or lose: buffers, modes, random numbers, the order of memory, containers."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, OrderedDict, defaultdict, namedtuple
from contextlib import nullcontext
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import fx, nn  # noqa: E402

from test_torch_accelerate import runs  # noqa: E402 - after the skip
from vkconv import torch as vt  # noqa: E402


class Code(nn.Module):
    def __init__(self, code) -> None:
        super().__init__()
        self.code, self.first, self.second = code, nn.Conv2d(4, 8, (3, 5), padding=(1, 0)), nn.Conv2d(8, 8, 1)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        return self.code(self, F.relu(self.first(x)))


def made(code) -> tuple[nn.Module, nn.Module, bool]:
    """The model, its fast copy, and whether a trace is what that runs."""
    torch.manual_seed(0)
    model = Code(code).eval()
    fast = vt.accelerate(model)
    return model, fast, isinstance(runs(fast), fx.GraphModule)


def image() -> torch.Tensor:
    return torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(1))


def count(m, y):
    m.scale.add_(1)
    return y * m.scale


BUFFERS = {
    "in Python": (lambda m, y: y * m.scale.item(), True),
    "a function of it": (lambda m, y: y * (m.scale * 2).sqrt(), True),
    "written": (count, True),
    "a decision": (lambda m, y: y if m.scale > 2 else -y, False),
}


@pytest.mark.parametrize("name", BUFFERS)
@torch.no_grad()
def test_buffers_are_read_in_every_call(name):
    code, traced = BUFFERS[name]
    model, fast, is_trace = made(code)
    assert is_trace == traced
    for value in (1, 3):
        for m in (model, fast):
            m.load_state_dict(m.state_dict() | {"scale": torch.tensor(float(value))})
        for _ in range(2):
            torch.testing.assert_close(fast(image()), model(image()), rtol=1e-4, atol=1e-5)
    assert fast.scale == model.scale


def wide(m, y):
    with torch.autocast("cpu", enabled=False):
        return m.second(y.float())


def alone(m, y):
    with torch.no_grad():
        return y * 2


class Alone(Code):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


MODES = {
    "autocast is left": (wide, False),
    "gradients are off": (alone, False),
    "asks for autocast": (lambda m, y: -y if torch.is_autocast_enabled("cpu") else y, False),
    "asks for gradients": (lambda m, y: -y if torch.is_grad_enabled() else y, False),
    "asks without need": (lambda m, y: m.second(y) if torch.is_grad_enabled() and m.training else y, True),
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("mode", ["plain", "autocast", "no_grad"])
def test_modes_are_those_of_the_call(name, mode):
    code, traced = MODES[name]
    model, fast, is_trace = made(code)
    assert is_trace == traced
    model.requires_grad_(False)
    x = image().requires_grad_()
    around = {"plain": nullcontext, "autocast": lambda: torch.autocast("cpu", torch.bfloat16), "no_grad": torch.no_grad}
    with around[mode]():
        want, got = model(x), fast(x)
    assert (got.dtype, got.requires_grad) == (want.dtype, want.requires_grad)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.05)  # bfloat16, rounded once


def test_a_forward_without_gradients():
    model = Alone(lambda m, y: m.second(y)).eval()
    assert not vt.accelerate(model)(image().requires_grad_()).requires_grad


NUMBERS = {
    "Python's": lambda m, y: y * random.random(),
    "PyTorch's, in Python": lambda m, y: y * torch.rand(()).item(),
    "of the result's shape": lambda m, y: y + torch.randn_like(y),
    "for every element": lambda m, y: y.clone().exponential_(),
    "dropout": lambda m, y: F.dropout(y, training=True),
    "dropout by default": lambda m, y: F.dropout(m.second(y)),
    "dropout in place": lambda m, y: F.dropout(m.second(y), 0.5, True, True),
    "dropout of torch": lambda m, y: torch.dropout(y, 0.5, train=True),
    "alpha dropout": lambda m, y: F.alpha_dropout(y, 0.5, True),
    "dropout of channels": lambda m, y: F.dropout2d(y, 0.5, True),
    "dropout of channels' features": lambda m, y: F.feature_alpha_dropout(y, 0.5, True),
    "slopes": lambda m, y: F.rrelu(y - 1, training=True),
}


@pytest.mark.parametrize("code", NUMBERS.values(), ids=NUMBERS)
@torch.no_grad()
def test_random_numbers_are_drawn_in_every_call(code):
    model, fast, _ = made(code)
    results = []
    for m in (model, fast):
        random.seed(3)
        torch.manual_seed(3)
        results.append([m(image()), m(image())])
    (want, other), got = results
    assert not torch.equal(want, other)
    torch.testing.assert_close(got, [want, other], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("drop", [F.dropout, F.alpha_dropout, torch.dropout], ids=["F", "F, alpha", "torch"])
def test_dropout_that_does_nothing_is_traced(drop):
    assert made(lambda m, y: m.second(drop(y, 0.5, False)))[2]
    assert made(lambda m, y: m.second(drop(y, 0.5, m.training)))[2]


ORDER = {
    "strides": lambda m, y: y * y.stride(0) + y.is_contiguous(),
    "complex numbers": lambda m, y: torch.view_as_complex(y).abs(),
    "windows": lambda m, y: y.as_strided((2, 8, 3), (96, 12, 1)),
}


@pytest.mark.parametrize("code", ORDER.values(), ids=ORDER)
@torch.no_grad()
def test_code_that_reads_memory_finds_the_order_of_pytorch(code):
    model, fast, is_trace = made(code)
    assert not is_trace
    torch.testing.assert_close(fast(image()), model(image()), rtol=1e-4, atol=1e-5)


NUMBERS_ADDED = {
    "extent": lambda m, y: F.relu(y.shape[1] + m.second(y)),
    "of a buffer": lambda m, y: F.relu(m.scale.item() + m.second(y)),
}


@pytest.mark.parametrize("code", NUMBERS_ADDED.values(), ids=NUMBERS_ADDED)
@pytest.mark.parametrize("autocast", [False, True])
@torch.no_grad()
def test_what_is_added_may_be_no_array(code, autocast):
    model, fast, is_trace = made(code)
    assert is_trace
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        least = 0.02 if autocast else 1e-5
        torch.testing.assert_close(fast(image()), model(image()), rtol=least, atol=least)


class Optional(Code):
    """An image, or a pair of an image and what may be None."""

    def forward(self, x):
        if x is None:
            return None
        image, other = x
        return self.first(image) if other is None else self.second(self.first(image)) + other


@torch.no_grad()
def test_inputs_may_be_missing():
    model = Optional(None).eval()
    fast = vt.accelerate(model)
    assert isinstance(runs(fast), fx.GraphModule)
    for x in ((image(), 1), [image(), None], (image(), 2.5)):
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert fast(None) is None


class Octaves(nn.Conv2d):
    def forward(self, x):
        return super().forward(x), None


@torch.no_grad()
def test_layers_may_give_none():
    """As octave convolutions do, which have the parts of two resolutions, or one."""

    def code(m, y):
        fine, coarse = m.second(y)
        return fine if coarse is None else fine + coarse

    model = Code(code).eval()
    model.second = Octaves(8, 8, 1)
    fast = vt.accelerate(model)
    for _ in range(2):
        torch.testing.assert_close(fast(image()), model(image()), rtol=1e-4, atol=1e-5)
    compiled = torch.compile(vt.accelerate(model), backend="eager")
    torch.testing.assert_close(compiled(image()), model(image()), rtol=1e-4, atol=1e-5)


Named = namedtuple("Named", "image other")


@dataclass
class Data:
    image: torch.Tensor
    other: torch.Tensor


@dataclass
class Doubling(Data):
    def __post_init__(self) -> None:
        self.image = self.image * 2


class Special(list):
    """A list of another class."""


CONTAINERS = {
    "dict": (lambda m, y: {"a": [y]}, True),
    "ordered dict": (lambda m, y: OrderedDict(b=y, a=[m.second(y)]), True),
    "named tuple": (lambda m, y: Named(m.second(y), y), True),
    "named tuples in a list": (lambda m, y: [Named(y, Named(y, m.second(y)))], True),
    "dataclass": (lambda m, y: Data(m.second(y), [y]), True),
    "dataclass with code": (lambda m, y: Doubling(m.second(y), y), False),
    "dict with a default": (lambda m, y: defaultdict(list, a=y), False),
    "counter": (lambda m, y: Counter(a=y), False),
    "list of another class": (lambda m, y: Special([y]), False),
    "result of torch.max": (lambda m, y: torch.return_types.max((y, m.second(y))), False),
}


def tensors_in(value) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else vars(value).values() if isinstance(value, Data) else value
    return [t for item in items for t in tensors_in(item)]


@pytest.mark.parametrize("name", CONTAINERS)
@torch.no_grad()
def test_results_keep_their_types_and_memory_formats(name):
    code, traced = CONTAINERS[name]
    model, fast, is_trace = made(code)
    assert is_trace == traced
    got, want = fast(image()), model(image())
    assert type(got) is type(want)
    assert not isinstance(got, dict) or list(got) == list(want)
    for a, b in zip(tensors_in(got), tensors_in(want), strict=True):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_other_threads_compute_while_code_is_traced():
    other, wrong, done = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), [], threading.Event()

    def work():
        while not done.is_set():
            try:
                other(torch.ones(1, 4))
            except Exception as error:
                wrong.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    for _ in range(3):
        made(lambda m, y: time.sleep(0.01) or m.second(y) * m.scale)
    done.set()
    thread.join()
    assert not wrong
