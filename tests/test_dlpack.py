"""from_dlpack: other libraries' memory, seen and not copied."""

from __future__ import annotations

import gc
import types

import numpy as np
import pytest

import vkconv


class Exporter:
    """Exports a NumPy array as a library without NumPy's types would."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device, 0


def test_memory_is_shared():
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 6)[:, ::2]
    seen = vkconv.from_dlpack(Exporter(x))
    assert seen.shape == x.shape and seen.strides == x.strides and np.shares_memory(seen, x)
    w = np.ones((2, 2, 6), np.float32)
    assert np.array_equal(vkconv.conv1d(seen, w, device="cpu"), vkconv.conv1d(x, w, device="cpu"))


def test_read_only_is_respected():
    x = np.zeros((1, 4, 2), np.float32)
    x.flags.writeable = False
    try:
        seen = vkconv.from_dlpack(Exporter(x))
    except BufferError:  # NumPy before 2.1 does not export read-only memory
        return
    assert not seen.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        vkconv.conv1d(np.zeros((1, 4, 2), np.float32), np.zeros((2, 1, 2), np.float32), out=seen)


def test_arrays_are_given_to_the_host_only():
    x = np.ones((1, 2, 3), np.float32)
    array = vkconv.array(x, "cpu")
    array.__dlpack__(dl_device=(1, 0))
    assert np.array_equal(np.from_dlpack(array), x)
    with pytest.raises(BufferError, match=r"dl_device is \(2, 0\), an Array's memory is given to the host only"):
        array.__dlpack__(dl_device=(2, 0))


def test_errors():
    with pytest.raises(TypeError, match="must export DLPack, got list"):
        vkconv.from_dlpack([1.0])
    with pytest.raises(BufferError, match="wanted the CPU"):
        vkconv.from_dlpack(Exporter(np.ones(3), device=2))
    with pytest.raises(TypeError, match=r"input must be a NumPy array, got Exporter: vkconv\.from_dlpack views its"):
        vkconv.conv1d(Exporter(np.ones((1, 8, 2), np.float32)), np.ones((4, 3, 2), np.float32))


class Exported(Exporter):
    """Exports what it is given, a capsule or not."""

    def __dlpack__(self, **options):
        return self.array


def test_capsules_that_are_dead_or_none_at_all():
    taken = np.ones(3, np.float32).__dlpack__()
    assert np.array_equal(vkconv.from_dlpack(Exported(taken)), np.ones(3))
    for capsule in (taken, None, 3, np.ones(3)):
        with pytest.raises(ValueError, match="x exports no DLPack capsule, or one that was taken before"):
            vkconv.from_dlpack(Exported(capsule))
    with pytest.raises(TypeError, match="x must export DLPack, got SimpleNamespace"):
        vkconv.from_dlpack(types.SimpleNamespace(__dlpack__=lambda: taken))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bfloat16"])
def test_torch(dtype):
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    t = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).to(getattr(torch, dtype)).permute(0, 2, 3, 1)
    seen = vkconv.from_dlpack(t)
    assert seen.ctypes.data == t.data_ptr() and seen.shape == (2, 4, 5, 3) and seen.dtype.name == dtype
    assert np.array_equal(seen.astype(np.float64), t.double().numpy())
    kept = seen.astype(np.float64)
    del t
    gc.collect()
    torch.full((2, 3, 4, 5), 7.0).to(getattr(torch, dtype))
    assert np.array_equal(seen.astype(np.float64), kept)
    assert vkconv.from_dlpack(torch.zeros(0, 3, dtype=getattr(torch, dtype))).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_mlx_and_jax(dtype):
    pytest.importorskip("ml_dtypes")
    tried = 0
    for name in ("mlx.core", "jax.numpy"):
        try:
            library = __import__(name, fromlist=["zeros"])
        except ImportError:
            continue
        tried += 1
        array = library.arange(24).reshape(2, 3, 4).astype(getattr(library, dtype))
        seen = vkconv.from_dlpack(array)
        assert seen.dtype.name == dtype and np.array_equal(seen.astype(int).ravel(), np.arange(24))
    if not tried:
        pytest.skip("neither MLX nor JAX is installed")
