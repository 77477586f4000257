"""Random problems against the oracle: python tests/fuzz.py --count 10000 --device cpu --seed 0

A case is one line of text that holds everything it needs, so a failure is repeated with
    python tests/fuzz.py --device cpu --case 'fwd_f32_n1c3o5_i9_k3 seed=12 input=reversed algorithm=depthwise'
Lines worth keeping go to tests/corpus.txt, which every test run replays on every device.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import checks
import oracle
import vkconv
from fuzz_problems import pick, random_problem
from problem_text import Problem, dtype_of, parse
from views import VIEWS, destination, surroundings_intact

CORPUS = Path(__file__).with_name("corpus.txt")
ENTRIES = ("general", "rank", "transpose", "depthwise", "prepared", "lo_hi", "out")
WORKSPACE_LIMITS = (0, 4096, 65536)


@dataclass(frozen=True)
class Case:
    problem: Problem
    seed: int
    entry: str = "general"  # the public function that is called
    integers: bool = True
    input: str = "plain"  # views
    weight: str = "plain"
    grad: str = "plain"
    algorithm: str | None = None
    limit: int | None = None

    def __str__(self) -> str:
        words = [str(self.problem), f"seed={self.seed}"]
        for field in dataclasses.fields(Case)[2:]:
            value = getattr(self, field.name)
            if value != field.default:
                words.append(f"{field.name}={int(value) if isinstance(value, bool) else value}")
        return " ".join(words)

    @staticmethod
    def parse(line: str) -> Case:
        text, *words = line.split()
        fields: dict[str, Any] = dict(word.split("=", 1) for word in words)
        for name, kind in (("seed", int), ("limit", int), ("integers", lambda v: bool(int(v)))):
            if name in fields:
                fields[name] = kind(fields[name])
        return Case(problem=parse(text), **fields)


def entries_of(p: Problem) -> list[str]:
    """The public functions that can express the problem."""
    found = ["general", "lo_hi", "out"]
    symmetric = all(lo == hi for lo, hi in p.pads)
    ones = (1,) * p.rank
    if p.op != "fwd":
        return found
    found.append("prepared")
    if p.input_dilation == ones and not p.flip and symmetric:
        found.append("rank")
        if p.groups == p.channels > 0:
            found.append("depthwise")
    if (
        p.flip
        and p.stride == ones
        and all((k - 1) * d >= lo and hi >= lo for k, d, (lo, hi) in zip(p.kernel, p.dilation, p.pads, strict=True))
    ):
        found += ["transpose", "transpose"]
    return found


def random_case(rng: np.random.Generator, kinds: np.random.Generator) -> Case:
    """`kinds` draws the kind of problem and, by the seed, the algorithm."""
    p = random_problem(rng, kinds)
    names = list(VIEWS)
    weights = [0.6] + [0.4 / (len(names) - 1)] * (len(names) - 1)
    return Case(
        p,
        int(kinds.integers(1 << 31)),
        pick(rng, entries_of(p)),
        bool(rng.random() < 0.75),
        *(pick(rng, names, weights) for _ in range(3)),
        limit=int(pick(rng, WORKSPACE_LIMITS)) if rng.random() < 0.2 else None,
    )


def operands(case: Case) -> checks.Operands:
    a = checks.operands(case.problem, case.seed, case.integers)
    rng = np.random.default_rng(case.seed)
    return dataclasses.replace(
        a,
        input=VIEWS[case.input](a.input, rng),
        weight=VIEWS[case.weight](a.weight, rng),
        grad=VIEWS[case.grad](a.grad, rng),
    )


def call(case: Case, a: checks.Operands, options: dict[str, Any]) -> np.ndarray:
    p = case.problem
    if case.entry in ("general", "out", "lo_hi"):
        return call_general(case, a, options)
    shared = {"bias": a.bias, "activation": checks.activation(p), "precision": p.precision} | options
    lows = tuple(lo for lo, _ in p.pads)
    if case.entry == "rank":
        return getattr(vkconv, f"conv{p.rank}d")(a.input, a.weight, p.stride, lows, p.dilation, p.groups, **shared)
    if case.entry == "depthwise":
        return vkconv.depthwise_conv(a.input, a.weight, p.stride, lows, p.dilation, **shared)
    if case.entry == "transpose":
        cut = tuple((k - 1) * d - lo for k, d, lo in zip(p.kernel, p.dilation, lows, strict=True))
        extra = tuple(hi - lo for lo, hi in p.pads)
        function = vkconv.conv_transpose if case.seed % 2 else getattr(vkconv, f"conv_transpose{p.rank}d")
        return function(a.input, a.weight, p.input_dilation, cut, p.dilation, extra, p.groups, **shared)
    conv = vkconv.prepare(a.weight, a.bias, **checks.arguments(p), activation=checks.activation(p), **options)
    conv(a.input)
    return conv(a.input)


def call_general(case: Case, a: checks.Operands, options: dict[str, Any]) -> np.ndarray:
    p = case.problem
    words = checks.keywords(p, a, **options)
    if case.entry == "lo_hi":
        words["padding"] = tuple(zip(*words.pop("pads"), strict=True))
    if case.entry == "out":
        words["out"] = destination(p.result_shape, dtype_of(p.dtype), np.random.default_rng(case.seed))
    got = getattr(vkconv, checks.OPERATIONS[p.op])(*checks.positional(p, a), **words)
    if case.entry != "out":
        return got
    assert got is words["out"], "out= is not what came back"
    result = got.copy()
    assert surroundings_intact(got), "memory outside of out= was written"
    return result


def choose_algorithm(case: Case, a: checks.Operands, options: dict[str, Any]) -> tuple[str | None, str]:
    """The algorithm to force (None: the planner's choice) and the plan that will run."""
    report = checks.explain(case.problem, a, **options)
    claims = [c.algorithm for c in report.candidates if c.seconds is not None]
    wanted = case.algorithm
    if wanted == "any":
        faster = [name for name in claims if name != "reference"]
        wanted = faster[case.seed % len(faster)] if faster and case.seed % 8 else None
    if wanted not in claims:
        return None, report.plan
    return wanted, checks.explain(case.problem, a, algorithm=wanted, **options).plan


def run_case(case: Case, device: str) -> tuple[Case, str, float]:
    """Raises on a wrong answer. Returns the case with the algorithm that ran by name, its plan and the metric c."""
    a = operands(case)
    options: dict[str, Any] = {"device": device}
    if case.limit is not None:
        options["workspace_limit"] = case.limit
    before = [None if v is None else v.copy() for v in (a.input, a.weight, a.grad)]
    algorithm, tree = choose_algorithm(case, a, options)
    done = dataclasses.replace(case, algorithm=algorithm)
    try:
        got = call(case, a, options | ({"algorithm": algorithm} if algorithm else {}))
        independent = "broadcast" not in (case.input, case.weight, case.grad)
        c = checks.assert_right(case.problem, a, got, tree=tree, integers=case.integers, independent=independent)
        if case.entry == "transpose" and case.integers and "winograd" not in tree and not case.problem.activation:
            scattered = oracle.conv_transpose(a.input, a.weight, **transpose_geometry(case.problem), bias=a.bias)
            np.testing.assert_array_equal(got, checks.rounded(scattered, case.problem.dtype))
        for value, old in zip((a.input, a.weight, a.grad), before, strict=True):
            np.testing.assert_array_equal(value, old, err_msg="an operand was written to")
    except Exception as error:
        raise CaseError(done, tree) from error
    return done, tree, c if independent else 0.0


def transpose_geometry(p: Problem) -> dict[str, Any]:
    return {
        "stride": p.input_dilation,
        "dilation": p.dilation,
        "groups": p.groups,
        "padding": [(k - 1) * d - lo for k, d, (lo, _) in zip(p.kernel, p.dilation, p.pads, strict=True)],
        "output_padding": [hi - lo for lo, hi in p.pads],
    }


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


def cases(seed: int, count: int | None = None, seconds: float | None = None, alike: int = 1) -> Iterator[Case]:
    """Endless unless bounded; the i-th case of a seed does not depend on the bounds.

    `alike` cases after each other are of one kind: a software device compiles few kernels for them.
    """
    start, i = time.monotonic(), 0
    while (count is None or i < count) and (seconds is None or time.monotonic() - start < seconds):
        rng = np.random.default_rng((seed, i))
        kinds = rng if alike == 1 else np.random.default_rng((seed, i // alike, alike))
        yield dataclasses.replace(random_case(rng, kinds), algorithm="any")
        i += 1


def fuzz(device: str, stream: Iterator[Case], max_failures: int = 20) -> tuple[int, dict[str, Tally], list[str]]:
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
    count, plans, failures = fuzz(args.device, cases(args.seed, args.count, args.seconds, args.alike))
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
