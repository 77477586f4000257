"""The fp64 answer that a time is worth nothing without."""

from __future__ import annotations

import math

import numpy as np

from bench.cases import DTYPES, Array, Case
from vkconv import _check


class Reference:
    """Some output pixels of a case in fp64: all of a small one, the corners and a random choice of a large one."""

    def __init__(self, case: Case, x: Array, w: Array) -> None:
        self.shape = case.y
        self.tolerance = _check.tolerance(DTYPES[case.dtype])
        cost_of_pixel = max(1, math.prod(case.w) * case.x[0])
        self._where = _check.grid(case.y[1:-1], _check.WORK_LIMIT / cost_of_pixel)
        self._exact = _check.exact(x, w, self._where, **case.as_general)

    def error(self, y: Array) -> float:
        """The largest error relative to the sum of |x||w|; infinite for a wrong shape."""
        if y.shape != self.shape:
            return math.inf
        sample = y[np.ix_(np.arange(y.shape[0]), *self._where)]
        return _check.relative_error(sample, *self._exact)
