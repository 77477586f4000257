"""vkconv.jax beside jax.lax under `jit`: a convolution, and both of its gradients.

python bench/jax_calls.py [--threads 2]
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

LAYERS = {"8x8, 8 to 8": (8, 8), "56x56, 64 to 64": (56, 64), "256x256, 64 to 64": (256, 64)}
SECONDS = 2.0  # of timing a line


def calls(extent: int, channels: int) -> dict[str, Callable[[], Any]]:
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

    made: dict[str, Callable[[], Any]] = {}
    for name, f in (("vkconv.jax", ours), ("jax.lax", theirs)):
        forward = jax.jit(f)
        backward = jax.jit(jax.grad(lambda x, w, f=f: (f(x, w) ** 2).sum(), (0, 1)))
        made[name] = lambda forward=forward: forward(x, w).block_until_ready()
        made[f"{name}, gradients"] = lambda backward=backward: jax.block_until_ready(backward(x, w))
    return made


def main() -> int:
    options = machine.parser("jax_calls", __doc__).parse_args()
    machine.require("jax")
    machine.pin(options.threads)
    for layer, (extent, channels) in LAYERS.items():
        times = interleaved(calls(extent, channels), SECONDS)
        print(f"3x3, {layer}, ms: " + "; ".join(f"{name} {t.median_ms:.3f}" for name, t in times.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
