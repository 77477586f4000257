"""Depthwise convolution at any size: the test cases of MLX PR #3446, and no gate of any other kind."""

import numpy as np
import pytest

import checks
import oracle
import peers
import vkconv

# Odd, non-square, and aligned along one axis only: (height, width, kernel, stride, padding).
MLX_SHAPES = (
    (15, 15, 3, 1, 1),
    (30, 30, 3, 1, 1),
    (17, 13, 3, 1, 1),
    (16, 13, 3, 2, 1),
    (21, 24, 5, 1, 2),
    (19, 33, 5, 2, 2),
)


def arrays(height, width, kernel, channels=32, batch=1):
    rng = np.random.default_rng(height * width)
    x = rng.standard_normal((batch, height, width, channels)).astype(np.float32)
    return x, rng.standard_normal((channels, kernel, kernel, 1)).astype(np.float32)


@pytest.mark.parametrize("height, width, kernel, stride, padding", MLX_SHAPES)
def test_shapes_of_mlx(height, width, kernel, stride, padding, device):
    x, w = arrays(height, width, kernel)
    want = oracle.conv_general(x, w, stride, padding, groups=32)
    for algorithm in (None, "depthwise"):
        got = vkconv.conv2d(x, w, stride, padding, groups=32, device=device, algorithm=algorithm)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(vkconv.depthwise_conv(x, w, stride, padding, device=device), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("peer", [peers.onnx_conv, peers.torch_conv])
@pytest.mark.parametrize("height, width, kernel, stride, padding", MLX_SHAPES)
def test_peers_agree(height, width, kernel, stride, padding, peer, device):
    x, w = arrays(height, width, kernel)
    got = vkconv.depthwise_conv2d(x, w, stride, padding, device=device)
    np.testing.assert_allclose(got, peer(x, w, stride, padding, 1, 32), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("height, width, kernel, stride, padding", MLX_SHAPES)
def test_mlx_agrees(height, width, kernel, stride, padding, device):
    x, w = arrays(height, width, kernel, channels=4)
    want = peers.mlx_conv_general(x, w, stride, padding, groups=4)
    got = vkconv.depthwise_conv(x, w, stride, padding, device=device)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("extent", range(1, 19))
def test_every_output_extent(extent, device):
    """Both axes at every remainder of any tile, one aligned while the other is not."""
    for text in (f"n1c8o8g8_i{extent}x16_k3x3_p1x1", f"n1c8o8g8_i16x{extent}_k3x3_p1x1", f"n1c5o5g5_i{extent}_k4_p2:1"):
        checks.check(f"fwd_f32_{text}", device=device, algorithm="depthwise")


@pytest.mark.parametrize("channels", [*range(1, 10), 15, 16, 17, 31, 33, 63, 64, 65])
def test_every_channel_tail(channels, device):
    checks.check(f"fwd_f32_n1c{channels}o{channels}g{channels}_i7x6_k3x3_p1x1", device=device, algorithm="depthwise")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    "text",
    [
        "n1c12o12g12_i9x9_k3x3_s3x3_p1x1",
        "n1c12o12g12_i9x9_k2x5_s1x2_d2x1_p1:0x2",
        "n2c6o18g6_i8x7_k3x3_p1x1",
        "n1c6o6g6_i6x7x5_k3x2x3_s1x2x1_p1x0x1",
        "n1c20o20g20_i31_k7_s2_d3_p9",
        "n1c6o6g6_i9x9_k3x3_p-1:2x-2:0",
        "n1c9o9g9_i12x12_k11x11_p5x5_flip",
        "n1c8o8g8_i5x5_k5x5",
        "n1c8o8g8_i3x3_k5x5_p2x2_bias_relu6",
        "n1c4o8g4_i9x9_k1x1_bias",
    ],
)
def test_no_gate(text, dtype, device):
    for integers in (True, False):
        checks.check(f"fwd_{dtype}_{text}", device=device, algorithm="depthwise", integers=integers)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("multiplier", [1, 2, 3])
def test_channel_multiplier(rank, multiplier, device):
    rng = np.random.default_rng(rank)
    x = rng.integers(-3, 4, (2, *(6,) * rank, 5)).astype(np.float32)
    w = rng.integers(-3, 4, (5 * multiplier, *(3,) * rank, 1)).astype(np.float32)
    want = oracle.conv_general(x, w, 1, 1, groups=5)
    np.testing.assert_array_equal(vkconv.depthwise_conv(x, w, 1, 1, device=device), want)
    np.testing.assert_array_equal(getattr(vkconv, f"depthwise_conv{rank}d")(x, w, 1, 1, device=device), want)
