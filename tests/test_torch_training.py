"""Accelerated models that train: images stay channels last between layers, and all else is as PyTorch has it."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import namedtuple
from types import MethodType

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - after the skip
from torch.utils.checkpoint import checkpoint  # noqa: E402

from test_torch_models import Residual, image  # noqa: E402
from vkconv import torch as vt  # noqa: E402
from vkconv.torch import _training  # noqa: E402
from vkconv.torch._arrays import is_channels_last  # noqa: E402

F = nn.functional
found: list[bool] = []


@torch.fx.wrap
def look(x):
    """A part of a graph that tells whether channels come last."""
    found.append(x.stride(1) == 1)
    return x


class Seen(nn.Module):
    def __init__(self, channels: int = 4, head: nn.Module | None = None) -> None:
        super().__init__()
        self.first, self.norm, self.body = nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4), Residual()
        self.head = head or nn.Sequential(nn.Flatten(), nn.Linear(600, 5))

    def forward(self, x):
        y = look(self.norm(self.first(x)).relu())
        return self.head(look(self.body(y)))


def made(model: nn.Module) -> nn.Module:
    return vt.accelerate(copy.deepcopy(model).train())


def step(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The result, its gradients and what the model counts."""
    torch.manual_seed(3)
    found.clear()
    y = model(x)
    model.zero_grad()
    (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum().backward()
    grads = [p.grad for p in model.parameters() if p.requires_grad]
    return [y.detach(), *grads, *(b.clone() for b in model.buffers())]


def alike(model: nn.Module, fast: nn.Module, x: torch.Tensor) -> list[bool]:
    """A step of both agrees; whether channels came last in the latter's."""
    want, got = step(model, x), step(fast, x)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
    assert got[0].stride() == want[0].stride()
    return list(found)


def trains_alike(model: nn.Module, x: torch.Tensor) -> list[bool]:
    fast = made(model)
    alike(model.train(), fast, x)
    return alike(model, fast, x)


def last(x: torch.Tensor) -> torch.Tensor:
    return x.to(memory_format=torch.channels_last)


@pytest.mark.parametrize("channels", [4, 1])
def test_channels_stay_last(channels):
    x = torch.randn(2, channels, 12, 12)
    assert trains_alike(Seen(channels), x) == [True, True]
    assert trains_alike(Seen(channels), last(x)) == [True, True]


def test_three_dimensions_and_transposed_layers():
    model = nn.Sequential(nn.Conv3d(3, 8, 3), nn.BatchNorm3d(8), nn.ReLU(), nn.ConvTranspose3d(8, 2, 2, stride=2))
    trains_alike(model, torch.randn(2, 3, 4, 6, 5))


def test_gradients_of_the_input_have_its_format():
    model = Seen().train()
    fast = made(model)
    for x in (image(), last(image())):
        grads = []
        for m in (model, fast):
            leaf = x.clone().requires_grad_()
            grads += torch.autograd.grad(m(leaf).square().sum(), leaf)
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-4)
        assert grads[0].stride() == grads[1].stride()


def test_second_derivatives():
    fast = made(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Conv2d(3, 1, 2)).double())
    x = torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(fast, x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(fast, x)


class Called(nn.Module):
    def __init__(self, code) -> None:
        super().__init__()
        self.code, self.drop, self.scale = code, nn.Dropout(), nn.Parameter(torch.ones(6))

    def forward(self, x):
        return self.code(self, x)


SEEN = {  # heads, and whether channels may come last before them
    "rows": (nn.Sequential(nn.Flatten(), nn.Linear(600, 8), nn.GELU(), nn.Dropout(), nn.Linear(8, 2)), True),
    "flattened": (nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(600, 5)), True),
    "a function of rows": (Called(lambda m, y: F.dropout(F.relu(y).flatten(1), 0.5, m.training)), True),
    "channels": (nn.Sequential(nn.Dropout2d(), nn.Flatten()), True),
    "nothing": (nn.Sequential(nn.Dropout(0.0), nn.Flatten()), True),
    "rows that are viewed": (Called(lambda m, y: F.relu(y).flatten(1).view(4, -1)), True),
    "one pixel": (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Dropout(0.3), nn.Flatten()), True),
    "one pixel that is viewed": (Called(lambda m, y: F.adaptive_avg_pool2d(y, (1, 1)).view(2, -1)), True),
    "four pixels": (Called(lambda m, y: F.adaptive_avg_pool2d(y, 2).view(2, -1)), False),
    "a parameter that is viewed": (Called(lambda m, y: y * m.scale.view(1, -1, 1, 1)), True),
    "pixels": (nn.Sequential(nn.Dropout(), nn.Flatten()), False),
    "pixels, activated": (nn.Sequential(nn.Sigmoid(), nn.AlphaDropout(), nn.Flatten()), False),
    "columns": (nn.Sequential(nn.Flatten(2), nn.Dropout(), nn.Linear(100, 2)), False),
    "one image": (Called(lambda m, y: m.drop(y[0].flatten(1))), False),
    "channels of images": (Called(lambda m, y: m.drop(y.transpose(0, 1).flatten(1))), False),
    "by name": (Called(lambda m, y: m.drop(input=y)), False),
    "views": (Called(lambda m, y: y.view(2, -1)), False),
    "strides": (Called(lambda m, y: y + y.stride(1) / 1e3), False),
    "an instance norm": (nn.InstanceNorm2d(6), False),
}


@pytest.mark.parametrize("name", SEEN)
def test_code_that_sees_the_format(name):
    head, last_before = SEEN[name]
    assert trains_alike(Seen(head=head), image())[0] == last_before


@pytest.mark.parametrize("x", [image(), last(image())], ids=["contiguous", "last"])
def test_dropouts_in_sequences(x):
    inside = nn.Sequential(nn.ReLU(), nn.Dropout(0.3))
    trains_alike(nn.Sequential(nn.Conv2d(4, 6, 3), nn.Dropout(), nn.Conv2d(6, 4, 3), inside), x)
    trains_alike(nn.Sequential(nn.Conv2d(4, 6, 3), inside, Called(lambda m, y: y + m.drop(y))), x)


class Untraced(nn.Module):
    def forward(self, x):
        return (x * 2 if x.sum() > 1e30 else x).view(len(x), -1)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", [nn.Sequential, type("Own", (nn.Sequential,), {})])
def test_views_in_nested_sequences(training, kind):
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), kind(nn.Conv2d(6, 6, 1), nn.ReLU(), Untraced()))
    torch.testing.assert_close(vt.accelerate(model.train(training))(image()), model(image()), rtol=1e-4, atol=1e-5)
    model[2] = kind(nn.ReLU(), Untraced())
    torch.testing.assert_close(vt.accelerate(model.train(training))(image()), model(image()), rtol=1e-4, atol=1e-5)


Pair = namedtuple("Pair", "first second")
RESULTS = {
    "parts": lambda y: y.chunk(2, 1),
    "two": lambda y: (y, y.relu()),
    "a list": lambda y: [y, y[:, :1]],
    "named": lambda y: Pair(y, y.relu()),
    "by name": lambda y: {"y": y, "n": 3},
    "places": lambda y: F.max_pool2d(y, 2, return_indices=True),
    "no images": lambda y: y.mean((2, 3)),
}


class Two(nn.Module):
    def __init__(self, code) -> None:
        super().__init__()
        self.conv, self.code = nn.Conv2d(4, 6, 3), code

    def forward(self, x):
        return self.code(self.conv(x))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", RESULTS)
def test_results_have_pytorchs_format(name, training):
    model = Two(RESULTS[name]).train(training)
    for x in (image(), last(image())):
        want, got = model(x), vt.accelerate(model)(x)
        assert type(got) is type(want)
        flat = torch.utils._pytree.tree_leaves
        for w, g in zip(flat(want), flat(got), strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
            assert not isinstance(w, torch.Tensor) or is_channels_last(g) == is_channels_last(w)


def test_the_input_itself():
    """Written into, or given back, it is the caller's."""
    write = Called(lambda m, x: F.relu_(x.flatten(1)).sum() * m.conv(x))
    back = Called(lambda m, x: (x, m.conv(x)))
    write.conv = back.conv = nn.Conv2d(4, 4, 3)
    for model in (write, back):
        x, same = image(), image()
        torch.testing.assert_close(made(model)(x), model.train()(same), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(x, same)
    assert made(back)(x)[0] is x


def test_weights_that_are_channels_last_give_such_results():
    for model in (nn.Sequential(nn.Conv2d(4, 6, 3), nn.Dropout(0.3)), Residual()):
        trains_alike(last(model), image())
    model = Residual()
    fast = made(model)
    alike(model.train(), fast, image())
    alike(last(model), last(fast), image())


def test_parts_in_eval_mode():
    model = Seen().train()
    fast = made(model)
    for m in (model, fast):
        m.norm.eval()
        m.body.requires_grad_(False)
    assert alike(model, fast, image()) == [True, True]


def test_modes_in_turns_are_traced_once(monkeypatch):
    traces = []
    trace = _training.trace
    monkeypatch.setattr(_training, "trace", lambda module: traces.append(module) or trace(module))
    fast = made(Seen())
    for _ in range(3):
        for training in (True, False):
            fast.train(training)(image())
    assert traces == [fast, fast]


class Annealed(Two):
    alpha = 1.0

    def forward(self, x):
        y = look(self.conv(x)) * self.alpha
        return F.dropout2d(y, 0.5) if self.training and self.alpha > 1 else y


def test_attributes_are_those_of_the_call():
    model = Annealed(None).train()
    fast = made(model)
    for alpha in (1.0, 0.5, 2.0):
        model.alpha = fast.alpha = alpha
        assert alike(model, fast, image()) == [True]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    class Checkpointed(Seen):
        def forward(self, x):
            y = look(self.norm(self.first(x)).relu())
            return self.head(checkpoint(self.body, y, use_reentrant=reentrant))

    class Standardized(nn.Conv2d):
        def forward(self, x):
            return F.conv2d(x, self.weight - self.weight.mean(), self.bias)

    model = Checkpointed(head=nn.Sequential(Standardized(6, 4, 3), nn.ReLU())).train()
    fast = made(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alike(model, fast, image())
    x = image().requires_grad_()
    around = [checkpoint(m, x, use_reentrant=reentrant).square().sum() for m in (Residual().train(), made(Residual()))]
    for loss in around:
        loss.backward()


def test_releases_that_do_not_tell_of_checkpoints(monkeypatch):
    monkeypatch.setattr(_training, "knows_savers", False)
    assert trains_alike(Seen(), image()) == [False, False]


def test_changes_are_followed():
    model = Seen().train()
    fast = made(model)
    calls = []
    handle = fast.body.register_forward_hook(lambda _, inputs, result: calls.append(result.is_contiguous()))
    alike(model, fast, image())
    handle.remove()
    assert calls == [True]
    for m in (model, fast):
        torch.manual_seed(9)
        m.body.body[3] = nn.Conv2d(8, 6, 3)
    alike(model, fast, image())
    for m in (model, fast):
        m.norm.forward = torch.tanh
        m.body.forward = MethodType(lambda self, x: self.across(x), m.body)
    with torch.no_grad():
        torch.testing.assert_close(fast(image()), model(image()), rtol=1e-4, atol=1e-5)


def test_wrapped_and_cloned_models_compute_with_their_own_weights():
    fast = made(Residual())
    fast.forward = MethodType(torch.autocast("cpu", torch.bfloat16)(fast.forward.__func__), fast)
    assert fast(image()).dtype == torch.bfloat16
    fast = made(Residual())
    clones = [
        copy.copy(fast),
        fast._replicate_for_data_parallel(),
        copy.deepcopy(fast),
        pickle.loads(pickle.dumps(fast)),
    ]
    for clone in clones:
        clone._modules = {name: copy.deepcopy(child) for name, child in clone._modules.items()}
        with torch.no_grad():
            for p in clone.parameters():
                p.zero_()
            assert not clone(image()).any()
    assert fast(image()).any()


def test_hooks_are_the_copys_own():
    model = Residual().train()
    vt.accelerate(model)
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert not model.body._forward_hooks


def test_layers_of_vkconv_are_prepared():
    model = nn.Sequential(vt.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), vt.ConvTranspose2d(8, 4, 2)).eval()
    fast = vt.accelerate(model, example=image())
    assert len(fast.forward.__self__.run.layers) == 2


def test_what_is_compiled_trains_alike():
    model = Seen(head=nn.Flatten()).train()
    compiled = torch.compile(made(model), backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(image()), model(image()), rtol=1e-4, atol=1e-5)


def test_a_compiled_model_with_parts_that_train():
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)).eval()
    fast = vt.accelerate(model)
    compiled = torch.compile(fast, backend="eager")
    for m in (model, fast):
        m[1].train()
    with torch.no_grad():
        torch.testing.assert_close(compiled(image()), model(image()), rtol=1e-4, atol=1e-5)
