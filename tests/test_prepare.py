"""Prepared convolutions: same bits as the plain call, own their weights, serve any input size and thread."""

from __future__ import annotations

import concurrent.futures
import gc
import pickle
import weakref

import numpy as np
import pytest

import checks
import vkconv
from fuzz_changes import for_a_while

RNG = np.random.default_rng(7)


def dense(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


GEOMETRIES = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": "same", "activation": "relu"},
    {"padding": "same_lower", "stride": (2, 1)},
    {"padding": ((0, 1), (2, 3)), "flip": True},
    {"pads": [(2, 0), (-1, 3)], "kernel_dilation": 2},
    {"input_dilation": (2, 3), "padding": "full", "flip": True},
    {"padding": "causal", "activation": ("clip", -0.5, 0.5)},
    {"groups": 2, "activation": ("leaky_relu", 0.1)},
]


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_same_bits_as_the_plain_call(geometry, dtype):
    groups = geometry.get("groups", 1)
    w, bias = dense(6, 3, 2, 8 // groups, dtype=dtype), dense(6, dtype=dtype)
    conv = vkconv.prepare(w, bias, **geometry)
    for shape in ((1, 9, 8, 8), (3, 7, 12, 8), (1, 9, 8, 8), (0, 9, 8, 8), (1, 40, 33, 8)):
        x = dense(*shape, dtype=dtype)
        assert_same_bits(conv(x), vkconv.conv_general(x, w, bias=bias, **geometry))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_ranks_and_transposes(rank):
    w, x = dense(4, *[3] * rank, 2), dense(2, *[6] * rank, 4)
    assert_same_bits(vkconv.prepare(w, groups=2)(x), vkconv.conv_general(x, w, groups=2))
    up = vkconv.prepare_transpose(w, stride=2, padding=1, output_padding=1, groups=2)
    assert_same_bits(up(x), vkconv.conv_transpose(x, w, 2, 1, 1, 1, 2))
    cropped = vkconv.prepare_transpose(w, stride=2, padding=3, groups=2)
    assert_same_bits(cropped(x), vkconv.conv_transpose(x, w, 2, 3, groups=2))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"padding": 1, "groups": 2}])
def test_addend(options, dtype):
    """Added before bias and activation, in the precision of the sums, wherever it lies."""
    w, bias = dense(8, 3, 3, 8 // options.get("groups", 1), dtype=dtype), dense(8, dtype=dtype)
    x = dense(2, 9, 8, 8, dtype=dtype)
    wide = checks.sums_dtype(dtype)
    y = vkconv.conv_general(x.astype(wide), w.astype(wide), bias=bias.astype(wide), **options)
    conv = vkconv.prepare(w, bias, activation="relu", **options)
    cut, last = dense(*y.shape[:-1], 9, dtype=wide)[..., 1:], dense(8, *y.shape[:-1], dtype=wide)
    broadcast = np.broadcast_to(dense(8, dtype=wide), y.shape)
    for addend in (dense(*y.shape, dtype=wide), cut, broadcast, last.transpose(1, 2, 3, 0)):
        got = conv(x, addend=addend)
        assert got.dtype == dtype
        np.testing.assert_allclose(
            got, np.maximum(y + addend, 0), rtol=2e-3 if dtype == np.float16 else 1e-5, atol=1e-5
        )


def test_addend_errors():
    conv, x = vkconv.prepare(dense(4, 3, 3)), dense(1, 8, 3)
    with pytest.raises(ValueError, match="addend has shape"):
        conv(x, addend=dense(1, 8, 4))
    with pytest.raises(TypeError, match="addend has dtype"):
        conv(x, addend=dense(1, 6, 4).astype(np.float64))
    addend = dense(1, 6, 4)
    with pytest.raises(ValueError, match="shares memory with addend"):
        conv(x, addend, addend)


def test_every_algorithm():
    x, w = dense(1, 9, 10, 16), dense(16, 3, 3, 16)
    explained = vkconv.explain(vkconv.conv2d, x, w, padding=1)
    for candidate in explained.candidates:
        if candidate.seconds is not None:
            conv = vkconv.prepare(w, padding=1, algorithm=candidate.algorithm)
            assert_same_bits(conv(x), vkconv.conv2d(x, w, padding=1, algorithm=candidate.algorithm))


def test_sizes_that_read_other_taps(device):
    """Of a dilated kernel small images read the first tap alone, larger ones more."""
    rng = np.random.default_rng(5)
    w = rng.integers(-3, 4, (6, 3, 3, 4)).astype(np.float32)
    geometry = {"pads": [(0, 12), (0, 14)], "kernel_dilation": (6, 7), "device": device}
    conv = vkconv.prepare(w, **geometry)
    for shape in ((5, 20), (20, 5), (4, 3), (9, 9), (1, 7)):
        x = rng.integers(-3, 4, (1, *shape, 4)).astype(np.float32)
        np.testing.assert_array_equal(conv(x), vkconv.conv_general(x, w, algorithm="reference", **geometry), str(shape))


@pytest.mark.parametrize("view", [lambda w: w, lambda w: w[::-1], lambda w: w[:, ::2], np.asfortranarray])
def test_weights_are_copied(view):
    w, bias, x = dense(4, 5, 3, 4), dense(4), dense(1, 8, 8, 4)
    weight = view(w)
    conv = vkconv.prepare(weight, bias)
    wanted = vkconv.conv_general(x, weight, bias=bias)
    first = conv(x)
    w[...] = np.nan
    bias[...] = np.nan
    assert_same_bits(first, wanted)
    assert_same_bits(conv(x), wanted)
    reference = weakref.ref(w)
    del w, weight
    gc.collect()
    assert reference() is None, "the caller's array is not kept"
    assert_same_bits(conv(x), wanted)


@pytest.mark.parametrize("outputs", [17, 40, 48, 112, 240])
@pytest.mark.parametrize("kernel", [1, 3])
def test_images_of_few_pixels_and_of_many(outputs, kernel):
    """Weights may be packed otherwise for a few pixels, and serve each size as its own."""
    w = dense(outputs, kernel, kernel, 24)
    options = {"stride": kernel // 2 + 1, "padding": kernel // 2, "device": "cpu", "algorithm": "implicit_gemm"}
    for sizes in ((7, 30, 7), (30, 7), (1, 14, 4)):
        conv = vkconv.prepare(w, **options)
        for size in sizes:
            x = dense(1, size, size, 24)
            assert_same_bits(conv(x), vkconv.conv2d(x, w, **options))


def test_out():
    w, x = dense(4, 3, 3, 4), dense(1, 8, 8, 4)
    conv = vkconv.prepare(w)
    out = np.empty((1, 6, 6, 4), np.float32)
    assert conv(x, out) is out
    assert conv(x, out=out) is out
    assert_same_bits(out, conv(x))


def test_many_threads():
    w, bias = dense(8, 3, 3, 8), dense(8)
    conv = vkconv.prepare(w, bias, padding=1, activation="silu")
    inputs = [dense(1, 6 + i % 7, 5 + i % 5, 8) for i in range(64)]
    wanted = [vkconv.conv2d(x, w, padding=1, bias=bias, activation="silu") for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for got, want in zip(pool.map(conv, inputs), wanted, strict=True):
            assert_same_bits(got, want)


def test_outlives_settings():
    w, x = dense(4, 3, 3, 4), dense(1, 8, 8, 4)
    conv = vkconv.prepare(w)
    wanted = conv(x)
    with for_a_while(vkconv.set_num_threads, 3, vkconv.num_threads()):
        vkconv.plan_cache_clear()
        assert_same_bits(conv(x), wanted)


def test_memory_is_returned():
    used = vkconv.memory_info().used
    conv = vkconv.prepare(dense(256, 3, 3, 256))
    assert vkconv.memory_info().used >= used + 256 * 256 * 9 * 4
    del conv
    assert vkconv.memory_info().used == used


def test_explain_and_repr():
    conv = vkconv.prepare(dense(4, 3, 3, 2), stride=2, groups=2)
    told = vkconv.explain(conv, dense(1, 8, 9, 4))
    assert told.problem == "fwd_f32_n1c4o4g2_i8x9_k3x3_s2x2"
    assert "float32 weight (4, 3, 3, 2)" in repr(conv)


def test_cannot_be_pickled():
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(vkconv.prepare(dense(4, 3, 3, 4)))


def chained() -> tuple[list[vkconv.PreparedConv], vkconv._core.PreparedChain]:
    """a(x), b of it, and b again with x as its addend; the first and the last are results."""
    a, b = (vkconv.prepare(dense(4, 3, 3, 4), padding=1, padding_mode=mode) for mode in ("zeros", "edge"))
    return [a, b], vkconv._core.prepare_chain(1, [(a, 0, None), (b, 1, None), (b, 2, 0)], [1, 3])


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_a_chain_has_the_bits_of_its_steps(batch):
    (a, b), chain = chained()
    whole = dense(batch, 9, 8, 8)
    for x in (whole[..., :4], whole[..., ::2]):  # the second is copied
        first = a(x)
        last = b(b(first), addend=x)
        for got, want in zip(chain(x), (first, last), strict=True):
            assert_same_bits(got, want)


def test_a_chain_gives_its_memory_back():
    _, chain = chained()
    chain(dense(2, 30, 30, 4))  # packs the weights
    used = vkconv.memory_info().used
    made = chain(dense(2, 30, 30, 4))
    assert vkconv.memory_info().used - used < 3 * made[0].nbytes
    del made
    with pytest.raises(ValueError, match="channels"):
        chain(dense(2, 30, 30, 6))
    assert vkconv.memory_info().used == used


@pytest.mark.parametrize(
    ("arrays", "error", "words"),
    [
        ([], TypeError, "got 0 arrays, wanted 1"),
        ([dense(1, 5, 5, 4).astype(np.float64)], TypeError, "dtype f64, wanted f32"),
        ([dense(1, 5, 4)], ValueError, "3 dimensions, wanted 4"),
        ([vkconv.array(dense(1, 5, 5, 4), "cpu")], TypeError, "wanted a NumPy array"),
    ],
)
def test_what_a_chain_refuses(arrays, error, words):
    with pytest.raises(error, match=words):
        chained()[1](*arrays)


@pytest.mark.parametrize(("steps", "results"), [([(1, None)], [1]), ([(0, 1)], [1]), ([(0, None)], [0]),
                                                ([(0, None)], [2]), ([(0, None)], [1, 1])])  # fmt: skip
def test_chains_are_checked(steps, results):
    conv = vkconv.prepare(dense(4, 3, 3, 4))
    with pytest.raises(ValueError, match=r"step|result"):
        vkconv._core.prepare_chain(1, [(conv, *operands) for operands in steps], results)
