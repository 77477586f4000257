"""Sums of integers that are computed in float64, by Fourier transforms exactly too.

Rounding what transforms give is exact where their error is less than a half. For numbers of too many bits, those of one
operand are cut into pieces of fewer bits, whose convolutions are added up as integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vkconv import _transforms
from vkconv._types import Array

_MOST_PIECES = 4
# An element of a convolution by transforms of n elements has an error below this many units 2^-53, for each factor 2
# of n, of the product of the operands' Euclidean norms. Three transforms by factors 2 have 12 (Percival, Math. Comp.
# 72, 2003, theorem 5.1); the butterflies of factors 3 and 5, which sum as many terms, have up to three times of that.
_ROUNDINGS = 40


def wrapped(sums: Array, dtype: np.dtype[Any]) -> Array:
    """Sums that are whole but for roundings, in a type that keeps their low bits. A cast of a float that the type does
    not hold has no such meaning, one from a wider integer has."""
    wide = np.uint64 if dtype == np.uint64 else np.int64
    with np.errstate(invalid="ignore"):  # of what 64 bits do not hold either
        made: Array = np.rint(sums).astype(wide).astype(dtype, copy=False)
    return made


def largest(v: Array) -> int:
    return max(int(v.max()), -int(v.min()))


def pieces(a: Array, b: Array) -> int:
    """Into how many the operand with the larger numbers is cut for `convolve` to be exact; 0 if into too many."""
    first, second = _larger_first(a, b)
    shape = _transforms.full_shape(a, b, range(a.ndim))
    factors = sum(math.log2(2 * n) for n in shape)  # transforms are at most twice as long as the result
    norms = [float(np.linalg.norm(v.astype(np.float64).ravel())) for v in (first, second)]
    for count in range(1, _MOST_PIECES + 1):
        norm = min(norms[0], 2.0 ** _width(first, count) * math.sqrt(first.size))
        if _ROUNDINGS * (factors + 1) * norm * norms[1] < 2.0**52:
            return count
    return 0


def convolve(a: Array, b: Array, dtype: np.dtype[Any]) -> Array:
    """The full convolution, by transforms; what float64 rounds where `pieces` are 0."""
    count = pieces(a, b)
    if count == 0:
        return wrapped(_transforms.convolve(*_doubles(a, b), range(a.ndim)), dtype)
    first, second = _larger_first(a, b)
    width = _width(first, count)
    above = [first >> (i * width) for i in range(count)]
    cut = np.stack([*(v & ((1 << width) - 1) for v in above[:-1]), above[-1]])
    made = _transforms.convolve(*_doubles(cut, second[None]), range(1, cut.ndim))
    total = np.zeros(made.shape[1:], np.int64)
    for i, sums in enumerate(made):
        total += wrapped(sums, total.dtype) << (i * width)
    return total.astype(dtype, copy=False)


def _larger_first(a: Array, b: Array) -> Sequence[Array]:
    """As 64 bits with a sign, of which an unsigned result is right too: it wraps there."""
    return sorted((v.astype(np.int64, copy=False) for v in (a, b)), key=largest, reverse=True)


def _width(v: Array, count: int) -> int:
    """Bits of each of so many pieces."""
    return -(-largest(v).bit_length() // count)


def _doubles(a: Array, b: Array) -> tuple[Array, Array]:
    return a.astype(np.float64), b.astype(np.float64)
