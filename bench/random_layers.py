"""Layers of the sizes that networks have, of shapes that no list has: a GPU computes them by its largest tiles."""

from __future__ import annotations

import random
from collections.abc import Iterator

from bench.cases import Case

CHANNELS = (1, 3, 4, 8, 12, 16, 20, 24, 31, 32, 48, 64, 65, 96, 100, 128, 160, 192, 200, 256, 320, 384, 500, 512)
LONGEST = {1: 20_000, 2: 300, 3: 60}  # of the extents, by rank
DIRECTIONS = ("forward", "forward", "input_grad", "weight_grad")


def random_layers(count: int, seed: int, flop_limit: float, most_channels: int = CHANNELS[-1]) -> list[Case]:
    """Cases within a number of operations, the i-th of a seed whatever the count."""
    channels = tuple(c for c in CHANNELS if c <= most_channels)
    return [_layer(random.Random(f"{seed} {i}"), f"random_{seed}_{i}", channels).mini(flop_limit) for i in range(count)]


def _layer(rng: random.Random, name: str, numbers: tuple[int, ...]) -> Case:
    rank = rng.choice((1, 2, 2, 2, 3, 3))
    kernel = tuple(_axes(rng, rank, (1, 2, 3, 3, 3, 4, 5, 7)))
    stride = tuple(_axes(rng, rank, (1, 1, 1, 2, 3)))
    dilation = tuple(_axes(rng, rank, (1, 1, 1, 1, 2, 5)))
    pads = tuple((rng.choice((0, d * (k - 1) // 2)),) * 2 for k, d in zip(kernel, dilation, strict=True))
    extents = (int(LONGEST[rank] ** rng.uniform(0.6, 1)) + d * (k - 1) for k, d in zip(kernel, dilation, strict=True))
    groups = rng.choice((1, 1, 1, 1, 2, 4, 32))
    channels, outputs = (groups * max(rng.choice(numbers) // groups, 1) for _ in range(2))
    if rng.random() < 0.1:
        groups = outputs = channels
    x, w = (rng.choice((1, 1, 2, 5, 8)), *extents, channels), (outputs, *kernel, channels // groups)
    direction = rng.choice(DIRECTIONS)
    return Case(name, "random", x, w, stride, pads, dilation, groups, direction=direction)


def _axes(rng: random.Random, rank: int, choices: tuple[int, ...]) -> Iterator[int]:
    """The same for all axes, as most layers have it, or each its own."""
    alike, same = rng.random() < 0.7, rng.choice(choices)
    return (same if alike else rng.choice(choices) for _ in range(rank))
