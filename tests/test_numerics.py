"""NaN and infinity go where the sums take them and nowhere else; large, small and signed values survive."""

import numpy as np
import pytest

import checks
import numerics
import vkconv
from problem_text import parse

GEOMETRIES = (
    "n1c3o5_i9_k3_p2",
    "n1c16o16_i8x8_k3x3_p1x1",
    "n1c8o8g8_i9x8_k3x3_s2x1_p1x1",
    "n1c6o9g3_i7x7_k3x3_d2x2_p2x2",
    "n1c16o16_i4x6x6_k3x3x3_p1x1x1",
    "n1c4o4_i6_k4_t2_p2:3_flip",
    "n1c17o33_i6x6_k1x1",
)
PLACES = ("input", "weight")


def poisoned(p, value, where):
    """Small integers with one special element, in the middle of the array."""
    a = checks.operands(p)
    array = {"input": a.input, "weight": a.weight, "grad": a.grad}[where]
    array.flat[array.size // 2] = value
    return a


def same_specials(got, want):
    got = got.astype(np.float64)
    return (
        np.array_equal(np.isnan(got), np.isnan(want))
        and np.array_equal(np.isposinf(got), np.isposinf(want))
        and np.array_equal(np.isneginf(got), np.isneginf(want))
    )


def check_specials(p, a, device, names):
    want = checks.exact(p, a)
    for algorithm in names:
        options = {"device": device, "algorithm": algorithm}
        got = checks.run(p, a, **options)
        tree = checks.explain(p, a, **options).plan
        assert same_specials(got, want), f"{p} {tree}"
        finite = np.isfinite(want)
        if "winograd" in tree:
            # The CPU sums halves in fp32 and rounds them once; on Vulkan the points are halves, too.
            most = 1.01 if device == "cpu" and p.dtype in ("f16", "bf16") else checks.bound(tree)
            assert checks.error_c(got, want, checks.tile_magnitudes(p, a, tree), p.dtype) <= most, f"{p} {tree}"
            continue
        np.testing.assert_array_equal(got[finite], checks.rounded(want, p.dtype)[finite], err_msg=tree)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("text", GEOMETRIES)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_one_special_value(text, dtype, where, value, device):
    p = parse(f"fwd_{dtype}_{text}")
    a = poisoned(p, value, where)
    check_specials(p, a, device, checks.claiming(p, a, device=device))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("op, where", [("igrad", "grad"), ("igrad", "weight"), ("wgrad", "grad"), ("wgrad", "input")])
@pytest.mark.parametrize("text", GEOMETRIES)
def test_one_special_value_in_gradients(text, op, where, value, device):
    p = parse(f"{op}_f32_{text}")
    a = poisoned(p, value, where)
    check_specials(p, a, device, checks.claiming(p, a, device=device))


@pytest.mark.parametrize("text", [t for t in GEOMETRIES if "_p" in t])
def test_padding_never_makes_nan(text, device):
    """Infinite weights: an output is infinite, or NaN where the signs of its inputs differ; padding adds nothing."""
    p = parse(f"fwd_f32_{text}_highest")
    a = checks.operands(p)
    a.weight[...] = np.inf
    a.input[...] = np.abs(a.input) + 1
    for algorithm in checks.claiming(p, a, device=device):
        got = checks.run(p, a, device=device, algorithm=algorithm)
        want = checks.exact(p, a)
        assert not np.isnan(want).any()
        np.testing.assert_array_equal(got, want, err_msg=algorithm)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_bias_and_relu_keep_nan(dtype, device):
    p = parse(f"fwd_{dtype}_n1c5o19_i7x7_k3x3_p1x1_bias_relu")
    a = poisoned(p, np.nan, "input")
    check_specials(p, a, device, checks.claiming(p, a, device=device))
    a = checks.operands(p)
    a.bias[3] = np.nan
    check_specials(p, a, device, checks.claiming(p, a, device=device))


@pytest.mark.parametrize(
    "activation",
    ["relu", "relu6", ("leaky_relu", 0.1), ("clip", -1, 1), "silu", "gelu", "sigmoid", "tanh", "hardswish"],
)
def test_activations_keep_nan(activation, device):
    x = np.array([np.nan, 1.0, -1.0, 0.0, 30.0, -30.0], np.float32).reshape(1, 6, 1)
    y = vkconv.conv1d(x, np.ones((1, 1, 1), np.float32), activation=activation, device=device)
    np.testing.assert_array_equal(np.isnan(y[0, :, 0]), [True, False, False, False, False, False])


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_gelu_of_infinity(dtype):
    x = np.array([np.inf, -np.inf, -1e4], checks.dtype_of(dtype)).reshape(1, 3, 1)
    y = vkconv.conv1d(x, np.ones((1, 1, 1), x.dtype), activation="gelu", device="cpu")
    np.testing.assert_array_equal(y[0, :, 0], [np.inf, 0, 0])


def test_halves_overflow_to_infinity(device):
    """The sum is finite in fp32 and beyond fp16; the largest finite value and the one that rounds past it differ."""
    x = np.array([65504, 65504, 65504], np.float16).reshape(1, 1, 3)
    w = np.array([[1, 0, 0], [1, 1, 0], [-1, -1, 0]], np.float16).reshape(3, 1, 3)
    for algorithm in checks.claiming(
        parse("fwd_f16_n1c3o3_i1_k1"), checks.operands(parse("fwd_f16_n1c3o3_i1_k1")), device=device
    ):
        y = vkconv.conv1d(x, w, device=device, algorithm=algorithm)
        np.testing.assert_array_equal(y[0, 0], np.array([65504, np.inf, -np.inf], np.float16), err_msg=algorithm)


@pytest.mark.parametrize("algorithm", ["reference", "implicit_gemm", "depthwise"])
def test_half_sums_beyond_the_range_come_back(algorithm, device):
    """Partial sums of 120,000 that cancel: fp16 sums would be infinite."""
    groups = 1
    x, w = np.array([60000, 60000, -60000], np.float16), np.ones(3, np.float16)
    y = vkconv.conv1d(x.reshape(1, 3, 1), w.reshape(1, 3, 1), groups=groups, device=device, algorithm=algorithm)
    assert y[0, 0, 0] == 60000


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_subnormal_results(dtype, device):
    """Results below the smallest normal number are rounded, not flushed."""
    tiny = {"f16": 2.0**-24, "bf16": 2.0**-133}[dtype]
    x = (np.arange(1, 9) * tiny).astype(checks.dtype_of(dtype)).reshape(1, 8, 1)
    if dtype == "bf16" and device != "cpu":
        pytest.skip("fp32 subnormals may be flushed by a Vulkan device")
    y = vkconv.conv1d(x, np.ones((1, 1, 1), x.dtype), device=device)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("activation", ["sigmoid", "silu"])
def test_activations_make_no_subnormal_numbers(activation, dtype):
    """Products with those would take the next layer a hundred times as long on some processors."""
    x = np.linspace(-800, 0, 4001, dtype=dtype).reshape(1, -1, 1)
    y = vkconv.conv1d(x, np.ones((1, 1, 1), dtype), activation=activation, device="cpu")
    assert not np.any((y != 0) & (np.abs(y) < np.finfo(dtype).tiny))


@pytest.mark.parametrize("activation", ["sigmoid", "silu"])
def test_sigmoids_are_within_four_roundings(activation):
    """Relative to the result, however small that is."""
    x = np.linspace(-86, 40, 100_003, dtype=np.float32)
    y = vkconv.conv1d(x.reshape(1, -1, 1), np.ones((1, 1, 1), np.float32), activation=activation, device="cpu")
    exact = 1 / (1 + np.exp(-x.astype(np.float64))) * (x if activation == "silu" else 1)
    error = np.abs(y.ravel() - exact) / np.maximum(np.abs(exact), np.finfo(np.float64).tiny)
    assert error.max() <= 4 * checks.UNIT_ROUNDOFF["f32"]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sums_are_wider_than_the_operands(dtype, device):
    """1 + 2^11 * u / 2: each addend is lost in the operand type's own arithmetic, their sum is not."""
    n, unit, operand = 1 << 11, checks.UNIT_ROUNDOFF[dtype] / 2, checks.dtype_of(dtype)
    x = np.full((1, 1, n + 1), unit, operand)
    x[0, 0, 0] = 1
    p = parse(f"fwd_{dtype}_n1c{n + 1}o1_i1_k1_highest")
    a = checks.Operands(x, np.ones((1, 1, n + 1), operand), np.empty(0), None)
    for algorithm in checks.claiming(p, a, device=device):
        got = checks.run(p, a, device=device, algorithm=algorithm)
        assert float(got[0, 0, 0]) == float(np.float64(1 + n * unit).astype(operand)), algorithm


@pytest.mark.parametrize(
    "x, w, options",
    [
        ((1, 5, 16, 16, 32), (32, 3, 3, 3, 32), {}),  # MLX's test of small kernel depths, at its tolerance
        ((1, 15, 15, 128), (32, 3, 3, 128), {"padding": 1}),
        ((1, 30, 30, 12), (32, 3, 3, 12), {"padding": 1}),
        ((1, 28, 28, 64), (32, 4, 4, 64), {"padding": 1}),
        ((1, 56, 56, 3), (32, 7, 7, 3), {"padding": 3, "stride": 2}),
        ((1, 300, 40), (40, 3, 40), {"padding": 1}),
    ],
)
def test_error_of_precision_high(x, w, options, device):
    """On normally distributed data: about 1e-6 of the results, 2.4e-6 where tiles of 5 sum 128 terms or more."""
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in (x, w))
    got = vkconv.conv_general(x, w, **options, device=device)
    want = vkconv.conv_general(x.astype(np.float64), w.astype(np.float64), **options, device="cpu")
    long, of_results = x.shape[-1] >= 128, np.sqrt(np.mean(want**2))
    assert np.sqrt(np.mean((got - want) ** 2)) <= (2.5e-6 if long else 1.1e-6) * of_results
    assert np.abs(got - want).max() <= (2.5e-5 if long else 1.2e-5) * of_results
    if x.ndim == 5:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_table_of_errors():
    """tests/numerics.py, whose table is in docs/reliability.md, on a share of its problems."""
    errors, beyond = numerics.measure("cpu", every=100)
    assert not beyond
    assert {"reference", "implicit_gemm"} <= errors.keys()
    for row in errors.values():
        assert max(error.c for error in row.values()) <= 64
        halves = [row[dtype] for dtype in numerics.HALVES if row[dtype].elements]
        assert min((h.rounded / h.elements for h in halves), default=1) >= 0.99
