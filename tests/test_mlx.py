"""vkconv.mlx against MLX's own convolutions and their gradients."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")
nn = pytest.importorskip("mlx.nn")

import vkconv  # noqa: E402 - after the skip
import vkconv.mlx as vm  # noqa: E402

RNG = np.random.default_rng(5)
GENERAL = [
    {},
    {"stride": 2, "padding": 1, "kernel_dilation": 2},
    {"padding": ([1, 0], [0, 2]), "flip": True},
    {"groups": 2, "padding": 1},
    {"input_dilation": 2, "padding": (2, 1)},
]
TRANSPOSED = [{}, {"stride": 2, "padding": 1, "output_padding": 1}, {"stride": (1, 2), "dilation": (2, 1)}]


def normal(*shape: int, dtype=mx.float32) -> mx.array:
    return mx.array(RNG.standard_normal(shape).astype(np.float32)).astype(dtype)


def operands(options: dict, rank: int = 2) -> tuple[mx.array, mx.array]:
    return normal(2, *(7, 6, 5)[:rank], 4), normal(6, *(3, 2, 3)[:rank], 4 // options.get("groups", 1))


def near(got: mx.array, want: mx.array, tolerance: float = 1e-5) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    a, b = (np.array(v.astype(mx.float32)) for v in (got, want))
    assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


@pytest.mark.parametrize("options", GENERAL, ids=str)
def test_conv_general(options):
    x, w = operands(options)
    near(vm.conv_general(x, w, **options), mx.conv_general(x, w, **options))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_ranks(rank):
    x, w = operands({}, rank)
    near(getattr(vm, f"conv{rank}d")(x, w, 2, 1), getattr(mx, f"conv{rank}d")(x, w, 2, 1))
    near(getattr(vm, f"conv_transpose{rank}d")(x, w, 2, 1), getattr(mx, f"conv_transpose{rank}d")(x, w, 2, 1))
    with pytest.raises(ValueError, match="dimensions"):
        getattr(vm, f"conv{rank}d")(x[0], w)
    with pytest.raises(ValueError, match="padding 99 leaves no output along spatial axis 0"):
        getattr(vm, f"conv_transpose{rank}d")(x, w, padding=99)


@pytest.mark.parametrize("word", ["valid", "same", "same_lower", "full", "causal"])
def test_words_of_padding(word):
    x, w = operands({})
    wanted = mx.array(vkconv.conv2d(np.array(x), np.array(w), stride=2, padding=word))
    near(vm.conv2d(x, w, stride=2, padding=word), wanted)
    near(mx.compile(partial(vm.conv_general, stride=2, padding=word))(x, w), wanted)


@pytest.mark.parametrize("options", TRANSPOSED, ids=str)
def test_transposed(options):
    x, w = operands(options)
    near(vm.conv_transpose2d(x, w, **options), mx.conv_transpose2d(x, w, **options))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    x, w = (a.astype(getattr(mx, dtype)) for a in operands({}))
    want = mx.conv2d(x.astype(mx.float32), w.astype(mx.float32)).astype(x.dtype)
    near(vm.conv2d(x, w), want, 1e-2)


def test_float64_is_not_narrowed():
    x, w = RNG.standard_normal((1, 7, 6, 4)), RNG.standard_normal((6, 3, 2, 4))
    got = vm.conv2d(mx.array(x, mx.float64), mx.array(w, mx.float64))
    assert got.dtype == mx.float64
    np.testing.assert_array_equal(np.array(got), vkconv.conv2d(x, w, device="cpu"))


def loss(x, w, options):
    return (vm.conv_general(x, w, **options) ** 2).sum()


@pytest.mark.parametrize("options", GENERAL, ids=str)
def test_gradients(options):
    x, w = operands(options)
    a, b = np.array(x), np.array(w)
    y = vkconv.conv_general(a, b, **options)
    of_x, of_w = mx.grad(lambda x, w: loss(x, w, options), argnums=(0, 1))(x, w)
    near(of_x, mx.array(vkconv.conv_input_grad(2 * y, b, a.shape, **options)))
    near(of_w, mx.array(vkconv.conv_weight_grad(2 * y, a, b.shape, **options)))


@pytest.mark.parametrize("options", GENERAL, ids=str)
def test_gradients_of_gradients(options):
    """Against central differences of the first gradients."""
    x, w = operands(options)
    first = mx.grad(lambda x, w: loss(x, w, options), argnums=(0, 1))

    def norm(x, w):
        return sum((g**2).mean() for g in first(x, w))

    along, step = (normal(*x.shape), normal(*w.shape)), 1e-2
    second = mx.grad(norm, argnums=(0, 1))(x, w)
    slope = sum((g * d).sum() for g, d in zip(second, along, strict=True))
    ahead, behind = (norm(x + s * along[0], w + s * along[1]) for s in (step, -step))
    assert abs(slope.item() - ((ahead - behind) / (2 * step)).item()) <= 0.02 * abs(slope.item()) + 1e-3


def test_forward_mode():
    x, w = operands({})
    dx, dw = normal(*x.shape), normal(*w.shape)
    _, (ours,) = mx.jvp(lambda x, w: vm.conv2d(x, w, padding=1), (x, w), (dx, dw))
    near(ours, mx.conv2d(dx, w, padding=1) + mx.conv2d(x, dw, padding=1))


def test_transformations_without_values():
    x, w = operands({})
    near(mx.compile(lambda x, w: vm.conv2d(x, w, padding=1) * 2)(x, w), mx.conv2d(x, w, padding=1) * 2)
    many = normal(3, *x.shape)
    near(mx.vmap(lambda x: vm.conv2d(x, w))(many), mx.stack([mx.conv2d(m, w) for m in many]))
    compiled = mx.compile(mx.grad(lambda x: (vm.conv2d(x, w) ** 2).sum()))
    near(compiled(x), mx.grad(lambda x: (mx.conv2d(x, w) ** 2).sum())(x), 1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("conv_transpose2d", {"stride": 2, "padding": 1, "output_padding": 1}),
        ("conv_transpose2d", {"stride": 3, "padding": 3, "groups": 2}),
        ("conv_general", {"input_dilation": (3, 2), "padding": ([-1, 2], [-4, 1]), "flip": True, "groups": 2}),
        ("conv_general", {"input_dilation": 3, "stride": 2, "kernel_dilation": 2}),
        ("conv_general", {"input_dilation": 9, "padding": (-1, 2), "stride": 60}),
    ],
    ids=str,
)
def test_dilated_inputs_without_values(name, options):
    """MLX's own cut off too much by negative padding, and their gradients have the shapes of other arrays."""
    x, w = operands(options)

    def both(x, w):
        y = getattr(vm, name)(x, w, **options)
        return y, *mx.grad(lambda x, w: (getattr(vm, name)(x, w, **options) * y).sum(), argnums=(0, 1))(x, w)

    for got, want in zip(mx.compile(both)(x, w), both(x, w), strict=True):
        near(got, want, 1e-4)
    near(mx.vmap(lambda x: both(x, w)[0])(x[None])[0], both(x, w)[0])


def test_install_serves_the_layers():
    layer, up = nn.Conv2d(4, 6, 3, padding=1), nn.ConvTranspose2d(6, 4, 3, stride=2)
    x = normal(1, 8, 8, 4)
    want = up(layer(x))
    own = mx.conv2d
    try:
        vm.install()
        assert mx.conv2d is not own
        before = vkconv.plan_cache_info("cpu")
        near(up(layer(x)), want)
        after = vkconv.plan_cache_info("cpu")
        assert after.hits + after.misses >= before.hits + before.misses + 2
        near(mx.conv2d(x, layer.weight, padding=1, stream=mx.cpu) + layer.bias, layer(x))
        near(mx.conv1d(x, layer.weight, padding=1) + layer.bias, layer(x))  # MLX takes any rank by any name
    finally:
        vm.uninstall()
    assert mx.conv2d is own


def test_what_mlx_can_do_without_vkconv_it_can_do_with_it(tmp_path):
    x, w = operands({})

    def layer(x):
        return mx.conv2d(x, w) + 1

    want, path = layer(x), str(tmp_path / "layer.mlxfn")
    try:
        vm.install()
        near(mx.compile(layer, shapeless=True)(x), want)
        mx.export_function(path, layer, x)
        near(mx.import_function(path)(x)[0], want)
        with pytest.raises(TypeError, match="incompatible function arguments"):
            mx.conv2d(np.array(x), w)
    finally:
        vm.uninstall()
