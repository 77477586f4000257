"""Time per output of images of 15, 30 and 60 pixels beside 16, 32 and 64: no size may fall off a cliff.

python bench/odd_sizes.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine, report

PAIRS = ((15, 16), (30, 32), (60, 64))
# Channels of a network's stages at these sizes.
CHANNELS = {"depthwise 3x3": (1536, 768, 384), "depthwise 7x7": (768, 384, 192), "dense 3x3": (256, 128, 64)}
CHANNELS |= {"dense 3x3, stride 2": (256, 128, 64), "pointwise": (512, 256, 128)}


def prepared_call(family: str, size: int, channels: int) -> tuple[Any, int]:
    """A call and the number of its outputs."""
    import vkconv

    rng = np.random.default_rng(size)
    kernel = 1 if family == "pointwise" else 7 if "7x7" in family else 3
    stride = 2 if "stride 2" in family else 1
    inputs = 1 if family.startswith("depthwise") else channels
    x = rng.standard_normal((1, size, size, channels), dtype=np.float32)
    w = rng.standard_normal((channels, kernel, kernel, inputs), dtype=np.float32) / kernel
    groups = channels if inputs == 1 else 1
    convolve = vkconv.prepare(w, stride=stride, padding=kernel // 2, groups=groups, device="cpu")
    return (lambda: convolve(x)), int(np.prod(convolve(x).shape))


def main() -> int:
    parser = machine.parser("odd_sizes", __doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="timing budget of a pair (default: 0.5)")
    options = parser.parse_args()
    machine.pin(options.threads)
    from bench.timing import interleaved

    worst = 0.0
    print("picoseconds an output, prepared weights; ratio of the odd size to the even one")
    for family, stages in CHANNELS.items():
        for (odd, even), channels in zip(PAIRS, stages, strict=True):
            runs = {size: prepared_call(family, size, channels) for size in (odd, even)}
            timings = interleaved({str(s): run for s, (run, _) in runs.items()}, options.seconds, rest_seconds=0)
            each = {size: timings[str(size)].median_ms * 1e9 / outputs for size, (_, outputs) in runs.items()}
            ratio = each[odd] / each[even]
            worst = max(worst, ratio)
            cells = "".join(f"{f'{s}x{s}':>8}{report.number(each[s]):>8}" for s in (odd, even))
            print(f"{family:<22}{channels:>6} channels{cells}{ratio:8.2f}", flush=True)
    print(f"largest ratio {worst:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
