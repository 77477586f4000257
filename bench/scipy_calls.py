"""Filters of a 1024 x 1024 image in float32 by vkconv.ndimage and by scipy.ndimage.

python bench/scipy_calls.py [--threads 2]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from bench.timing import interleaved

EXTENT = 1024
SECONDS = 2.0  # of timing a line


def calls(extent: int, library: Any) -> dict[str, Callable[[], np.ndarray]]:
    """The filters of a library with SciPy's names."""
    rng = np.random.default_rng(0)
    image = rng.standard_normal((extent, extent), dtype=np.float32)
    weights = rng.standard_normal((7, 7), dtype=np.float32)
    return {
        "Gaussian, sigma 2": lambda: library.gaussian_filter(image, 2),
        "7x7 correlation": lambda: library.correlate(image, weights),
        "Sobel": lambda: library.sobel(image),
    }


def main() -> int:
    """Command line entry point."""
    options = machine.parser("scipy_calls", __doc__).parse_args()
    machine.require("scipy")
    machine.pin(options.threads)
    import scipy.ndimage

    import vkconv.ndimage

    own, theirs = calls(EXTENT, vkconv.ndimage), calls(EXTENT, scipy.ndimage)
    print(f"{'ms':<20}{'SciPy':>10}{'vkconv':>10}{'times faster':>14}{'difference':>12}")
    for name, call in own.items():
        wanted = theirs[name]()
        difference = np.abs(call() - wanted).max() / np.abs(wanted).max()
        times = interleaved({"scipy": theirs[name], "vkconv": call}, SECONDS)
        scipy_ms, own_ms = times["scipy"].median_ms, times["vkconv"].median_ms
        print(f"{name:<20}{scipy_ms:>10.1f}{own_ms:>10.2f}{scipy_ms / own_ms:>14.0f}{difference:>12.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
