"""Measures which algorithm is the fastest, where the planner's estimates are not trusted to know."""

from __future__ import annotations

import contextlib
import math
import numbers
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from vkconv import _check, _core
from vkconv._arrays import array, synchronize
from vkconv._config import device as using
from vkconv._explain import Candidate, Explanation, explain
from vkconv._ops import conv_general
from vkconv._prepare import prepare
from vkconv._problem_call import output_shape, problem_call
from vkconv._tuning import Choice, Tuning
from vkconv._types import AnyArray, Array

_GAIN = 0.97  # of the planned time; what is closer is noise, and not worth other bits
_CONTENDERS = 3.0  # times the fastest first call: slower ones are not timed again
_MOST_ROUNDS = 50
_REFERENCE_SHARE = 0.5  # of a problem's time that its reference may take


_Noted: TypeAlias = dict[tuple[str, str], bool]
_listeners: list[_Noted] = []
_lock = threading.Lock()


class Skipped(Exception):  # noqa: N818 - an answer, not a failure
    """Why a problem is left to the planner."""


@dataclass(frozen=True)
class Task:
    device: str
    problem: str
    prepared: bool


def measured(target: Any, seconds: float, device: str | None, prepared: bool) -> Tuning:
    """`vkconv.tune`."""
    from vkconv._cli.render import Progress  # noqa: PLC0415 - the command line imports this package

    if not isinstance(seconds, numbers.Real):
        raise TypeError(f"seconds must be a number, got {type(seconds).__name__}")
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds}, wanted more than 0")
    stop = time.perf_counter() + seconds
    tasks = _tasks(target, device, prepared)
    choices, kept, skipped = [], [], {}
    with Progress(len(tasks)) as progress:
        for i, task in enumerate(tasks):
            progress.step(f"{task.device} {task.problem}")
            budget = max(stop - time.perf_counter(), 0.0) / (len(tasks) - i)
            try:
                choice = _tuned(task, budget)
            except (Skipped, MemoryError) as reason:
                skipped[task.problem] = str(reason)
                continue
            if choice:
                choices.append(choice)
                _core.prefer(task.device, {task.problem: choice.algorithm})
            else:
                kept.append(task.problem)
    return Tuning(tuple(choices), tuple(kept), skipped)


def _tasks(target: Any, device: str | None, prepared: bool) -> list[Task]:
    if callable(target):
        with _noting() as noted, using(device) if device else contextlib.nullcontext():
            target()
        return [Task(*key, with_prepared) for key, with_prepared in noted.items()]
    problems = [target] if isinstance(target, str) else target
    if not isinstance(problems, list | tuple) or not all(isinstance(p, str) for p in problems):
        raise TypeError("target must be a problem string, a sequence of them or a callable")
    told = [explain(p, device=device) for p in problems]
    return [Task(t.device, t.problem, prepared) for t in told]


@contextlib.contextmanager
def _noting() -> Iterator[_Noted]:
    """The problems, by device, that any thread computes meanwhile, and whether always with prepared weights. Other
    threads, and what is tuned in the block, may note them too."""
    mine: _Noted = {}
    with _lock:
        _hand_out(go_on=True)
        _listeners.append(mine)
    try:
        yield mine
    finally:
        with _lock:
            _hand_out(go_on=len(_listeners) > 1)
            _listeners[:] = [noted for noted in _listeners if noted is not mine]


def _hand_out(go_on: bool) -> None:
    """Give what the core has noted to everyone who listens."""
    for name, problem, prepared in _core.noted_problems(go_on):
        for noted in _listeners:
            noted[name, problem] = noted.get((name, problem), True) and prepared


def _tuned(task: Task, budget: float) -> Choice | None:
    """The choice that beats the planned one, if any does."""
    stop = time.perf_counter() + budget
    told = explain(task.problem, device=task.device)
    if told.plan is None:
        raise Skipped(told.reason)
    try:
        runs = Runs(task)
    except ValueError as error:
        raise Skipped(str(error)) from error
    candidates = _by_estimate(told)
    if len(candidates) < 2:
        return None
    first = _verified(runs, candidates, Expected(runs, budget * _REFERENCE_SHARE), stop)
    if not first:
        raise Skipped("no algorithm agrees with the reference")
    medians = _medians(runs, first, stop)
    best = min(medians, key=lambda name: medians[name])
    planned = candidates[0].algorithm
    planned_seconds = medians.get(planned, first.get(planned, math.inf))
    if medians[best] > _GAIN * planned_seconds:
        return None
    return Choice(task.device, task.problem, best, medians[best], planned, planned_seconds)


def _verified(runs: Runs, candidates: list[Candidate], expected: Expected, stop: float) -> dict[str, float]:
    """Seconds of a second call of each algorithm whose first one gave the right answer. The planned one, the first, is
    always tried; others where their estimate leaves time."""
    first: dict[str, float] = {}
    for c in candidates:
        if c is not candidates[0] and (c.seconds or 0.0) > (stop - time.perf_counter()) / 2:
            continue
        call = runs.of(c.algorithm)
        if expected.met_by(call()):
            first[c.algorithm] = _seconds(call)
    return first


def _medians(runs: Runs, first: dict[str, float], stop: float) -> dict[str, float]:
    """Medians over rounds in which every contender is called once, so that all see the same machine."""
    limit = _CONTENDERS * min(first.values())
    times = {name: [seconds] for name, seconds in first.items() if seconds <= limit}
    while time.perf_counter() < stop and len(next(iter(times.values()))) < _MOST_ROUNDS:
        for name, samples in times.items():
            samples.append(_seconds(runs.of(name)))
    return {name: float(np.median(samples)) for name, samples in times.items()}


def _by_estimate(told: Explanation) -> list[Candidate]:
    """Those that can run, the planned one first, then the fastest by estimate; the reference wins nothing."""
    rivals = {c.algorithm for c in told.candidates} - {"reference"} | {told.algorithm}
    able = [c for c in told.candidates if c.seconds is not None and c.algorithm in rivals]
    return sorted(able, key=lambda c: (c.algorithm != told.algorithm, c.seconds))


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Runs:
    """A problem's operation on random operands that lie on the task's device, by any algorithm."""

    def __init__(self, task: Task) -> None:
        plain = "_".join(token for token in task.problem.split("_") if token != "add")
        self.function, self.operands, self.options = problem_call(plain)
        self.addend = None if plain == task.problem else self._addend()
        self._device = task.device
        # Only a prepared convolution takes an addend.
        self._prepared = self.function is conv_general and (task.prepared or self.addend is not None)
        self._there = [self._moved(a) for a in self.operands]
        self._calls: dict[str, Callable[[], AnyArray]] = {}

    def _addend(self) -> Array:
        x, w = self.operands
        shape = output_shape(x.shape, w.shape, self.options)
        return np.random.default_rng(1).standard_normal(shape, np.float64 if x.dtype == np.float64 else np.float32)

    def _moved(self, operand: Any) -> Any:
        there = self._device != "cpu" and isinstance(operand, np.ndarray)
        return array(operand, self._device) if there else operand

    def of(self, algorithm: str) -> Callable[[], AnyArray]:
        """A call that waits for its result."""
        if algorithm not in self._calls:
            self._calls[algorithm] = self._waiting(self._call(algorithm))
        return self._calls[algorithm]

    def _call(self, algorithm: str) -> Callable[[], Any]:
        options: dict[str, Any] = {**self.options, "algorithm": algorithm, "device": self._device}
        if not self._prepared:
            return lambda: self.function(*self._there, **options)
        conv, addend = prepare(self.operands[1], **options), self._moved(self.addend)
        return lambda: conv(self._there[0], addend=addend)

    def _waiting(self, call: Callable[[], Any]) -> Callable[[], AnyArray]:
        def waited() -> AnyArray:
            result: AnyArray = call()
            if self._device != "cpu":
                synchronize(self._device)
            return result

        return waited


class Expected:
    """The answer of the reference on the CPU, and the error that rounding may put into one of the same dtype.

    Sums may be off by their tolerance times the sum of |x||w|, which the reference computes from absolute values; an
    activation may stretch that by its slope, and has an error relative to its result. Both results are rounded.
    """

    def __init__(self, runs: Runs, budget: float) -> None:
        options: dict[str, Any] = {**runs.options, "algorithm": "reference", "device": "cpu"}
        told = explain(runs.function, *runs.operands, **options)
        estimate = 2 * next(c.seconds for c in told.candidates if c.algorithm == "reference" and c.seconds is not None)
        if estimate > budget:
            raise Skipped(f"its reference takes about {estimate:.2g} s: it needs more time")
        self._answer = self._of(runs, options).astype(np.float64)
        plain = {k: v for k, v in options.items() if k != "activation"}
        if "bias" in plain:
            plain["bias"] = np.abs(plain["bias"])
        absolute = [np.abs(a) if isinstance(a, np.ndarray) else a for a in runs.operands]
        magnitude = runs.function(*absolute, **plain).astype(np.float64)
        if runs.addend is not None:
            magnitude += np.abs(runs.addend)
        activation = options.get("activation")
        slope = abs(activation[1]) if isinstance(activation, tuple) and activation[0] == "leaky_relu" else 0.0
        dtype = runs.operands[0].dtype
        own = 2 * _check.tolerance("float64" if dtype == np.float64 else "float32")  # Winograd's transforms included
        roundoff = _check.tolerance(dtype.name) if dtype.itemsize < 4 else 0.0
        sums = own if options.get("precision") == "highest" else max(own, 16 * roundoff)  # Winograd's 16-bit points
        self._bound = sums * max(1.2, slope) * magnitude + (own + 2 * roundoff) * np.abs(self._answer)

    @staticmethod
    def _of(runs: Runs, options: dict[str, Any]) -> Array:
        if runs.addend is None:
            return runs.function(*runs.operands, **options)
        x, w = runs.operands
        return prepare(w, **options)(x, addend=runs.addend)

    def met_by(self, result: AnyArray) -> bool:
        host = result if isinstance(result, np.ndarray) else result.numpy()
        difference = np.abs(host.astype(np.float64) - self._answer)
        return bool(np.all(difference <= self._bound))
