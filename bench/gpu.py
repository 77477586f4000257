"""Device times of vkconv on a Vulkan GPU beside cuDNN on the same GPU, from the same run.

    python bench/gpu.py --json bench/results/h200.json
    python bench/gpu.py --regret --no-peer
    python bench/gpu.py --regret --no-peer --random 200      layers of bench/random_layers.py

vkconv is timed by `vkconv_bench --device-time` with prepared weights, cuDNN by bench/peers/cudnn.py where PyTorch with
CUDA is installed: between timestamps of the device, the clocks warmed. No case is scaled down. --regret times every
algorithm estimated at up to five times the best beside the planner's choice. No submit is longer than the longest plan,
which stands at the end, with what is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine, planner_regret, report
from bench.cases import Case, named

Timing = dict[str, Any]
QUIET_SECONDS = 40.0  # vkconv_bench compiles for seconds before it prints
SMALL_FLOPS = 0.5e9  # of cases that leave most of a large GPU idle


def parser_of(tool: str, doc: str | None, suite: str, dtypes: str) -> argparse.ArgumentParser:
    """The options of what runs vkconv_bench on a Vulkan device."""
    parser = argparse.ArgumentParser(prog=f"bench/{tool}.py", description=(doc or "").partition("\n")[0])
    parser.add_argument("--bench", help="the vkconv_bench to run (default: that of build/dev or build/release)")
    parser.add_argument("--device", type=int, default=0, help="Vulkan device (default: 0)")
    parser.add_argument("--dtypes", default=dtypes, help=f"default: {dtypes}")
    parser.add_argument("--commit", help="of vkconv_bench, where this is no git checkout")
    parser.add_argument("--json", type=Path, help="also write the results here")
    machine.add_names(parser, suite)
    return parser


def arguments() -> argparse.Namespace:
    parser = parser_of("gpu", __doc__, "core,gpu", "f32,f16,bf16")
    parser.add_argument("--seconds", type=float, default=0.05, help="timing budget of a case (default: 0.05)")
    parser.add_argument("--regret", action="store_true", help="time the other algorithms too")
    parser.add_argument("--no-peer", action="store_true", help="vkconv alone")
    parser.add_argument("--gflop-limit", type=float, default=20.0, help="of a random layer (default: %(default)s)")
    machine.add_random(parser)
    options = parser.parse_args()
    options.bench = options.bench or machine.find_tool()
    return options


def problem_of(case: Case) -> str:
    return case.zero_padded().problem


def kind_of(case: Case) -> str:
    """What the case is to a GPU, for geometric means over alike ones."""
    if case.direction != "forward":
        return "gradients"
    if case.transposed:
        return "transposed"
    if case.x[-1] == 1:
        return "one channel"
    if case.groups > 1:
        return "depthwise" if case.groups == case.x[-1] else "grouped"
    if case.flops < SMALL_FLOPS:
        return "small"
    if all(k == 1 for k in case.w[1:-1]):
        return "1x1"
    return f"{case.rank}-D"


def own_timings(options: argparse.Namespace, algorithm: str, problems: list[str]) -> dict[str, list[Timing]]:
    """By problem: plan, milliseconds and accuracy, one for each algorithm that ran."""
    command = [options.bench, f"--vulkan={options.device}", "--device-time", "--prepared", "--check"]
    command += [f"--seconds={options.seconds}", f"--algorithm={algorithm}"]
    timings: dict[str, list[Timing]] = {problem: [] for problem in problems}
    waiting = problems
    while waiting:
        for line in lines_in_time([*command, *waiting]):
            problem, timing = timing_of(line)
            timings[problem].append(timing)
        done = [problem for problem in waiting if timings[problem]]
        if len(done) == len(waiting):
            break
        stuck = next(problem for problem in waiting if not timings[problem])
        print(f"vkconv, {stuck}: not computed in {QUIET_SECONDS:g} s", file=sys.stderr)
        waiting = waiting[waiting.index(stuck) + 1 :]
    return timings


def timing_of(line: str) -> tuple[str, Timing]:
    """The problem and what a line of `vkconv_bench --check` says of it."""
    problem, rest = line.split(maxsplit=1)
    before, after = rest.rsplit(" ms ", 1)
    plan, ms = before.rsplit(maxsplit=1)
    words = after.split()
    c, rounded = (float(words[words.index(name) + 1]) for name in ("c", "rounded"))
    timing = {"plan": plan.strip(), "ms": float(ms), "c": c, "rounded": rounded}
    return problem, timing | ({"wrong": True} if "WRONG" in words else {})


def lines_in_time(command: list[str]) -> list[str]:
    """What a command prints until it ends, or is silent for so long that it is killed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout
    text = b""
    while select.select([process.stdout], [], [], QUIET_SECONDS)[0]:
        more = os.read(process.stdout.fileno(), 1 << 16)
        if not more:
            break
        text += more
    process.kill()
    process.wait()
    return text.decode().splitlines()


def peer_times(cases: list[Case]) -> tuple[str, dict[Case, float]]:
    """cuDNN's version and times; nothing without PyTorch and CUDA."""
    try:
        from bench.peers import cudnn
    except ImportError as error:
        return str(error), {}
    if not cudnn.available():
        return "no CUDA", {}
    return cudnn.version(), cudnn.all_milliseconds(cases)


def driver() -> str:
    """The GPU and its driver, where nvidia-smi can say."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def about_machine(commit: str | None) -> dict[str, Any]:
    """What ran: the machine, its GPU, and the commit, which may have been given."""
    return machine.describe() | {"gpu": driver()} | ({"commit": commit} if commit else {})


def row_of(case: Case, timing: Timing, peer: float | None, others: list[Timing]) -> dict[str, Any]:
    row = {"case": case.name, "family": kind_of(case), "dtype": case.dtype, "problem": problem_of(case)}
    row |= {"gflop": case.flops * 1e-9, "megabytes": case.bytes * 1e-6, "plan": timing["plan"]}
    row["results"] = {"vkconv_prepared": {k: v for k, v in timing.items() if k != "plan"}}
    if peer:
        row["results"]["cudnn"] = {"ms": peer}
    if others:
        row |= {"chosen": timing["plan"], "ms": {t["plan"]: t["ms"] for t in others} | {timing["plan"]: timing["ms"]}}
    return row


def own(row: dict[str, Any]) -> Timing:
    return row["results"]["vkconv_prepared"]


def line(row: dict[str, Any]) -> str:
    timing, ratio = own(row), report.ratio(row)
    peer = row["results"].get("cudnn", {}).get("ms", 0.0)
    text = f"{row['case']:26} {row['dtype']:4} {row['plan'][:34]:34} {timing['ms'] * 1e3:9.1f} us {peer * 1e3:9.1f} us"
    text += f" {row['gflop'] / timing['ms']:7.1f} TF/s c {timing['c']:5.2f} {timing['rounded']:6.3f}"
    return text + (f" {ratio:5.2f}x" if ratio else "") + (" WRONG" if "wrong" in timing else "")


def measure(options: argparse.Namespace, cases: list[Case]) -> tuple[str, list[dict[str, Any]]]:
    """cuDNN's version and the rows of some cases, printed."""
    problems = list(dict.fromkeys(problem_of(case) for case in cases))
    ours = own_timings(options, "", problems)
    others = own_timings(options, "all", problems) if options.regret else {}
    version, peers = ("", {}) if options.no_peer else peer_times(cases)
    rows = []
    for case in cases:
        timings = ours[problem_of(case)]
        if timings:
            rows.append(row_of(case, timings[0], peers.get(case), others.get(problem_of(case), [])))
            print(line(rows[-1]))
        else:
            print(f"{case.name} {case.dtype}: not computed")
    print(report.summary(rows) + "\n")
    return version, rows


def main() -> int:
    """Command line entry point."""
    options = arguments()
    about = about_machine(options.commit)
    cases = machine.random_layers(options) or named(options)
    suite = machine.suite_name(options)
    rows: list[dict[str, Any]] = []
    for dtype in options.dtypes.split(","):
        version, of_dtype = measure(options, [replace(case, dtype=dtype) for case in cases])
        rows += of_dtype
        result = {"suite": suite, "device": "vulkan", "machine": about, "versions": {"cudnn": version}}
        if options.json:
            options.json.write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")
    if rows:
        longest = max(rows, key=lambda row: own(row)["ms"])
        print(f"longest: {longest['case']} {longest['dtype']}, {own(longest)['ms']:.1f} ms by {longest['plan']}")
    wrong = [f"{row['case']} {row['dtype']}" for row in rows if "wrong" in own(row)]
    print(f"wrong: {', '.join(wrong) or 'none'}")
    if options.regret:
        titled = [row | {"case": f"{row['case']} {row['dtype']}"} for row in rows if "ms" in row]
        print(planner_regret.summary(titled))
    return 0


if __name__ == "__main__":
    sys.exit(main())
