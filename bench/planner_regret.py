"""Times every algorithm that runs a case beside the one the planner chooses: how much is lost by its estimates.

    python bench/planner_regret.py --suite all,peers --json regret.json
    python bench/planner_regret.py --part 2/8 --json regret.json    one part at a time, into one file
    python bench/planner_regret.py --summary regret.json            what is in it
    python bench/planner_regret.py --random 300 --most-channels 16  forward passes of bench/random_layers.py

Algorithms estimated at more than five times the best estimate are not timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine

NEAR = 1.10  # a choice within 10 % of the best counts as right
Row = dict[str, Any]


def arguments() -> argparse.Namespace:
    parser = machine.parser("planner_regret", __doc__)
    machine.add_cases(parser, suite="all,peers", gflop_limit=20.0)
    parser.add_argument("--device", default="cpu", help="cpu, vulkan or vulkan:i (default: cpu)")
    parser.add_argument("--prepared", action="store_true", help="time prepared weights instead of weights per call")
    parser.add_argument("--ratio", type=float, default=5.0, help="largest estimate timed, in best estimates")
    parser.add_argument("--seconds", type=float, default=0.3, help="timing budget of a case (default: 0.3)")
    machine.add_random(parser)
    parser.add_argument("--json", type=Path, help="add the rows to this file")
    parser.add_argument("--summary", type=Path, help="print what this file holds and time nothing")
    return parser.parse_args()


def measure(case: Any, options: argparse.Namespace) -> Row | None:
    """Milliseconds and estimates of the algorithms worth timing; nothing when there is one only."""
    import vkconv
    from bench.timing import interleaved

    x, w = case.arrays()
    settings = case.zero_padded().as_general | {"device": options.device}
    told = vkconv.explain(vkconv.conv_general, x, w, **settings)
    estimates = {c.algorithm: c.seconds for c in told.candidates if c.seconds is not None}
    best = min(estimates.values(), default=0.0)
    worth = {a: s for a, s in estimates.items() if s <= options.ratio * best}
    calls: dict[str, Any] = {}
    for algorithm in worth:
        if options.prepared:
            calls[algorithm] = partial(vkconv.prepare(w, **settings, algorithm=algorithm), x)
        else:
            calls[algorithm] = partial(vkconv.conv_general, x, w, **settings, algorithm=algorithm)
    timings = interleaved(calls, options.seconds, rest_seconds=0.0)
    row: Row = {"case": case.name, "problem": told.problem, "chosen": told.algorithm, "plan": told.plan}
    row["ms"] = {a: t.median_ms for a, t in timings.items()}
    row["estimate_ms"] = {a: s * 1e3 for a, s in worth.items()}
    return row


def regret(row: Row) -> float:
    """The chosen algorithm's time over the best one's: 1 is right."""
    return float(row["ms"][row["chosen"]] / min(row["ms"].values()))


def line(row: Row) -> str:
    times = sorted(row["ms"].items(), key=lambda item: item[1])
    estimates = row.get("estimate_ms", {})
    cells = [f"{a} {ms:.3g}" + (f" ({estimates[a]:.3g})" if a in estimates else "") for a, ms in times]
    return f"{row['case']:<30}{regret(row):6.2f}  {row['plan']:<44}{'  '.join(cells)}"


def summary(rows: list[Row]) -> str:
    if not rows:
        return "no case"
    regrets = sorted(regret(row) for row in rows)
    near = sum(r <= NEAR for r in regrets)
    cuts = {f"{q} %": regrets[min(len(regrets) - 1, len(regrets) * q // 100)] for q in (50, 90, 95, 99)}
    lines = [
        f"{len(rows)} cases; {near} ({100 * near / len(rows):.1f} %) chosen within 10 % of the best; "
        + ", ".join(f"{q}: {r:.2f}" for q, r in cuts.items())
        + f", worst {regrets[-1]:.2f}, geometric mean {statistics.geometric_mean(regrets):.3f}"
    ]
    lines += [line(row) for row in sorted(rows, key=regret, reverse=True) if regret(row) > NEAR]
    return "\n".join(lines)


def load(path: Path | None) -> dict[str, Row]:
    """The rows of an earlier run by their case."""
    if path is None or not path.exists():
        return {}
    return {row["case"]: row for row in json.loads(path.read_text())["rows"]}


def main() -> int:
    options = arguments()
    if options.summary:
        print(summary(list(load(options.summary).values())))
        return 0
    machine.pin(options.threads)
    rows = load(options.json)
    print("case                          regret  plan, then every algorithm timed: ms (estimate)")
    for case in machine.some_cases(options):
        row = measure(case, options)
        if row:
            rows[case.name] = row
            print(line(row), flush=True)
    print(summary(list(rows.values())))
    if options.json:
        result = {"device": options.device, "threads": options.threads, "prepared": options.prepared}
        result |= {"machine": machine.describe(), "rows": list(rows.values())}
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
