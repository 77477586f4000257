"""Arrays on a device: the same bits as the NumPy calls, views, errors, memory, and nothing that waits."""

from __future__ import annotations

import concurrent.futures
import gc

import numpy as np
import pytest

import vkconv

RNG = np.random.default_rng(11)


def dense(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def assert_same_bits(got: vkconv.Array, wanted: np.ndarray, device: str) -> None:
    assert isinstance(got, vkconv.Array) and got.device == device
    host = got.numpy()
    assert host.dtype == wanted.dtype == got.dtype and host.shape == wanted.shape == got.shape
    assert host.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 5, 3), (1, 7, 5, 3), (2, 3, 4, 5, 6), (0, 4, 3), (300, 70, 33)])
def test_there_and_back(device, shape, dtype):
    x = dense(*shape, dtype=dtype)
    a = vkconv.array(x, device)
    assert (a.ndim, a.size, a.nbytes, len(a)) == (x.ndim, x.size, x.nbytes, len(x))
    assert repr(a) == f"<vkconv.Array {x.dtype} {x.shape} on {device}>"
    assert_same_bits(a, x, device)
    assert_same_bits(vkconv.array(a, device), x, device)
    assert np.array_equal(np.asarray(a), x) and np.asarray(a, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        a.__array__(copy=False)


def test_bfloat16_and_foreign_memory(device):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = dense(2, 5, 3).astype(ml_dtypes.bfloat16)
    assert_same_bits(vkconv.array(x, device), x, device)
    for y in (dense(4, 6, 3)[::-1, ::2], dense(3, 6, 4).T, dense(4, 6, 3).astype(">f4"), dense(4, 1, 3)[:, [0] * 5]):
        assert_same_bits(vkconv.array(y, device), np.ascontiguousarray(y, y.dtype.newbyteorder("=")), device)


def test_an_array_is_a_copy(device):
    x = dense(2, 5, 3)
    a = vkconv.array(x, device)
    before = x.copy()
    x[:] = 0
    host = a.numpy()
    host[:] = 1
    assert_same_bits(a, before, device)


KEYS = [
    np.s_[1:3],
    np.s_[::-1],
    np.s_[-1],
    np.s_[:, 2:5],
    np.s_[:, ::2, ::-3],
    np.s_[..., 1:2],
    np.s_[0, ..., 1:],
    np.s_[3:1],
    np.s_[-3:-1, 1, 4:1:-2, :2],
    np.s_[:, :, :, -2:],
    np.s_[...],
    np.s_[np.int64(2)],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_views(device, key):
    x = dense(4, 6, 7, 3)
    assert_same_bits(vkconv.array(x, device)[key], np.ascontiguousarray(x[key]), device)


def test_views_of_views(device):
    x = dense(6, 8, 4)
    assert_same_bits(
        vkconv.array(x, device)[::2][:, 1::3][1:, ::-1], np.ascontiguousarray(x[::2, 1::3][1:, ::-1]), device
    )


@pytest.mark.parametrize(
    "key, error",
    [(np.s_[4], IndexError), (np.s_[-5], IndexError), (np.s_[0, 0, 0, 0, 0], IndexError), (np.s_[..., 0], TypeError),
     (np.s_[..., ::2], IndexError), (None, TypeError), ([0, 1], TypeError), (1.0, TypeError), (True, TypeError),
     (np.s_[::0], ValueError), ("a", TypeError)],
    ids=str,
)  # fmt: skip
def test_keys_that_are_refused(device, key, error):
    a = vkconv.array(dense(4, 6, 7, 3), device)
    with pytest.raises(error):
        a[key]


def operations():
    x, w, g = dense(2, 9, 8, 4), dense(6, 3, 2, 4), dense(2, 7, 7, 6)
    bias = dense(6)
    yield vkconv.conv_general, (x, w), {"bias": bias, "activation": "relu"}
    yield vkconv.conv2d, (x, w), {"stride": 2, "padding": "same", "bias": bias}
    yield vkconv.conv_general, (x, w), {"input_dilation": 2, "kernel_dilation": (1, 2), "flip": True}
    yield vkconv.conv1d, (dense(2, 11, 4), dense(6, 3, 2)), {"groups": 2, "padding": "causal"}
    yield vkconv.conv3d, (dense(1, 5, 6, 7, 4), dense(6, 3, 2, 3, 4)), {"padding": 1}
    yield vkconv.depthwise_conv, (x, dense(8, 3, 3, 1)), {"padding": 1}
    yield vkconv.conv_transpose2d, (x, w), {"stride": 2, "padding": 1, "output_padding": 1, "bias": bias}
    yield vkconv.conv_input_grad, (g, w, x.shape), {}
    yield vkconv.conv_weight_grad, (g, x, w.shape), {}
    yield vkconv.conv_bias_grad, (g,), {}


OPERATIONS = list(operations())


@pytest.mark.parametrize("case", range(len(OPERATIONS)), ids=lambda i: OPERATIONS[i][0].__name__)
def test_every_operation(device, case):
    """Arrays, an Array beside NumPy arrays, and out= give the bits of the NumPy call."""
    op, operands, options = OPERATIONS[case]
    wanted = op(*operands, **options, device=device)

    def on_device(value):
        return vkconv.array(value, device) if isinstance(value, np.ndarray) else value

    arrays = [on_device(o) for o in operands]
    device_options = {k: on_device(v) for k, v in options.items()}
    assert_same_bits(op(*arrays, **device_options), wanted, device)
    assert_same_bits(op(arrays[0], *operands[1:], **options, device=device), wanted, device)
    out = vkconv.array(np.zeros_like(wanted), device)
    assert op(*arrays, **device_options, out=out) is out
    assert_same_bits(out, wanted, device)
    assert vkconv.explain(op, *arrays, **device_options).device == device


@pytest.mark.parametrize("key", [np.s_[1:3], np.s_[:, 2:], np.s_[::-1, ::2], np.s_[..., 1:4]], ids=str)
def test_operands_and_results_may_be_views(device, key):
    x, w = dense(4, 9, 8, 5), dense(3, 3, 3, 5)
    a, part = vkconv.array(x, device), x[key]
    w = w[..., : part.shape[-1]].copy()
    wanted = vkconv.conv2d(part.copy(), w, padding=1, device=device)
    big = vkconv.array(np.full((4, *wanted.shape[1:]), 7, np.float32), device)
    view = big[: len(wanted)][::-1]
    assert_same_bits(vkconv.conv2d(a[key], w, padding=1), wanted, device)
    assert vkconv.conv2d(a[key], vkconv.array(w, device), padding=1, out=view) is view
    assert_same_bits(view, wanted, device)
    assert np.all(big.numpy()[len(wanted) :] == 7)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_prepared(device, dtype):
    w, bias = dense(6, 3, 3, 4, dtype=dtype), dense(6, dtype=dtype)
    conv = vkconv.prepare(w, bias, padding=1, activation="relu", device=device)
    again = vkconv.prepare(vkconv.array(w, device), vkconv.array(bias, device), padding=1, activation="relu",
                           device=device)  # fmt: skip
    for shape in ((1, 9, 8, 4), (3, 5, 7, 4), (0, 4, 4, 4), (1, 20, 21, 4)):
        x = dense(*shape, dtype=dtype)
        wanted = conv(x)
        assert isinstance(wanted, np.ndarray)
        a = vkconv.array(x, device)
        assert_same_bits(conv(a), wanted, device)
        assert_same_bits(again(a, out=vkconv.array(wanted * 0, device)), wanted, device)
        addend = dense(*wanted.shape)
        added = conv(x, addend=addend)
        assert_same_bits(conv(a, addend=vkconv.array(addend, device)), added, device)
        assert_same_bits(conv(a, addend=addend), added, device)


def test_chains_reuse_memory_in_order(device):
    """Each step frees its operand while recorded work still reads it."""
    weights = [dense(8, 3, 3, 8) / 8 for _ in range(10)]
    x = dense(1, 24, 20, 8)
    on_device, layers = vkconv.array(x, device), [vkconv.array(w, device) for w in weights]
    for _ in range(3):
        y, wanted = on_device, x
        for layer, w in zip(layers, weights, strict=True):
            y = vkconv.conv2d(y, layer, padding=1, activation="relu")
            wanted = vkconv.conv2d(wanted, w, padding=1, activation="relu", device=device)
        assert_same_bits(y, wanted, device)


def test_host_memory_is_read_before_the_call_returns(device):
    x, w, bias = dense(2, 30, 30, 16), dense(16, 3, 3, 16), dense(16)
    a = vkconv.array(x, device)
    wanted = vkconv.conv2d(x, w, bias=bias, device=device)
    results = []
    for _ in range(4):
        weight, other = w.copy(), bias.copy()
        results.append(vkconv.conv2d(a, weight, bias=other))
        weight[:], other[:] = np.nan, np.nan
    for y in results:
        assert_same_bits(y, wanted, device)


def test_many_threads(device):
    x, w = dense(1, 17, 15, 6), dense(6, 3, 3, 6)
    a, weight = vkconv.array(x, device), vkconv.array(w, device)
    wanted = vkconv.conv2d(vkconv.conv2d(x, w, padding=1, device=device), w, padding=1, device=device)

    def chain(_: int) -> bytes:
        return vkconv.conv2d(vkconv.conv2d(a, weight, padding=1), weight, padding=1).numpy().tobytes()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(chain, range(40))) == {wanted.tobytes()}


def test_memory_is_counted_and_freed(device):
    vkconv.synchronize()
    gc.collect()
    vkconv.trim_memory(device)
    idle = vkconv.memory_info(device)
    x = vkconv.array(np.ones((1, 64, 64, 64), np.float32), device)
    assert vkconv.memory_info(device).used >= idle.used + x.nbytes
    view = x[:, :2]
    del x
    assert vkconv.memory_info(device).used >= idle.used + 64 * 64 * 64 * 4, "a view keeps the memory"
    del view
    vkconv.synchronize(device)
    assert vkconv.memory_info(device).used == idle.used
    vkconv.trim_memory(device)
    assert vkconv.memory_info(device).cached == 0
    assert vkconv.memory_info(device).total > 1 << 28


def test_staging_is_bounded(device):
    w = vkconv.array(dense(4, 3, 3, 4), device)
    for _ in range(40):
        y = vkconv.conv2d(vkconv.array(np.ones((1, 512, 512, 4), np.float32), device), w)
    y.numpy()
    assert vkconv.memory_info(device).staging <= 600 << 20
    assert vkconv.memory_info(device).used <= 400 << 20


def test_dlpack(device):
    x = dense(3, 4, 5, 2)
    a = vkconv.array(x, device)
    y = vkconv.conv2d(a, np.ones((2, 1, 1, 2), np.float32))
    try:
        shared = np.from_dlpack(a)
    except BufferError as error:
        assert "numpy()" in str(error)
        return
    assert np.array_equal(shared, x) and np.array_equal(np.from_dlpack(a[::2, 1:]), x[::2, 1:])
    assert np.allclose(np.from_dlpack(y), x.sum(-1, keepdims=True).repeat(2, -1))
    del a, y
    gc.collect()
    assert np.array_equal(shared, x), "the consumer keeps the memory"


def test_the_input_decides(device):
    x, w = dense(1, 6, 6, 2), dense(3, 3, 3, 2)
    a = vkconv.array(x, device)
    other = next(d for d in ("cpu", "vulkan:0") if d != device)
    with pytest.raises(TypeError, match=r"weight is a vkconv.Array .* input is a NumPy array"):
        vkconv.conv2d(x, vkconv.array(w, device))
    with pytest.raises(TypeError, match=r"bias is a vkconv\.Array"):
        vkconv.conv2d(x, w, bias=vkconv.array(dense(3), device))
    with pytest.raises(TypeError, match=r"addend is a vkconv\.Array"):
        vkconv.prepare(w)(x, addend=vkconv.array(np.zeros((1, 4, 4, 3), np.float32), device))
    with pytest.raises(TypeError, match="out must be a NumPy array"):
        vkconv.conv2d(x, w, out=vkconv.array(np.zeros((1, 4, 4, 3), np.float32), device))
    with pytest.raises(TypeError, match=r"out must be a vkconv.Array on .*, got ndarray"):
        vkconv.conv2d(a, w, out=np.zeros((1, 4, 4, 3), np.float32))
    if len(vkconv.devices()) > 1:
        b = vkconv.array(w, other)
        with pytest.raises(ValueError, match="they must agree"):
            vkconv.conv2d(a, b)
        with pytest.raises(ValueError, match=f"input is on {device}"):
            vkconv.conv2d(a, w, device=other)
        with pytest.raises(ValueError, match="prepared weight is on"):
            vkconv.prepare(w, device=other)(a)
        with vkconv.device(other):
            assert vkconv.conv2d(a, w).device == device
        assert_same_bits(vkconv.array(a, other), x, other)


def test_wrong_operands(device):
    x, w = vkconv.array(dense(1, 6, 6, 2), device), vkconv.array(dense(3, 3, 3, 2), device)
    out = np.zeros((1, 4, 4, 3), np.float32)
    for wrong, error in ((out[..., :2], ValueError), (out.astype(np.float64), TypeError), (out[0], ValueError)):
        with pytest.raises(error, match="out has"):
            vkconv.conv2d(x, w, out=vkconv.array(wrong, device))
    with pytest.raises(ValueError, match="out shares memory with input"):
        vkconv.conv2d(x, vkconv.array(dense(2, 1, 1, 2), device), out=x)
    with pytest.raises(TypeError, match="dtype"):
        vkconv.conv2d(x, dense(3, 3, 3, 2, dtype=np.float64))
    with pytest.raises(TypeError, match=r"bias is a vkconv\.Array of dtype float64"):
        vkconv.conv2d(x, w, bias=vkconv.array(dense(3, dtype=np.float64), device))
    with pytest.raises(ValueError, match="bias has shape"):
        vkconv.conv2d(x, w, bias=vkconv.array(dense(4), device))
    with pytest.raises(ValueError, match="dimensions"):
        vkconv.conv1d(x, w)
    for value in (None, [1.0], 3, np.ones((2, 2), int), np.ma.masked_array(np.ones(3), mask=False)):
        with pytest.raises(TypeError):
            vkconv.array(value, device)
    for value in (np.float32(1), np.ones((1,) * 6, np.float32)):
        with pytest.raises((TypeError, ValueError)):
            vkconv.array(value, device)
    with pytest.raises(ValueError, match="device"):
        vkconv.array(np.ones(3, np.float32), "gpu")
    with pytest.raises(ValueError, match="device"):
        vkconv.synchronize("gpu")


def test_windows_are_of_numpy_arrays():
    with pytest.raises(TypeError, match=r"input must be a NumPy array, got Array: its numpy\(\) is one"):
        vkconv.unfold(vkconv.array(dense(1, 5, 2), "cpu"), 3)
