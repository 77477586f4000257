"""Ten convolutions that other libraries got wrong, each by name."""

import numpy as np
import pytest

import checks
import oracle
import peers
import vkconv
from problem_text import parse


def integers(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def assert_everywhere(text, device):
    """The problem through every algorithm that claims it."""
    p = parse(text)
    a = checks.operands(p)
    for algorithm in [None, *checks.claiming(p, a, device=device)]:
        options = {"device": device, "algorithm": algorithm}
        checks.assert_right(p, a, checks.run(p, a, **options), tree=checks.explain(p, a, **options).plan)


def test_1_transposes_that_differ_only_in_stride(device, clean_cache):
    """A cache key without input_dilation gives the second call the first one's plan. The output shapes agree too."""
    x, w = integers((1, 4, 5, 3)), integers((4, 3, 3, 3))
    first = vkconv.conv_transpose2d(x, w, (2, 3), (0, 0), output_padding=(1, 0), device=device)
    second = vkconv.conv_transpose2d(x, w, (2, 2), (0, 0), output_padding=(1, 4), device=device)
    assert first.shape == second.shape
    np.testing.assert_array_equal(first, oracle.conv_transpose(x, w, (2, 3), 0, 1, (1, 0)))
    np.testing.assert_array_equal(second, oracle.conv_transpose(x, w, (2, 2), 0, 1, (1, 4)))


@pytest.mark.parametrize("pads", [((0, 0), (0, 0)), ((1, 1), (2, 2))])
def test_1_input_dilations_back_to_back(pads, device, clean_cache):
    x, w = integers((2, 6, 6, 3)), integers((4, 3, 3, 3))
    for dilation in ((2, 1), (1, 2), (2, 2), (3, 1), (2, 1)):
        got = vkconv.conv_general(x, w, pads=pads, input_dilation=dilation, device=device)
        np.testing.assert_array_equal(got, oracle.conv_general(x, w, 1, pads, 1, dilation))


def test_2_transpose_padding_larger_than_the_kernel_reach(device):
    """L=8, k=3, s=2, p=3: (8-1)*2 - 2*3 + 3 = 11 outputs."""
    x, w = integers((1, 8, 2)), integers((3, 3, 2))
    want = oracle.conv_transpose(x, w, 2, 3)
    assert want.shape == (1, 11, 3)
    for got in (vkconv.conv_transpose1d(x, w, 2, 3, device=device), vkconv.conv_transpose(x, w, 2, 3, device=device)):
        np.testing.assert_array_equal(got, want)
    assert_everywhere("fwd_f32_n1c2o3_i8_k3_t2_p-1_flip", device)


@pytest.mark.parametrize("peer", [peers.torch_conv_transpose, peers.onnx_conv_transpose])
def test_2_peers_agree(peer):
    x, w = integers((1, 8, 2)), integers((3, 3, 2))
    np.testing.assert_array_equal(peer(x, w, 2, 3), oracle.conv_transpose(x, w, 2, 3))


def test_3_negative_padding_crops_the_dilated_signal(device):
    """[1 2 3] dilated is [1 0 2 0 3]; without its first element [0 2 0 3]."""
    x, w = np.array([[[1], [2], [3]]], np.float32), np.array([[[1], [10]]], np.float32)
    got = vkconv.conv_general(x, w, pads=[(-1, 0)], input_dilation=2, device=device)
    np.testing.assert_array_equal(got[0, :, 0], [20, 2, 30])
    assert_everywhere("fwd_f32_n2c3o4_i5x6_k2x3_t2x2_p-1:0x0:-2", device)


@pytest.mark.parametrize(
    "text",
    [
        "fwd_f32_n1c16o16_i5x6x6_k3x3x3_p0x1x1_flip",
        "fwd_f32_n1c16o16_i8x8_k3x3_p1x1_flip",
        "fwd_f32_n1c8o8g8_i4x7x7_k2x3x3_p0x1x1_flip",
        "fwd_f32_n1c3o4_i12_k4_s2_d2_p1_flip",
        "fwd_f32_n1c4o4_i4x4x4_k3x2x4_t2x2x2_p2x1x3_flip",
        "fwd_f16_n1c16o16_i5x6x6_k3x3x3_p1x1x1_flip",
    ],
)
def test_4_flip_mirrors_every_axis(text, device):
    p = parse(text)
    a = checks.operands(p)
    mirrored = np.ascontiguousarray(np.flip(a.weight, tuple(range(1, p.rank + 1))))
    for algorithm in [None, *checks.claiming(p, a, device=device)]:
        options = {"device": device, "algorithm": algorithm}
        got = checks.run(p, a, **options)
        checks.assert_right(p, a, got, tree=checks.explain(p, a, **options).plan)
        unflipped = checks.run(p.replace(flip=False), checks.Operands(a.input, mirrored, a.grad, a.bias), **options)
        np.testing.assert_array_equal(got, unflipped)


@pytest.mark.parametrize("op", ["igrad", "wgrad"])
@pytest.mark.parametrize(
    "text",
    [
        "n2c6o9g3_i9x9_k3x3_s2x2_p1x1",
        "n1c8o8g4_i11_k3_s3_p1",
        "n1c8o16g8_i9x8_k3x3_s2x3_p1x1",
        "n1c4o6g2_i5x6x7_k3x2x3_s2x2x1_p1x0x1",
        "n2c6o9g3_i9x9_k3x3_s2x2_d2x1_p2x1_flip",
    ],
)
def test_5_gradients_with_groups_and_stride(text, op, device):
    assert_everywhere(f"{op}_f32_{text}", device)


def test_6_kernel_larger_than_the_input(device):
    """181x181 * 182x182 with padding 1 fits: 2x2 outputs."""
    p = parse("fwd_f32_n1c1o1_i181x181_k182x182_p1x1")
    assert p.output_shape == (1, 2, 2, 1)
    a = checks.operands(p)
    checks.assert_right(p, a, checks.run(p, a, device=device))
    checks.assert_right(p, a, vkconv.conv2d(a.input, a.weight, 1, 1, device=device))
    assert_everywhere("fwd_f32_n1c2o3_i13x13_k14x14_p1x1", device)


def test_6_kernel_larger_than_the_padded_input_is_refused(device):
    with pytest.raises(ValueError, match="kernel"):
        vkconv.conv2d(integers((1, 5, 5, 1)), integers((1, 8, 8, 1)), 1, 1, device=device)


@pytest.mark.parametrize(
    "text",
    [
        "fwd_f32_n70000c1o2_i3_k3_p1",
        "fwd_f32_n1c2o2_i70000_k3_p1",
        "fwd_f32_n1c1o1_i1x65536_k1x3_p0x1",
        "fwd_f32_n1c2o2g2_i65537_k3_p1",
        "fwd_f32_n1c1o1_i300x300_k3x3_p1x1",
        "wgrad_f32_n70000c1o2_i2_k2",
        "igrad_f32_n1c1o1_i65537_k2_s2",
    ],
)
def test_7_more_than_65535_of_anything(text, device):
    p = parse(text)
    a = checks.operands(p)
    report = checks.explain(p, a, device=device)
    checks.assert_right(p, a, checks.run(p, a, device=device), tree=report.plan)


@pytest.mark.parametrize(
    "text",
    [
        "fwd_bf16_n1c3o5_i9x1_k3x1_s3x3",
        "fwd_bf16_n2c16o16_i10x3_k3x3_s3x3_p1x0",
        "fwd_bf16_n1c8o8_i4_k4_s3",
        "fwd_bf16_n1c9o9g9_i8x3_k3x3_s3x3",
        "wgrad_bf16_n1c3o5_i9x1_k3x1_s3x3",
        "igrad_bf16_n1c3o5_i9x1_k3x1_s3x3",
    ],
)
def test_8_bf16_with_output_width_one_and_stride_three(text, device):
    assert_everywhere(text, device)


def available_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))


@pytest.mark.full
@pytest.mark.parametrize("stride, padding", [(1, 0), (1, 1)])
def test_9_more_than_2_31_elements(stride, padding):
    """fp16, 2^31 + 2^20 elements in and out: every row of the input holds its own number, checked by row."""
    rows, width = (1 << 11) + 1, 1 << 20
    if available_bytes() < 12 << 30:
        pytest.skip("needs 12 GiB of memory")
    x = np.empty((1, rows, width, 1), np.float16)
    x[...] = (np.arange(rows) % 512).astype(np.float16)[:, None, None]
    assert x.size > 1 << 31
    w = np.array([1, 0, 2], np.float16).reshape(1, 3, 1, 1)
    y = vkconv.conv2d(x, w, stride, (padding, 0), device="cpu")
    row = np.pad(np.arange(rows) % 512, padding)
    want = (row[:-2] + 2 * row[2:])[::stride]
    assert y.shape == (1, len(want), width, 1)
    for column in (0, 1, width // 2 + 3, width - 1):
        np.testing.assert_array_equal(y[0, :, column, 0], want)
    assert all((y[0, i] == want[i]).all() for i in (0, len(want) // 2, len(want) - 1))


def test_10_padding_pair_is_lows_then_highs(device):
    """((0, 1), (2, 3)) is lo = (0, 1) and hi = (2, 3), as in MLX; pads= takes one pair an axis."""
    x, w = integers((1, 6, 7, 2)), integers((3, 3, 2, 2))
    want = oracle.conv_general(x, w, 1, [(0, 2), (1, 3)])
    assert want.shape == (1, 6, 10, 3)
    np.testing.assert_array_equal(vkconv.conv_general(x, w, 1, ((0, 1), (2, 3)), device=device), want)
    np.testing.assert_array_equal(vkconv.conv_general(x, w, 1, [[0, 1], [2, 3]], device=device), want)
    np.testing.assert_array_equal(vkconv.conv_general(x, w, pads=[(0, 2), (1, 3)], device=device), want)


def test_10_mlx_agrees():
    x, w = integers((1, 6, 7, 2)), integers((3, 3, 2, 2))
    want = peers.mlx_conv_general(x, w, padding=[(0, 2), (1, 3)])
    np.testing.assert_array_equal(vkconv.conv_general(x, w, 1, ((0, 1), (2, 3)), device="cpu"), want)
