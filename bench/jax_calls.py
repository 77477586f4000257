"""vkconv.jax beside jax.lax under `jit`: a convolution, and both of its gradients.

python bench/jax_calls.py [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine

LAYERS = {"8x8, 8 to 8": (8, 8), "56x56, 64 to 64": (56, 64), "256x256, 64 to 64": (256, 64)}
ROUNDS = 30


def milliseconds(calls: list[Callable[[], Any]]) -> list[float]:
    """Medians, of calls that take turns."""
    times: list[list[float]] = [[] for _ in calls]
    for i in range(ROUNDS + 3):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call().block_until_ready()
            taken.append(time.perf_counter() - start)
            if i < 3:
                taken.clear()
    return [statistics.median(taken) * 1e3 for taken in times]


def calls(extent: int, channels: int) -> list[Callable[[], Any]]:
    """Forward by vkconv and by JAX, and the gradients by both."""
    import jax

    import vkconv.jax

    rng = np.random.default_rng(0)
    x = jax.numpy.asarray(rng.standard_normal((1, extent, extent, channels), dtype=np.float32))
    w = jax.numpy.asarray(rng.standard_normal((channels, 3, 3, channels), dtype=np.float32))
    numbers = ("NHWC", "OHWI", "NHWC")

    def ours(x: Any, w: Any) -> Any:
        return vkconv.jax.conv2d(x, w, padding=1)

    def theirs(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers)

    forward = [jax.jit(f) for f in (ours, theirs)]
    backward = [jax.jit(jax.grad(lambda x, w, f=f: (f(x, w) ** 2).sum(), (0, 1))) for f in (ours, theirs)]
    return [lambda f=f: f(x, w) for f in forward] + [lambda f=f: f(x, w)[1] for f in backward]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/jax_calls.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2, help="CPUs (default: 2)")
    options = parser.parse_args()
    machine.require("jax")
    machine.pin(options.threads)
    print(f"{'3x3, ms':<20}{'vkconv.jax':>12}{'jax.lax':>12}{'gradients':>12}{'jax.lax':>12}")
    for name, (extent, channels) in LAYERS.items():
        print(f"{name:<20}" + "".join(f"{ms:>12.3f}" for ms in milliseconds(calls(extent, channels))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
