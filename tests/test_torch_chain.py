"""Layers of a graph that vkconv.torch.accelerate computes in one call of the extension."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import vkconv

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import nn  # noqa: E402

from test_torch_accelerate import SMALL, check, inside, models, runs  # noqa: E402 - after the skip
from vkconv.torch._arrays import contiguous  # noqa: E402
from vkconv.torch._chain import Chain  # noqa: E402
from vkconv.torch._channels import ChannelMeans  # noqa: E402

LENGTHS = {"resnet": [1, 19], "mobilenet": [62, 2], "r3d": [12]}


@pytest.mark.parametrize("name", LENGTHS)
def test_layers_between_others_are_one_call(name):
    make, shape = SMALL[name]
    fast = check(models.seeded(make()), torch.randn(shape), tolerance=1e-4)
    assert [len(inside(c)) for c in inside(fast, Chain)] == LENGTHS[name]


class Fork(nn.Module):
    """What lies inside a chain is read after it too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        y = self.a(x).relu()
        z = self.b(y)
        return (self.c(z) + x) - y * 2


@pytest.mark.parametrize("call", [lambda f, x: f(x), lambda f, x: f(x[0])], ids=["batch", "no batch"])
def test_a_chain_has_the_bits_of_its_layers(call):
    model, x = Fork().eval(), torch.randn(2, 4, 6, 7)
    fast = check(model, x)
    (chain,) = inside(fast, Chain)
    assert len(inside(chain)) == 3
    with torch.no_grad():
        assert all(torch.equal(a, b) for a, b in zip(call(chain, x), call(chain.layers, x), strict=True))


def test_weights_that_are_computed_later():
    model = Fork().eval()
    x = torch.randn(1, 4, 6, 6)
    fast = check(model, x)
    for m in (model, fast):
        nn.utils.parametrize.register_parametrization(m.b, "weight", nn.Softplus())
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
            for m in (model, fast):
                m.b.parametrizations.weight.original.mul_(2)


def test_errors_are_those_of_pytorch():
    model = Fork().eval()
    fast = check(model, torch.randn(1, 4, 6, 6))
    for wrong in (torch.randn(1, 3, 6, 6), torch.randn(1, 4, 6, 6).int(), torch.randn(4)):
        for f in (model, fast):
            with torch.no_grad(), pytest.raises(RuntimeError):
                f(wrong)


class Auxiliary(nn.Module):
    """A head that is for training alone."""

    def __init__(self, read) -> None:
        super().__init__()
        self.body, self.read = nn.Conv2d(4, 4, 1), read
        self.head = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1))

    def forward(self, x):
        y = self.body(x)
        aux = self.head(self.read(y))
        z = y.mean((2, 3), keepdim=True)
        return (z, aux) if self.training else z


@pytest.mark.parametrize("read", [nn.Identity(), nn.ReLU()])
def test_layers_whose_results_nothing_reads_are_not_computed(read):
    assert len(inside(check(Auxiliary(read).eval(), torch.randn(2, 4, 6, 6)))) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_sums_run_in_their_own_dtype(dtype):
    """In halves an addend has another dtype than a result of the chain."""
    model = Fork().eval()
    x = torch.randn(1, 4, 6, 6)
    want = model(x)
    fast = check(model.to(dtype), x.to(dtype), tolerance=2e-3)
    assert sum(len(inside(c)) for c in inside(fast, Chain)) == (2 if dtype == torch.float16 else 3)
    with torch.no_grad():
        torch.testing.assert_close(fast(x.to(dtype)).float(), want, rtol=1e-2, atol=1e-2)


def test_lines_of_different_shapes():
    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = nn.Linear(6, 24), nn.Linear(24, 6)

        def forward(self, x):
            return x + self.narrow(self.wide(x)).expand(3, 5, 6)

    check(Mlp().eval(), torch.randn(1, 5, 6))


class Scaled(nn.Module):
    """A block of ConvNeXt; of timm where the scale is a vector."""

    def __init__(self, *ones: int) -> None:
        super().__init__()
        self.ones = ones
        self.depthwise, self.wide = nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.Linear(6, 12)
        self.narrow, self.scale = nn.Linear(12, 6, bias=not ones), nn.Parameter(torch.randn(6, *ones))

    def forward(self, x):
        y = self.narrow(self.wide(self.depthwise(x).permute(0, 2, 3, 1)).relu()).permute((0, 3, 1, 2))
        return x + (self.scale if self.ones else self.scale.reshape(1, -1, 1, 1)) * y


@pytest.mark.parametrize("ones", [(1, 1), ()])
def test_a_layer_scale_and_the_addition_after_it_are_folded(ones):
    model, x = Scaled(*ones).eval(), torch.randn(2, 6, 5, 7)
    fast = check(model, x)
    assert not any("mul" in str(n.target) or "add" in str(n.target) for n in runs(fast).graph.nodes)
    for m in (model, fast):
        with torch.no_grad():
            m.scale.mul_(2)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            got, want = fast(x), model(x)
        assert got.dtype == want.dtype and (got - want).abs().max() < 0.05 * want.abs().max()
    leaf = x.clone().requires_grad_()
    grads = []
    for m in (model, fast.requires_grad_()):
        m(leaf).square().sum().backward()
        grads += [leaf.grad, m.scale.grad]
        leaf.grad = None
    torch.testing.assert_close(grads[:2], grads[2:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("last", [lambda x, y: x.mean(1, keepdim=True) + y, lambda x, y: y.relu() + x])
def test_what_follows_a_layer_scale_otherwise(last):
    class Other(Scaled):
        def forward(self, x):
            return last(x, self.scale * self.narrow(self.wide(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2))

    check(Other(1, 1).eval(), torch.randn(2, 6, 5, 7))


HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


class Residual(nn.Module):
    def __init__(self, layer: nn.Module, term) -> None:
        super().__init__()
        self.layer, self.term = layer, term

    def forward(self, x):
        term = self.term(x)
        return F.relu(self.layer(x.to(self.layer.weight.dtype)) + term)


ADDENDS = {
    "image": (lambda: nn.Conv2d(6, 6, 3, padding=1), (2, 6, 5, 7), lambda x: x),
    "image without a batch": (lambda: nn.Conv2d(6, 6, 3, padding=1), (6, 5, 7), lambda x: x),
    "number for an image": (lambda: nn.Conv2d(6, 6, 3), (6, 5, 7), lambda x: x.sum()),
    "rows": (lambda: nn.Linear(6, 6), (2, 5, 6), lambda x: x),
    "as many rows as channels": (lambda: nn.Linear(6, 6), (6, 6), lambda x: x),
    "number for rows": (lambda: nn.Linear(6, 4), (5, 6), lambda x: x.sum()),
}


@HALVES
@pytest.mark.parametrize("name", ADDENDS)
@pytest.mark.parametrize("wide", [True, False])
def test_the_sum_of_halves_and_an_addend_has_the_dtype_of_pytorchs(name, wide, dtype):
    make, shape, term = ADDENDS[name]
    x = torch.randn(shape)
    fast = check(Residual(make().to(dtype), term).eval(), x if wide else x.to(dtype), tolerance=2e-2)
    assert "add" not in str(runs(fast).graph)


@pytest.mark.parametrize("name", ["image", "rows"])
def test_such_a_sum_is_compiled(name):
    make, shape, term = ADDENDS[name]
    fast, x = vkconv.torch.accelerate(Residual(make().half(), term).eval()), torch.randn(shape)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(fast, backend="aot_eager", fullgraph=True)(x), fast(x))


@HALVES
def test_a_layer_scale_that_is_wider_than_the_weights(dtype):
    class Wide(Scaled):
        def forward(self, x):
            return self.scale * self.narrow(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    model, x = Wide(1, 1).eval(), torch.randn(2, 12, 5, 7)
    model.narrow.to(dtype)
    fast = check(model, x.to(dtype), tolerance=2e-2)
    assert not any("mul" in str(n.target) for n in runs(fast).graph.nodes)
    model.float().scale.data = model.scale.double()
    check(model, x)
    with torch.no_grad(), pytest.raises(RuntimeError, match="type"):
        vkconv.torch.accelerate(model)(x.double())


@contextmanager
def threads_of_vkconv(count):
    before = vkconv.num_threads()
    vkconv.set_num_threads(count)
    try:
        yield
    finally:
        vkconv.set_num_threads(before)


class Excited(nn.Module):
    """A block of MobileNetV3 and one of SE-ResNet; `pool` and `gate` are written in many ways."""

    def __init__(self, pool, gate, rank: int = 2) -> None:
        super().__init__()
        conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[rank]
        self.pool, self.gate = pool, gate
        self.first, self.last = conv(3, 20, 3, padding=1), conv(20, 5, 1)
        self.squeeze, self.expand = conv(20, 4, 1), conv(4, 20, 1)

    def forward(self, x):
        y = self.first(x).relu()
        return self.last(y * self.gate(self.expand(self.squeeze(self.pool(y)).relu())))


POOLS = {
    "module": nn.AdaptiveAvgPool2d(1),
    "function": lambda x: F.adaptive_avg_pool2d(x, (1, 1)),
    "mean": lambda x: x.mean((2, 3), keepdim=True),
    "mean, named": lambda x: torch.mean(x, dim=[-1, -2], keepdim=True),
}


@pytest.mark.parametrize("gate", [nn.Sigmoid(), nn.Hardsigmoid(), F.hardsigmoid], ids=["sigmoid", "hard", "function"])
@pytest.mark.parametrize("pool", POOLS)
def test_squeeze_and_excitation_is_part_of_the_chain(pool, gate):
    model, x = Excited(POOLS[pool], gate).eval(), torch.randn(2, 3, 13, 15)
    fast = check(model, x)
    (chain,) = inside(fast, Chain)
    assert len(list(chain.layers.children())) == 6
    for m in (model, fast):
        m.squeeze.weight.data.mul_(2)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
        one = fast(x)
        for threads in (1, 3):
            with threads_of_vkconv(threads):
                assert torch.equal(fast(x), one)


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_squeeze_and_excitation_of_other_ranks_and_dtypes(rank, dtype):
    def pool(x):
        return x.mean(tuple(range(2, rank + 2)), keepdim=True)

    model = Excited(pool, torch.sigmoid, rank).to(dtype).eval()
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    fast = check(model, torch.randn(2, 3, *(7, 6, 5)[:rank]).to(dtype), tolerance=tolerance)
    assert [len(inside(c)) for c in inside(fast, Chain)] == ([1, 2, 1] if dtype == torch.bfloat16 else [4])


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", ["module", "function", "mean"])
def test_squeeze_and_excitation_without_a_batch(name, rank):
    pools = {
        "module": [nn.AdaptiveAvgPool1d(1), nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool3d(1)][rank - 1],
        "function": lambda x: [F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d][rank - 1](x, 1),
        "mean": lambda x: x.mean(tuple(range(-rank, 0)), keepdim=True),
    }
    model, x = Excited(pools[name], torch.sigmoid, rank).eval(), torch.randn(3, *(7, 6, 5)[:rank])
    assert inside(check(model, x), ChannelMeans)


@pytest.mark.parametrize("axes", [(2, 3), (3, -2), (2, -1)])
def test_axes_that_only_a_batch_has(axes):
    model = Excited(lambda x: x.mean(axes, keepdim=True), torch.sigmoid).eval()
    fast, x = check(model, torch.randn(1, 3, 6, 5)), torch.randn(3, 6, 5)
    assert inside(fast, ChannelMeans)
    for f in (model, fast):
        with torch.no_grad(), pytest.raises((IndexError, RuntimeError)):
            f(x)


@pytest.mark.parametrize("other", [
    lambda m, x: x.mean((2, 3), keepdim=True) * m.expand(m.squeeze(x)),  # the gate is an image
    lambda m, x: x * m.expand(m.squeeze(x.mean((0, 2), keepdim=True))),
    lambda m, x: x * m.expand(m.squeeze(x.mean((2,), keepdim=True))),
    lambda m, x: x * m.expand(m.squeeze(F.adaptive_avg_pool2d(x, (1, 2))))[..., :1],
    lambda m, x: (x + 1) * m.expand(m.squeeze(F.adaptive_avg_pool2d(x, 1))),
], ids=["swapped", "other axes", "one axis", "two pixels", "another image"])  # fmt: skip
def test_what_looks_like_squeeze_and_excitation(other):
    class Other(Excited):
        def forward(self, x):
            return other(self, self.first(x))

    check(Other(None, None).eval(), torch.randn(2, 3, 6, 6))


def test_a_mean_over_many_pixels_keeps_its_digits():
    """Pairs of a large sum and a small mean: the order of the additions is that of blocks."""
    model = Excited(POOLS["mean"], nn.Sigmoid()).eval()
    check(model, 100 + torch.randn(1, 3, 300, 301), tolerance=1e-5)


def test_dropped_parts_do_not_stand_between_layers():
    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.drop, self.b = nn.Linear(6, 12), nn.Dropout(), nn.Linear(12, 6)

        def forward(self, x):
            y = self.drop(self.b(F.dropout(self.drop(F.gelu(self.a(x))), 0.3, self.training)))
            return x + y

    model, x = Mlp().eval(), torch.randn(3, 5, 6)
    fast = check(model, x)
    assert [len(inside(c)) for c in inside(fast, Chain)] == [2]
    assert "add" not in str(runs(fast).graph)
    fast.drop.train()
    with torch.no_grad():
        assert not torch.equal(fast(x), fast(x))


class Normed(Excited):
    def forward(self, x):
        return F.group_norm(self.first(x), 4).relu()


@pytest.mark.parametrize("rank", [1, 2])
def test_a_group_norm_of_a_sequence_reads_a_contiguous_one(rank):
    fast = check(Normed(None, None, rank).eval(), torch.randn(2, 3, *(9, 8)[:rank]))
    assert [n.target for n in runs(fast).graph.nodes].count(contiguous) == (rank == 1)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_group_norm_that_is_mapped_reads_a_contiguous_one(rank):
    fast, x = vkconv.torch.accelerate(Normed(None, None, rank).eval()), torch.randn(4, 2, 3, *(5, 4, 3)[:rank])
    torch.testing.assert_close(torch.vmap(fast)(x), torch.stack([fast(image) for image in x]))


class InstanceNormed(nn.Module):
    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x):
        return F.instance_norm(self.layers[1](self.layers[0](x)).relu()).tanh()


@pytest.mark.parametrize("make", [nn.Sequential, lambda *layers: InstanceNormed(nn.Sequential(*layers))])
def test_instance_norms_read_contiguous_ones(make, monkeypatch):
    model = make(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True)).eval()
    fast, x = vkconv.torch.accelerate(model), torch.randn(2, 3, 9, 8)
    own, contiguous_ones = F.instance_norm, []

    def noted(input, *arguments, **named):
        contiguous_ones.append(input.is_contiguous())
        return own(input, *arguments, **named)

    with torch.no_grad():
        want = model(x)
        monkeypatch.setattr(F, "instance_norm", noted)
        for image in (x, x.to(memory_format=torch.channels_last)):
            torch.testing.assert_close(fast(image), want)
    assert contiguous_ones and all(contiguous_ones)
