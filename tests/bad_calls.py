"""Random malformed calls: python tests/bad_calls.py --count 100000 --seed 0

One to three arguments of a correct call are replaced by something a caller may pass by mistake. Such a call returns an
array, or raises TypeError, ValueError, MemoryError or vkconv.Error; a TypeError or ValueError names an argument of the
call. Anything else (another exception, a crash, a hang) is a failure, printed with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import faulthandler
import re
import resource
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import vkconv
from calls import CASES, parameters_of

ALLOWED = (TypeError, ValueError, MemoryError, vkconv.Error)
SHAPES = {"input_shape", "weight_shape"}
ARRAYS = {"input", "weight", "grad", "bias", "out"}
MOST_BYTES = 4 << 30  # that calls may take: one that asks for more is refused, not paid for
HANG_SECONDS = 900  # of the clock: a loaded machine may stop a process for minutes
# An operand that repeats one element 2^40 times is refused because the output is too large, not summed for hours.
TOO_LARGE = 2**40

Random = np.random.Generator


def pick(rng: Random, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def integer(rng: Random) -> Any:
    return pick(rng, [-1, 0, 1, 2, 3, 7, -5, 2**31 - 1, 2**31, -(2**31) - 1, 2**40, 2**62, 2**63, -(2**63), 2**70])


def scalar(rng: Random) -> Any:
    strange = [None, True, 1.0, 1.5, np.nan, np.inf, "1", "", "same", b"x", 1j, object(), np.int64(2), np.float32(1)]
    return integer(rng) if rng.random() < 0.6 else pick(rng, [*strange, np.array(1), np.array([1]), {}, {1}, [], ()])


def sequence(rng: Random) -> Any:
    items = [scalar(rng) if rng.random() < 0.4 else int(rng.integers(-2, 4)) for _ in range(int(rng.integers(0, 5)))]
    kind = pick(rng, [tuple, list, iter, lambda v: (v, v), lambda v: [(i, i) for i in v]])
    return kind(items)


def word(rng: Random) -> Any:
    words = [
        "relu",
        "clip",
        "highest",
        "fast",
        "valid",
        "full",
        "causal",
        "cpu",
        "cuda",
        "vulkan:99",
        "cpu:1",
        "winograd",
    ]
    strange = [
        "",
        "\0",
        "é" * 300,
        ("clip", 1),
        ("clip", 2.0, -1.0),
        ("clip", np.nan, 1.0),
        ("relu", 3),
        ("leaky_relu", "a"),
    ]
    return pick(rng, words + strange) if rng.random() < 0.8 else scalar(rng)


def array(rng: Random) -> Any:
    rank = int(rng.integers(0, 7))
    shape = [int(rng.integers(0, 5)) for _ in range(rank)]
    dtype = pick(rng, ["f4", "f4", "f4", "f8", "f2", ">f4", "i4", "?", "c8", "O", "U2", "M8[s]", "g", [("a", "f4")]])
    a = np.zeros(shape, dtype)
    return pick(
        rng,
        [
            a,
            a[::-1] if rank else a,
            a.T,
            a.view(np.matrix) if rank == 2 else a,
            np.ma.masked_array(a, mask=False) if a.dtype.names is None else a,
            a.tolist(),
            np.broadcast_to(np.float32(1), shape),
            np.frombuffer(bytes(4 * 60 + 1), np.uint8)[1:].view(np.float32).reshape(1, 3, 5, 4),
        ],
    )


def changed(rng: Random, good: Any) -> Any:
    """The right array with one extent, its dtype or its memory changed."""
    shape = list(good.shape)
    shape[int(rng.integers(len(shape)))] = int(rng.integers(0, 9))
    larger = [*good.shape]
    larger[int(rng.integers(len(larger)))] = TOO_LARGE
    return pick(
        rng,
        [np.zeros(shape, good.dtype), good.astype("f8"), good[None], good[0], np.broadcast_to(np.float32(1), larger)],
    )


def replacement(rng: Random, op: str, name: str, good: Any) -> Any:
    if name in ARRAYS and good is not None and rng.random() < 0.5:
        value = changed(rng, good)
        return array(rng) if value.size >= TOO_LARGE and op in ("conv_bias_grad", "conv_weight_grad") else value
    if name in ARRAYS:
        return array(rng) if rng.random() < 0.8 else scalar(rng)
    return pick(rng, [scalar, sequence, word] if name not in SHAPES else [scalar, sequence])(rng)


def bad_call(seed: int) -> tuple[str, dict[str, Any], Callable[[], Any]]:
    """The operation, the arguments that were replaced, and the call."""
    rng = np.random.default_rng(seed)
    op = pick(rng, list(CASES))
    case = CASES[op]
    names = sorted(parameters_of(case.op))
    chosen = rng.permutation(len(names))[: int(rng.integers(1, 4))]
    changes = {names[i]: replacement(rng, op, names[i], case.arguments.get(names[i])) for i in chosen}
    return op, changes, lambda: case(**changes)


def outcome(seed: int) -> str:
    """The kind of answer; AssertionError when it is not one a caller can work with."""
    op, changes, call = bad_call(seed)
    where = f"seed {seed}: {op} with {', '.join(changes)}"
    try:
        answer = call()
    except ALLOWED as error:
        if isinstance(error, (TypeError, ValueError)):
            names = "|".join(parameters_of(CASES[op].op))
            assert re.search(rf"\b({names})\b", str(error)), f"{where}: {error} names no argument"
        return type(error).__name__
    except Exception as error:
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    assert answer is not None, where
    return "answer"


def data_bytes() -> int:
    """What the process has mapped for data; sanitizers map far more than there is."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmData:")[1].split()[0]) << 10


def check(seed: int, count: int) -> tuple[Counter[str], list[str]]:
    outcomes: Counter[str] = Counter()
    failures = []
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + MOST_BYTES, limits[1]))
    for s in range(seed, seed + count):
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        try:
            outcomes[outcome(s)] += 1
        except AssertionError as error:
            failures.append(str(error))
    faulthandler.cancel_dump_traceback_later()
    resource.setrlimit(resource.RLIMIT_DATA, limits)
    return outcomes, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    args = parser.parse_args()
    faulthandler.enable()
    outcomes, failures = check(args.seed, args.count)
    for line in failures:
        print("FAILED", line)
    print(f"{args.count} malformed calls, seed {args.seed}: {len(failures)} failed;", dict(outcomes.most_common()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
