"""Every form of padding means what it says, in every operation that takes it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import oracle
import vkconv

RNG = np.random.default_rng(8)
WORDS = ("valid", "same", "same_lower", "full", "causal")


def integers(*shape: int) -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(np.float32)


def exactly(got: np.ndarray, wanted: np.ndarray) -> None:
    assert got.shape == wanted.shape
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_forms_of_the_same_numbers(rank):
    x, w = integers(2, *(9, 8, 7)[:rank], 3), integers(4, *(3, 2, 3)[:rank], 3)
    for lo, hi in (((2, 2, 2), (2, 2, 2)), ((0, 1, 2), (3, 0, 1)), ((-1, 2, 0), (0, -1, -2))):
        pairs = list(zip(lo[:rank], hi[:rank], strict=True))
        wanted = oracle.conv_general(x, w, padding=pairs)
        exactly(vkconv.conv_general(x, w, pads=pairs), wanted)
        exactly(vkconv.conv_general(x, w, pads=np.array(pairs)), wanted)
        exactly(vkconv.conv_general(x, w, padding=(lo[:rank], hi[:rank])), wanted)
        exactly(vkconv.conv_general(x, w, padding=[list(lo[:rank]), np.array(hi[:rank])]), wanted)
        exactly(getattr(vkconv, f"conv{rank}d")(x, w, pads=pairs), wanted)
        if lo == hi:
            exactly(vkconv.conv_general(x, w, padding=lo[0]), wanted)
            exactly(vkconv.conv_general(x, w, padding=np.int8(lo[0])), wanted)
            exactly(vkconv.conv_general(x, w, padding=lo[:rank]), wanted)
            exactly(vkconv.conv_general(x, w, padding=list(lo[:rank])), wanted)


def test_a_pair_of_sequences_is_lo_and_hi_as_in_mlx():
    x, w = integers(1, 8, 8, 2), integers(3, 3, 3, 2)
    exactly(vkconv.conv_general(x, w, padding=((0, 1), (2, 3))), oracle.conv_general(x, w, padding=[(0, 2), (1, 3)]))


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_words(rank, word):
    for stride, dilation, input_dilation, kernel, extent in itertools.product(
        (1, 2, 3), (1, 2), (1, 2), (1, 2, 3), (6, 7)
    ):
        space, size = (extent, 9, 8)[:rank], (kernel, 3, 2)[:rank]
        x, w = integers(1, *space, 2), integers(2, *size, 2)
        pads = oracle.named_pads(word, space, size, stride, dilation, input_dilation)
        wanted = oracle.conv_general(x, w, stride, pads, dilation, input_dilation)
        exactly(vkconv.conv_general(x, w, stride, word, dilation, input_dilation), wanted)
        if word in ("same", "same_lower"):
            assert wanted.shape[1] == -(-oracle.dilated(extent, input_dilation) // stride)


@pytest.mark.parametrize("word", WORDS)
def test_words_in_the_other_operations(word):
    x, w = integers(2, 8, 9, 4), integers(6, 3, 4, 4)
    pads = oracle.named_pads(word, x.shape[1:-1], w.shape[1:-1], 2)
    y = vkconv.conv2d(x, w, 2, word)
    exactly(y, oracle.conv_general(x, w, 2, pads))
    exactly(
        vkconv.depthwise_conv(x, w[:4, ..., :1], 2, word), oracle.conv_general(x, w[:4, ..., :1], 2, pads, groups=4)
    )
    exactly(vkconv.conv_input_grad(y, w, x.shape, 2, word), oracle.conv_input_grad(y, w, x.shape, 2, pads))
    exactly(vkconv.conv_weight_grad(y, x, w.shape, 2, word), oracle.conv_weight_grad(y, x, w.shape, 2, pads))
    exactly(vkconv.prepare(w, stride=2, padding=word)(x), y)


def test_causal_outputs_do_not_see_later_input():
    x, w = integers(1, 12, 5, 2), integers(3, 4, 3, 2)
    y = vkconv.conv2d(x, w, padding="causal", dilation=(2, 1))
    assert y.shape == (1, 12, 5, 3)
    for t in range(12):
        later = x.copy()
        later[:, t + 1 :] = 99
        exactly(vkconv.conv2d(later, w, padding="causal", dilation=(2, 1))[:, : t + 1], y[:, : t + 1])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed(rank):
    x, w = integers(2, *(5, 4, 3)[:rank], 4), integers(6, *(3, 2, 3)[:rank], 2)
    for stride, padding, dilation, extra in itertools.product((1, 2, 3), (0, 1, 2), (1, 2), (0, 1)):
        try:
            wanted = oracle.conv_transpose(x, w, stride, padding, dilation, extra, 2)
        except ValueError:  # negative extents
            wanted = None
        call = getattr(vkconv, f"conv_transpose{rank}d")
        if wanted is None or 0 in wanted.shape:
            with pytest.raises(ValueError):
                call(x, w, stride, padding, dilation, extra, 2)
            continue
        exactly(call(x, w, stride, padding, dilation, extra, 2), wanted)
        pairs = [(padding, padding - extra)] * rank
        exactly(vkconv.conv_transpose(x, w, stride, dilation=dilation, groups=2, pads=pairs), wanted)


def test_transposed_padding_beyond_the_kernel():
    """PyTorch and ONNX Runtime agree on 11 outputs; dilation * (kernel - 1) - padding is -1 here."""
    x, w = integers(1, 8, 1), integers(1, 3, 1)
    y = vkconv.conv_transpose1d(x, w, stride=2, padding=3)
    assert y.shape == (1, 11, 1)
    exactly(y, oracle.conv_transpose(x, w, 2, 3))
    exactly(y, vkconv.conv_transpose1d(x, w, stride=2)[:, 3:-3])


def test_negative_padding_crops_the_dilated_signal():
    x, w = integers(1, 6, 2), integers(3, 2, 2)
    spread = np.zeros((1, 11, 2), np.float32)
    spread[:, ::2] = x
    exactly(vkconv.conv_general(x, w, input_dilation=2, pads=[(-1, 0)]), oracle.conv_general(spread[:, 1:], w))
    exactly(vkconv.conv_general(x, w, input_dilation=2, pads=[(-2, -3)]), oracle.conv_general(spread[:, 2:-3], w))


@pytest.mark.parametrize("padding", ["same", "same_lower", "causal"])
@pytest.mark.parametrize("kernel, stride", [((3, 3), 1), ((3, 1), 2), ((1, 2), 3)])
def test_an_empty_axis_stays_empty_where_there_are_as_many_outputs_as_inputs(padding, kernel, stride):
    x, w = np.zeros((2, 0, 4, 3), np.float32), np.zeros((5, *kernel, 3), np.float32)
    options = {"stride": stride, "padding": padding}
    shape = (2, 0, -(-4 // stride), 5)
    assert vkconv.conv2d(x, w, **options).shape == shape
    assert vkconv.prepare(w, **options)(x).shape == shape
    grad = np.zeros(shape, np.float32)
    assert vkconv.conv_input_grad(grad, w, x.shape, **options).shape == x.shape
    assert not vkconv.conv_weight_grad(grad, x, w.shape, **options).any()
    told = vkconv.explain(vkconv.conv2d, x, w, **options)
    assert vkconv.explain(told.problem).problem == told.problem


@pytest.mark.parametrize("word", ["same", "same_lower", "causal"])
@pytest.mark.parametrize("mode", ["zeros", "edge"])
def test_windows_of_an_axis_that_words_leave_empty(word, mode):
    options = {"stride": 2, "padding": word, "padding_mode": mode}
    for shape in ((2, 0, 3), (2, 0, 5, 3), (2, 5, 0, 3)):
        kernel = (4, 3)[: len(shape) - 2]
        outputs = vkconv.conv_general(np.zeros(shape), np.zeros((1, *kernel, 3)), **options).shape[1:-1]
        windows = vkconv.unfold(np.zeros(shape), kernel, **options)
        assert windows.shape == (2, *outputs, *kernel, 3) and windows.size == 0
        assert np.array_equal(vkconv.fold(windows, shape, **options), np.zeros(shape))
