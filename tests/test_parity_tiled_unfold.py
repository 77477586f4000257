"""Bounded workspace for unfolding: the test cases of MLX PR #3084, and the strided transpose without inserted zeros."""

import numpy as np
import pytest

import checks
import oracle
import peers
import vkconv
from problem_text import parse

SHAPES = (
    "fwd_f32_n2c3o5_i40_k5_p2",
    "fwd_f32_n1c4o6_i12x11_k3x3_s1x2_p1x1",
    "fwd_f32_n1c3o4_i5x6x7_k3x2x3_p1x1x1",
    "fwd_f32_n1c6o9g3_i131_k4_s2_p1",
    "fwd_f32_n1c8o8g2_i9x10_k3x3_d2x1_p2x1",
    "fwd_f32_n1c4o4g2_i5x5x5_k2x3x2_p1x1x1",
    "fwd_f32_n1c4o6_i9_k5_t3_p4_flip",
    "fwd_f32_n1c6o4g2_i5x6_k4x4_t2x2_p2x2_flip",
    "fwd_f32_n1c2o3_i3x4x3_k3x3x3_t2x2x2_p2x2x2_flip",
    "fwd_f16_n1c9o7_i13x11_k3x3_p1x1_bias_relu",
    "fwd_bf16_n2c9o7_i33_k5_p2",
)
LIMITS = (1 << 10, 3000, 5000, 1 << 13, 1 << 20)


@pytest.mark.parametrize("text", SHAPES)
def test_tiled_equals_untiled(text, device):
    """Bit for bit at every limit that holds a row, and within the limit exactly."""
    p = parse(text)
    for integers in (True, False):
        a = checks.operands(p, integers=integers)
        options = {"device": device, "algorithm": "unfold_gemm"}
        whole = checks.run(p, a, **options, workspace_limit=1 << 28)
        checks.assert_right(p, a, whole, tree="unfold_gemm", integers=integers)
        used = []
        for limit in LIMITS:
            report = checks.explain(p, a, device=device, workspace_limit=limit)
            if "unfold_gemm" not in [c.algorithm for c in report.candidates if c.seconds is not None]:
                continue
            used.append(checks.explain(p, a, **options, workspace_limit=limit).workspace_bytes)
            assert used[-1] <= limit
            np.testing.assert_array_equal(checks.run(p, a, **options, workspace_limit=limit), whole)
        assert len(used) >= 2 and used[0] < used[-1], "the limits must make a difference"


@pytest.mark.parametrize("text", SHAPES)
def test_every_limit_has_a_plan(text, device):
    """Down to no workspace at all there is a plan, and it keeps to the limit."""
    p = parse(text)
    a = checks.operands(p)
    for limit in (0, 1, 256, 1 << 12, 1 << 30):
        report = checks.explain(p, a, device=device, workspace_limit=limit)
        assert report.workspace_bytes <= limit
        checks.assert_right(p, a, checks.run(p, a, device=device, workspace_limit=limit), tree=report.plan)


def unfold_example(channels_last_input=5158, kernel=4096):
    """conv_transpose1d whose full unfold is 86.6 GB: input (1, 5158, 1), weight (1, 4096, 1), stride 1024."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (1, channels_last_input, 1)).astype(np.float32)
    return x, rng.integers(-3, 4, (1, kernel, 1)).astype(np.float32)


def test_the_example(device):
    x, w = unfold_example()
    unfold_bytes = ((5158 - 1) * 1024 + 4096) * 4096 * 4
    assert unfold_bytes == pytest.approx(86.6e9, rel=1e-3)
    want = oracle.conv_transpose(x, w, 1024)
    got = vkconv.conv_transpose1d(x, w, 1024, device=device)
    assert got.shape == (1, 5157 * 1024 + 4096, 1)
    np.testing.assert_array_equal(got, want)
    report = vkconv.explain(vkconv.conv_transpose1d, x, w, 1024, device=device)
    assert report.workspace_bytes < 64 << 20
    assert "phase" in report.plan


def test_the_example_scaled_down_through_every_algorithm(device):
    """The same shape with 1/64 of the taps and stride, so that the dense paths finish too."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (1, 40, 1)).astype(np.float32)
    w = rng.integers(-3, 4, (1, 64, 1)).astype(np.float32)
    want = oracle.conv_transpose(x, w, 16)
    p = parse("fwd_f32_n1c1o1_i40_k64_t16_p63_flip")
    claims = checks.claiming(p, checks.operands(p), device=device)
    assert {"transpose_phases", "unfold_gemm", "reference"} <= set(claims)
    for algorithm in claims:
        got = vkconv.conv_transpose1d(x, w, 16, device=device, algorithm=algorithm)
        np.testing.assert_array_equal(got, want, err_msg=algorithm)


@pytest.mark.parametrize("peer", [peers.torch_conv_transpose, peers.onnx_conv_transpose])
def test_peers_agree_on_the_example(peer):
    x, w = unfold_example()
    np.testing.assert_array_equal(vkconv.conv_transpose1d(x, w, 1024, device="cpu"), peer(x, w, 1024))


TRANSPOSES = [
    ((9, 3), (5, 4), 3, 1, 1, 0),
    ((9, 4), (6, 3), 2, 0, 2, 1),
    ((5, 6, 3), (3, 4, 2), (2, 3), 1, 1, (1, 2)),
    ((3, 4, 3, 2), (2, 3, 2, 2), 2, 1, 1, 0),
]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("space, out, stride, padding, dilation, output_padding", TRANSPOSES)
def test_transposes_at_low_limits(space, out, stride, padding, dilation, output_padding, groups, device):
    *extents, channels = space
    *kernel, outputs = out
    rng = np.random.default_rng(sum(space))
    x = rng.integers(-3, 4, (2, *extents, channels * groups)).astype(np.float32)
    w = rng.integers(-3, 4, (outputs * groups, *kernel, channels)).astype(np.float32)
    arguments = (stride, padding, dilation, output_padding, groups)
    want = oracle.conv_transpose(x, w, *arguments)
    for limit in (0, 2048, 1 << 16, None):
        got = vkconv.conv_transpose(x, w, *arguments, device=device, workspace_limit=limit)
        np.testing.assert_array_equal(got, want)
    extra = oracle.per_axis(output_padding, len(extents))
    if all(e < s for e, s in zip(extra, oracle.per_axis(stride, len(extents)), strict=True)):
        np.testing.assert_array_equal(peers.torch_conv_transpose(x, w, *arguments), want)
