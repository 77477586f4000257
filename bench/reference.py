"""The fp64 answer that a time is worth nothing without."""

from __future__ import annotations

import math

import numpy as np

from bench.cases import DTYPES, Array, Case
from vkconv import _check


class Reference:
    """A case's answer in fp64: of a weight gradient all of it, of others some pixels.

    Those are all of a small one, the corners and a random choice of a large one.
    """

    def __init__(self, case: Case, first: Array, second: Array) -> None:
        self.tolerance = _check.tolerance(DTYPES[case.dtype])
        w, geometry = second, case.as_general
        if case.direction == "weight_grad":
            self.shape = case.w
            self._where = _check.grid(case.w[1:-1], math.inf)
            self._exact = _check.exact_weight_grad(first, second, case.w[1:-1], **geometry)
            return
        self.shape = case.y
        if case.direction == "input_grad":
            self.shape = case.x
            w, geometry = _check.input_grad_problem(w, first.shape[1:-1], case.x[1:-1], **geometry)
        cost_of_pixel = max(1, w.size * self.shape[0])
        self._where = _check.grid(self.shape[1:-1], _check.WORK_LIMIT / cost_of_pixel)
        self._exact = _check.exact(first, w, self._where, **geometry)

    def error(self, y: Array) -> float:
        """The largest error relative to the sum of |x||w|; infinite for a wrong shape."""
        if y.shape != self.shape:
            return math.inf
        sample = y[np.ix_(np.arange(y.shape[0]), *self._where)]
        return _check.relative_error(sample, *self._exact)
