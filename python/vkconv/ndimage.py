"""Filters with the signatures of `scipy.ndimage`, at the speed of the convolutions here.

    from vkconv import ndimage

    blurred = ndimage.gaussian_filter(image, 2.0)

Modes, `origin`, `cval`, `axes`, complex numbers and the rules for dtypes are SciPy's. Like SciPy, filters compute in
float64, except that float32, float16 and complex64 inputs compute in float32: their results differ from SciPy's in the
last bits of float32. Infinities and NaN go where SciPy's go, but for `uniform_filter`, whose means see only their own
window. SciPy itself is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vkconv._types import Array
from vkconv._window import Output, PerAxis, checked_axes, made_output, one_each, window_filter

__all__ = [
    "convolve",
    "convolve1d",
    "correlate",
    "correlate1d",
    "gaussian_filter",
    "gaussian_filter1d",
    "sobel",
    "uniform_filter",
    "uniform_filter1d",
]


def correlate(
    input: Array,
    weights: Array,
    output: Output = None,
    mode: str = "reflect",
    cval: complex = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: int | Iterable[int] | None = None,
) -> Array:
    """`scipy.ndimage.correlate`.

    Examples
    --------
    >>> ndimage.correlate(np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 0.0]))
    array([1., 1., 2.])
    """
    return window_filter(input, weights, output, mode, cval, origin, axes, flip=False, zeros_see=False)


def convolve(
    input: Array,
    weights: Array,
    output: Output = None,
    mode: str = "reflect",
    cval: complex = 0.0,
    origin: int | Sequence[int] = 0,
    *,
    axes: int | Iterable[int] | None = None,
) -> Array:
    """`scipy.ndimage.convolve`.

    Examples
    --------
    >>> ndimage.convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 0.0]))
    array([2., 3., 3.])
    """
    return window_filter(input, weights, output, mode, cval, origin, axes, flip=True, zeros_see=False)


def correlate1d(
    input: Array,
    weights: Array,
    axis: int = -1,
    output: Output = None,
    mode: str = "reflect",
    cval: complex = 0.0,
    origin: int = 0,
) -> Array:
    """`scipy.ndimage.correlate1d`."""
    return window_filter(input, weights, output, mode, cval, origin, axis, flip=False)


def convolve1d(
    input: Array,
    weights: Array,
    axis: int = -1,
    output: Output = None,
    mode: str = "reflect",
    cval: complex = 0.0,
    origin: int = 0,
) -> Array:
    """`scipy.ndimage.convolve1d`."""
    return window_filter(input, weights, output, mode, cval, origin, axis, flip=True)


def gaussian_filter1d(
    input: Array,
    sigma: float,
    axis: int = -1,
    order: int = 0,
    output: Output = None,
    mode: str = "reflect",
    cval: complex = 0.0,
    truncate: float = 4.0,
    *,
    radius: int | None = None,
) -> Array:
    """`scipy.ndimage.gaussian_filter1d`: a Gaussian, or its derivative of an `order`, along one axis."""
    reach = int(truncate * float(sigma) + 0.5) if radius is None else radius
    if reach < 0 or int(reach) != reach:
        raise ValueError(f"radius is {radius!r}, wanted a nonnegative integer")
    return correlate1d(input, gaussian_weights(sigma, order, int(reach))[::-1], axis, output, mode, cval)


def gaussian_filter(
    input: Array,
    sigma: PerAxis,
    order: PerAxis = 0,
    output: Output = None,
    mode: PerAxis = "reflect",
    cval: complex = 0.0,
    truncate: float = 4.0,
    *,
    radius: PerAxis = None,
    axes: int | Iterable[int] | None = None,
) -> Array:
    """`scipy.ndimage.gaussian_filter`.

    Examples
    --------
    >>> ndimage.gaussian_filter(np.array([0.0, 0.0, 1.0, 0.0, 0.0]), 0.5).round(3)
    array([0.   , 0.106, 0.787, 0.106, 0.   ])
    """
    array, chosen = np.asarray(input), checked_axes(axes, np.ndim(input))
    options = (
        one_each(v, len(chosen), name)
        for v, name in ((sigma, "sigma"), (order, "order"), (mode, "mode"), (radius, "radius"))
    )
    steps = [(a, s, o, m, r) for a, s, o, m, r in zip(chosen, *options, strict=True) if s > 1e-15]
    made = made_output(array, output)
    for axis, s, o, m, r in steps:
        array = gaussian_filter1d(array, s, axis, o, made.dtype, m, cval, truncate, radius=r)
    made[...] = array
    return made


def uniform_filter1d(
    input: Array,
    size: int,
    axis: int = -1,
    output: Output = None,
    mode: str = "reflect",
    cval: complex = 0.0,
    origin: int = 0,
) -> Array:
    """`scipy.ndimage.uniform_filter1d`: the mean of `size` neighbours along one axis."""
    if size < 1:
        raise RuntimeError(f"size is {size}, wanted at least 1")
    return window_filter(input, np.ones(size), output, mode, cval, origin, axis, flip=False, divisor=size)


def uniform_filter(
    input: Array,
    size: PerAxis = 3,
    output: Output = None,
    mode: PerAxis = "reflect",
    cval: complex = 0.0,
    origin: PerAxis = 0,
    *,
    axes: int | Iterable[int] | None = None,
) -> Array:
    """`scipy.ndimage.uniform_filter`."""
    array, chosen = np.asarray(input), checked_axes(axes, np.ndim(input))
    options = (one_each(v, len(chosen), name) for v, name in ((size, "size"), (mode, "mode"), (origin, "origin")))
    made = made_output(array, output)
    for axis, n, m, o in zip(chosen, *options, strict=True):
        if n > 1:
            array = uniform_filter1d(array, int(n), axis, made.dtype, m, cval, o)
    made[...] = array
    return made


def sobel(
    input: Array,
    axis: int = -1,
    output: Output = None,
    mode: PerAxis = "reflect",
    cval: complex = 0.0,
) -> Array:
    """`scipy.ndimage.sobel`."""
    array = np.asarray(input)
    modes = one_each(mode, array.ndim, "mode")
    (axis,) = checked_axes([axis], array.ndim)
    made = made_output(array, output)
    array = correlate1d(array, [-1, 0, 1], axis, made.dtype, modes[axis], cval)  # type: ignore[arg-type]
    for other in range(array.ndim):
        if other != axis:
            array = correlate1d(array, [1, 2, 1], other, made.dtype, modes[other], cval)  # type: ignore[arg-type]
    made[...] = array
    return made


def gaussian_weights(sigma: float, order: int, radius: int) -> Array:
    """The Gaussian at -radius .. radius with sum 1, times the polynomial of its derivative of this order."""
    if order < 0:
        raise ValueError(f"order is {order}, wanted at least 0")
    x = np.arange(-radius, radius + 1)
    phi = np.exp(-0.5 / (sigma * sigma) * x**2)
    phi /= phi.sum()
    # q(x) phi(x) has the derivative (q'(x) - q(x) x / sigma^2) phi(x).
    q = np.polynomial.Polynomial([1.0])
    for _ in range(order):
        q = q.deriv() - q * np.polynomial.Polynomial([0.0, 1.0 / (sigma * sigma)])
    made: Array = q(x) * phi
    return made
