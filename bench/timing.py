"""Times calls side by side in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

ROUNDS = 5
CALLS_A_BLOCK = 200
SLOW_SECONDS = 1.0  # a call this slow is timed in every round, but once
HOPELESS_SECONDS = 5.0  # and one this slow is not called again
REST_SECONDS = 0.03  # between two blocks, and as long again while other threads of the process are busy,
MOST_RESTS = 20  # so many times at most
BUSY_SHARE = 0.05  # of one processor


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one call: the median of `samples` calls, and the fastest."""

    median_ms: float
    fastest_ms: float
    samples: int


def interleaved(
    calls: Mapping[str, Callable[[], Any]],
    budget_seconds: float,
    rest_seconds: float = REST_SECONDS,
    first_seconds: Mapping[str, float] | None = None,
) -> dict[str, Timing]:
    """Every round runs a block of each call, so that a drift of the machine meets all of them alike.

    A block starts with one call that is not counted: it brings back the caches and wakes the threads. `first_seconds`
    is what the very first call of each took, compilation included: the only sample of a hopeless one.
    """
    first = first_seconds or {}
    once = {n: s if (s := first.get(n, 0)) > HOPELESS_SECONDS else seconds_of(call)[0] for n, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    block = budget_seconds / (ROUNDS * max(1, len(calls)))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            if once[name] > HOPELESS_SECONDS:
                continue
            rest(rest_seconds)
            if once[name] < SLOW_SECONDS:
                once[name] = min(once[name], seconds_of(call)[0])
            count = min(CALLS_A_BLOCK, max(1, int(block / once[name])))
            samples[name] += [seconds_of(call)[0] for _ in range(count)]
    for name, seconds in once.items():
        samples[name] = samples[name] or [seconds]
    return {name: Timing(statistics.median(s) * 1e3, min(s) * 1e3, len(s)) for name, s in samples.items()}


def rest(seconds: float) -> None:
    """Sleeps until the process's other threads do: those of some libraries spin for 20 to 100 ms behind a call."""
    for _ in range(MOST_RESTS if seconds > 0 else 0):
        used = time.process_time()
        time.sleep(seconds)
        if time.process_time() - used < BUSY_SHARE * seconds:
            return


def seconds_of(call: Callable[[], Any]) -> tuple[float, Any]:
    """How long the call took, and what it returned."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result
