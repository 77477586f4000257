"""What may change between two calls of the same case, each of which must then give a right answer, and the bits of the
first where the plan is the same."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import checks
import vkconv
from fuzz_calls import begin, call, explain, read

if TYPE_CHECKING:
    from fuzz_cases import Case

Options = dict[str, Any]
TUNING_SECONDS = 0.01


def planned(options: Options) -> Options:
    """Without a forced algorithm."""
    return {name: value for name, value in options.items() if name != "algorithm"}


@contextlib.contextmanager
def for_a_while(setting: Callable[[int], None], value: int, before: int) -> Iterator[None]:
    setting(value)
    try:
        yield
    finally:
        setting(before)


@contextlib.contextmanager
def threads(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    with for_a_while(vkconv.set_num_threads, 1 + case.seed % 7, vkconv.num_threads()):
        yield options


@contextlib.contextmanager
def no_plans(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    vkconv.plan_cache_clear()
    yield options


@contextlib.contextmanager
def one_plan(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    """A cache with room for one plan."""
    with for_a_while(vkconv.set_plan_cache_capacity, 1, vkconv.plan_cache_info().capacity):
        yield options


@contextlib.contextmanager
def no_memory_kept(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    vkconv.trim_memory(options["device"])
    yield options


@contextlib.contextmanager
def workspace(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    limited = planned(options) | {"workspace_limit": case.seed % 9999}
    yield limited if explain(case, a, limited).plan else options


@contextlib.contextmanager
def tuned(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    problem = explain(case, a, options).problem
    found = vkconv.tune(problem, seconds=TUNING_SECONDS, device=options["device"])
    assert not any("agrees" in reason for reason in found.skipped.values()), found.skipped
    try:
        yield planned(options)
    finally:
        vkconv.clear_tuning()


@contextlib.contextmanager
def numbers(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    """A call with other numbers in the same memory."""
    writable = [v for v in a.arrays().values() if v.flags.writeable]
    before = [v.copy() for v in writable]
    for v in writable:
        v[...] = 1
    call(case, a, options)
    for v, old in zip(writable, before, strict=True):
        v[...] = old
    yield options


@contextlib.contextmanager
def refused(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    """A call that is not taken."""
    try:
        call(case, a, options | {"algorithm": "none of them"})
    except ValueError:
        yield options
    else:
        raise AssertionError("there is no such algorithm")


@contextlib.contextmanager
def precision(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    """A call at another precision."""
    other = {"highest": "high", "high": "fast", "fast": "highest"}[case.problem.precision]
    call(dataclasses.replace(case, problem=case.problem.replace(precision=other)), a, planned(options))
    yield options


@contextlib.contextmanager
def beside(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    """While two other threads make the same call."""
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call, case, a, options) for _ in range(6)]
        yield options
        first, *others = (c.result() for c in calls)
    assert all(checks.same(y, first).all() for y in others), "other bits in another thread"


@contextlib.contextmanager
def unread(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    """While results wait to be read, and others were dropped before they were there."""
    waiting = [begin(case, a, options) for _ in range(5)][::2]
    yield options
    first, *others = map(read, waiting)
    assert all(checks.same(y, first).all() for y in others), "a later call changed a result"


CHANGES: dict[str, Callable[..., contextlib.AbstractContextManager[Options]]] = {
    f.__name__: f
    for f in (
        threads,
        no_plans,
        one_plan,
        no_memory_kept,
        workspace,
        tuned,
        numbers,
        refused,
        precision,
        beside,
        unread,
    )
}
