"""What a call costs beside its arithmetic: the smallest convolutions, and a hit in the plan cache.

    python bench/overhead.py [--tool build/dev/vkconv_bench] [--vulkan]

The plan cache is timed by the tool, as no call from Python does nothing else, and so are the plans of every row of the
suites for the described devices, and the arrays of a Vulkan device: what recording a call costs, planned or not, and
what a chain of ten adds to its kernels.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import cases, machine

CALLS = 2000
ROUNDS = 15
# Small enough that the host decides, and large enough that the device does.
LAYERS = ("fwd_f32_n1c16o16_i8x8_k3x3_p1x1_relu", "fwd_f32_n1c64o64_i64x64_k3x3_p1x1_relu")


def microseconds(call: Callable[[], Any]) -> float:
    """Median over rounds of the mean of many calls."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS)
    return statistics.median(times) * 1e6


def calls() -> dict[str, Callable[[], Any]]:
    import vkconv

    rng = np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32)

    x1, w1 = array(1, 16, 4), array(4, 3, 4)
    x2, w2 = array(1, 6, 6, 4), array(4, 3, 3, 4)
    x3, w3 = array(1, 4, 4, 4, 2), array(2, 2, 2, 2, 2)
    xd, wd = array(1, 6, 6, 16), array(16, 3, 3, 1)
    out = np.empty((1, 4, 4, 4), np.float32)
    prepared = vkconv.prepare(w2)
    return {
        "conv1d 16x4": lambda: vkconv.conv1d(x1, w1),
        "conv2d 6x6x4": lambda: vkconv.conv2d(x2, w2),
        "conv2d 6x6x4, out=": lambda: vkconv.conv2d(x2, w2, out=out),
        "conv2d 6x6x4, prepared": lambda: prepared(x2),
        "conv2d 6x6x4, every argument": lambda: vkconv.conv2d(
            x2, w2, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1, activation="relu", device="cpu"
        ),
        "conv3d 4x4x4x2": lambda: vkconv.conv3d(x3, w3),
        "depthwise_conv2d 6x6x16": lambda: vkconv.depthwise_conv2d(xd, wd),
    }


def print_planning(tool: Path) -> None:
    """What the first plan of a shape costs: the median and the most over the rows of all suites."""
    suites = sorted(Path(__file__).parent.glob("suite*.json"))
    rows = {case.problem for suite in suites for case in cases.load(suite)}
    told = subprocess.run([str(tool), "--planning", *sorted(rows)], capture_output=True, text=True, check=True).stdout
    times: dict[str, list[tuple[float, str]]] = {}
    for problem, device, us, _ in map(str.split, told.splitlines()):
        times.setdefault(device, []).append((float(us), problem))
    for device, rows_of in times.items():
        middle, (most, slowest) = statistics.median(us for us, _ in rows_of), max(rows_of)
        print(f"{'a new shape for ' + device:<32}{middle:8.2f} us of {len(rows_of)}, at most {most:.0f}: {slowest}")


def main() -> int:
    parser = machine.parser("overhead", __doc__)
    parser.add_argument("--tool", type=Path, help="a vkconv_bench: times the plan cache too")
    parser.add_argument("--vulkan", action="store_true", help="the tool times arrays of the first Vulkan device too")
    options = parser.parse_args()
    machine.pin(options.threads)
    for name, call in calls().items():
        print(f"{name:<32}{microseconds(call):8.2f} us")
    if options.tool:
        command = [str(options.tool), "--overhead", "fwd_f32_n1c4o4_i6x6_k3x3"]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout, end="")
        print_planning(options.tool)
    if options.tool and options.vulkan:
        command = [str(options.tool), "--vulkan", "--overhead", *LAYERS]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
