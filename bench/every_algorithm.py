"""Whether each row of the suite is right by every algorithm that takes it, on a Vulkan device.

    VKCONV_VALIDATION=1 python bench/every_algorithm.py --gflop-limit 0.02 --json bench/results/lavapipe_rows.json

Rows above --gflop-limit run with fewer images and pixels, named `_mini`. Samples of each answer are compared with fp64
by `vkconv_bench --check`: c in units of u * sum |x||w|, and the share of samples that are correctly rounded. With
VKCONV_VALIDATION=1 any message of the validation layer is a failure. --random draws layers of bench/random_layers.py
instead of the suite's.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import gpu, machine
from bench.cases import Case, chosen

TIMEOUT_SECONDS = 900.0  # of a row; a software device compiles for a second a kernel


def arguments() -> argparse.Namespace:
    parser = gpu.parser_of("every_algorithm", __doc__, "all", "f32,f16,bf16,f64")
    parser.add_argument("--gflop-limit", type=float, default=math.inf, help="scale larger cases down")
    parser.add_argument("--ratio", type=float, default=1e6, help="leave out algorithms so many times the best")
    machine.add_random(parser)
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time (default: 1)")
    options = parser.parse_args()
    options.bench = options.bench or machine.find_tool()
    return options


def check(options: argparse.Namespace, case: Case) -> dict[str, Any]:
    """A row: of each plan c, the share of rounded samples and whether it is wrong; what went wrong otherwise."""
    command = [options.bench, f"--vulkan={options.device}", "--device-time", "--prepared", "--check", "--seconds=0"]
    command += ["--algorithm=all", f"--ratio={options.ratio}", gpu.problem_of(case)]
    row: dict[str, Any] = {"case": case.name, "dtype": case.dtype, "problem": gpu.problem_of(case)}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return row | {"plans": {}, "errors": f"not done in {TIMEOUT_SECONDS:g} s"}
    timings = [timing for _, timing in map(gpu.timing_of, done.stdout.splitlines())]
    row["plans"] = {t["plan"]: {k: v for k, v in t.items() if k not in ("plan", "ms")} for t in timings}
    failed = done.returncode != 0 or not timings
    return row | ({"errors": done.stderr.strip() or f"exit status {done.returncode}"} if failed else {})


def line(row: dict[str, Any]) -> str:
    plans = ", ".join(f"{name} {plan['c']:.2f} {plan['rounded']:.3f}" for name, plan in row["plans"].items())
    return f"{row['case']:30} {row['dtype']:4} {plans}" + (f"  FAILED {row['errors']}" if "errors" in row else "")


def as_json(result: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """One line a row."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    return json.dumps(result | {"rows": []}, indent=1).replace("[]", f"[\n{lines}\n]") + "\n"


def main() -> int:
    """Command line entry point."""
    options = arguments()
    result = {"suite": machine.suite_name(options), "device": "vulkan", "machine": gpu.about_machine(options.commit)}
    cases = machine.random_layers(options) or chosen(options)
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for dtype in options.dtypes.split(","):
            for row in pool.map(functools.partial(check, options), [replace(case, dtype=dtype) for case in cases]):
                rows.append(row)
                print(line(row), flush=True)
            if options.json:
                options.json.write_text(as_json(result, rows))
    plans = [plan for row in rows for plan in row["plans"].values()]
    failed = sum("errors" in row for row in rows)
    print(f"{len(rows)} rows, {len(plans)} plans: {failed} rows failed, c at most {max(p['c'] for p in plans):.2f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
