"""The error of every algorithm as a table: python tests/numerics.py --device cpu

Over the problems of tests/problems.py, in every dtype, on random data of both signs and on positive data, whose errors
do not cancel. c = max |y - y64| / (u * sum |x||w|), u the unit roundoff of the result's dtype: one correct rounding
is at most 1. `rounded` is the share of results in half precision that equal the correctly rounded exact sum. Fails
where a result is not right by checks.assert_right.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

import checks
import vkconv
from problem_text import Problem, parse
from problems import THEMES

DTYPES = ("f32", "f64", "f16", "bf16")
HALVES = ("f16", "bf16")


@dataclass
class Error:
    """Of one algorithm in one dtype, over every problem it claims."""

    c: float = 0.0
    elements: int = 0
    rounded: int = 0
    problems: int = 0

    def add(self, p: Problem, a: checks.Operands, got: np.ndarray) -> None:
        want, magnitude = checks.exact(p, a), checks.magnitudes(p, a)
        self.c = max(self.c, checks.error_c(got, want, magnitude, p.dtype))
        self.elements += got.size
        self.rounded += int((got == checks.rounded(want, p.dtype)).sum())
        self.problems += 1

    def cell(self, dtype: str) -> str:
        if not self.problems:
            return " |"
        share = f", {100 * self.rounded / self.elements:.2f} %" if dtype in HALVES else ""
        return f" {self.c:.2f}{share} |"


def measure(device: str, every: int) -> tuple[dict[str, dict[str, Error]], list[str]]:
    """By algorithm and dtype, and what is not right."""
    errors: dict[str, dict[str, Error]] = defaultdict(lambda: defaultdict(Error))
    beyond: list[str] = []
    texts = [t for theme, texts in THEMES.items() if theme not in ("empty", "epilogues") for t in texts]
    problems = [parse(t).replace(dtype=dtype) for t in dict.fromkeys(texts[::every]) for dtype in DTYPES]
    for p in dict.fromkeys(problems):
        signed = checks.operands(p, seed=3, integers=False)
        for a in (signed, checks.positive(signed)):
            for name in checks.claiming(p, a, device=device):
                got = checks.run(p, a, device=device, algorithm=name)
                errors[name][p.dtype].add(p, a, got)
                plan = checks.explain(p, a, device=device, algorithm=name).plan
                try:
                    checks.assert_right(p, a, got, tree=plan, integers=False, cancelling=a is signed)
                except AssertionError as error:
                    beyond.append(str(error))
    return errors, beyond


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--every", type=int, default=1, help="only every n-th problem")
    args = parser.parse_args()
    errors, beyond = measure(args.device, args.every)
    print("| algorithm | problems | " + " | ".join(f"{d}: c" + ", rounded" * (d in HALVES) for d in DTYPES) + " |")
    print("|---|--:|" + "--:|" * len(DTYPES))
    for name in vkconv.algorithms(args.device):
        if name in errors:
            row = errors[name]
            print(f"| {name} | {sum(e.problems for e in row.values())} |" + "".join(row[d].cell(d) for d in DTYPES))
    print(*beyond, sep="\n", end="\n" * bool(beyond), file=sys.stderr)
    return int(bool(beyond))


if __name__ == "__main__":
    sys.exit(main())
