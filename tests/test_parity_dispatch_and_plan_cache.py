"""Dispatch with a plan cache, as in mlx/backend/cuda/conv.cpp: three passes of one convolution, the choice cached."""

import dataclasses

import numpy as np
import pytest

import checks
import peers
import vkconv
from problem_text import parse

BASE = "n2c8o12g2_i9x10_k3x3_s2x1_p1x2"


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("op", ["fwd", "igrad", "wgrad"])
def test_three_passes_of_one_problem(op, dtype, device):
    """Planned as one problem with another pass each, not guessed from shapes."""
    p = parse(f"{op}_{dtype}_{BASE}")
    a = checks.operands(p)
    report = checks.explain(p, a, device=device)
    assert report.problem.startswith(f"{op}_{dtype}_")
    checks.assert_right(p, a, checks.run(p, a, device=device), tree=report.plan)


def test_gradients_have_their_own_algorithms(device):
    for op, name in (("igrad", "input_grad"), ("wgrad", "weight_grad")):
        p = parse(f"{op}_f32_{BASE}")
        a = checks.operands(p)
        assert name in checks.claiming(p, a, device=device)
        assert name not in checks.claiming(p.replace(op="fwd"), a, device=device)
        checks.assert_right(p, a, checks.run(p, a, device=device, algorithm=name))


@pytest.mark.parametrize(
    "text",
    [
        "n1c4o4_i9x9_k3x3_p1:2x0:1",
        "n1c4o4_i9x9_k3x3_s2x2_p0:1x0:1",
        "n1c6o6g3_i9x9_k3x3_s2x3_d2x1_p1:2x0:3",
        "n1c4o4_i8_k4_p1:2_t2",
        "n1c4o4_i4x5x6_k3x3x3_p1:0x0:1x2:0",
    ],
)
@pytest.mark.parametrize("op", ["fwd", "igrad", "wgrad"])
def test_asymmetric_padding(text, op, device):
    checks.check(f"{op}_f32_{text}", device=device)


@pytest.mark.parametrize(
    "text", ["n1c64o64g4_i7x7_k3x3_p1x1", "n1c12o6g6_i9_k3_s2_p1", "n2c9o27g9_i5x5x5_k2x2x2_s2x2x2"]
)
@pytest.mark.parametrize("op", ["fwd", "igrad", "wgrad"])
def test_grouped(text, op, device):
    checks.check(f"{op}_f32_{text}", device=device)


def test_second_call_hits(device, clean_cache):
    p = parse(f"fwd_f32_{BASE}")
    a = checks.operands(p)
    checks.run(p, a, device=device)
    first = vkconv.plan_cache_info(device)
    assert first.misses > 0 and first.hits == 0
    for i in range(1, 6):
        checks.run(p, a, device=device)
        info = vkconv.plan_cache_info(device)
        assert (info.hits, info.misses, info.size) == (i, first.misses, first.size)


def test_forced_algorithm_is_part_of_the_key(device, clean_cache):
    p = parse(f"fwd_f32_{BASE}")
    a = checks.operands(p)
    trees = {
        name: checks.explain(p, a, device=device, algorithm=name).plan for name in checks.claiming(p, a, device=device)
    }
    assert len(trees) >= 3
    for _ in range(2):
        for name, tree in trees.items():
            assert tree.startswith(name)
            checks.assert_right(p, a, checks.run(p, a, device=device, algorithm=name), tree=tree)


def test_default_capacity_is_128():
    assert vkconv.plan_cache_info().capacity == 128


def test_eviction_at_capacity(device, clean_cache):
    vkconv.set_plan_cache_capacity(4)
    for width in range(5, 25):
        checks.check(f"fwd_f32_n1c2o3_i{width}_k3", device=device)
        assert vkconv.plan_cache_info(device).size <= 4
    assert vkconv.plan_cache_info(device).capacity == 4


def test_thrashing_never_throws(device, clean_cache):
    """MLX raises when its cache misses too often. Twice as many shapes as places, round and round."""
    vkconv.set_plan_cache_capacity(8)
    for _ in range(12):
        for width in range(4, 20):
            checks.check(f"fwd_f32_n1c1o2_i{width}_k3", device=device)
    assert vkconv.plan_cache_info(device).size <= 8


def test_no_cache_at_all(device, clean_cache):
    vkconv.set_plan_cache_capacity(0)
    for _ in range(3):
        checks.check(f"fwd_f32_{BASE}", device=device)
        checks.check("fwd_f32_n1c16o16_i5x6x6_k3x3x3_p1x1x1", device=device)
    assert vkconv.plan_cache_info(device).size == 0


def test_workspace_limit_is_part_of_the_key(device, clean_cache):
    p = parse("fwd_f32_n1c8o8_i24x24_k3x3_p1x1")
    a = checks.operands(p)
    for limit in (None, 0, 1 << 14, None, 1 << 14, 0):
        report = checks.explain(p, a, device=device, workspace_limit=limit)
        assert limit is None or report.workspace_bytes <= limit
        checks.assert_right(p, a, checks.run(p, a, device=device, workspace_limit=limit), tree=report.plan)


@pytest.mark.parametrize("op", ["fwd", "igrad", "wgrad"])
def test_alignment_does_not_matter(op, device):
    """MLX has the alignment of the pointers in its key; here any address gives the same bits."""
    p = parse(f"{op}_f16_{BASE}")
    a = checks.operands(p, integers=False)
    want = checks.run(p, a, device=device)

    def shifted(v, offset):
        raw = np.zeros(v.nbytes + 128, np.uint8)
        start = -raw.ctypes.data % 64 + offset
        moved = raw[start : start + v.nbytes].view(v.dtype).reshape(v.shape)
        moved[...] = v
        return moved

    for offset in (0, 2, 4, 6, 8, 16, 34):
        moved = dataclasses.replace(a, **{name: shifted(v, offset) for name, v in a.arrays().items() if v.size})
        np.testing.assert_array_equal(checks.run(p, moved, device=device), want)


def test_mlx_agrees(device):
    for text in (
        "n2c8o12g2_i9x10_k3x3_s2x1_p1x2",
        "n1c4o6_i9_k3_s2_d2_p1:3",
        "n1c4o4_i5x6x7_k2x3x2_s2x1x1_t1x2x1_p1x1x0_flip",
    ):
        p = parse(f"fwd_f32_{text}")
        a = checks.operands(p)
        want = peers.mlx_conv_general(
            a.input, a.weight, p.stride, p.pads, p.dilation, p.input_dilation, p.groups, p.flip
        )
        np.testing.assert_array_equal(checks.run(p, a, device=device, precision="highest"), want)


def test_onnxruntime_agrees(device):
    for text in ("n2c8o12g2_i9x10_k3x3_s2x1_p1x2", "n1c4o6_i9_k3_s2_d2_p1:3", "n1c4o4_i5x6x7_k2x3x2_s2x1x1_p1x1x0"):
        p = parse(f"fwd_f32_{text}")
        a = checks.operands(p)
        want = peers.onnx_conv(a.input, a.weight, p.stride, p.pads, p.dilation, p.groups)
        np.testing.assert_array_equal(checks.run(p, a, device=device, precision="highest"), want)
