"""Full convolutions by Fourier transforms along some axes; along the others the operands broadcast.

`overlap_add` cuts the longer operand of each axis into blocks, whose transforms are short and stay in cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vkconv._config import num_threads
from vkconv._types import Array

# Operations a second of real transforms, 2.5 n log2(n) each, with the data in cache; of several axes, a thread.
_RATE = {4: 10e9, 8: 6e9}
_CALL_SECONDS = 60e-6
_FEWEST_FOR_THREADS = 1 << 16  # elements
_SHORTEST_BLOCK = 64


def full_shape(a: Array, b: Array, axes: Sequence[int]) -> list[int]:
    pairs = enumerate(zip(a.shape, b.shape, strict=True))
    return [n + m - 1 if axis in axes else max(n, m) for axis, (n, m) in pairs]


def convolve(a: Array, b: Array, axes: Sequence[int]) -> Array:
    """The full convolution of two real or complex arrays."""
    shape = full_shape(a, b, axes)
    product = _product(a, b, axes, [shape[axis] for axis in axes])
    return product[tuple(slice(n) for n in shape)]


def overlap_add(a: Array, b: Array, axes: Sequence[int]) -> Array:
    """`convolve` in blocks: with m the shorter extent, block i of step s fills s i .. s (i + 1) + m - 2."""
    shape, axes = full_shape(a, b, axes), sorted(axes)
    short = [min(a.shape[axis], b.shape[axis]) for axis in axes]
    steps = [_step(shape[axis] - m + 1, m) for axis, m in zip(axes, short, strict=True)]
    blocks_a, blocks_b = (_in_blocks(v, axes, steps) for v in (a, b))
    within = [axis + i + 1 for i, axis in enumerate(axes)]
    lengths = [s + m - 1 for s, m in zip(steps, short, strict=True)]
    made = _product(blocks_a, blocks_b, within, lengths)
    for axis, length, step in reversed(list(zip(within, lengths, steps, strict=True))):
        made = _joined(made, axis - 1, length, step)
    return made[tuple(slice(n) for n in shape)]


def seconds(shape: Sequence[int], itemsize: int) -> float:
    """An estimate for `convolve` with a result of this shape."""
    n = math.prod(shape)
    threads = num_threads() if len(shape) > 1 and n >= _FEWEST_FOR_THREADS else 1
    return _CALL_SECONDS + 3 * 2.5 * n * math.log2(n + 1) / (_RATE[itemsize] * threads)


def _module() -> tuple[Any, dict[str, int]]:
    try:
        import scipy.fft  # noqa: PLC0415 - SciPy is optional
    except ModuleNotFoundError:
        return np.fft, {}
    return scipy.fft, {"workers": num_threads()}


def _product(a: Array, b: Array, axes: Sequence[int], extents: Sequence[int]) -> Array:
    """The circular convolution along `axes`, of at least these extents."""
    if not axes:
        return a * b
    fft, options = _module()
    real = not (np.iscomplexobj(a) or np.iscomplexobj(b))
    periods = [fft.next_fast_len(n, real) if options else 1 << (n - 1).bit_length() for n in extents]
    if math.prod(periods) < _FEWEST_FOR_THREADS:
        options = dict.fromkeys(options, 1)
    forward, inverse = (fft.rfftn, fft.irfftn) if real else (fft.fftn, fft.ifftn)
    with np.errstate(invalid="ignore"):  # of infinities
        made: Array = forward(a, periods, axes, **options) * forward(b, periods, axes, **options)
    made = inverse(made, periods, axes, **options)
    return made


def _step(long: int, short: int) -> int:
    """Outputs of a block: of the powers of two as its length, the one with the least work an output; all of them where
    blocks do not pay."""
    best, step = math.log2(long + short) * (long + short) / long, long
    length = max(1 << (2 * short - 1).bit_length(), _SHORTEST_BLOCK)
    while length < long + short - 1:
        work = math.log2(length) * length / (length - short + 1)
        if work < best:
            best, step = work, length - short + 1
        length *= 2
    return step


def _in_blocks(x: Array, axes: Sequence[int], steps: Sequence[int]) -> Array:
    """Each of the axes becomes two: the block, and the place within it."""
    for axis, step in reversed(list(zip(axes, steps, strict=True))):
        count = -(-x.shape[axis] // step)
        after = [(0, 0)] * x.ndim
        after[axis] = (0, count * step - x.shape[axis] if count > 1 else 0)
        x = np.pad(x, after)
        x = x.reshape(*x.shape[:axis], count, -1, *x.shape[axis + 1 :])
    return x


def _joined(blocks: Array, axis: int, length: int, step: int) -> Array:
    """The sum of overlapping blocks: `axis` counts them, the next one lies within."""
    parts = np.moveaxis(blocks, (axis, axis + 1), (0, 1))
    line = np.zeros((len(parts) + 1, step, *parts.shape[2:]), parts.dtype)
    line[:-1] = parts[:, :step]
    line[1:, : length - step] += parts[:, step:length]
    return np.moveaxis(line.reshape(-1, *parts.shape[2:]), 0, axis)
