"""Sums of integers that are computed in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from vkconv._types import Array


def wrapped(sums: Array, dtype: np.dtype[Any]) -> Array:
    """Sums that are whole but for roundings, in a type that keeps their low bits. A cast of a float that the type does
    not hold has no such meaning, one from a wider integer has."""
    wide = np.uint64 if dtype == np.uint64 else np.int64
    with np.errstate(invalid="ignore"):  # of what 64 bits do not hold either
        made: Array = np.rint(sums).astype(wide).astype(dtype, copy=False)
    return made
