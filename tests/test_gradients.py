"""Gradients are the adjoints of the forward: <conv(x, w), g> == <x, input_grad(g, w)> == <w, weight_grad(g, x)>."""

import numpy as np
import pytest

import checks
import oracle
import vkconv
from fuzz_problems import random_problem
from problem_text import Problem, parse

GEOMETRIES = (
    "n2c4o6_i11_k3_s2_p1",
    "n2c6o9g3_i9_k3_s3_p2:0",
    "n1c4o6_i9x8_k3x3_s2x3_d2x1_p1x2:0",
    "n2c6o4g2_i9x9_k3x3_s2x2_p1x1",
    "n1c8o16g8_i9x7_k3x5_s2x1_p1x2",
    "n1c4o4_i5x6x7_k2x3x3_s2x1x2_p1x1x1",
    "n1c6o6g3_i5x6x5_k3x2x3_s2x2x1_d1x2x1_p1x1x1_flip",
    "n1c3o4_i5x4_k3x3_t2x3_p1x1",
    "n1c3o4_i8x8_k3x3_p-1:-2x-1:0",
    "n1c4o2g2_i6_k2_s3_t2_p1:0_flip",
    "n1c1o1_i3x3_k3x3",
    "n3c5o7_i4x4_k1x1_s2x2",
)


def three_results(p: Problem, device: str, integers: bool, **options):
    x, w = (checks.operands(p, 5, integers).input, checks.operands(p, 5, integers).weight)
    g = checks.operands(p.replace(op="wgrad"), 5, integers).grad
    results = []
    for op in ("fwd", "igrad", "wgrad"):
        results.append(checks.run(p.replace(op=op), checks.Operands(x, w, g, None), device=device, **options))
    return x, w, g, *(r.astype(np.float64) for r in results)


@pytest.mark.parametrize("text", GEOMETRIES)
def test_adjoint_exactly(text, device):
    """With small integers all three inner products are the same whole number."""
    x, w, g, y, dx, dw = three_results(parse(f"fwd_f32_{text}_highest"), device, integers=True)
    assert (y * g).sum() == (x * dx).sum() == (w * dw).sum()


@pytest.mark.parametrize("text", GEOMETRIES)
def test_adjoint_in_double_precision(text, device):
    p = parse(f"fwd_f64_{text}")
    if not checks.claiming(p, checks.operands(p), device=device):
        pytest.skip(f"{device} has no double precision")
    x, w, g, y, dx, dw = three_results(p, device, integers=False)
    scale = np.abs(y * g).sum()
    assert (y * g).sum() == pytest.approx((x * dx).sum(), abs=1e-13 * scale)
    assert (y * g).sum() == pytest.approx((w * dw).sum(), abs=1e-13 * scale)


@pytest.mark.parametrize("seed", range(40))
def test_adjoint_of_random_problems(seed, device):
    p = random_problem(np.random.default_rng((77, seed)))
    p = p.replace(op="fwd", dtype="f32", bias=False, activation=None, precision="highest")
    x, w, g, y, dx, dw = three_results(p, device, integers=True)
    assert (y * g).sum() == (x * dx).sum() == (w * dw).sum(), str(p)


@pytest.mark.parametrize("op", ["igrad", "wgrad"])
@pytest.mark.parametrize("text", GEOMETRIES)
def test_every_algorithm(text, op, device):
    p = parse(f"{op}_f32_{text}")
    a = checks.operands(p)
    for name in checks.claiming(p, a, device=device):
        options = {"device": device, "algorithm": name}
        checks.assert_right(p, a, checks.run(p, a, **options), tree=checks.explain(p, a, **options).plan)


@pytest.mark.parametrize("shape", [(2, 5, 3), (1, 4, 5, 6), (2, 3, 4, 5, 2), (0, 4, 3), (3, 0, 2)])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_bias_grad(shape, dtype, device):
    rng = np.random.default_rng(1)
    grad = checks.values(rng, shape, checks.dtype_of(dtype), True)
    want = oracle.conv_bias_grad(grad)
    got = vkconv.conv_bias_grad(grad, device=device)
    np.testing.assert_array_equal(got.astype(np.float64), want)


def test_finite_differences():
    """Against nothing but the forward pass: the loss <conv(x, w), g> is linear in x and in w."""
    p = parse("fwd_f64_n1c4o6g2_i6x5_k3x2_s2x1_d1x2_p1x1:0_flip")
    x, w, g, _, dx, dw = three_results(p, "cpu", integers=True)

    def loss(x, w):
        return float((checks.run(p, checks.Operands(x, w, g, None), device="cpu") * g).sum())

    rng = np.random.default_rng(0)
    for _ in range(10):
        at = tuple(int(rng.integers(n)) for n in x.shape)
        step = np.zeros_like(x)
        step[at] = 1
        assert loss(x + step, w) - loss(x, w) == dx[at]
        at = tuple(int(rng.integers(n)) for n in w.shape)
        step = np.zeros_like(w)
        step[at] = 1
        assert loss(x, w + step) - loss(x, w) == dw[at]


@pytest.mark.parametrize("extent", [7, 8, 9])
def test_inputs_that_no_output_reads_get_zero(extent, device):
    """With stride 3 the last columns are never read; their gradient is zero, not garbage."""
    p = parse(f"igrad_f32_n1c2o3_i{extent}x{extent}_k2x2_s3x3")
    a = checks.operands(p)
    got = checks.run(p, a, device=device)
    checks.assert_right(p, a, got)
    assert not got[:, 2].any() and not got[:, :, 2].any()


@pytest.mark.parametrize("mode", ["reflect", "symmetric", "edge", "circular", ("constant", 3.0)], ids=str)
@pytest.mark.parametrize(("extent", "padding"), [((0,), "same"), ((0,), "causal"), ((0, 5), "same"), ((5, 0), "same")])
def test_weight_gradients_of_nothing_beside_a_border(mode, extent, padding, device):
    x, grad = np.zeros((1, *extent, 3), np.float32), np.zeros((1, *extent, 2), np.float32)
    shape = (2, *[3] * len(extent), 3)
    got = vkconv.conv_weight_grad(grad, x, shape, padding=padding, padding_mode=mode, device=device)
    assert np.array_equal(got, np.zeros(shape))
