"""Modules whose own code calls convolutions as functions, accelerated."""

from __future__ import annotations

import copy
import io

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

from vkconv import torch as vt  # noqa: E402


class SamePadded(nn.Conv2d):
    """As TensorFlow pads: by the size of the input."""

    def forward(self, x):
        (t, b), (le, r) = (
            self.pads(n, k, s) for n, k, s in zip(x.shape[2:], self.kernel_size, self.stride, strict=True)
        )
        padded = F.pad(x, (le, r, t, b))
        return F.conv2d(padded, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    @staticmethod
    def pads(n, k, s):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        return total // 2, total - total // 2


class Standardized(nn.Conv2d):
    def forward(self, x):
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / w.std((1, 2, 3), keepdim=True)
        return F.conv2d(x, w, self.bias, padding="same", groups=self.groups)


class Modulated(nn.Module):
    """The weight of each image is scaled by its style."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 3, 3))

    def forward(self, x, style):
        n, c = style.shape
        weight = (self.weight * style.view(n, 1, c, 1, 1)).flatten(0, 1)
        return F.conv2d(x.reshape(1, n * c, *x.shape[2:]), weight, padding=1, groups=n).view(n, 6, *x.shape[2:])


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 3, 4)), nn.Parameter(torch.randn(3))

    def forward(self, x):
        return F.conv_transpose1d(x.flatten(2), self.weight, self.bias, stride=2, padding=1)


def cases() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 9, 10)
    blocks = nn.Sequential(SamePadded(4, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), Standardized(8, 8, 3, groups=2))
    return {
        "same padding": (SamePadded(4, 8, (3, 5), 2), (x,)),
        "standardized": (Standardized(4, 8, 3, padding=1), (x,)),
        "in a sequence": (blocks, (x,)),
        "modulated": (Modulated(), (x, torch.rand(2, 4) + 0.5)),
        "transposed": (Doubled(), (x,)),
    }


@pytest.fixture(params=cases())
def case(request):
    model, inputs = cases()[request.param]
    return model.eval(), inputs


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def pytorchs_convolutions(call) -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as told:
        call()
    return [event.key for event in told.key_averages() if "aten::" in event.key and "conv" in event.key]


def test_they_are_vkconvs(case):
    model, inputs = case
    fast = vt.accelerate(model)
    with torch.no_grad():
        close(fast(*inputs), model(*inputs))
        assert pytorchs_convolutions(lambda: model(*inputs))
        assert not pytorchs_convolutions(lambda: fast(*inputs))


def test_weights_and_copies_are_followed(case):
    model, inputs = case
    fast = vt.accelerate(model)
    before = fast(*inputs)
    halved = {k: v / 2 if v.is_floating_point() else v for k, v in model.state_dict().items()}
    for m in (model, fast):
        m.load_state_dict(halved)
    close(fast(*inputs), model(*inputs))
    stored = io.BytesIO()
    torch.save(fast, stored)
    stored.seek(0)
    for made in (copy.deepcopy(fast), torch.load(stored, weights_only=False)):
        assert torch.equal(made(*inputs), fast(*inputs))
    assert before.shape == fast(*inputs).shape


def test_gradients(case):
    model, inputs = case
    fast = vt.accelerate(model)
    fast.requires_grad_()
    for m in (model, fast):
        m(*inputs).square().sum().backward()
    for want, got in zip(model.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-3, atol=1e-2)


def test_programs_hold_pytorchs(case):
    """What is stored or traced needs nothing of this process."""
    model, inputs = case
    fast = vt.accelerate(model)
    with torch.no_grad():
        traced, program = torch.jit.trace(fast, inputs), torch.export.export(fast, inputs)
        assert "prepared_conv" not in str(traced.inlined_graph) + str(program.graph)
        for made in (traced, program.module()):
            close(made(*inputs), model(*inputs))
        if len(inputs) == 1 and not isinstance(model, nn.Sequential):
            close(nn.Sequential(fast, nn.ReLU())(*inputs), model(*inputs).relu())


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 3, 3))

    def forward(self, x):
        return F.conv2d(x, self.weight + torch.randn(self.weight.shape))


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 3, 3, dtype=torch.complex64))

    def forward(self, x):
        return F.conv2d(x.to(torch.complex64), self.weight * 2).real


def test_weights_that_no_call_shares():
    """Random ones are drawn in every call; complex ones are not packed."""
    x = cases()["standardized"][1][0]
    model = Noisy().eval()
    fast = vt.accelerate(model)
    for seed in (1, 2):
        results = []
        for m in (model, fast):
            torch.manual_seed(seed)
            results.append(m(x))
        close(*results)
    model = Spectral().eval()
    close(vt.accelerate(model)(x), model(x))


def test_half_precision_and_errors():
    model, inputs = cases()["same padding"]
    fast = vt.accelerate(model.eval())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        want, got = model(*inputs), fast(*inputs)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    with pytest.raises(RuntimeError, match="channels"):
        fast(inputs[0][:, :3])


def test_other_code_keeps_its_functions():
    """A block that holds layers, too, is not slowed by the redirection."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.kernel = nn.Conv2d(4, 4, 3), nn.Parameter(torch.ones(1, 1, 3))

        def forward(self, x):
            return F.conv1d(self.conv(x).flatten(1).unsqueeze(1), self.kernel)

    model, x = Block().eval(), cases()["standardized"][1][0]
    with torch.no_grad():
        close(vt.accelerate(model)(x), model(x))
