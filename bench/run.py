"""Times vkconv beside other libraries, in one process and on the same arrays.

    python bench/run.py --suite core --peers auto --json result.json
    python bench/run.py --random 300 --peers torch                  forward passes of bench/random_layers.py
    python bench/run.py --random 300 --gradients --peers torch      its input and weight gradients
    python bench/run.py --suite peers --device vulkan --images 1    beside ncnn, which takes one image a call

A result is compared with fp64 before its time counts. What a peer is timed on is its own business: see bench/peers.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine


def arguments() -> argparse.Namespace:
    parser = machine.parser("run", __doc__)
    machine.add_cases(parser, suite="core", gflop_limit=20.0)
    machine.add_random(parser)
    parser.add_argument("--gradients", action="store_true", help="gradients of random layers, not forward passes")
    parser.add_argument("--device", default="cpu", help="cpu, vulkan or vulkan:i (default: cpu)")
    parser.add_argument("--peers", default="auto", help="auto, none, or names like torch,ncnn (default: auto)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--prepared", action="store_true", help="time only prepared weights")
    mode.add_argument("--per-call", action="store_true", help="time only weights given to every call")
    parser.add_argument("--images", type=int, help="at most so many images a call (default: as the case says)")
    parser.add_argument("--seconds", type=float, default=2.0, help="timing budget of a case (default: 2)")
    parser.add_argument("--json", type=Path, help="also write the results here")
    return parser.parse_args()


def modes(options: argparse.Namespace) -> list[str]:
    if options.prepared:
        return ["vkconv_prepared"]
    return ["vkconv"] if options.per_call else ["vkconv", "vkconv_prepared"]


def measure(case: Any, contenders: list[Any], options: argparse.Namespace) -> dict[str, Any]:
    """One row: every contender's checked answer, then their times."""
    from bench.peers import Refusal
    from bench.reference import Reference
    from bench.timing import interleaved, seconds_of

    operands = case.operands()
    case = case.zero_padded()
    reference = Reference(case, *operands)
    family = case.family if case.direction == "forward" else f"{case.family}, {case.direction}"
    row: dict[str, Any] = {"case": case.name, "family": family, "problem": case.problem}
    row |= {"gflop": case.flops / 1e9, "megabytes": case.bytes / 1e6, "results": {}}
    runs, first_seconds = {}, {}
    for contender in contenders:
        try:
            run = contender.run(case, operands, options.threads)
            first_seconds[contender.name], answer = seconds_of(run.call)
            error = reference.error(run.output(answer))
        except Refusal as refusal:
            row["results"][contender.name] = {"refused": str(refusal)}
            continue
        row["results"][contender.name] = {"error": error}
        if error <= reference.tolerance:
            runs[contender.name] = run
            row |= {"plan": run.plan} if run.plan else {}
    timings = interleaved({n: r.call for n, r in runs.items()}, options.seconds, first_seconds=first_seconds)
    for name, timing in timings.items():
        row["results"][name] |= {"ms": timing.median_ms, "fastest_ms": timing.fastest_ms, "samples": timing.samples}
    return row


def main() -> int:
    options = arguments()
    machine.pin(options.threads)
    from bench import peers, report
    from bench.peers import vkconv_own

    found = peers.find(options.peers, options.device)
    contenders = vkconv_own.contenders(options.device, modes(options)) + found.peers
    result = {"suite": machine.suite_name(options), "device": options.device}
    result |= {"threads": options.threads, "images": options.images}
    result |= {"machine": machine.describe(), "versions": {p.name: p.version for p in contenders}}
    print(", ".join(f"{name} {version}" for name, version in result["versions"].items()))
    for module, reason in found.absent.items():
        print(f"not installed: {module} ({reason})")
    names = [p.name for p in contenders]
    print(f"\n{report.header(names)}")
    rows: list[dict[str, Any]] = []
    try:
        for case in machine.some_cases(options, options.images, gradients=options.gradients):
            rows.append(measure(case, contenders, options))
            print(report.line(rows[-1], names), flush=True)
    except KeyboardInterrupt:
        print("stopped")
    print(report.summary(rows))
    if options.json:
        options.json.write_text(json.dumps(result | {"rows": rows}, indent=1) + "\n")
    return 0 if all(report.is_right(row) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
