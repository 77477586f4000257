"""vkconv.torch.accelerate: what is folded, what is left alone, and that the model's answer stays the same."""

from __future__ import annotations

import copy
import io
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import models  # noqa: E402 - after the skip
from torch import nn  # noqa: E402

from vkconv import torch as vt  # noqa: E402
from vkconv.torch._formats import in_format_of  # noqa: E402
from vkconv.torch._fusion import Steps  # noqa: E402
from vkconv.torch._modules import stand_in  # noqa: E402
from vkconv.torch._prepared import Prepared  # noqa: E402
from vkconv.torch._prepared_ops import prepared_conv, prepared_conv_add  # noqa: E402

F = nn.functional
SMALL = {
    "resnet": (lambda: models.ResNet((1, 1, 1, 2), 16, 10), (2, 3, 64, 64)),
    "mobilenet": (lambda: models.MobileNetV3(15, 10), (1, 3, 64, 64)),
    "convnext": (lambda: models.ConvNeXt((1, 1, 2, 1), 16, 10), (1, 3, 64, 64)),
    "r3d": (lambda: models.R3D(1, 8, 10), (1, 3, 8, 32, 32)),
}


def runs(model: nn.Module) -> nn.Module:
    """What a call of the module runs: its graph, its sequence, its packed weights, or itself."""
    owner = stand_in(model) or model
    run = getattr(owner, "run", owner) or model
    return nn.ModuleList(run.layers) if isinstance(run, Steps) else run


def inside(model: nn.Module, kind: type = Prepared) -> list:
    """The modules of this kind that a call of the model runs."""
    run = runs(model)
    parts = [] if isinstance(run, Prepared) else [part for child in run.children() for part in inside(child, kind)]
    return [run, *parts] if isinstance(run, kind) else parts


def check(model: nn.Module, *inputs: torch.Tensor, tolerance: float = 1e-5) -> nn.Module:
    """The accelerated model, after both gave the same."""
    kept = [x.clone() for x in inputs]
    fast = vt.accelerate(model)
    with torch.no_grad():
        want, got = model(*[x.clone() for x in inputs]), fast(*inputs)
    assert got.shape == want.shape and got.dtype == want.dtype
    assert (got - want).abs().max() <= tolerance * want.abs().max()
    assert all(torch.equal(a, b) for a, b in zip(kept, inputs, strict=True))
    return fast


@pytest.mark.parametrize("name", SMALL)
def test_networks(name):
    make, shape = SMALL[name]
    model = models.seeded(make())
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    for layout in (torch.contiguous_format, last):
        fast = check(model, x.contiguous(memory_format=layout), tolerance=1e-4)
    for kind in (nn.BatchNorm2d, nn.BatchNorm3d, nn.Conv2d, nn.Conv3d):
        assert not inside(fast, kind)
    if name in ("resnet", "r3d"):  # every addition and activation went into a convolution
        assert not any(n.op == "call_function" and "add" in str(n.target) for n in runs(fast).graph.nodes)
        assert not inside(fast, nn.ReLU)


ACTIVATIONS = [nn.ReLU(True), nn.ReLU6(), nn.LeakyReLU(0.2), nn.SiLU(), nn.GELU(), nn.Sigmoid(), nn.Tanh(),
               nn.Hardswish(), nn.Hardtanh(-0.5, 0.25)]  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_activations(activation):
    model = models.seeded(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), activation))
    assert len(list(runs(check(model, torch.randn(2, 3, 9, 9))).children())) == 1


def test_what_differs_is_not_folded():
    model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.GELU(approximate="tanh"), nn.Conv1d(8, 4, 1), nn.Softplus()).eval()
    assert len(list(runs(check(model, torch.randn(2, 3, 9))).children())) == 4


def test_a_sequence_that_nothing_makes_shorter_runs_its_own_code():
    fast = check(
        nn.Sequential(nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5)), nn.Linear(5, 2)).eval(), torch.ones(3, 6)
    )
    assert runs(fast) is fast and runs(fast[0]) is fast[0]
    fast[1] = nn.Linear(5, 3)
    assert fast(torch.ones(3, 6)).shape == (3, 3)


class Functional(nn.Module):
    def __init__(self, last) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), last

    def forward(self, x):
        return self.last(self.norm(self.conv(x)), x)


LAST = {
    "relu": (lambda y, x: F.relu(y, inplace=True), 1),
    "method": (lambda y, x: y.relu_(), 1),
    "slope is given": (lambda y, x: F.leaky_relu(y, 0.3), 2),
    "approximate": (lambda y, x: F.gelu(y, approximate="tanh"), 2),
    "add": (lambda y, x: F.silu(x + y), 1),
    "broadcast add": (lambda y, x: y + x.mean((2, 3), keepdim=True), 2),
    "add a number": (lambda y, x: y + 1, 2),
    "scaled add": (lambda y, x: torch.add(y, x, alpha=2), 2),
    "twice": (lambda y, x: y + y, 2),
    "read again": (lambda y, x: F.relu(y) + y, 3),
    "view": (lambda y, x: y.view(y.shape[0], -1), 2),
    "view as dtype": (lambda y, x: y.view(torch.int32).view(torch.float32), 3),
    "in place of another": (lambda y, x: operator_iadd(x.clone(), y), 3),
}


def operator_iadd(a, b):
    a += b
    return a


@pytest.mark.parametrize("name", LAST)
def test_functional_code(name):
    last, most = LAST[name]
    fast = check(models.seeded(Functional(last)), torch.randn(2, 4, 6, 6))
    assert len(inside(fast)) == 1 and not inside(fast, nn.BatchNorm2d)
    steps = [n for n in runs(fast).graph.nodes if n.op.startswith("call") and "getattr" not in str(n.target)]
    steps.remove(next(n for n in steps if n.target is in_format_of))
    assert (len(steps) == 1) == (most == 1), steps


class Branches(nn.Module):
    """Python decides on values, and takes two arguments: it cannot be traced, its parts can."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.up = nn.ConvTranspose2d(6, 4, 3, 2, groups=2)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x, scale=None):
        y = self.part(x)
        if y.sum() > 0:
            y = y * 2
        return self.norm(self.up(y)) if scale is None else self.up(y) * scale


def test_untraceable_code_is_kept():
    model = models.seeded(Branches())
    fast = check(model, torch.randn(2, 3, 8, 8))
    assert type(fast) is Branches and len(inside(fast.part)) == 1 and type(fast.norm) is nn.BatchNorm2d
    check(model, torch.randn(2, 3, 8, 8), torch.tensor(3.0))
    assert not inside(model)


class NormAndMore(nn.BatchNorm2d):
    """As in timm: a batch norm by its function, with what follows it, after a check of the rank."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.SiLU()

    def forward(self, x):
        torch._assert(x.ndim == 4, f"expected 4D input (got {x.ndim}D input)")
        mean, var = self.running_mean, self.running_var
        x = F.batch_norm(x, mean, var, self.weight, self.bias, self.training, self.momentum, self.eps)
        return self.act(self.drop(x))


def test_batch_norms_by_their_function():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 8, 3), NormAndMore(8)

        def forward(self, x):
            return self.norm(self.conv(x))

    model, x = models.seeded(Model()), torch.randn(2, 3, 9, 9)
    fast = check(model, x)
    assert [n.op for n in runs(fast).graph.nodes] == ["placeholder", "call_module", "call_function", "output"]
    leaf = x.clone().requires_grad_()  # by operators
    torch.testing.assert_close(fast(leaf), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_with_norm(groups):
    up = nn.ConvTranspose3d(4, 6, 3, 2, padding=1, output_padding=1, groups=groups)
    model = nn.Sequential(up, nn.BatchNorm3d(6), nn.ReLU()).eval()
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2)
    model[1].weight.data.normal_()
    assert len(list(runs(check(model, torch.randn(2, 4, 4, 5, 6))).children())) == 1


def test_left_alone():
    class Odd(nn.Conv2d):
        def forward(self, x):
            return super().forward(x).abs()

    hooked = nn.Conv2d(3, 3, 3)
    hooked.register_forward_hook(lambda module, args, output: output * 2)
    patched = nn.Conv2d(3, 3, 1)
    patched.forward = lambda x: x * 2
    parametrized = nn.Conv2d(3, 3, 3)
    nn.utils.parametrize.register_parametrization(parametrized, "weight", nn.Softplus())
    model = nn.Sequential(Odd(3, 3, 3), nn.ReLU(), hooked, nn.ReLU(), patched, parametrized, nn.Conv2d(3, 3, 3))
    fast = check(model.eval(), torch.randn(1, 3, 12, 12))
    assert len(inside(fast)) == 1


def test_a_module_used_twice_and_shared_norms():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.a, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.BatchNorm2d(4)

        def forward(self, x):
            return self.b(self.conv(self.a(self.conv(x)).relu()))

    assert len(inside(check(models.seeded(Twice()), torch.randn(1, 4, 6, 6)))) == 2


def test_linear_layers():
    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow, self.act = nn.Linear(6, 24), nn.Linear(24, 6, bias=False), nn.GELU()

        def forward(self, x):
            return x + self.narrow(self.act(self.wide(x)))

    for shape in ((6,), (5, 6), (2, 3, 4, 6), (0, 6)):
        x = torch.randn(shape)
        fast = vt.accelerate(Mlp().eval())
        assert len(list(runs(fast).children())) == 1 and len(inside(fast)) == 2
        model = Mlp().eval()
        with torch.no_grad():
            torch.testing.assert_close(vt.accelerate(model)(x), model(x))
    check(Mlp().eval(), torch.randn(3, 6, 7).transpose(1, 2))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes(mode, monkeypatch):
    """Without a copy of the input that has a border, which gradients have."""
    x = torch.randn(1, 3, 6, 7)
    fast = check(nn.Sequential(nn.Conv2d(3, 4, 3, padding=(1, 2), padding_mode=mode), nn.ReLU()).eval(), x)
    want = fast(x.requires_grad_()).detach()
    monkeypatch.setattr(F, "pad", None)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), want)


def test_padding_mode_before_a_sum():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv3d(4, 4, 3, padding=1, padding_mode="replicate")

        def forward(self, x):
            return F.silu(x + self.conv(x))

    fast = check(Residual().eval(), torch.randn(2, 4, 3, 5, 6))
    assert len(inside(fast)) == 1


def test_norm_of_the_batch_stays():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).eval()
    assert len(list(runs(check(model, torch.randn(2, 3, 6, 6))).children())) == 2


def test_unbatched():
    check(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(3, 6, 6))


def test_gradients_reach_the_input():
    model, x = models.seeded(Functional(lambda y, x: F.silu(y + x))), torch.randn(1, 4, 6, 6)
    grads = []
    for f in (model, vt.accelerate(model)):
        leaf = x.clone().requires_grad_()
        f(leaf).square().sum().backward()
        grads.append(leaf.grad)
    assert torch.allclose(*grads, rtol=1e-4, atol=1e-5)


def test_change_of_dtype_and_copies():
    pytest.importorskip("ml_dtypes")
    model, x = models.seeded(SMALL["resnet"][0]()), torch.randn(1, 3, 64, 64)
    fast = vt.accelerate(model)
    want = model(x)
    assert torch.equal(copy.deepcopy(fast)(x), fast(x))
    stored = io.BytesIO()
    torch.save(fast, stored)
    stored.seek(0)
    assert torch.equal(torch.load(stored, weights_only=False)(x), fast(x))
    half = copy.deepcopy(fast).to(torch.bfloat16)(x.bfloat16())
    assert half.dtype == torch.bfloat16 and (half - want).abs().max() < 0.05 * want.abs().max()
    assert (fast.double()(x.double()) - want).abs().max() < 1e-4 * want.abs().max()


def test_autocast():
    """Layers that train cast their operands like PyTorch's; packed weights keep their dtype, results do not."""
    pytest.importorskip("ml_dtypes")
    model, x = models.seeded(SMALL["convnext"][0]()), torch.randn(1, 3, 64, 64)
    want, fast = model(x), vt.accelerate(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        got = fast(x)
        assert got.dtype == model(x).dtype and (got - want).abs().max() < 0.05 * want.abs().max()
        layer = vt.Conv2d(3, 4, 3)
        assert layer(x).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        layer(x).float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32


class Asks(nn.Module):
    """Looks at its layers when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(2, 4, 3, padding=1, padding_mode="circular"), nn.Linear(8, 3)])
        self.layers.append(nn.ConvTranspose1d(4, 2, 3, stride=2))

    def forward(self, x, extra=0):
        for layer in self.layers:
            x = layer(x) if isinstance(layer, nn.Conv1d | nn.Linear) else layer(x, output_size=[7 + extra])
        return x


def test_models_may_ask_for_the_types_of_their_layers():
    model, x = Asks().eval(), torch.randn(1, 2, 8)
    fast = vt.accelerate(model)
    for extra in (0, 1):
        torch.testing.assert_close(fast(x, extra), model(x, extra))
    assert all(isinstance(ours, type(theirs)) for ours, theirs in zip(fast.layers, model.layers, strict=True))
    first, same = fast.layers[0], model.layers[0]
    torch.testing.assert_close(first._conv_forward(x, first.weight, None), same._conv_forward(x, same.weight, None))
    assert [type(layer) for layer in copy.deepcopy(fast).layers] == [type(layer) for layer in fast.layers]


@pytest.mark.filterwarnings("error:There is a performance drop")
def test_functional_transformations():
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.ConvTranspose2d(4, 2, 2), nn.Linear(7, 5)
    model, x = models.seeded(nn.Sequential(*layers)), torch.randn(3, 1, 3, 6, 6)
    fast = vt.accelerate(model)

    def answers(m):
        with torch.no_grad():
            mapped, tangent = torch.vmap(m)(x), torch.func.jvp(m, (x[0],), (x[1],))
        return mapped, tangent, torch.func.jacfwd(m)(x[0]), torch.func.jacrev(m)(x[0])

    torch.testing.assert_close(answers(fast), answers(model), rtol=1e-4, atol=1e-5)


def test_example_is_compared():
    class Sometimes(nn.Module):
        """A trace does not see who asks by another name, and takes the other path."""

        asks = staticmethod(isinstance)

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x):
            return self.conv(x) if self.asks(x, torch.Tensor) else self.other(self.conv(x))

    for other in (lambda y: y * 2, lambda y: y.double()):
        Sometimes.other = staticmethod(other)
        with pytest.raises(RuntimeError, match="differs"):
            vt.accelerate(Sometimes().eval(), example=torch.randn(1, 3, 4, 4))
    vt.accelerate(models.seeded(SMALL["r3d"][0]()), example=(torch.randn(SMALL["r3d"][1]),))


def test_compile_and_opcheck():
    model, x = models.seeded(SMALL["resnet"][0]()), torch.randn(1, 3, 64, 64)
    fast = vt.accelerate(model)
    compiled = torch.compile(fast, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.allclose(compiled(x), fast(x), rtol=1e-5, atol=1e-5)
    conv = inside(fast)[0]
    torch.library.opcheck(prepared_conv, (x, conv.handle))
    torch.library.opcheck(prepared_conv_add, (x, torch.randn(1, 16, 32, 32), conv.handle))
