"""vkconv.dask: chunked convolutions are the whole convolution, on every scheduler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vkconv

da = pytest.importorskip("dask.array")

import vkconv.dask as vd  # noqa: E402 - after the skip

RNG = np.random.default_rng(9)


def integers(*shape: int) -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(np.float32)


CASES = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": ((3, 0), (1, 2)), "kernel_dilation": 2},
    {"stride": (3, 1), "padding": ((-1, 2), (2, -2)), "groups": 2},
    {"input_dilation": (2, 3), "padding": ((2, 1), (0, 4)), "flip": True},
    {"stride": 2, "input_dilation": 3, "padding": 5},
    {"stride": 2, "input_dilation": 3, "padding": "same"},
]


@pytest.mark.parametrize("chunks", [(1, 5, 4, 2), (3, 14, 13, 4), (2, 3, 13, 1)], ids=str)
@pytest.mark.parametrize("options", CASES, ids=str)
def test_every_geometry(options, chunks):
    x, w, bias = integers(3, 14, 13, 4), integers(6, 3, 2, 4 // options.get("groups", 1)), integers(6)
    want = vkconv.conv_general(x, w, **options, bias=bias, activation="relu", device="cpu")
    for tiles in (None, (2, 3), (50, 50)):
        y = vd.conv_general(da.from_array(x, chunks), w, **options, bias=bias, activation="relu", chunks=tiles)
        assert y.shape == want.shape and y.dtype == want.dtype
        assert np.array_equal(y.compute(scheduler="sync"), want)
    assert y.numblocks[1:3] == (1, 1)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_ranks(rank):
    x, w = integers(2, *(9, 8, 7)[:rank], 3), integers(4, *(3, 2, 3)[:rank], 3)
    lazy = da.from_array(x, (1, *(4, 3, 5)[:rank], 3))
    for name in ("conv", "conv_transpose"):
        ours, plain = getattr(vd, f"{name}{rank}d"), getattr(vkconv, f"{name}{rank}d")
        assert np.array_equal(ours(lazy, w, 2, 1).compute(scheduler="threads"), plain(x, w, 2, 1))
    same = getattr(vd, f"conv{rank}d")(lazy, w, padding="same").compute()
    assert np.array_equal(same, getattr(vkconv, f"conv{rank}d")(x, w, padding="same"))
    with pytest.raises(ValueError, match="dimensions"):
        getattr(vd, f"conv{rank}d")(lazy[0], w)
    with pytest.raises(ValueError, match="padding 99 leaves no output along spatial axis 0"):
        getattr(vd, f"conv_transpose{rank}d")(lazy, w, padding=99)


def test_axes_without_elements():
    w = integers(6, 2, 3, 4)
    for shape, options in (((2, 0, 5, 4), {"padding": (2, 1)}), ((2, 4, 0, 4), {"padding": 3, "input_dilation": 3})):
        x = integers(*shape)
        want = vkconv.conv_general(x, w, **options, bias=np.ones(6, np.float32))
        for tiles in (None, 2):
            y = vd.conv_general(da.from_array(x), w, **options, bias=np.ones(6, np.float32), chunks=tiles)
            assert y.shape == want.shape and np.array_equal(y.compute(scheduler="sync"), want)


def test_one_layer_and_one_task_a_chunk():
    x = da.ones((2, 12, 10, 9, 3), chunks=(1, 3, 5, 4, 3), dtype=np.float32)
    w = np.ones((4, 3, 3, 3, 3), np.float32)
    for y in (vd.conv3d(x, w, padding=1), vd.conv_transpose3d(x, w, 2), vd.conv3d(x, w, 2, chunks=2)):
        assert len(y.dask.layers) == len(x.dask.layers) + 1
        assert len(dict(y.dask)) == x.npartitions + y.npartitions
    assert vd.conv3d(x, w).name == vd.conv3d(x, w).name != vd.conv3d(x, 2 * w).name


def test_the_dtype_is_that_of_what_is_computed():
    for shape in ((1, 7, 2), (1, 0, 2)):
        x, w = integers(*shape).astype(">f4"), integers(3, 2, 2)
        y = vd.conv1d(da.from_array(x), w, padding="same")
        assert y.dtype == y.compute(scheduler="sync").dtype == np.float32


def test_operands_may_change_before_anything_is_computed():
    x, w, b = integers(1, 7, 2), integers(3, 2, 2), integers(3)
    want = vkconv.conv1d(x, w, bias=b, device="cpu")
    y = vd.conv1d(da.from_array(x, chunks=(1, 3, 2)), w, bias=b)
    w[:] = b[:] = 0
    assert np.array_equal(y.compute(scheduler="sync"), want)
    with pytest.raises(TypeError, match="bias must be a NumPy array, got list"):
        vd.conv1d(da.from_array(x), w, bias=[1, 2, 3])


def test_chunks_without_elements():
    x, w = integers(1, 7, 2), integers(3, 2, 2)
    lazy = da.from_array(x, ((1,), (3, 4), (2,)))
    gaps = da.concatenate([lazy[:, :0], lazy[:, :3], lazy[:, :0], lazy[:, 3:], lazy[:, :0]], 1)
    for chunks in (None, 1):
        got = vd.conv1d(gaps, w, padding=1, chunks=chunks).compute(scheduler="sync")
        assert np.array_equal(got, vkconv.conv1d(x, w, padding=1, device="cpu"))


def test_only_what_is_seen_is_read():
    read = []

    def load(block_info=None):
        read.append(block_info[None]["chunk-location"][1])
        return np.ones((1, 10, 1), np.float32)

    x = da.map_blocks(load, chunks=((1,), (10,) * 8, (1,)), dtype=np.float32, meta=np.empty((0, 0, 0), np.float32))
    y = vd.conv1d(x, np.ones((1, 3, 1), np.float32), padding=1)
    assert np.array_equal(y[:, 35:38].compute(scheduler="sync"), np.full((1, 3, 1), 3, np.float32))
    assert set(read) == {2, 3, 4}


def test_errors():
    x, w = da.ones((1, 8, 2), chunks=4, dtype=np.float32), np.ones((2, 3, 2), np.float32)
    with pytest.raises(ValueError, match="smaller than the kernel"):
        vd.conv1d(x[:, :2], w)
    with pytest.raises(ValueError, match="weight has"):
        vd.conv1d(x, w[0])
    with pytest.raises(ValueError, match="padding is 'SAME', wanted numbers or one of 'valid', 'same'"):
        vd.conv_general(x, w, padding="SAME")
    with pytest.raises(ValueError, match="stride is 0, wanted at least 1"):
        vd.conv1d(x, w, stride=0)
    for chunks, message in ((0, "at least 1"), ((4, 4), "chunks has 2 values"), (-1, "at least 1")):
        with pytest.raises(ValueError, match=message):
            vd.conv1d(x, w, chunks=chunks)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        vd.conv1d(x[x[:, 0, 0] > 0], w)
    with pytest.raises(TypeError, match="without a mask"):
        vd.conv1d(da.ma.masked_greater(x, 2), w).compute()


def test_errors_come_before_anything_is_computed():
    x, w = da.ones((1, 8, 4), chunks=4, dtype=np.float32), np.ones((2, 3, 4), np.float32)
    with pytest.raises(TypeError, match=r"input must be a dask\.array, got ndarray: dask\.array\.from_array makes one"):
        vd.conv1d(np.ones((1, 8, 4), np.float32), w)
    with pytest.raises(TypeError, match=r"input must be a dask\.array, got list"):
        vd.conv_general([1.0], w)
    with pytest.raises(TypeError, match="weight must be a NumPy array, got list"):
        vd.conv1d(da.ones((1, 8, 4), dtype="f4"), [1.0])
    with pytest.raises(ValueError, match="channels"):
        vd.conv1d(x, w, groups=2)
    with pytest.raises(TypeError, match="weight has dtype float64"):
        vd.conv1d(x, w.astype(np.float64))
    with pytest.raises(TypeError, match="weight must be a NumPy array"):
        vd.conv1d(x, da.from_array(w))
    with pytest.raises(ValueError, match="bias has shape"):
        vd.conv1d(x, w, bias=np.ones(3, np.float32))
    with pytest.raises(ValueError, match="activation"):
        vd.conv1d(x, w, activation="relux")


def test_on_a_cluster():
    distributed = pytest.importorskip("distributed")
    x, w = integers(1, 40, 30, 3), integers(4, 3, 3, 3)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "memory_limit": 0}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster):
        y = vd.conv2d(da.from_array(x, (1, 10, 15, 3)), w, padding=1)
        assert np.array_equal(y.compute(), vkconv.conv2d(x, w, padding=1, device="cpu"))


@pytest.mark.full
def test_the_script_for_large_volumes():
    pytest.importorskip("zarr", minversion="3")
    script = Path(__file__).parents[1] / "bench" / "out_of_core.py"
    command = [sys.executable, str(script), "--gigabytes", "0.3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0.3 GB convolved" in done.stdout
