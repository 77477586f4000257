"""Padding modes beside padding with zeros, and beside a convolution of a copy that NumPy padded: time and memory.

python bench/borders.py [--threads 2] [--mode reflect]
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine
from bench.timing import interleaved

# input, weight, padding
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "56x56, 64 to 64, 3x3": ((1, 56, 56, 64), (64, 3, 3, 64), 1),
    "512x512, 32 to 32, 3x3": ((1, 512, 512, 32), (32, 3, 3, 32), 1),
    "100000, 32 to 32, 7": ((1, 100000, 32), (32, 7, 32), 3),
    "64x64x64, 32 to 32, 3x3x3": ((1, 64, 64, 64, 32), (32, 3, 3, 3, 32), 1),
    "8x64x64, 32 to 32, 3x3x3": ((1, 8, 64, 64, 32), (32, 3, 3, 3, 32), 1),
    "2048x2048, one channel, 7x7": ((1, 2048, 2048, 1), (1, 7, 7, 1), 3),
}
MODES = {"reflect": "reflect", "symmetric": "symmetric", "edge": "edge", "circular": "wrap"}
SECONDS = 1.0  # of timing a line


def mebibytes(call: Callable[[], Any]) -> float:
    """The most that a call holds beside what was there: of vkconv's memory, and of NumPy's."""
    import vkconv

    vkconv.reset_memory_peak("cpu")
    before = vkconv.memory_info("cpu").used
    tracemalloc.start()
    call()
    of_numpy = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (vkconv.memory_info("cpu").peak - before + of_numpy) / 2**20


def calls(layer: str, mode: str) -> list[list[Callable[[], Any]]]:
    """Of each pass: with zeros, with the mode, and on a padded copy."""
    import vkconv

    shape, kernel, pad = LAYERS[layer]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s, dtype=np.float32) for s in (shape, kernel))
    around = [(0, 0), *[(pad, pad)] * (len(shape) - 2), (0, 0)]
    y = vkconv.conv_general(x, w, padding=pad)
    border: Any = {"padding": pad, "padding_mode": mode}

    def padded() -> Any:
        return np.pad(x, around, mode=MODES[mode])  # type: ignore[call-overload]

    return [
        [
            lambda: vkconv.conv_general(x, w, padding=pad, out=y),
            lambda: vkconv.conv_general(x, w, **border, out=y),
            lambda: vkconv.conv_general(padded(), w, out=y),
        ],
        [
            lambda: vkconv.conv_weight_grad(y, x, kernel, padding=pad),
            lambda: vkconv.conv_weight_grad(y, x, kernel, **border),
            lambda: vkconv.conv_weight_grad(y, padded(), kernel),
        ],
        [
            lambda: vkconv.conv_input_grad(y, w, shape, padding=pad),
            lambda: vkconv.conv_input_grad(y, w, shape, **border),
        ],
    ]


def main() -> int:
    parser = machine.parser("borders", __doc__)
    parser.add_argument("--mode", choices=MODES, default="reflect")
    options = parser.parse_args()
    machine.pin(options.threads)
    print(
        f"| | pass | zeros, ms | {options.mode}, ms | padded copy, ms | zeros, MiB | {options.mode}, MiB | copy, MiB |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for layer in LAYERS:
        for name, of_pass in zip(("forward", "weight_grad", "input_grad"), calls(layer, options.mode), strict=True):
            times = interleaved({str(i): call for i, call in enumerate(of_pass)}, SECONDS, rest_seconds=0)
            cells = [f"{t.median_ms:.3g}" for t in times.values()], [f"{mebibytes(c):.1f}" for c in of_pass]
            rows = [[*cell, "", ""][:3] for cell in cells]
            print(f"| {layer} | {name} | " + " | ".join(rows[0] + rows[1]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
