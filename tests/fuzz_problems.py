"""Random problems, biased towards edges: odd channel tails, single outputs, crops, kernels as large as the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from problem_text import Problem

Generator = np.random.Generator
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 64, 65)
MANY_CHANNELS = (96, 127, 128, 129, 200, 255, 256, 257, 384, 513, 1000)
STEPS = (1, 4, 7, 50, 1000)
MAX_MULTIPLY_ADDS = 150_000
MAX_ELEMENTS = 20_000


def pick(rng: Generator, options: Any, weights: Any = None) -> Any:
    return options[rng.choice(len(options), p=weights)]


def axes(rng: Generator, rank: int, options: Any, weights: Any = None) -> tuple[int, ...]:
    return tuple(int(pick(rng, options, weights)) for _ in range(rank))


def spaces(rng: Generator, rank: int) -> tuple[int, ...]:
    limit = (40, 14, 8)[rank - 1]
    return tuple(int(rng.integers(1, limit + 1)) for _ in range(rank))


def general(rng: Generator, rank: int) -> dict[str, Any]:
    groups = int(pick(rng, (1, 2, 3, 4, 8), (0.6, 0.15, 0.1, 0.1, 0.05)))
    return {
        "channels": groups * int(pick(rng, CHANNELS[:9])),
        "outputs": groups * int(pick(rng, CHANNELS[:9])),
        "groups": groups,
        "kernel": axes(rng, rank, (1, 2, 3, 4, 5), (0.2, 0.2, 0.35, 0.15, 0.1)),
        "stride": axes(rng, rank, (1, 2, 3, 5), (0.55, 0.25, 0.15, 0.05)),
        "dilation": axes(rng, rank, (1, 2, 3), (0.7, 0.2, 0.1)),
        "input_dilation": axes(rng, rank, (1, 2, 3), (0.75, 0.15, 0.1)),
        "pads": tuple((int(lo), int(hi)) for lo, hi in rng.integers(-2, 4, (rank, 2))),
        "flip": bool(rng.random() < 0.25),
    }


def plain(rng: Generator, rank: int) -> dict[str, Any]:
    """3x3 at stride 1: Winograd, small kernel depth and the packed paths, with channel tails."""
    kernel = (int(rng.integers(1, 6)),) * (rank == 3) + (3,) * min(rank, 2)
    pad = int(rng.integers(0, 3))
    return {
        "channels": int(pick(rng, CHANNELS)),
        "outputs": int(pick(rng, CHANNELS)),
        "kernel": kernel,
        "pads": ((pad, pad),) * rank,
        "flip": bool(rng.random() < 0.2),
    }


def depthwise(rng: Generator, rank: int) -> dict[str, Any]:
    channels = int(pick(rng, CHANNELS))
    return {
        "channels": channels,
        "outputs": channels * int(pick(rng, (1, 2, 3), (0.7, 0.2, 0.1))),
        "groups": channels,
        "kernel": axes(rng, rank, (1, 2, 3, 4, 5, 7)),
        "stride": axes(rng, rank, (1, 2, 3), (0.6, 0.3, 0.1)),
        "dilation": axes(rng, rank, (1, 2), (0.8, 0.2)),
        "pads": tuple((int(lo), int(hi)) for lo, hi in rng.integers(0, 4, (rank, 2))),
    }


def transposed(rng: Generator, rank: int) -> dict[str, Any]:
    """Every conv_transpose, padding above dilation * (kernel - 1) included."""
    groups = int(pick(rng, (1, 2, 4)))
    kernel, dilation = axes(rng, rank, (1, 2, 3, 4, 5)), axes(rng, rank, (1, 2), (0.8, 0.2))
    stride = axes(rng, rank, (1, 2, 3, 4, 6), (0.2, 0.4, 0.2, 0.1, 0.1))
    pads = []
    for k, d, s in zip(kernel, dilation, stride, strict=True):
        lo = (k - 1) * d - int(rng.integers(0, 4))
        pads.append((lo, lo + int(rng.integers(0, max(s, d)))))
    return {
        "channels": groups * int(pick(rng, CHANNELS[:9])),
        "outputs": groups * int(pick(rng, CHANNELS[:9])),
        "groups": groups,
        "kernel": kernel,
        "dilation": dilation,
        "input_dilation": stride,
        "pads": tuple(pads),
        "flip": True,
    }


def pointwise(rng: Generator, rank: int) -> dict[str, Any]:
    return {
        "channels": int(pick(rng, CHANNELS)),
        "outputs": int(pick(rng, CHANNELS)),
        "kernel": (1,) * rank,
        "stride": axes(rng, rank, (1, 2), (0.8, 0.2)),
    }


def grouped(rng: Generator, rank: int) -> dict[str, Any]:
    """Many groups of few channels."""
    groups = int(pick(rng, (4, 8, 16, 31, 32)))
    return {
        "channels": groups * int(pick(rng, (1, 2, 3, 4, 5, 8, 16))),
        "outputs": groups * int(pick(rng, (1, 2, 3, 4, 5, 8, 16))),
        "groups": groups,
        "kernel": axes(rng, rank, (1, 2, 3)),
        "stride": axes(rng, rank, (1, 2), (0.8, 0.2)),
        "pads": tuple((int(lo), int(hi)) for lo, hi in rng.integers(-1, 3, (rank, 2))),
        "flip": bool(rng.random() < 0.2),
    }


def deep(rng: Generator, rank: int) -> dict[str, Any]:
    """Sums of many terms, or many results of few: more than one block of a reduction, and the last one's tail."""
    many, few = int(pick(rng, MANY_CHANNELS)), int(pick(rng, CHANNELS))
    channels, outputs = (many, few) if rng.random() < 0.6 else (few, many)
    return {
        "channels": channels,
        "outputs": outputs,
        "kernel": axes(rng, rank, (1, 2, 3), (0.5, 0.2, 0.3)),
        "space": tuple(int(rng.integers(1, 5)) for _ in range(rank)),
        "batch": int(rng.integers(1, 4)),
        "pads": ((1, 1),) * rank,
        "flip": bool(rng.random() < 0.2),
    }


def long(rng: Generator, rank: int) -> dict[str, Any]:
    """One axis of hundreds or thousands, with a kernel of any length along it, as signals have."""
    channels, axis = int(pick(rng, (1, 1, 2, 3, 4, 8))), int(rng.integers(rank))
    groups = channels if rng.random() < 0.4 else 1
    space, kernel, pads = [int(rng.integers(1, 4)) for _ in range(rank)], [1] * rank, [(0, 0)] * rank
    space[axis], kernel[axis] = int(2 ** rng.uniform(5, 12)), int(2 ** rng.uniform(0, 8.5))
    pads[axis] = tuple(map(int, rng.integers(0, kernel[axis], 2)))
    return {
        "channels": channels,
        "outputs": channels if groups > 1 else int(pick(rng, (1, 1, 2, 3, 8))),
        "groups": groups,
        "space": tuple(space),
        "kernel": tuple(kernel),
        "stride": axes(rng, rank, (1, 2), (0.9, 0.1)),
        "pads": tuple(pads),
        "flip": bool(rng.random() < 0.3),
    }


def far(rng: Generator, rank: int) -> dict[str, Any]:
    """Steps and borders far beyond the input, which a few outputs are left of."""
    n = tuple(int(rng.integers(1, 9)) for _ in range(rank))
    fields: dict[str, Any] = {"space": n, "kernel": axes(rng, rank, (1, 2, 3))}
    stride, dilation, holes = (
        axes(rng, rank, STEPS, (0.6, *[0.4 / (len(STEPS) - 1)] * (len(STEPS) - 1))) for _ in "sdt"
    )
    pads = []
    for size, k, s, d, t in zip(n, fields["kernel"], stride, dilation, holes, strict=True):
        whole, reach = (size - 1) * t + 1, (k - 1) * d + 1
        lo = int(rng.integers(-whole, reach + 9))
        pads.append((lo, reach - whole - lo + int(rng.integers(0, 3 * s + 1))))
    fields |= {"stride": stride, "dilation": dilation, "input_dilation": holes, "pads": tuple(pads)}
    groups = int(pick(rng, (1, 2)))
    return fields | {
        "channels": groups * int(pick(rng, CHANNELS[:9])),
        "outputs": groups * int(pick(rng, CHANNELS[:9])),
        "groups": groups,
        "flip": bool(rng.random() < 0.3),
    }


def large_kernel(rng: Generator, rank: int) -> dict[str, Any]:
    """Kernels about as large as the padded input, so few outputs are left."""
    return {
        "channels": int(pick(rng, CHANNELS[:6])),
        "outputs": int(pick(rng, CHANNELS[:6])),
        "kernel": tuple(int(rng.integers(2, (30, 9, 5)[rank - 1])) for _ in range(rank)),
        "pads": tuple((int(lo), int(hi)) for lo, hi in rng.integers(0, 3, (rank, 2))),
    }


FAMILIES: tuple[tuple[Callable[[Generator, int], dict[str, Any]], float], ...] = (
    (general, 0.3),
    (plain, 0.13),
    (depthwise, 0.12),
    (transposed, 0.13),
    (pointwise, 0.06),
    (large_kernel, 0.06),
    (grouped, 0.05),
    (deep, 0.05),
    (long, 0.05),
    (far, 0.05),
)
BATCHES = ((0, 1, 2, 3, 5, 17, 70, 300), (0.02, 0.58, 0.2, 0.1, 0.05, 0.03, 0.01, 0.01))
ACTIVATIONS = ("relu", "relu6", "leaky_relu", "silu", "gelu", "sigmoid", "tanh", "hardswish", "clip")


def epilogue(rng: Generator) -> dict[str, Any]:
    chosen: dict[str, Any] = {"bias": bool(rng.random() < 0.3)}
    if rng.random() < 0.25:
        name = pick(rng, ACTIVATIONS)
        numbers = {"leaky_relu": {"alpha": 0.125}, "clip": {"alpha": -1.5, "beta": 2.0}}
        chosen |= {"activation": name} | numbers.get(name, {})
    return chosen


def nothing(rng: Generator, fields: dict[str, Any]) -> dict[str, Any]:
    """No channels, no outputs or no input along an axis."""
    name = pick(rng, ("channels", "outputs", "space"), (0.6, 0.2, 0.2))
    if name == "space":
        axis = int(rng.integers(len(fields["space"])))
        return {"space": tuple(0 if i == axis else n for i, n in enumerate(fields["space"]))}
    return {name: 0} if fields["groups"] == 1 else {}


def fits(p: Problem, times: int = 1) -> bool:
    """Whether the oracle computes it in milliseconds, or in as many times that."""
    return (
        min(p.out) > 0
        and p.multiply_adds <= times * MAX_MULTIPLY_ADDS
        and max(np.prod(p.input_shape), np.prod(p.output_shape)) <= times * MAX_ELEMENTS
    )


def border_fits(p: Problem) -> bool:
    """The same of the input with its padding around it."""
    space = tuple(n + lo + hi for n, (lo, hi) in zip(p.space, p.pads, strict=True))
    return fits(p.replace(space=space, pads=((0, 0),) * p.rank), 20)


def random_problem(rng: Generator, kinds: Generator | None = None) -> Problem:
    """`kinds` draws what a compiled kernel depends on most, `rng` the geometry."""
    kinds = kinds or rng
    families, weights = zip(*FAMILIES, strict=True)
    op = pick(kinds, ("fwd", "igrad", "wgrad"), (0.6, 0.2, 0.2))
    dtype = pick(kinds, ("f32", "f16", "bf16", "f64"), (0.5, 0.2, 0.2, 0.1))
    precision = pick(kinds, ("high", "highest", "fast"), (0.8, 0.15, 0.05))
    rank = int(pick(kinds, (1, 2, 3), (0.3, 0.45, 0.25)))
    family = pick(kinds, families, weights)
    extra = epilogue(kinds) if op == "fwd" else {}
    while True:
        ones: dict[str, Any] = {
            "batch": int(pick(rng, *BATCHES)),
            "space": spaces(rng, rank),
            "stride": (1,) * rank,
            "dilation": (1,) * rank,
            "input_dilation": (1,) * rank,
            "pads": ((0, 0),) * rank,
            "groups": 1,
        }
        fields = ones | family(rng, rank) | extra
        if rng.random() < 0.04:
            fields |= nothing(rng, fields)
        p = Problem(op=op, dtype=dtype, precision=precision, **fields)
        if fits(p):
            return p
