"""Every case in bfloat16 and float16 beside vkconv's own float32 and PyTorch's time in the same type, prepared weights.

python bench/halves.py --suite peers
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine, report

HALVES = ("bf16", "f16")


def arguments() -> argparse.Namespace:
    parser = machine.parser("halves", __doc__)
    machine.add_cases(parser, suite="peers", gflop_limit=4.0)
    parser.add_argument("--seconds", type=float, default=1.0, help="timing budget of a case (default: 1)")
    return parser.parse_args()


def milliseconds(case: Any, contenders: list[Any], options: argparse.Namespace) -> dict[str, float]:
    """Of float32 and, a half, of vkconv and of PyTorch's better layout."""
    from bench.timing import interleaved

    calls = {}
    for dtype in ("f32", *HALVES):
        typed = replace(case, dtype=dtype)
        x, w = typed.arrays()
        for contender in contenders if dtype in HALVES else contenders[:1]:
            calls[f"{contender.name} {dtype}"] = contender.build(typed.zero_padded(), x, w, options.threads).call
    ms = {name: timing.median_ms for name, timing in interleaved(calls, options.seconds).items()}
    best = {"f32": ms["vkconv_prepared f32"]}
    for dtype in HALVES:
        best[dtype] = ms[f"vkconv_prepared {dtype}"]
        best[f"torch {dtype}"] = min(v for n, v in ms.items() if n in (f"torch {dtype}", f"torch_cl {dtype}"))
    return best


def main() -> int:
    options = arguments()
    machine.require("torch", "ml_dtypes")
    machine.pin(options.threads)
    from bench import cases, peers
    from bench.peers import vkconv_own

    contenders = vkconv_own.contenders("cpu", ["vkconv_prepared"]) + peers.find("torch").peers
    columns = ["f32", *(n for dtype in HALVES for n in (dtype, f"torch {dtype}", "f32 / own", "torch / own"))]
    print(f"{'median ms':<28}" + "".join(f"{name:>12}" for name in columns))
    ratios: dict[str, list[float]] = {f"{of} / {dtype}": [] for dtype in HALVES for of in ("f32", "torch")}
    for case in cases.chosen(options):
        ms = milliseconds(case, contenders, options)
        cells = [report.number(ms["f32"])]
        for dtype in HALVES:
            pair = [ms["f32"] / ms[dtype], ms[f"torch {dtype}"] / ms[dtype]]
            for of, ratio in zip(("f32", "torch"), pair, strict=True):
                ratios[f"{of} / {dtype}"].append(ratio)
            cells += [report.number(ms[dtype]), report.number(ms[f"torch {dtype}"]), *(f"{r:.2f}" for r in pair)]
        print(f"{case.name:<28}" + "".join(f"{cell:>12}" for cell in cells), flush=True)
    for name, values in ratios.items():
        if values:
            print(f"{name}: geometric mean {report.geomean(values):.2f}, least {min(values):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
