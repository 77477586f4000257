"""vkconv.jax against jax.lax, under every transformation."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

from jax.experimental import jet  # noqa: E402 - after the skip

import vkconv  # noqa: E402
import vkconv.jax as vj  # noqa: E402

RNG = np.random.default_rng(4)
NUMBERS = ("NHWC", "OHWI", "NHWC")
GENERAL = [
    {},
    {"stride": (2, 1), "padding": ((1, 0), (2, 1)), "kernel_dilation": 2},
    {"groups": 2, "padding": 1},
    {"input_dilation": (2, 3), "padding": ((1, 0), (0, 2))},
]


def normal(*shape: int, dtype: str = "float32"):
    return jnp.asarray(RNG.standard_normal(shape), dtype=dtype)


def operands(groups: int = 1, **_):
    return normal(2, 7, 6, 4), normal(6, 3, 2, 4 // groups)


def own(x, w, stride=(1, 1), padding=((0, 0), (0, 0)), kernel_dilation=1, input_dilation=(1, 1), groups=1):
    lo, hi = padding if not isinstance(padding, int) else ((padding,) * 2,) * 2
    dilation = (kernel_dilation,) * 2 if isinstance(kernel_dilation, int) else kernel_dilation
    return jax.lax.conv_general_dilated(x, w, stride, list(zip(lo, hi, strict=True)), input_dilation, dilation,
                                        NUMBERS, groups)  # fmt: skip


def near(got, want, tolerance: float = 1e-5) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    a, b = (np.asarray(v, np.float64) for v in (got, want))
    assert np.abs(a - b).max(initial=0) <= tolerance * np.abs(b).max(initial=0)


@pytest.mark.parametrize("options", GENERAL, ids=str)
def test_forward_and_jit(options):
    x, w = operands(**options)
    near(vj.conv_general(x, w, **options), own(x, w, **options))
    near(jax.jit(lambda x, w: vj.conv_general(x, w, **options) * 2)(x, w), own(x, w, **options) * 2)


@pytest.mark.parametrize("word", ["valid", "same", "same_lower", "full", "causal"])
def test_words_of_padding(word):
    x, w = operands()
    options = {"stride": 2, "padding": word}
    wanted = vkconv.conv2d(np.asarray(x), np.asarray(w), **options)
    near(jax.jit(lambda x, w: vj.conv2d(x, w, **options))(x, w), wanted)
    dilated = {**options, "input_dilation": 3}
    near(vj.conv_general(x, w, **dilated), vkconv.conv_general(np.asarray(x), np.asarray(w), **dilated))


def loss(conv, options):
    return lambda x, w: (conv(x, w, **options) ** 3).sum()


@pytest.mark.parametrize("options", GENERAL, ids=str)
def test_gradients_of_any_order(options):
    x, w = operands(**options)
    for got, want in zip(*(jax.jit(jax.grad(loss(f, options), (0, 1)))(x, w) for f in (vj.conv_general, own)),
                         strict=True):  # fmt: skip
        near(got, want, 1e-4)

    def second(f):
        first = jax.grad(loss(f, options), (0, 1))
        return jax.grad(lambda x, w: sum((g**2).sum() for g in first(x, w)), (0, 1))(x, w)

    for got, want in zip(second(vj.conv_general), second(own), strict=True):
        near(got, want, 1e-3)


@pytest.mark.parametrize("axes", [(0, None), (1, None), (None, 0), (0, 0)])
def test_vmap(axes):
    x, w = operands()
    many = [v if a is None else jnp.stack([v, v * 2, -v], axis=a) for v, a in zip((x, w), axes, strict=True)]
    near(jax.vmap(vj.conv2d, axes)(*many), jax.vmap(own, axes)(*many))
    grads = [jax.vmap(jax.grad(lambda x, w, f=f: (f(x, w) ** 2).sum(), (0, 1)), axes)(*many) for f in (vj.conv2d, own)]
    for got, want in zip(*grads, strict=True):
        near(got, want, 1e-4)


@pytest.mark.parametrize("sizes", [(2, 3), (2, 1), (0, 3)])
@pytest.mark.parametrize("axes", [(None, None), (None, 0), (0, None), (0, 0)])
def test_vmap_of_vmap(axes, sizes):
    x, w = operands()
    many = normal(*sizes, *x.shape), normal(*(n for n, a in zip(sizes, axes, strict=True) if a == 0), *w.shape)
    both = [lambda x, w, f=f: (f(x, w), jax.grad(lambda w: (f(x, w) ** 2).sum())(w)) for f in (vj.conv2d, own)]
    ours, theirs = (jax.vmap(jax.vmap(f, (0, axes[1])), (0, axes[0]))(*many) for f in both)
    jax.tree.map(partial(near, tolerance=1e-4), ours, theirs)


def test_vmap_of_the_input_is_one_call():
    x, w = operands()
    before = vkconv.plan_cache_info("cpu")
    jax.block_until_ready(jax.vmap(vj.conv2d, (0, None))(jnp.stack([x] * 5), w))
    after = vkconv.plan_cache_info("cpu")
    assert after.hits + after.misses == before.hits + before.misses + 1


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_ranks(rank):
    x, w = normal(2, *(7, 6, 5)[:rank], 4), normal(6, *(3, 2, 3)[:rank], 2)
    for name in ("conv", "conv_transpose"):
        got = getattr(vj, f"{name}{rank}d")(x, w, 2, 1, groups=2)
        near(got, jnp.asarray(getattr(vkconv, f"{name}{rank}d")(np.asarray(x), np.asarray(w), 2, 1, groups=2)))
    with pytest.raises(ValueError, match="dimensions"):
        getattr(vj, f"conv{rank}d")(x[0], w)
    for extent in range(3):
        with pytest.raises(ValueError, match="input is smaller than the kernel along spatial axis 0"):
            jax.eval_shape(getattr(vj, f"conv{rank}d"), x[:, :extent], w)
    with pytest.raises(ValueError, match="padding 99 leaves no output along spatial axis 0"):
        getattr(vj, f"conv_transpose{rank}d")(x, w, padding=99)


@pytest.mark.parametrize("numbers", [None, NUMBERS, ("NHWC", "HWIO", "NHWC"), ("HWNC", "OIHW", "CNHW")], ids=str)
@pytest.mark.parametrize("padding", ["SAME", "VALID", "SAME_LOWER", [(1, 2), (0, 1)]], ids=str)
def test_dimension_numbers(numbers, padding):
    spec = jax.lax.conv_dimension_numbers((1,) * 4, (1,) * 4, numbers)
    x, w = operands()
    x = jnp.transpose(x, np.argsort((spec.lhs_spec[0], *spec.lhs_spec[2:], spec.lhs_spec[1])))
    w = jnp.transpose(w, np.argsort((spec.rhs_spec[0], *spec.rhs_spec[2:], spec.rhs_spec[1])))
    dilation = (1, 1) if isinstance(padding, str) else (1, 2)  # JAX takes no word for a dilated input
    arguments = (x, w, (2, 1), padding, dilation, (2, 1), numbers)
    near(vj.conv_general_dilated(*arguments), jax.lax.conv_general_dilated(*arguments))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes(dtype):
    x, w = (v.astype(dtype) for v in operands())
    near(vj.conv2d(x, w), own(x.astype("float32"), w.astype("float32")).astype(dtype), 1e-2)
    with pytest.raises(TypeError, match="must agree"):
        vj.conv2d(x, w.astype("float32"))


def test_large_arrays_do_not_deadlock():
    """A callback must not wait for the runtime that waits for it."""
    x, w = normal(4, 64, 64, 32), normal(32, 3, 3, 32)
    step = jax.jit(lambda x, w: vj.conv2d(jnp.tanh(x), w, padding=1) + x)
    for _ in range(5):
        x = step(x, w)
    assert bool(jnp.isfinite(x).all())


def test_forward_mode():
    x, w = operands()
    tangents = normal(*x.shape), normal(*w.shape)
    for got, want in zip(*(jax.jvp(f, (x, w), tangents) for f in (vj.conv2d, own)), strict=True):
        near(got, want, 1e-4)
    got, want = (jax.hessian(lambda w, f=f: (f(x, w) ** 2).sum())(w) for f in (vj.conv2d, own))
    near(got, want, 1e-4)


def test_taylor_series():
    x, w, *directions = (0.1 * v for v in (*operands(), *operands()))
    series = tuple((d, 2 * d, -d) for d in directions)
    (y, terms), (want, wanted) = (
        jet.jet(lambda x, w, f=f: jnp.tanh(f(x, w)), (x, w), series) for f in (vj.conv_general, own)
    )
    for a, b in zip((y, *terms), (want, *wanted), strict=True):
        near(a, b, 1e-4)


def test_a_second_call_compiles_nothing():
    x, w = operands()
    vj.conv2d(x, w, padding=3)
    compiled = vj._conv.impl.__wrapped__
    before = compiled._cache_size()
    vj.conv2d(x, w, padding=3)
    assert compiled._cache_size() == before > 0


def test_without_jit():
    x, w = operands()
    with jax.disable_jit():
        near(vj.conv2d(x, w), own(x, w))
        near(jax.grad(lambda w: (vj.conv2d(x, w) ** 2).sum())(w), jax.grad(lambda w: (own(x, w) ** 2).sum())(w))


@pytest.mark.parametrize("spatial", [(7, 6), (0, 6)])
def test_groups_of_the_batch(spatial):
    """Also of an input without pixels, whose output is all padding."""
    x, w = normal(6, *spatial, 4), normal(8, 3, 2, 4)
    arguments = (x, w, (2, 1), [(5, 4), (0, 1)], None, None, NUMBERS, 1, 2)
    near(vj.conv_general_dilated(*arguments), jax.lax.conv_general_dilated(*arguments))


def test_jax_decides_what_is_right():
    x, w = (v.astype("bfloat16") for v in operands())
    arguments = (x, w, (1, 1), "VALID", None, None, NUMBERS)
    wide = vj.conv_general_dilated(*arguments, preferred_element_type="float32")
    near(wide, jax.lax.conv_general_dilated(*arguments, preferred_element_type="float32"))
    for dtype in ("int32", "float8_e4m3fn"):
        others = [v.astype(dtype) for v in (x, w)]
        got, want = (f(*others, *arguments[2:]) for f in (vj.conv_general_dilated, jax.lax.conv_general_dilated))
        near(got, want, 0)
    for wrong in ({"padding": "MIDDLE"}, {"padding": (3, 3)}, {"feature_group_count": 3}, {"window_strides": (1,)}):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            vj.conv_general_dilated(**({"lhs": x, "rhs": w, "window_strides": (1, 1), "padding": "SAME"} | wrong))


def test_dilations_may_be_arrays():
    x, w = operands()
    for dilations in ((np.array([2, 1]), None), (None, np.array([1, 2])), (np.array([2, 2]), [1, 2])):
        arguments = (x, w, np.array([1, 2]), np.array([[1, 2], [0, 1]]), *dilations, NUMBERS)
        near(vj.conv_general_dilated(*arguments), jax.lax.conv_general_dilated(*arguments))


def test_weakly_typed_arrays_stay_so():
    weak = jax.numpy.full((1, 4, 4, 4), 2.0)
    for w in (jax.numpy.full((6, 3, 3, 4), 0.5), operands()[1]):
        arguments = (weak, w, (1, 1), "SAME", None, None, NUMBERS)
        got, want = (f(*arguments) for f in (vj.conv_general_dilated, jax.lax.conv_general_dilated))
        near(got, want)
        assert got.weak_type == want.weak_type


def test_shapes_are_checked_as_arrays_are():
    """Where a function is only evaluated for its shapes."""
    x, w = operands()
    for weight, options, kind, message in (
        (w[..., :3], {}, ValueError, "weight has 3 input channels per group, input has 4 in 1 group"),
        (w[:5, ..., :2], {"groups": 2}, ValueError, "groups is 2, which does not divide the 5 output channels"),
        (w[..., :1], {"groups": 3}, ValueError, "groups is 3, which does not divide the 4 channels of input"),
        (w[:, :0], {}, ValueError, "kernel"),
    ):
        for name in ("conv2d", "conv_transpose2d"):
            call = partial(getattr(vj, name), **options)
            loss = lambda x, w, f=call: f(x, w).sum()  # noqa: E731
            for run in (call, partial(jax.eval_shape, call), partial(jax.eval_shape, jax.grad(loss))):
                with pytest.raises(kind, match=message):
                    run(x, weight)
    whole = x.astype("int32"), w.astype("int32")
    for run in (vj.conv2d, partial(jax.eval_shape, vj.conv2d)):
        with pytest.raises(TypeError, match="input has dtype int32"):
            run(*whole)
    assert jax.eval_shape(vj.conv2d, x, w).shape == vj.conv2d(x, w).shape


def test_both_forms_of_pairs():
    """vkconv's and MLX's padding is (lo..., hi...), JAX's has a pair for each axis, which `pads` takes."""
    x, w = operands()
    want = jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (2, 2)], dimension_numbers=NUMBERS)
    near(vj.conv2d(x, w, pads=[(1, 1), (2, 2)]), want)
    near(vj.conv_general(x, w, padding=((1, 2), (1, 2))), want)
    for call in (vj.conv2d, vj.conv_general):
        with pytest.raises(ValueError, match=r"padding is \[\(1, 1\), \(2, 2\)\], .* pads= takes JAX's pairs"):
            call(x, w, 1, [(1, 1), (2, 2)])
        with pytest.raises(ValueError, match="padding and pads are both given"):
            call(x, w, 1, 1, pads=[(1, 1), (2, 2)])
    with pytest.raises(ValueError, match="not JAX's pairs in a list"):
        vj.conv_transpose2d(x, w, 1, [(1, 1), (2, 2)])


def test_numbers_without_a_meaning_are_named():
    x, w = operands()
    with pytest.raises(ValueError, match="stride is 0, wanted at least 1"):
        vj.conv2d(x, w, stride=0)
    with pytest.raises(ValueError, match="dilation is -1, wanted at least 1"):
        jax.jit(lambda x: vj.conv_transpose2d(x, w, dilation=(1, -1)))(x)
    with pytest.raises(ValueError, match="output_padding is -2, wanted at least 0"):
        vj.conv_transpose2d(x, w, output_padding=-2)


SYMBOLIC = {
    "dilated": lambda x, w: vj.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NUMBERS),
    "general": lambda x, w: vj.conv_general(x, w, 2, ((1, 0), (2, -1)), 2, 3, flip=True),
    "transposed": lambda x, w: vj.conv_transpose2d(x[..., :2], w[..., :1], 2, 1, groups=2),
    "gradient": jax.grad(lambda x, w: (vj.conv2d(x, w, padding="same") ** 2).sum()),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_shapes(name):
    export = pytest.importorskip("jax.export")
    x, w = operands()
    any_batch = jax.ShapeDtypeStruct(export.symbolic_shape("n, 7, 6, 4"), x.dtype)
    whole = jax.jit(lambda x: SYMBOLIC[name](x, w))
    near(export.export(whole)(any_batch).call(x), whole(x))


def test_symbolic_spatial_extents():
    export = pytest.importorskip("jax.export")
    x, w = operands()
    any_height = jax.ShapeDtypeStruct(export.symbolic_shape("n, h, 6, 4"), x.dtype)
    for options in ({"padding": 1}, {"pads": [(2, 1), (0, 3)]}, {"padding": ((1, -1), (2, 0))}):
        whole = jax.jit(partial(vj.conv2d, weight=w, stride=2, **options))
        for heights in (7, 8, 9):
            image = normal(2, heights, 6, 4)
            near(export.export(whole)(any_height).call(image), whole(image))


# ---- what XLA calls


def lowered(function, *arrays) -> str:
    return jax.jit(function).lower(*arrays).as_text()


def test_xla_calls_vkconv_without_python():
    x, w = operands()
    conv = lambda x, w: vj.conv_general(x, w, padding=1)  # noqa: E731
    gradients = jax.grad(lambda x, w: (conv(x, w) ** 2).sum(), (0, 1))
    many, kernels = normal(3, *x.shape), normal(3, *w.shape)
    calls = [(conv, x, w), (gradients, x, w), (jax.vmap(conv, (0, None)), many, w), (jax.vmap(conv), many, kernels)]
    for function, *arrays in (*calls, (jax.vmap(gradients), many, kernels)):
        text = lowered(function, *arrays)
        assert "@vkconv" in text and "callback" not in text


def test_another_default_device_is_called_back(device):
    x, w = operands()
    with vkconv.device(device):
        text = lowered(lambda x, w: vj.conv_general(x, w, padding=1), x, w)
    assert ("callback" in text) == (device != "cpu")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("options", GENERAL, ids=str)
def test_bits_are_those_of_numpy_arrays(dtype, options):
    x, w = (a.astype(dtype) for a in operands(**options))
    wanted = vkconv.conv_general(np.asarray(x), np.asarray(w), **options, flip=True, device="cpu")
    got = np.asarray(jax.jit(lambda x, w: vj.conv_general(x, w, **options, flip=True))(x, w))
    assert got.dtype == wanted.dtype and np.array_equal(got, wanted)


def test_default_precision():
    x, w = RNG.standard_normal((1, 34, 34, 32), np.float32), RNG.standard_normal((32, 3, 3, 32), np.float32)
    f = jax.jit(vj.conv2d)
    wanted = {p: vkconv.conv2d(x, w, precision=p, device="cpu") for p in ("high", "highest")}
    assert not np.array_equal(wanted["high"], wanted["highest"])
    try:
        for precision in ("high", "highest", "high"):  # what is compiled follows
            vkconv.set_default_precision(precision)
            assert np.array_equal(f(x, w), wanted[precision]) and np.array_equal(vj.conv2d(x, w), wanted[precision])
    finally:
        vkconv.set_default_precision("high")


def test_what_fails_in_the_call_is_an_exception():
    x, w = operands()
    shape = jax.ShapeDtypeStruct((1,), x.dtype)
    with pytest.raises(Exception, match="problem string: 'nonsense'"):
        jax.block_until_ready(jax.jit(lambda x, w: jax.ffi.ffi_call("vkconv", shape)(x, w, problem="nonsense"))(x, w))
    near(vj.conv_general(x, w), own(x, w))
