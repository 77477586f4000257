"""Device times of vkconv on a Vulkan GPU beside cuDNN on the same GPU, from the same run.

    python bench/gpu.py --bench build/dev/vkconv_bench --dtypes f32,f16 --json result.json

vkconv is timed by `vkconv_bench --device-time` with prepared weights, cuDNN by bench/peers/cudnn.py where PyTorch with
CUDA is installed. Times are microseconds a call between timestamps of the device; a ratio above 1 is vkconv's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.cases import HERE, Case, load


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/gpu.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--bench", default="build/dev/vkconv_bench", help="the vkconv_bench to run")
    parser.add_argument("--device", type=int, default=0, help="Vulkan device (default: 0)")
    parser.add_argument("--suite", type=Path, default=HERE / "suite_gpu.json", help="rows to time")
    parser.add_argument("--only", default="", help="only cases with one of these words (comma-separated)")
    parser.add_argument("--dtypes", default="f32,f16,bf16", help="default: f32,f16,bf16")
    parser.add_argument("--algorithms", default="", help="comma-separated; default: what the planner chooses")
    parser.add_argument("--no-peer", action="store_true", help="vkconv alone")
    parser.add_argument("--json", type=Path, help="also write the results here")
    return parser.parse_args()


def vkconv_microseconds(options: argparse.Namespace, algorithm: str, problems: list[str]) -> dict[str, Any]:
    """Plan and time of every problem that ran; one process a problem where one of them fails."""
    command = [options.bench, f"--vulkan={options.device}", "--device-time", "--prepared", f"--algorithm={algorithm}"]
    done = subprocess.run([*command, *problems], capture_output=True, text=True, check=False)
    if done.returncode != 0 and len(problems) > 1:
        found: dict[str, Any] = {}
        for problem in problems:
            found |= vkconv_microseconds(options, algorithm, [problem])
        return found
    if done.returncode != 0:
        return {problems[0]: {"refused": done.stderr.strip().splitlines()[-1:]}}
    rows = (line.split() for line in done.stdout.splitlines())
    return {words[0]: {"plan": words[1], "us": float(words[2]) * 1e3} for words in rows}


def peer_microseconds(cases: list[Case]) -> tuple[str, dict[str, float]]:
    """cuDNN's version and times; nothing without PyTorch and CUDA."""
    try:
        from bench.peers import cudnn
    except ImportError as error:
        return str(error), {}
    return cudnn.version(), {case.problem: cudnn.microseconds(case) for case in cases}


def chosen(options: argparse.Namespace) -> list[Case]:
    words = [w for w in options.only.split(",") if w]
    cases = [c for c in load(options.suite) if not words or any(w in c.name for w in words)]
    return [replace(c, dtype=dtype) for dtype in options.dtypes.split(",") for c in cases]


def main() -> int:
    """Command line entry point."""
    options = arguments()
    cases = chosen(options)
    problems = [case.problem for case in cases]
    version, peer = ("", {}) if options.no_peer else peer_microseconds(cases)
    algorithms = options.algorithms.split(",")
    ours = {a: vkconv_microseconds(options, a, problems) for a in algorithms}
    print(f"beside {version}" if version else "vkconv alone")
    results = []
    for case in cases:
        row: dict[str, Any] = {"name": case.name, "problem": case.problem, "peer_us": peer.get(case.problem)}
        row["vkconv"] = {a or "planner": ours[a].get(case.problem) for a in algorithms}
        results.append(row)
        print(line(case, row))
    if options.json:
        options.json.write_text(json.dumps({"peer": version, "rows": results}, indent=1) + "\n")
    return 0


def line(case: Case, row: dict[str, Any]) -> str:
    """One row of the table."""
    text = f"{case.name:24} {case.dtype:4}"
    if row["peer_us"]:
        text += f"  peer {row['peer_us']:9.1f} us {case.flops / row['peer_us'] * 1e-6:6.1f} TF/s"
    for name, timing in row["vkconv"].items():
        if not timing or "us" not in timing:
            text += f"  {name} -"
            continue
        ratio = f" {row['peer_us'] / timing['us']:5.2f}x" if row["peer_us"] else ""
        text += f"  {timing['plan']} {timing['us']:9.1f} us {case.flops / timing['us'] * 1e-6:6.1f} TF/s{ratio}"
    return text


if __name__ == "__main__":
    sys.exit(main())
