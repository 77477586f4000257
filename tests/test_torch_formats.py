"""Accelerated models give results, and code that they do not replace, the memory formats of PyTorch."""

from __future__ import annotations

from collections import namedtuple

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - after the skip

from test_torch_accelerate import runs  # noqa: E402
from test_torch_models import Causal, Standardized, image  # noqa: E402
from vkconv import torch as vt  # noqa: E402
from vkconv.torch import _apply  # noqa: E402
from vkconv.torch._arrays import is_channels_last  # noqa: E402

F = nn.functional


class Code(nn.Module):
    def __init__(self, code) -> None:
        super().__init__()
        self.conv, self.then = nn.Conv2d(4, 6, 3), code

    def forward(self, x):
        return self.then(self.conv(x))


Pair = namedtuple("Pair", "first second")
RESULTS = {
    "parts": lambda y: y.chunk(2, 1),
    "two": lambda y: (y, y.relu()),
    "a list": lambda y: [y, y[:, :1]],
    "named": lambda y: Pair(y, y.relu()),
    "places": lambda y: F.max_pool2d(y, 2, return_indices=True),
    "sorted": lambda y: y.sort(1),
    "no images": lambda y: y.mean((2, 3)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", RESULTS)
def test_results_have_pytorchs_format(name, training):
    model = Code(RESULTS[name]).train(training)
    for x in (image(), image().to(memory_format=torch.channels_last)):
        with torch.no_grad():
            want, got = model(x), vt.accelerate(model)(x)
        assert type(got) is type(want)
        for w, g in zip(*map(torch.utils._pytree.tree_leaves, (want, got)), strict=True):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
            assert is_channels_last(g) == is_channels_last(w)


def test_a_result_is_differentiated_with_respect_to_another():
    model = Code(lambda y: (y, y.square().mean((1, 2, 3)), *y.split(3, 1))).eval()
    fast = vt.accelerate(model).requires_grad_()
    grads = []
    for m in (model, fast):
        y, means, part, _ = m(image())
        grads += [torch.autograd.grad(means.sum(), y, retain_graph=True)[0], torch.autograd.grad(part.sum(), y)[0]]
    torch.testing.assert_close(grads[2:], grads[:2], rtol=1e-4, atol=1e-5)


class Untraced(nn.Module):
    def forward(self, x):
        return (x * 2 if x.sum() > 1e30 else x).view(len(x), -1)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", [nn.Sequential, type("Own", (nn.Sequential,), {})])
def test_views_in_nested_sequences(training, kind):
    for layers in ([nn.Conv2d(6, 6, 1), nn.ReLU()], [nn.ReLU()]):
        model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), kind(*layers, Untraced())).train(training)
        torch.testing.assert_close(vt.accelerate(model)(image()), model(image()), rtol=1e-4, atol=1e-5)


def patched() -> nn.Module:
    layer = nn.ReLU()
    layer.forward = lambda x: x.view(len(x), -1)
    return layer


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 1))

    def forward(self, x):
        return x.view(len(x), -1) * self.weight[0, 0]


@pytest.mark.parametrize(
    "layer",
    [
        patched,
        lambda: nn.DataParallel(Untraced()),
        lambda: nn.utils.parametrizations.weight_norm(Scaled(), "weight"),
        lambda: nn.utils.parametrize.register_parametrization(Scaled(), "weight", nn.Tanh()),
    ],
    ids=["patched", "inside", "weight norm", "parametrized"],
)
@torch.no_grad()
def test_code_of_others_in_modules_of_pytorch(layer):
    for model in (Code(layer()).eval(), nn.Sequential(nn.Conv2d(4, 6, 3), layer()).eval()):
        torch.testing.assert_close(vt.accelerate(model)(image()), model(image()), rtol=1e-4, atol=1e-5)


WRITES = {
    "unbind": lambda y: y.unbind(0)[0].flatten().mul_(5),
    "detach": lambda y: y.detach().flatten().mul_(5),
    "data": lambda y: y.data.flatten().mul_(5),
    "swapaxes": lambda y: y.swapaxes(0, 1).flatten(2).mul_(5),
    "expand": lambda y: y.expand(2, 6, 10, 10).flatten(1).mul_(5),
}


@pytest.mark.parametrize("name", WRITES)
@torch.no_grad()
def test_writes_through_views(name):
    def code(y):
        y = y * 1
        WRITES[name](y)
        return y

    model = Code(code).eval()
    torch.testing.assert_close(vt.accelerate(model)(image()), model(image()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("of", ["strided", "expanded", "last", "contiguous"])
def test_gradients_of_an_input_have_pytorchs_format(of):
    x = {"strided": lambda: torch.randn(2, 4, 12, 24)[..., ::2], "expanded": lambda: image()[:1].expand(2, -1, -1, -1),
         "last": lambda: image().to(memory_format=torch.channels_last), "contiguous": image}[of]()  # fmt: skip
    w, strides = torch.randn(6, 4, 3, 3), []
    for conv in (F.conv2d, vt.conv2d):
        leaf = x.detach().requires_grad_()
        strides.append(torch.autograd.grad(conv(leaf, w).sum(), leaf)[0].stride())
    assert strides[0] == strides[1]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_complex_images_of_one_channel_give_pytorchs_format(layout):
    x = torch.ones(2, 1, 5, 6, dtype=torch.complex64).to(memory_format=layout)
    for conv, shape in (("conv2d", (4, 1, 3, 3)), ("conv_transpose2d", (1, 4, 3, 3))):
        got, want = (getattr(m, conv)(x, torch.ones(shape, dtype=x.dtype)) for m in (vt, F))
        assert torch.equal(got, want) and got.stride() == want.stride()


@torch.no_grad()
def test_layers_of_vkconv_are_prepared():
    model = nn.Sequential(vt.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), vt.ConvTranspose2d(8, 4, 2)).eval()
    assert len(runs(vt.accelerate(model, example=image()))) == 2
    model = Code(F.relu)
    model.conv = vt.Conv2d(4, 6, 3)
    graph = runs(vt.accelerate(model.eval(), example=image())).graph
    assert len(graph.nodes) == 4  # input, convolution, format, output


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.code, self.graph = nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)

    def forward(self, x):
        return self.graph(self.code(x)).relu()


@torch.no_grad()
def test_parts_with_names_of_a_graphs():
    model = Graph().eval()
    torch.testing.assert_close(vt.accelerate(model)(image()), model(image()), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_what_subclasses_give_their_base(monkeypatch):
    calls = []
    call = _apply.call
    monkeypatch.setattr(_apply, "call", lambda *a, **k: calls.append(1) or call(*a, **k))
    model = nn.Sequential(Causal(4, 8), nn.ReLU(), Standardized(8, 2, 1)).eval()
    x = image().unsqueeze(2)
    torch.testing.assert_close(vt.accelerate(model)(x), model(x), rtol=1e-4, atol=1e-5)
    assert calls == [1]  # of the layer whose weight is computed


@torch.no_grad()
def test_a_compiled_model_with_parts_that_train():
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)).eval()
    fast = vt.accelerate(model)
    compiled = torch.compile(fast, backend="eager")
    for m in (model, fast):
        m[1].train()
    torch.testing.assert_close(compiled(image()), model(image()), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_program_is_traced_after_a_change():
    model = nn.Sequential(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU()).eval()
    fast = vt.accelerate(model)
    fast[1] = model[1] = nn.BatchNorm2d(6).eval()
    torch.testing.assert_close(torch.jit.trace(fast, image())(image()), model(image()), rtol=1e-4, atol=1e-5)
