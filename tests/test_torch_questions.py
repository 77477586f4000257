"""Questions about values that a trace cannot answer: code that asks them runs as it is."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import fx, nn  # noqa: E402

from test_torch_accelerate import inside, runs  # noqa: E402 - after the skip
from vkconv import torch as vt  # noqa: E402


class Asking(nn.Module):
    def __init__(self, code) -> None:
        super().__init__()
        self.code, self.first, self.norm = code, nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        return self.code(self, x)

    def image(self, x):
        return F.relu(self.norm(self.first(x)))


def assigned(m, x, name, value):
    y = m.image(x)
    setattr(y, name, value(y))
    return y * 2


def renormed(m, x):
    m.first.weight.data = torch.renorm(m.first.weight.data, 2, 0, maxnorm=0.3)
    return m.image(x)


def moved(m, x):
    m.norm.running_mean.data = m.norm.running_mean + 1
    return m.image(x)


def without_phase(m, x):
    z = torch.fft.fft2(m.image(x))
    z.imag = torch.zeros_like(z.imag)
    return torch.fft.ifft2(z).real


def of_a_wrapper(m, x):
    with contextlib.suppress(AttributeError):
        x = x.tensors
    return m.image(x)


def matched(m, x):
    match x:
        case torch.Tensor():
            return m.image(x)
        case _:
            return m.first(x)


@functools.singledispatch
def dispatched(x, m):
    return m.first(x)


@dispatched.register
def _(x: torch.Tensor, m):
    return m.image(x)


def with_keys(m, x):
    return m.image(x["x"] if hasattr(x, "keys") else x)


def with_either_size(m, x):
    y = F.max_pool2d(m.image(x), 2)
    y = F.interpolate(y, scale_factor=2)
    try:
        return torch.cat([y, x], 1)
    except RuntimeError:
        return torch.cat([F.interpolate(y, x.shape[2:]), x], 1)


def with_a_number(m, x):
    try:
        n = float(x)
    except (RuntimeError, ValueError, TypeError) as error:
        n = 2.0 if "element" in str(error) else 3.0
    return m.image(x) * n


def copied_at_need(m, x):
    y = x.contiguous()
    return m.image(y) if y is x else m.first(y)


CODE = {
    "exceptions of operators": with_either_size,
    "exceptions of numbers": with_a_number,
    "type": lambda m, x: m.image(x) if type(x) is torch.Tensor else m.first(x),
    "type in a dictionary": lambda m, x: m.image(x) * {torch.Tensor: 2.0}.get(type(x), 1.0),
    "type of an attribute": lambda m, x: m.image(x) if type(x.shape) is torch.Size else m.first(x),
    "identity": copied_at_need,
    "identity of an attribute": lambda m, x: m.image(x) if x.dtype is torch.float32 else m.first(x),
    "no attribute": lambda m, x: m.image(x) if x.grad_fn is None else m.first(x),
    "deep copy": lambda m, x: copy.deepcopy(m.image(x)) * 2,
    "copy": lambda m, x: copy.copy(m.image(x)) * 2,
    "data assigned": lambda m, x: assigned(m, x, "data", lambda y: y.data.clamp(-0.1, 0.1)),
    "requires_grad assigned": lambda m, x: assigned(m, x, "requires_grad", lambda y: False),
    "an attribute assigned": lambda m, x: assigned(m, x, "level", lambda y: 3),
    "weight assigned": renormed,
    "buffer assigned": moved,
    "part assigned": without_phase,
    "attribute with a default": lambda m, x: getattr(m.image(x), "logits", m.first(x)),
    "has an attribute": lambda m, x: m.first(x.logits) if hasattr(x, "logits") else m.image(x),
    "tries an attribute": of_a_wrapper,
    "has keys": with_keys,
    "can be called": lambda m, x: m.first(x()) if callable(x) else m.image(x),
    "class": lambda m, x: m.image(x) if x.__class__ is torch.Tensor else m.first(x),
    "matched": matched,
    "dispatched": lambda m, x: dispatched(x, m),
    "dtype in a set": lambda m, x: m.image(x) if x.dtype in {torch.float32} else m.first(x),
    "extent in a dictionary": lambda m, x: m.image(x) * {8: 3.0}.get(x.shape[-1], 1.0),
    "extents in a dictionary": lambda m, x: m.image(x) * {(8, 8): 3.0}.get(x.shape[2:], 1.0),
    "device in a dictionary": lambda m, x: m.image(x) * {"cpu": 3.0}.get(x.device.type, 1.0),
    "text of an extent": lambda m, x: m.image(x) if f"{x.shape[-1]}" == "8" else m.first(x),
    "text of a dtype": lambda m, x: m.image(x) if "float" in str(x.dtype) else m.first(x),
    "text of a shape": lambda m, x: m.image(x) if "8" in repr(x.shape) else m.first(x),
    "NumPy's product": lambda m, x: m.image(x).view(-1, np.prod(x.shape[1:])),
    "NumPy's mean": lambda m, x: m.image(x) * np.mean(x.size()),
    "NumPy's equality": lambda m, x: m.image(x) if np.array_equal(x.shape, (2, 4, 8, 8)) else m.first(x),
}


def image() -> torch.Tensor:
    return torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", CODE)
@torch.no_grad()
def test_what_a_trace_cannot_answer_is_asked_in_every_call(name):
    torch.manual_seed(0)
    model = Asking(CODE[name]).eval()
    fast = vt.accelerate(model)
    assert not isinstance(runs(fast), fx.GraphModule) and inside(fast)
    for x in (image(), image()[:, :, 1:, 1:]):
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


def with_message(m, x):
    torch._assert(x.shape[-1] == 8, f"{x.shape[-1]} columns, wanted 8")
    return m.image(x)


def with_context(m, x):
    with contextlib.nullcontext():
        y = m.image(x) if x is not None else x
    return y if type(m.norm) is nn.BatchNorm2d and m.first.bias is not None else x


def with_cleanup(m, x):
    try:
        return m.image(x)
    finally:
        m.norm.training = False


FROM_311 = pytest.param("cleanup", marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="no table of handlers"))
ANSWERED = {
    "cleanup": with_cleanup,
    "a field of a result": lambda m, x: torch.linalg.svd(m.image(x)).S,
    "other types and identities": with_context,
    "a message of an assertion": with_message,
    "a method of tensors": lambda m, x: m.image(x).flatten(1),
    "a method of shapes": lambda m, x: m.image(x) / x.shape[1:].numel(),
    "a product of extents": lambda m, x: m.image(x).reshape(x.shape[0], x.shape[1] * x.shape[2], -1),
}


@pytest.mark.parametrize("name", [FROM_311, *(name for name in ANSWERED if name != "cleanup")])
@torch.no_grad()
def test_what_a_trace_can_answer_is_traced(name):
    model = Asking(ANSWERED[name]).eval()
    fast = vt.accelerate(model)
    assert isinstance(runs(fast), fx.GraphModule)
    torch.testing.assert_close(fast(image()), model(image()), rtol=1e-4, atol=1e-5)
