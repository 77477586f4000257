"""Random problems, biased towards edges: odd channel tails, single outputs, crops, kernels as large as the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from problem_text import Problem

Generator = np.random.Generator
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 64, 65)
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


def large_kernel(rng: Generator, rank: int) -> dict[str, Any]:
    """Kernels about as large as the padded input, so few outputs are left."""
    return {
        "channels": int(pick(rng, CHANNELS[:6])),
        "outputs": int(pick(rng, CHANNELS[:6])),
        "kernel": tuple(int(rng.integers(2, (30, 9, 5)[rank - 1])) for _ in range(rank)),
        "pads": tuple((int(lo), int(hi)) for lo, hi in rng.integers(0, 3, (rank, 2))),
    }


FAMILIES: tuple[tuple[Callable[[Generator, int], dict[str, Any]], float], ...] = (
    (general, 0.4),
    (plain, 0.15),
    (depthwise, 0.15),
    (transposed, 0.15),
    (pointwise, 0.07),
    (large_kernel, 0.08),
)
ACTIVATIONS = ("relu", "relu6", "leaky_relu", "silu", "gelu", "sigmoid", "tanh", "hardswish", "clip")


def epilogue(rng: Generator) -> dict[str, Any]:
    chosen: dict[str, Any] = {"bias": bool(rng.random() < 0.3)}
    if rng.random() < 0.25:
        name = pick(rng, ACTIVATIONS)
        numbers = {"leaky_relu": {"alpha": 0.125}, "clip": {"alpha": -1.5, "beta": 2.0}}
        chosen |= {"activation": name} | numbers.get(name, {})
    return chosen


def fits(p: Problem) -> bool:
    return (
        min(p.out) > 0
        and p.multiply_adds <= MAX_MULTIPLY_ADDS
        and max(np.prod(p.input_shape), np.prod(p.output_shape)) <= MAX_ELEMENTS
    )


def random_problem(rng: Generator, kinds: Generator | None = None) -> Problem:
    """`kinds` draws what a compiled kernel depends on most, `rng` the geometry."""
    kinds = kinds or rng
    families, weights = zip(*FAMILIES, strict=True)
    op = pick(kinds, ("fwd", "igrad", "wgrad"), (0.6, 0.2, 0.2))
    dtype = pick(kinds, ("f32", "f16", "bf16", "f64"), (0.5, 0.2, 0.2, 0.1))
    precision = pick(kinds, ("high", "highest"), (0.85, 0.15))
    rank = int(pick(kinds, (1, 2, 3), (0.3, 0.45, 0.25)))
    family = pick(kinds, families, weights)
    extra = epilogue(kinds) if op == "fwd" else {}
    while True:
        ones: dict[str, Any] = {
            "stride": (1,) * rank,
            "dilation": (1,) * rank,
            "input_dilation": (1,) * rank,
            "pads": ((0, 0),) * rank,
            "groups": 1,
        }
        fields = ones | family(rng, rank) | extra
        if fields["groups"] == 1 and rng.random() < 0.03:
            fields["channels"] = 0
        batch = int(pick(rng, (0, 1, 2, 3, 5, 17), (0.02, 0.6, 0.2, 0.1, 0.05, 0.03)))
        p = Problem(op=op, dtype=dtype, batch=batch, space=spaces(rng, rank), precision=precision, **fields)
        if fits(p):
            return p
