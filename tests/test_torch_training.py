"""Accelerated models in training mode: images stay channels last between layers, and all else is as PyTorch has it."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - after the skip
from torch.utils.checkpoint import checkpoint  # noqa: E402

from test_torch_models import Causal, Residual, Standardized, image  # noqa: E402
from vkconv import torch as vt  # noqa: E402
from vkconv.torch import _apply, _shortcut, _trace  # noqa: E402
from vkconv.torch._modules import stand_in  # noqa: E402

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


def made(model: nn.Module, way: str) -> nn.Module:
    """An accelerated copy in training mode."""
    torch.manual_seed(5)
    if way == "before":
        return vt.accelerate(copy.deepcopy(model).train())
    return vt.accelerate(model.eval()).requires_grad_().train()


def step(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The result, its gradients and what the model counts."""
    torch.manual_seed(3)
    found.clear()
    y = model(x)
    weights = torch.linspace(-1, 1, y.numel()).view_as(y)
    return [y, *torch.autograd.grad((y * weights).sum(), [p for p in model.parameters() if p.requires_grad]),
            *(b.clone() for b in model.buffers())]  # fmt: skip


def trains_alike(model: nn.Module, x: torch.Tensor, way: str) -> list[bool]:
    """Two steps of the model and of its accelerated copy agree; whether the latter's channels came last."""
    fast = made(model, way)
    model.train()
    for _ in range(2):
        want = step(model, x)
        got = step(fast, x)
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
        assert got[0].stride() == want[0].stride()
    return list(found)


WAYS = pytest.mark.parametrize("way", ["before", "after"])


@WAYS
@pytest.mark.parametrize("channels", [4, 1])
def test_channels_stay_last(way, channels):
    x = torch.randn(2, channels, 12, 12)
    assert trains_alike(Seen(channels), x, way) == [True, True]
    assert trains_alike(Seen(channels), x.to(memory_format=torch.channels_last), way) == [True, True]


@WAYS
def test_three_dimensions_and_transposed_layers(way):
    model = nn.Sequential(nn.Conv3d(3, 8, 3), nn.BatchNorm3d(8), nn.ReLU(), nn.ConvTranspose3d(8, 2, 2, stride=2))
    trains_alike(model, torch.randn(2, 3, 4, 6, 5), way)


@WAYS
def test_gradients_of_the_input_have_its_format(way):
    model = Seen()
    fast = made(model, way)
    for form in (torch.contiguous_format, torch.channels_last):
        grads = []
        for m in (model.train(), fast):
            x = image().contiguous(memory_format=form).requires_grad_()
            (grad,) = torch.autograd.grad(m(x).square().sum(), x)
            grads.append(grad)
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-4)
        assert grads[0].stride() == grads[1].stride()


@WAYS
def test_second_derivatives(way):
    fast = made(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Conv2d(3, 1, 2)).double(), way)
    x = torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(fast, x)
    assert torch.autograd.gradgradcheck(fast, x)
    assert torch.autograd.gradcheck(fast, x, check_forward_ad=True, check_backward_ad=False)


DROPPED = {  # and whether a trace may run
    "rows": (nn.Sequential(nn.Flatten(), nn.Linear(600, 8), nn.GELU(), nn.Dropout(), nn.Linear(8, 2)), True),
    "flattened": (nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(600, 5)), True),
    "channels": (nn.Sequential(nn.Dropout2d(), nn.Flatten()), True),
    "nothing": (nn.Sequential(nn.Dropout(0.0), nn.Flatten()), True),
    "pixels": (nn.Sequential(nn.Dropout(), nn.Flatten()), False),
    "pixels, activated": (nn.Sequential(nn.Sigmoid(), nn.AlphaDropout(), nn.Flatten()), False),
    "columns": (nn.Sequential(nn.Flatten(2), nn.Dropout(), nn.Linear(100, 2)), False),
}


@WAYS
@pytest.mark.parametrize("name", DROPPED)
def test_dropouts_draw_what_pytorch_draws(name, way):
    head, traced = DROPPED[name]
    model = Seen(head=head)
    assert trains_alike(model, image(), way)[0] == traced
    assert isinstance(stand_in(made(model, way)).make(), torch.fx.GraphModule) == traced


@WAYS
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_dropouts_in_sequences(way, form):
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.Dropout(), nn.Conv2d(6, 4, 3), nn.Dropout(), nn.ReLU())
    trains_alike(model, image().contiguous(memory_format=form), way)


@WAYS
def test_parts_in_eval_mode(way):
    model = Seen()
    fast = made(model, way)
    for m in (model.train(), fast):
        m.norm.eval()
        m.body.requires_grad_(False)
    want, got = step(model, image()), step(fast, image())
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
    assert found == [True, True]


def test_modes_in_turns_are_traced_once(monkeypatch):
    traces = []
    trace = _shortcut.trace
    monkeypatch.setattr(_shortcut, "trace", lambda module: traces.append(module) or trace(module))
    fast = vt.accelerate(Seen().eval())
    for _ in range(3):
        for training in (True, False):
            fast.train(training)(image())
    assert traces == [fast, fast]
    for parts in range(1, 30):  # whatever combinations come, few stay
        for i, module in enumerate(fast.children()):
            module.train(bool(parts >> i & 1))
        fast(image())
    assert len(stand_in(fast).runs) <= 4


def test_what_was_accelerated_in_training_mode_is_fast_in_eval_mode():
    model = Seen()
    fast = vt.accelerate(model.train())
    fast(image())
    with torch.no_grad():
        torch.testing.assert_close(fast.eval()(image()), model.eval()(image()), rtol=1e-4, atol=1e-5)
    assert "norm" not in str(stand_in(fast).run.graph)
    assert list(fast.parameters()) == list(model.parameters())


class Checkpointed(Seen):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x):
        y = look(self.norm(self.first(x)).relu())
        return self.head(checkpoint(self.body, y, use_reentrant=self.reentrant))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_are_kept(reentrant):
    fast = made(Checkpointed(reentrant), "before")
    assert stand_in(fast).make() is None


def test_releases_that_do_not_tell_of_checkpoints(monkeypatch):
    monkeypatch.setattr(_trace, "knows_savers", False)
    assert trains_alike(Seen(), image(), "before") == [False, False]


def test_hooks_and_changes():
    model = Seen()
    fast = made(model, "before")
    calls = []
    handle = fast.body.register_forward_hook(lambda *_: calls.append(1))
    fast(image())
    handle.remove()
    fast(image())
    assert calls == [1]
    for m in (model.train(), fast):
        torch.manual_seed(9)
        m.norm.reset_running_stats()
        m.body.body[1].reset_running_stats()
        m.body.body[3] = nn.Conv2d(8, 6, 3)
    torch.testing.assert_close(step(fast, image()), step(model, image()), rtol=1e-3, atol=1e-4)


def test_layers_of_vkconv_are_prepared():
    model = nn.Sequential(vt.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), vt.ConvTranspose2d(8, 4, 2)).eval()
    fast = vt.accelerate(model, example=image())
    assert len(stand_in(fast).run.layers) == 2


class Called(nn.Conv3d):
    def forward(self, x):
        return F.conv3d(x, self.weight * 2, self.bias, padding=1)


@WAYS
def test_code_that_calls_convolutions(way, monkeypatch):
    calls = []
    call = _apply.call
    monkeypatch.setattr(_apply, "call", lambda *a, **k: calls.append(1) or call(*a, **k))
    model = nn.Sequential(Causal(4, 8), nn.ReLU(), Called(8, 4, 3), nn.BatchNorm3d(4), Standardized(4, 2, 1))
    trains_alike(model, image().unsqueeze(2), way)
    assert len(calls) == 2 * 3
