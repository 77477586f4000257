"""Arrays that 31 bits do not count, beyond the largest allocation of a GPU, and batches that 16 bits do not count."""

import os

import numpy as np
import pytest

import checks
import vkconv
from problem_text import parse

LONG = 2**25 + 10  # times 65 channels: more than 2^31 elements, 4.4 GB in half precision
WIDE = 65
ENOUGH_BYTES = 9 << 30


def free_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


needs_memory = pytest.mark.skipif(free_bytes() < ENOUGH_BYTES, reason="needs 9 GiB of free memory")
# Where the signal is: both ends, and around the element that 2^31 counts.
PLACES = (0, 1, 2**31 // WIDE - 1, 2**31 // WIDE, 2**31 // WIDE + 1, LONG - 2, LONG - 1)


def sparse(channels: int) -> np.ndarray:
    """Zero but at PLACES; pages that hold nothing take no memory."""
    x = np.zeros((1, LONG, channels), np.float16)
    for i, place in enumerate(PLACES):
        x[0, place] = (np.arange(channels) + i) % 7 - 3
    return x


@pytest.fixture
def fast_device(device):
    """The first Vulkan device may be software, which takes minutes for each of these."""
    if checks.is_software(device):
        pytest.skip("a software device")
    return device


@pytest.mark.full
@needs_memory
def test_an_input_of_more_than_31_bits(device):
    x = sparse(WIDE)
    w = np.random.default_rng(0).integers(-2, 3, (2, 3, WIDE)).astype(np.float16)
    y = vkconv.conv1d(x, w, padding=1, device=device)
    assert y.shape == (1, LONG, 2)
    for place in PLACES:
        for at in range(max(place - 2, 0), min(place + 3, LONG)):
            taps = [(k, at + k - 1) for k in range(3) if 0 <= at + k - 1 < LONG]
            want = sum(w[:, k].astype(np.float64) @ x[0, i].astype(np.float64) for k, i in taps)
            np.testing.assert_array_equal(y[0, at], want.astype(np.float16), err_msg=str(at))
    assert np.count_nonzero(y.any(-1)) <= 3 * len(PLACES)


@pytest.mark.full
@needs_memory
@pytest.mark.parametrize("groups", [1, WIDE])
def test_an_output_of_more_than_31_bits(groups, fast_device):
    x = sparse(1)
    w = np.random.default_rng(1).integers(-2, 3, (WIDE, 3, 1)).astype(np.float16)
    if groups > 1:
        x = np.broadcast_to(x, (1, LONG, WIDE))
    y = vkconv.conv1d(x, w, padding=1, groups=groups, device=fast_device)
    assert y.size > 2**31
    for place in PLACES:
        for at in range(max(place - 2, 0), min(place + 3, LONG)):
            taps = [(k, at + k - 1) for k in range(3) if 0 <= at + k - 1 < LONG]
            want = sum(w[:, k, 0].astype(np.float64) * float(x[0, i, 0]) for k, i in taps)
            np.testing.assert_array_equal(y[0, at], want.astype(np.float16), err_msg=str(at))
    assert not y[0, PLACES[1] + 3 : PLACES[2] - 3 : 1000].any()


@pytest.mark.full
@needs_memory
def test_a_weight_gradient_over_more_than_31_bits(fast_device):
    x = sparse(WIDE)
    grad = np.ones((1, LONG - 2, 1), np.float16)
    got = vkconv.conv_weight_grad(grad, x, (1, 3, WIDE), device=fast_device)
    whole = sum(x[0, p].astype(np.float64) for p in PLACES)
    for tap, missed in enumerate((PLACES[-2:], (PLACES[0], PLACES[-1]), PLACES[:2])):
        want = whole - sum(x[0, p].astype(np.float64) for p in missed)
        np.testing.assert_array_equal(got[0, tap], want.astype(np.float16))


@pytest.mark.parametrize("text", ["fwd_f32_n70000c3o4_i5_k3_p1", "fwd_f16_n70000c2o2g2_i3x3_k3x3_p1x1"])
def test_a_batch_of_seventy_thousand(text, device):
    p = parse(text)
    a = checks.operands(p)
    checks.assert_right(p, a, checks.run(p, a, device=device), tree=checks.explain(p, a, device=device).plan)


def test_every_algorithm_takes_a_batch_of_seventy_thousand():
    p = parse("fwd_f32_n70000c2o3_i4x4_k3x3_p1x1")
    a = checks.operands(p)
    for name in checks.claiming(p, a, device="cpu"):
        tree = checks.explain(p, a, device="cpu", algorithm=name).plan
        checks.assert_right(p, a, checks.run(p, a, device="cpu", algorithm=name), tree=tree)


@pytest.mark.parametrize("outputs", [2, 40])
def test_a_stride_far_beyond_the_taps(outputs):
    """Of a row of half a terabyte, which a broadcast makes, only what the taps read is touched or copied."""
    x = np.broadcast_to(np.arange(2, dtype=np.float32), (1, 2**36, 2))
    w = np.arange(outputs * 6, dtype=np.float32).reshape(outputs, 3, 2)
    y = vkconv.conv1d(x, w, stride=2**30, device="cpu", workspace_limit=1 << 16)
    np.testing.assert_array_equal(y, np.broadcast_to(w[..., 1].sum(1), (1, 64, outputs)))
