"""Small-kernel-depth 3-D convolution: the test cases of MLX PR #3785, and what it leaves open."""

import numpy as np
import pytest

import checks
import peers
from problem_text import parse

ALGORITHM = "small_kernel_depth"
DTYPES = ("f32", "f16", "bf16")


def run_named(text, device, algorithm=ALGORITHM, integers=True):
    """Through the algorithm, against the oracle; returns the plan."""
    p = parse(text)
    a = checks.operands(p, 3, integers)
    options = {"device": device, "algorithm": algorithm}
    tree = checks.explain(p, a, **options).plan
    checks.assert_right(p, a, checks.run(p, a, **options), tree=tree, integers=integers)
    return tree


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kd", [2, 3, 5])
@pytest.mark.parametrize("integers", [True, False])
def test_kernel_depth(kd, dtype, integers, device):
    tree = run_named(f"fwd_{dtype}_n1c16o16_i7x8x8_k{kd}x3x3_p0x1x1", device, integers=integers)
    assert tree.startswith(f"{ALGORITHM}(")


@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel_depth_of_one(dtype, device):
    """One tap is a batch of 2-D problems; whatever runs it, the answer is right and the plan has a name."""
    assert run_named(f"fwd_{dtype}_n1c16o16_i7x8x8_k1x3x3_p0x1x1", device, algorithm=None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("outputs", [8, 24, 33, 48])
def test_outputs_differ_from_channels(outputs, dtype, device):
    run_named(f"fwd_{dtype}_n1c16o{outputs}_i5x6x6_k3x3x3_p0x1x1", device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kd", [2, 3, 5])
def test_pointwise_in_space(kd, dtype, device):
    run_named(f"fwd_{dtype}_n1c16o24_i7x6x6_k{kd}x1x1", device)


# Where MLX falls back to implicit GEMM; here the decomposition takes them too, and other paths agree.
FALLBACKS = {
    "depth_stride": "n1c16o16_i9x6x6_k3x3x3_s2x1x1_p0x1x1",
    "depth_padding": "n1c16o16_i5x6x6_k3x3x3_p1x1x1",
    "depth_padding_one_side": "n1c16o16_i5x6x6_k3x3x3_p2:0x1x1",
    "depth_dilation": "n1c16o16_i9x6x6_k3x3x3_d2x1x1_p0x1x1",
    "depth_all": "n2c16o16_i9x6x6_k3x3x3_s3x1x1_d2x1x1_p2:1x1x1",
    "channels": "n1c13o16_i5x6x6_k3x3x3_p0x1x1",
    "batch": "n3c16o16_i5x6x6_k3x3x3_p0x1x1",
    "groups": "n1c16o32g2_i5x6x6_k3x3x3_p0x1x1",
    "long_kernel": "n1c16o16_i10x4x4_k9x3x3_p0x1x1",
    "flip": "n1c16o16_i5x6x6_k3x3x3_p1x1x1_flip",
    "crop": "n1c16o16_i7x6x6_k3x3x3_p-1:-1x1x1",
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FALLBACKS)
def test_fallbacks_of_mlx(name, dtype, device):
    text = f"fwd_{dtype}_{FALLBACKS[name]}"
    p = parse(text)
    a = checks.operands(p)
    claims = checks.claiming(p, a, device=device)
    assert ALGORITHM in claims
    for algorithm in [None, *claims]:
        assert run_named(text, device, algorithm)


@pytest.mark.parametrize("kd", [3, 7])
def test_half_sums_stay_in_fp32(kd, device):
    """Adding the taps in bf16 would multiply the error by 3 to 5 and leave most results off by a unit."""
    p = parse(f"fwd_bf16_n1c16o16_i9x8x8_k{kd}x3x3_p0x1x1")
    a = checks.operands(p, integers=False)
    got = checks.run(p, a, device=device, algorithm=ALGORITHM, precision="highest")
    assert checks.rounded_share(got, checks.exact(p, a), "bf16") >= checks.ROUNDED_SHARE


@pytest.mark.parametrize("kd", [1, 2, 3, 5])
def test_onnxruntime_agrees(kd, device):
    p = parse(f"fwd_f32_n1c16o24_i6x7x8_k{kd}x3x3_p0x1x1")
    a = checks.operands(p)
    want = peers.onnx_conv(a.input, a.weight, p.stride, p.pads)
    np.testing.assert_array_equal(checks.run(p, a, device=device, precision="highest"), want)


@pytest.mark.parametrize("kd", [1, 2, 3, 5])
def test_mlx_agrees(kd, device):
    p = parse(f"fwd_f32_n1c16o24_i6x7x8_k{kd}x3x3_p0x1x1_flip")
    a = checks.operands(p)
    want = peers.mlx_conv_general(a.input, a.weight, padding=p.pads, flip=True)
    np.testing.assert_array_equal(checks.run(p, a, device=device, precision="highest"), want)
