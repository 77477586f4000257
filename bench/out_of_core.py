"""Convolves a Zarr volume larger than memory by vkconv.dask: python bench/out_of_core.py --gigabytes 20

The volume is virtual but for a few chunks of random numbers, on which the result is compared with one plain call: Zarr
gives the chunks that were never written as zeros, which are read, convolved, compressed and written like any others.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import vkconv
from bench import machine

if TYPE_CHECKING:
    import zarr

SIDE, THICKNESS, THREADS = 2048, 4, 2
PLANE_BYTES = 4 * SIDE * SIDE


def written(volume: zarr.Array, chunk: int) -> None:
    """Random numbers in two chunks, one after the other."""
    rng = np.random.default_rng(chunk)
    for start in (chunk * THICKNESS, (chunk + 1) * THICKNESS):
        volume[:, start : start + THICKNESS] = rng.standard_normal((1, THICKNESS, SIDE, SIDE, 1), np.float32)


def error(volume: zarr.Array, result: zarr.Array, kernel: np.ndarray, chunk: int) -> float:
    """The largest difference from a plain call, across the border of the two chunks and part of their planes."""
    middle, rows = (chunk + 1) * THICKNESS, slice(0, 300)
    part = volume[:, middle - 3 : middle + 3]
    right = vkconv.conv3d(part, kernel, padding=([0, 1, 1], [0, 1, 1]), device="cpu")
    return float(np.abs(result[:, middle - 2 : middle + 2, rows] - right[:, :, rows]).max())


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/out_of_core.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=20.0, help="size of the volume (default: %(default)s)")
    parser.add_argument("--folder", help="where the arrays lie for a while (default: that of temporary files)")
    options = parser.parse_args()
    machine.require("dask", "zarr")
    import dask
    import dask.array as da
    import zarr

    import vkconv.dask

    layers = max(3, int(options.gigabytes * 1e9 / (PLANE_BYTES * THICKNESS)))
    shape, chunks = (1, layers * THICKNESS, SIDE, SIDE, 1), (1, THICKNESS, SIDE, SIDE, 1)
    kernel = np.random.default_rng(0).standard_normal((1, 3, 3, 3, 1), np.float32)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        make = {"shape": shape, "chunks": chunks, "dtype": "f4", "fill_value": 0}
        make["config"] = {"write_empty_chunks": True}
        volume, result = (zarr.create_array(store=f"{folder}/{name}", **make) for name in ("volume", "result"))
        places = sorted({0, layers // 2, layers - 2})
        for chunk in places:
            written(volume, chunk)
        start = time.perf_counter()
        with dask.config.set(scheduler="threads", num_workers=THREADS):
            da.store(vkconv.dask.conv3d(da.from_zarr(volume), kernel, padding=1), result, lock=False)
        seconds = time.perf_counter() - start
        worst = max(error(volume, result, kernel, chunk) for chunk in places)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{volume.nbytes / 1e9:.1f} GB convolved in {seconds:.0f} s on {THREADS} threads; "
        f"peak memory of the process {peak / 1e9:.2f} GB; error {worst:.1e}"
    )
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
