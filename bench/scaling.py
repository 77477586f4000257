"""Every large case on one thread, on two and on eight asked for: what a second core brings, and that more do no harm.

python bench/scaling.py --suite core
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine, report

THREADS = (1, 2, 8)
LEAST_FLOPS = 1e9


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/scaling.py", description=(__doc__ or "").partition("\n")[0])
    machine.add_cases(parser, suite="core", gflop_limit=4.0)
    parser.add_argument("--cpus", type=int, default=2, help="CPUs of the process (default: 2)")
    parser.add_argument("--seconds", type=float, default=0.3, help="timing budget of a case (default: 0.3)")
    return parser.parse_args()


def milliseconds(case: Any, budget_seconds: float) -> dict[int, float]:
    import vkconv
    from bench.timing import interleaved

    x, w = case.arrays()
    convolve = vkconv.prepare(w, **case.zero_padded().as_general, device="cpu")

    def call(threads: int) -> None:
        if vkconv.num_threads() != threads:
            vkconv.set_num_threads(threads)
        convolve(x)

    timings = interleaved({str(n): partial(call, n) for n in THREADS}, budget_seconds, rest_seconds=0.0)
    return {n: timings[str(n)].median_ms for n in THREADS}


def main() -> int:
    options = arguments()
    machine.pin(options.cpus)
    from bench import cases

    gains, losses = [], []
    print(f"{'prepared, median ms':<32}" + "".join(f"{f'{n} threads':>11}" for n in THREADS) + "   1 / 2   8 / 2")
    for case in (c for c in cases.chosen(options) if c.flops >= LEAST_FLOPS):
        ms = milliseconds(case, options.seconds)
        gains.append(ms[1] / ms[2])
        losses.append(ms[8] / ms[2])
        cells = "".join(f"{report.number(ms[n]):>11}" for n in THREADS)
        print(f"{case.name:<32}{cells}{gains[-1]:8.2f}{losses[-1]:8.2f}", flush=True)
    if gains:
        print(f"second core: geometric mean {report.geomean(gains):.2f}, least {min(gains):.2f}")
        print(
            f"eight threads: geometric mean {report.geomean(losses):.2f}, most {max(losses):.2f} of two threads' time"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
