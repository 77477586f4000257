"""What may change between two calls of the same case, each of which must then give a right answer, and the bits of the
first where the plan is the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import checks
import vkconv
from fuzz_calls import call

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
    yield planned(options) | {"workspace_limit": case.seed % 9999}


@contextlib.contextmanager
def tuned(case: Case, a: checks.Operands, options: Options) -> Iterator[Options]:
    problem = checks.explain(case.problem, a, **options).problem
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


CHANGES: dict[str, Callable[..., contextlib.AbstractContextManager[Options]]] = {
    f.__name__: f for f in (threads, no_plans, one_plan, no_memory_kept, workspace, tuned, numbers, refused)
}
