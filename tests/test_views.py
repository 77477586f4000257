"""Any NumPy view is an input, and gives the same bits as its contiguous copy."""

from __future__ import annotations

import sys
import tempfile
import tracemalloc

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import vkconv

SHAPE = (2, 7, 9, 4)
RNG = np.random.default_rng(5)


def dense(shape: tuple[int, ...] = SHAPE, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def unaligned(a: np.ndarray) -> np.ndarray:
    raw = np.empty(a.nbytes + 1, np.uint8)
    view = raw[1:].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


def in_records(a: np.ndarray) -> np.ndarray:
    """Strides that are no multiple of the item size."""
    record = np.zeros(a.shape, np.dtype([("flag", np.uint8), ("value", a.dtype)]))
    record["value"] = a
    return record["value"]


def memory_map(a: np.ndarray) -> np.memmap:
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, a.dtype, "w+", shape=a.shape)
    mapped[...] = a
    return mapped


VIEWS = {
    "contiguous": dense,
    "fortran": lambda: np.asfortranarray(dense()),
    "channels first": lambda: dense((2, 4, 7, 9)).transpose(0, 2, 3, 1),
    "swapped space": lambda: dense((2, 9, 7, 4)).transpose(0, 2, 1, 3),
    "batch inside": lambda: dense((7, 9, 2, 4)).transpose(2, 0, 1, 3),
    "reversed space": lambda: dense()[:, ::-1, ::-1],
    "reversed batch": lambda: dense()[::-1],
    "reversed channels": lambda: dense()[..., ::-1],
    "every other pixel": lambda: dense((2, 14, 27, 4))[:, ::2, ::3],
    "every other channel": lambda: dense((2, 7, 9, 8))[..., ::2],
    "channel slice": lambda: dense((2, 7, 9, 11))[..., 3:7],
    "cropped": lambda: dense((4, 12, 12, 4))[1:3, 2:9, 3:12],
    "broadcast batch": lambda: np.broadcast_to(dense((1, 7, 9, 4)), SHAPE),
    "broadcast row": lambda: np.broadcast_to(dense((2, 7, 1, 4)), SHAPE),
    "broadcast channel": lambda: np.broadcast_to(dense((2, 7, 9, 1)), SHAPE),
    "broadcast scalar": lambda: np.broadcast_to(np.float32(1.5), SHAPE),
    "overlapping rows": lambda: as_strided(dense((400,)), SHAPE, (144, 16, 4, 4)),
    "big endian": lambda: dense().astype(">f4"),
    "big endian reversed": lambda: dense().astype(">f4")[:, ::-1],
    "this machine's order by its name": lambda: dense().view(np.dtype("f4").newbyteorder(sys.byteorder)),
    "unaligned": lambda: unaligned(dense()),
    "records": lambda: in_records(dense()),
    "memory map": lambda: memory_map(dense()),
}


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype and a.shape == b.shape
    assert a.tobytes() == b.tobytes()


def copied(a: np.ndarray) -> np.ndarray:
    return np.array(a, dtype=a.dtype.newbyteorder("="), order="C")


@pytest.mark.parametrize("name", VIEWS)
def test_input(name):
    x, w = VIEWS[name](), dense((6, 3, 3, 4))
    before = copied(x)
    assert_same_bits(vkconv.conv2d(x, w, padding=1), vkconv.conv2d(before, w, padding=1))
    assert_same_bits(copied(x), before)


@pytest.mark.parametrize("name", VIEWS)
def test_weight(name):
    w, x = VIEWS[name](), dense((1, 12, 13, 4))
    assert_same_bits(vkconv.conv2d(x, w), vkconv.conv2d(x, copied(w)))
    assert_same_bits(vkconv.conv_transpose(x, w, 2), vkconv.conv_transpose(x, copied(w), 2))
    assert_same_bits(vkconv.prepare(w)(x), vkconv.conv2d(x, copied(w)))


@pytest.mark.parametrize("name", VIEWS)
def test_gradients(name):
    g = VIEWS[name]()
    x, w = dense((2, 9, 11, 3)), dense((4, 3, 3, 3))
    assert_same_bits(vkconv.conv_input_grad(g, w, x.shape), vkconv.conv_input_grad(copied(g), w, x.shape))
    assert_same_bits(vkconv.conv_weight_grad(g, x, w.shape), vkconv.conv_weight_grad(copied(g), x, w.shape))
    assert_same_bits(vkconv.conv_bias_grad(g), vkconv.conv_bias_grad(copied(g)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, "bfloat16"])
def test_dtypes(dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    x, w = dense(dtype=dtype), dense((6, 3, 3, 4), dtype)
    y = vkconv.conv2d(x, w)
    assert y.dtype == x.dtype
    for view in (x[:, ::-1], np.asfortranarray(x), unaligned(x), in_records(x)):
        assert_same_bits(vkconv.conv2d(view, w), vkconv.conv2d(copied_as(view, dtype), w))
    bias = dense((6,), dtype)
    assert_same_bits(vkconv.conv2d(x, w, bias=bias), vkconv.conv2d(x, w, bias=unaligned(bias)))


def copied_as(a: np.ndarray, dtype) -> np.ndarray:
    return np.array(a, dtype=dtype, order="C")


def test_bias_views():
    x, w, bias = dense(), dense((6, 3, 3, 4)), dense((6,))
    wanted = vkconv.conv2d(x, w, bias=bias)
    wide = np.zeros(18, np.float32)
    wide[::3] = bias
    for view in (wide[::3], bias[::-1].copy()[::-1], bias.astype(">f4"), unaligned(bias)):
        assert_same_bits(vkconv.conv2d(x, w, bias=view), wanted)
    half = dense((6, 3, 3, 4), np.float16)
    for b in (bias, bias.astype(np.float16)):
        assert vkconv.conv2d(x.astype(np.float16), half, bias=b).dtype == np.float16


def test_read_only():
    x, w = dense(), dense((6, 3, 3, 4))
    wanted = vkconv.conv2d(x, w)
    x.flags.writeable = w.flags.writeable = False
    assert_same_bits(vkconv.conv2d(x, w), wanted)


def test_dense_views_are_not_copied():
    """The pool sees the result only; a copy would show in NumPy's allocations."""
    x, w = dense((1, 512, 512, 8)), dense((1, 1, 1, 8))
    for view in (x, x[:, ::-1], x[:, :, ::2], np.broadcast_to(x[:, :1], x.shape), x[..., 2:6]):
        weight = np.ascontiguousarray(w[..., : view.shape[-1]])
        tracemalloc.start()
        vkconv.conv2d(view, weight)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100_000


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_empty_batch(rank):
    x, w = dense((0, *[5] * rank, 3)), dense((4, *[3] * rank, 3))
    y = vkconv.conv_general(x, w, padding="same")
    assert y.shape == (0, *[5] * rank, 4)
    assert vkconv.conv_input_grad(y, w, x.shape, padding=1).shape == x.shape
    assert not vkconv.conv_weight_grad(y, x, w.shape, padding=1).any()
    assert not vkconv.conv_bias_grad(y).any()
    assert vkconv.conv_transpose(x, w, 2).shape[0] == 0


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_no_input_channels(rank, dtype):
    x, w = dense((2, *[5] * rank, 0), dtype), dense((4, *[3] * rank, 0), dtype)
    assert not vkconv.conv_general(x, w).any()
    bias = dense((4,), dtype)
    y = vkconv.conv_general(x, w, bias=bias, activation="relu")
    assert_same_bits(y, np.broadcast_to(np.maximum(bias, 0), y.shape))
    g = dense((2, *[3] * rank, 4), dtype)
    assert vkconv.conv_input_grad(g, w, x.shape).shape == x.shape
    assert vkconv.conv_weight_grad(g, x, w.shape).shape == w.shape
    assert vkconv.depthwise_conv(x, dense((0, *[3] * rank, 1), dtype)).shape == (2, *[3] * rank, 0)


def test_no_output_channels():
    x, w = dense(), dense((0, 3, 3, 4))
    assert vkconv.conv2d(x, w).shape == (2, 5, 7, 0)
    assert not vkconv.conv_input_grad(dense((2, 5, 7, 0)), w, x.shape).any()
    assert vkconv.conv_bias_grad(dense((2, 5, 7, 0))).shape == (0,)


def test_no_pixels():
    x, w = dense((2, 0, 4)), dense((5, 3, 4))
    assert not vkconv.conv1d(x, w, padding=2).any()
    assert vkconv.conv1d(x, w, padding=2).shape == (2, 2, 5)
    with pytest.raises(ValueError, match="input is smaller"):
        vkconv.conv1d(x, w, padding=1)
