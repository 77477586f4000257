"""A case of the fuzzer: a problem, and everything about the call that a problem does not say, as one line of text."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

import checks
from fuzz_calls import ALONE, PLANNED, WITHOUT_BORDER, entries_of, streamed
from fuzz_changes import CHANGES
from fuzz_problems import border_fits, pick, random_problem
from problem_text import Problem, dtype_of, parse
from views import REPEATING, VIEWS

WORKSPACE_LIMITS = (0, 4096, 65536)
OUTSIDE = ("reflect", "symmetric", "edge", "circular", "constant")
# Powers of two that leave small integers exact; halves reach their subnormal numbers, and infinity.
SCALES = {"f32": (-100, 60), "bf16": (-100, 60), "f64": (-500, 500), "f16": (-24, -18, 12)}
KEEP_INFINITIES = (None, "relu", "relu6", "leaky_relu", "clip")
PLACES = ("device", "mixed", "chain")
FACTORS = {"fwd": ("input", "weight"), "igrad": ("grad", "weight"), "wgrad": ("input", "grad")}


@dataclass(frozen=True)
class Case:
    problem: Problem
    seed: int
    entry: str = "general"  # the public function that is called
    integers: bool = True
    input: str = "plain"  # views
    weight: str = "plain"
    grad: str = "plain"
    bias: str = "plain"
    addend: str = "plain"
    positive: bool = False  # no signs, so that roundings of sums do not cancel
    narrow: bool = False  # the bias has the dtype of the operands
    outside: str = "zeros"  # the padding mode
    scale: int = 0  # times two to this power: everything but what input or grad is multiplied with
    specials: int = 0  # this many infinities and NaN in one operand
    into: bool = False  # out= is given
    place: str = "host"  # of operands and out=: "device"; "mixed": weight, bias and addend on the host; "chain": the
    # result goes on through other calls
    change: str | None = None  # what changes before it is called again
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
        kinds = {"seed": int, "limit": int} | {f.name: type(f.default) for f in dataclasses.fields(Case)[2:-2]}
        fields: dict[str, Any] = {}
        for name, value in (word.split("=", 1) for word in words):
            kind = kinds.get(name, str)
            fields[name] = int(value) if kind is int else bool(int(value)) if kind is bool else value
        return Case(problem=parse(text), **fields)

    @property
    def views(self) -> tuple[str, ...]:
        return self.input, self.weight, self.grad, self.bias, self.addend

    def scaled(self, array: np.ndarray) -> np.ndarray:
        return (array.astype(np.float64) * 2.0**self.scale).astype(array.dtype)

    @property
    def independent(self) -> bool:
        """Whether no view repeats values."""
        return REPEATING.isdisjoint(self.views)


def random_case(rng: np.random.Generator, kinds: np.random.Generator) -> Case:
    """`kinds` draws the kind of problem and, by the seed, the algorithm."""
    p = random_problem(rng, kinds)
    names = list(VIEWS)
    weights = [0.6] + [0.4 / (len(names) - 1)] * (len(names) - 1)
    entry = pick(rng, entries_of(p))
    case = Case(
        streamed(p) if entry == "stream" else p,
        int(kinds.integers(1 << 31)),
        entry,
        bool(rng.random() < 0.75),
        *(pick(rng, names, weights) for _ in range(3)),
        limit=int(pick(rng, WORKSPACE_LIMITS)) if rng.random() < 0.2 else None,
    )
    return around(case, rng, kinds)


def around(case: Case, rng: np.random.Generator, kinds: np.random.Generator) -> Case:
    """With the rarer circumstances."""
    p, drawn = case.problem, dict[str, Any]()
    bordered = p.input_dilation == (1,) * p.rank and 0 not in p.space and border_fits(p)
    if kinds.random() < 0.12 and bordered and case.entry not in WITHOUT_BORDER:
        precision = "highest" if kinds.random() < 0.5 else p.precision  # parts at the border are planned on their own
        drawn |= {"outside": str(pick(kinds, OUTSIDE)), "problem": p.replace(precision=precision)}
    if p.bias and rng.random() < 0.4:
        drawn |= {"bias": str(pick(rng, list(VIEWS))), "narrow": bool(rng.random() < 0.5)}
    if case.entry == "addend":
        drawn["addend"] = str(pick(rng, list(VIEWS)))
    if rng.random() < 0.1 and drawn.get("outside") != "constant":
        drawn["scale"] = int(pick(rng, SCALES[p.dtype]))
    elif rng.random() < 0.06 and p.activation in KEEP_INFINITIES and case.entry not in PLANNED:
        drawn["specials"] = int(rng.integers(1, 4))
    if case.entry not in ALONE:
        if rng.random() < 0.12:
            drawn["place"] = str(pick(rng, PLACES))
        drawn["into"] = bool(rng.random() < 0.2)
        if rng.random() < 0.15:
            drawn["change"] = str(pick(rng, list(CHANGES)))
    if not case.integers:
        drawn["positive"] = bool(rng.random() < 0.4)
    return dataclasses.replace(case, **drawn)


def operands(case: Case) -> checks.Operands:
    p = case.problem
    a = checks.operands(p, case.seed, case.integers)
    if case.positive:
        a = checks.positive(a)
    arrays = a.arrays()
    if p.bias and case.narrow:
        arrays["bias"] = arrays["bias"].astype(dtype_of(p.dtype))
    if case.entry == "addend":
        rng, dtype = np.random.default_rng((case.seed, 1)), checks.sums_dtype(a.input.dtype)
        arrays["addend"] = checks.values(rng, p.output_shape, dtype, case.integers)
    factors = FACTORS[p.op]
    for name in arrays.keys() - {factors[1]}:
        arrays[name] = case.scaled(arrays[name])
    put_specials(arrays, factors, case)
    rng = np.random.default_rng(case.seed)
    seen = {name: VIEWS[getattr(case, name)](value, rng) for name, value in arrays.items()}
    return dataclasses.replace(a, **seen, outside=case.outside)


def put_specials(arrays: dict[str, np.ndarray], names: tuple[str, str], case: Case) -> None:
    """Infinities and NaN into one of the two arrays of these names."""
    rng = np.random.default_rng((case.seed, 2))
    array = arrays[names[int(rng.integers(2))]]
    if array.size:
        for _ in range(case.specials):
            array.flat[int(rng.integers(array.size))] = pick(rng, (np.nan, np.inf, -np.inf))
