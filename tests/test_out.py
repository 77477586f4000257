"""`out=`: any writable layout is filled, everything else is refused, and nothing outside of it is touched."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import vkconv

RNG = np.random.default_rng(6)
MARK = 77


def dense(*shape: int) -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(np.float32)


X, W, BIAS = dense(2, 8, 9, 4), dense(6, 3, 3, 4), dense(6)
GRAD = dense(2, 6, 7, 6)
OPERATIONS = {
    "conv2d": lambda **k: vkconv.conv2d(X, W, bias=BIAS, activation="relu", **k),
    "transpose": lambda **k: vkconv.conv_transpose2d(X, W, 2, 1, **k),
    "depthwise": lambda **k: vkconv.depthwise_conv2d(X, W[:4, :, :, :1].copy(), **k),
    "input_grad": lambda **k: vkconv.conv_input_grad(GRAD, W, X.shape, **k),
    "weight_grad": lambda **k: vkconv.conv_weight_grad(GRAD, X, W.shape, **k),
    "prepared": lambda **k: vkconv.prepare(W, BIAS)(X, **k),
}


def unaligned(shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape))
    return np.empty(4 * count + 1, np.uint8)[1:].view(np.float32).reshape(shape)


def records(shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape, np.dtype([("flag", np.uint8), ("value", np.float32)]))["value"]


LAYOUTS = {
    "contiguous": lambda s: np.empty(s, np.float32),
    "wider channels": lambda s: np.empty((*s[:-1], s[-1] + 5), np.float32)[..., 2:-3],
    "bigger image": lambda s: np.empty((s[0], s[1] + 3, s[2] + 2, s[3]), np.float32)[:, 1:-2, 1:-1],
    "every other row": lambda s: np.empty((s[0], 2 * s[1], s[2], s[3]), np.float32)[:, ::2],
    "reversed": lambda s: np.empty(s, np.float32)[:, ::-1, ::-1],
    "fortran": lambda s: np.empty(s, np.float32, order="F"),
    "channels first": lambda s: np.empty((s[0], s[3], s[1], s[2]), np.float32).transpose(0, 2, 3, 1),
    "reversed channels": lambda s: np.empty(s, np.float32)[..., ::-1],
    "unaligned": unaligned,
    "records": records,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_layout(operation, layout):
    wanted = OPERATIONS[operation]()
    out = LAYOUTS[layout](wanted.shape)
    base = out if out.base is None else out.base
    flat = np.asarray(base).reshape(-1).view(np.uint8) if base.flags.c_contiguous else None
    out[...] = MARK
    if flat is not None:
        flat[...] = MARK
    assert OPERATIONS[operation](out=out) is out
    assert np.array_equal(out, wanted)
    if flat is not None:  # writing the marks back leaves marks everywhere
        out[...] = np.frombuffer(bytes([MARK] * 4), np.float32)[0]
        assert (flat == MARK).all()


def test_bias_grad_into_a_strided_vector():
    out = np.full(18, MARK, np.float32)
    assert vkconv.conv_bias_grad(GRAD, out=out[::3]) is not None
    assert np.array_equal(out[::3], GRAD.sum((0, 1, 2)))
    assert (np.delete(out, slice(0, None, 3)) == MARK).all()


def test_overlap_with_an_operand():
    buffer = dense(2, 8, 9, 10)
    x, w = buffer[..., :4], dense(4, 1, 1, 4)
    with pytest.raises(ValueError, match="out shares memory with input"):
        vkconv.conv2d(x, w, out=buffer[..., :4])
    with pytest.raises(ValueError, match="out shares memory with input"):
        vkconv.conv2d(x, w, out=buffer[..., 3:7])
    with pytest.raises(ValueError, match="out shares memory with input"):
        vkconv.conv2d(x, w, out=buffer[::-1, ..., 1:5])
    # Interleaved in one buffer, without a shared element.
    wanted = vkconv.conv2d(x.copy(), w)
    vkconv.conv2d(x, w, out=buffer[..., 4:8])
    assert np.array_equal(buffer[..., 4:8], wanted)

    square = dense(6, 3, 3, 6)
    with pytest.raises(ValueError, match="out shares memory with weight"):
        vkconv.conv2d(dense(6, 3, 3, 6), square, padding=1, out=square)
    bias = np.zeros(36, np.float32)
    with pytest.raises(ValueError, match="out shares memory with bias"):
        vkconv.conv2d(dense(1, 2, 3, 6), dense(6, 1, 1, 6), bias=bias[:6], out=bias.reshape(1, 2, 3, 6))
    with pytest.raises(ValueError, match="out shares memory with grad"):
        vkconv.conv_input_grad(square, dense(6, 1, 1, 6), square.shape, out=square)
    with pytest.raises(ValueError, match="out shares memory with input"):
        vkconv.conv_weight_grad(dense(6, 1, 1, 6), square, square.shape, out=square)


def test_overlap_of_an_array_and_a_view_of_its_memory():
    out = vkconv.array(dense(1, 5, 5, 4), "cpu")
    seen = np.from_dlpack(out)
    with pytest.raises(ValueError, match="out shares memory with weight"):
        vkconv.conv2d(vkconv.array(dense(1, 5, 5, 4), "cpu"), seen[0, :4, :1, None], out=out)
    with pytest.raises(ValueError, match="out shares memory with addend"):
        prepared = vkconv.prepare(dense(4, 1, 1, 4), device="cpu")
        prepared(vkconv.array(dense(1, 5, 5, 4), "cpu"), addend=seen, out=out)
    # Interleaved, without a shared element.
    both = vkconv.array(dense(1, 5, 5, 8), "cpu")
    x, before = vkconv.array(dense(1, 5, 5, 4), "cpu"), both.numpy()
    wanted = prepared(x, addend=both[..., 4:]).numpy()
    prepared(x, addend=np.from_dlpack(both)[..., 4:], out=both[..., :4])
    assert np.array_equal(both.numpy(), np.concatenate([wanted, before[..., 4:]], -1))


def test_overlap_with_an_input_that_is_copied():
    """Overlap is judged on the caller's arrays, whether or not a kernel would read a copy."""
    x = np.asfortranarray(dense(1, 5, 5, 4))
    with pytest.raises(ValueError, match="out shares memory with input"):
        vkconv.conv2d(x, dense(4, 1, 1, 4), out=x)


def test_elements_that_share_memory():
    base = np.zeros(400, np.float32)
    for strides in ((0, 36, 24, 4), (144, 16, 8, 4), (336, 56, 0, 4)):
        out = as_strided(base, (2, 6, 7, 6), tuple(strides))
        with pytest.raises(ValueError, match="out has elements that share memory"):
            vkconv.conv2d(X, W, out=out)


def test_results_own_aligned_memory():
    for make in OPERATIONS.values():
        y = make()
        assert y.flags.c_contiguous and y.flags.writeable and y.flags.aligned
        assert y.ctypes.data % 64 == 0
    first = vkconv.conv2d(X, W)
    kept = first.copy()
    for _ in range(20):
        vkconv.conv2d(-X, W)
    assert np.array_equal(first, kept)


def test_memory_of_dropped_results_is_used_again():
    x, w = dense(1, 256, 256, 4), dense(4, 1, 1, 4)
    vkconv.conv2d(x, w)
    address = vkconv.conv2d(x, w).ctypes.data
    before = vkconv.memory_info("cpu").used
    y = vkconv.conv2d(x, w)
    assert vkconv.memory_info("cpu").used >= before + y.nbytes
    assert y.ctypes.data == address
    view = y[0, 1]
    del y
    assert vkconv.memory_info("cpu").used >= before + x.nbytes, "a view keeps its base"
    del view
    assert vkconv.memory_info("cpu").used == before
    vkconv.trim_memory("cpu")
    assert vkconv.memory_info("cpu").cached == 0
