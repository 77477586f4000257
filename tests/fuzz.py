"""Random problems against the oracle: python tests/fuzz.py --count 10000 --device cpu --seed 0

A case is one line of text that holds everything it needs, so a failure is repeated with
    python tests/fuzz.py --device cpu --case 'fwd_f32_n1c3o5_i9_k3 seed=12 input=reversed algorithm=depthwise'
Lines worth keeping go to tests/corpus.txt, which every test run replays on every device.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import re
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import checks
import oracle
from fuzz_calls import PLANNED, call, explain, transpose_geometry
from fuzz_cases import Case, operands, random_case
from fuzz_changes import CHANGES

CORPUS = Path(__file__).with_name("corpus.txt")


def choose_algorithm(case: Case, a: checks.Operands, options: dict[str, Any]) -> tuple[str | None, str | None]:
    """The algorithm to force (None: the planner's choice) and the plan that will run, None where there is none."""
    report = explain(case, a, options)
    claims = [c.algorithm for c in report.candidates if c.seconds is not None]
    wanted = case.algorithm
    if wanted == "any":
        faster = [name for name in claims if name != "reference"]
        wanted = faster[case.seed % len(faster)] if faster and case.seed % 8 else None
    if wanted not in claims or case.entry in PLANNED:
        return None, report.plan
    return wanted, explain(case, a, options | {"algorithm": wanted}).plan


def call_options(case: Case, device: str) -> dict[str, Any]:
    return {"device": device} | ({} if case.limit is None else {"workspace_limit": case.limit})


def with_gaps(case: Case, tree: str) -> str:
    """A plan, and where `out` may have gaps between its pixels, the phases' that then runs: that may be Winograd's."""
    return tree + " winograd" * (case.into and "phase_channels" in tree)


def run_case(case: Case, device: str) -> tuple[Case, str, float]:
    """Raises on a wrong answer. Returns the case with the algorithm that ran by name, its plan and the metric c."""
    a = operands(case)
    options = call_options(case, device)
    before = {name: value.copy() for name, value in a.arrays().items()}
    algorithm, tree = choose_algorithm(case, a, options)
    if tree is None and case.limit is not None:  # a software device cannot keep every limit: its loops are bounded
        return run_case(dataclasses.replace(case, limit=None), device)
    done = dataclasses.replace(case, algorithm=algorithm)
    if algorithm:
        options["algorithm"] = algorithm
    try:
        got = call(case, a, options)
        about = {"integers": case.integers, "independent": case.independent, "cancelling": not case.positive}
        c = checks.assert_right(case.problem, a, got, tree=with_gaps(case, tree), **about)
        if "transpose" in case.entry and case.integers and "winograd" not in tree and not case.problem.activation:
            scattered = oracle.conv_transpose(a.input, a.weight, **transpose_geometry(case.problem), bias=a.bias)
            assert checks.same(got, checks.rounded(scattered, case.problem.dtype)).all(), "not the scattered sums"
        if case.change:
            with CHANGES[case.change](case, a, options) as changed:
                again, plan = call(case, a, changed), explain(case, a, changed).plan
            checks.assert_right(case.problem, a, again, tree=with_gaps(case, plan), **about)
            if plan == tree:
                same = checks.same(again, got)[kept_by_limits(case) if case.change == "workspace" else ...]
                assert same.all(), f"other bits after {case.change}"
        for name, old in before.items():
            assert checks.same(getattr(a, name), old).all(), f"{name} was written to"
    except Exception as error:
        raise CaseError(done, tree) from error
    return done, tree, c if case.independent else 0.0


def kept_by_limits(case: Case) -> tuple[slice, ...]:
    """The part of the result whose plan a workspace limit leaves as it is: the outputs that read a border are problems
    of their own."""
    p = case.problem
    if case.outside == "zeros":
        return (slice(None),)
    if p.op != "fwd":
        return (slice(0),)
    axes = zip(p.space, p.kernel, p.stride, p.dilation, p.pads, strict=True)
    inside = (slice(max(0, -(-lo // s)), max(0, (n - 1 - (k - 1) * d + lo) // s + 1)) for n, k, s, d, (lo, _) in axes)
    return (slice(None), *inside)


@dataclass
class Tally:
    """Of the cases that a plan ran; c of those whose operands do not repeat their values."""

    cases: int = 0
    largest_c: float = 0.0

    def add(self, c: float) -> None:
        self.cases += 1
        self.largest_c = max(self.largest_c, c)


class CaseError(AssertionError):
    """A case that failed; the cause is what went wrong."""

    def __init__(self, case: Case, tree: str) -> None:
        super().__init__(f"{case} ran {tree}")
        self.case = case


def corpus() -> list[Case]:
    lines = CORPUS.read_text().splitlines()
    return [Case.parse(line) for line in lines if line.strip() and not line.startswith("#")]


def cases(seed: int, count: int | None = None, alike: int = 1) -> Iterator[Case]:
    """Endless unless bounded; the i-th case of a seed does not depend on the bound. `alike` cases after each other are
    of one kind: fewer kernels for as many problems."""
    for i in itertools.count() if count is None else range(count):
        rng = np.random.default_rng((seed, i))
        kinds = rng if alike == 1 else np.random.default_rng((seed, i // alike, alike))
        yield dataclasses.replace(random_case(rng, kinds), algorithm="any")


def by_plan(stream: Iterable[Case], device: str, batch: int) -> Iterator[Case]:
    """In the order of their plans within batches of this size. A software device compiles a kernel in a second and
    keeps a few hundred, so that cases in the order of chance compile most of their kernels again."""
    rest = iter(stream)
    while taken := list(itertools.islice(rest, batch)):
        yield from sorted(taken, key=functools.partial(plan_of, device=device))


def plan_of(case: Case, device: str) -> tuple[str, ...]:
    """The names of the algorithms and what else their kernels depend on; nothing where there is no plan."""
    try:
        tree = choose_algorithm(case, operands(case), call_options(case, device))[1]
    except Exception:  # for run_case() to report
        tree = None
    return re.sub(r"\d+", "", tree or ""), case.problem.dtype, str(case.problem.activation)


def until(stream: Iterable[Case], seconds: float) -> Iterator[Case]:
    start = time.monotonic()
    yield from itertools.takewhile(lambda _: time.monotonic() - start < seconds, stream)


def noted(stream: Iterable[Case], path: Path) -> Iterator[Case]:
    """The file has the case that runs, for the one that ends or hangs the process."""
    for case in stream:
        path.write_text(f"{case}\n")
        yield case
    path.unlink(missing_ok=True)


def fuzz(device: str, stream: Iterable[Case], max_failures: int = 20) -> tuple[int, dict[str, Tally], list[str]]:
    """Number of cases run, plans by name, and a line for every failure."""
    plans: defaultdict[str, Tally] = defaultdict(Tally)
    failures: list[str] = []
    count = 0
    for case in stream:
        count += 1
        try:
            _, tree, c = run_case(case, device)
            plans[re.sub(r"\d+x ", "", tree)].add(c)
        except CaseError as error:
            cause = str(error.__cause__).strip().splitlines()
            failures.append(f"{error.case}\n    {type(error.__cause__).__name__}: {' '.join(cause[:6])}")
            if len(failures) >= max_failures:
                break
    return count, plans, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--alike", type=int, default=1, help="cases of each kind, which share kernels")
    parser.add_argument("--batch", type=int, default=1, help="cases that run in the order of their plans")
    parser.add_argument("--note", type=Path, help="a file that has the case that runs")
    parser.add_argument("--case", help="repeat one case, with its traceback")
    args = parser.parse_args()
    if args.case:
        try:
            done, tree, c = run_case(Case.parse(args.case), args.device)
        except CaseError:
            traceback.print_exc()
            return 1
        print(f"right: {done} ran {tree}, c = {c:.3g}")
        return 0
    if args.count is None and args.seconds is None:
        args.count = 1000
    start = time.monotonic()
    stream = cases(args.seed, args.count, args.alike)
    if args.batch > 1:
        stream = by_plan(stream, args.device, args.batch)
    if args.seconds is not None:
        stream = until(stream, args.seconds)
    if args.note:
        stream = noted(stream, args.note)
    count, plans, failures = fuzz(args.device, stream)
    seconds = time.monotonic() - start
    for name, tally in sorted(plans.items()):
        print(f"{tally.cases:7d}  c <= {tally.largest_c:<6.2g}{name}")
    for line in failures:
        print("FAILED", line)
    print(
        f"{count} problems on {args.device}, seed {args.seed}: {len(failures)} failed, {seconds:.1f} s, "
        f"{count / seconds:.0f} a second"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
