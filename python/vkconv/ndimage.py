"""Filters with the signatures of `scipy.ndimage`, at the speed of the convolutions here.

    from vkconv import ndimage

    blurred = ndimage.gaussian_filter(image, 2.0)

Inputs have one, two or three axes; modes, `origin`, `cval`, `axes` and the rules for dtypes are SciPy's. Like SciPy,
filters compute in float64, except that float32 and float16 inputs compute in float32: their results differ from
SciPy's in the last bits of float32. SciPy itself is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from vkconv import _borders, _single_channel
from vkconv._ops import conv_general
from vkconv._types import Array, PaddingMode

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

_MODES: dict[str, Any] = {
    "reflect": "symmetric",  # SciPy's names
    "grid-mirror": "symmetric",
    "mirror": "reflect",
    "nearest": "edge",
    "wrap": "circular",
    "grid-wrap": "circular",
    "constant": "constant",
    "grid-constant": "constant",
}
_FEWEST_CHANNELS = 8  # that make a depthwise convolution worth its while
Output = Array | np.dtype[Any] | type | str | None
PerAxis = Any  # a value, or a sequence with one for each axis


def correlate(
    input: Array,
    weights: Array,
    output: Output = None,
    mode: PerAxis = "reflect",
    cval: float = 0.0,
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
    return _filter(input, weights, output, mode, cval, origin, axes, flip=False)


def convolve(
    input: Array,
    weights: Array,
    output: Output = None,
    mode: PerAxis = "reflect",
    cval: float = 0.0,
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
    return _filter(input, weights, output, mode, cval, origin, axes, flip=True)


def correlate1d(
    input: Array,
    weights: Array,
    axis: int = -1,
    output: Output = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> Array:
    """`scipy.ndimage.correlate1d`."""
    return _filter(input, _line(weights), output, mode, cval, origin, axis, flip=False)


def convolve1d(
    input: Array,
    weights: Array,
    axis: int = -1,
    output: Output = None,
    mode: str = "reflect",
    cval: float = 0.0,
    origin: int = 0,
) -> Array:
    """`scipy.ndimage.convolve1d`."""
    return _filter(input, _line(weights), output, mode, cval, origin, axis, flip=True)


def gaussian_filter1d(
    input: Array,
    sigma: float,
    axis: int = -1,
    order: int = 0,
    output: Output = None,
    mode: str = "reflect",
    cval: float = 0.0,
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
    cval: float = 0.0,
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
    array, chosen = _array(input), _axes(axes, np.ndim(input))
    options = (
        _each(v, len(chosen), name)
        for v, name in ((sigma, "sigma"), (order, "order"), (mode, "mode"), (radius, "radius"))
    )
    steps = [(a, s, o, m, r) for a, s, o, m, r in zip(chosen, *options, strict=True) if s > 1e-15]
    made = _made(array, output)
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
    cval: float = 0.0,
    origin: int = 0,
) -> Array:
    """`scipy.ndimage.uniform_filter1d`: the mean of `size` neighbours along one axis."""
    if size < 1:
        raise ValueError(f"size is {size}, wanted at least 1")
    return correlate1d(input, np.full(size, 1.0 / size), axis, output, mode, cval, origin)


def uniform_filter(
    input: Array,
    size: PerAxis = 3,
    output: Output = None,
    mode: PerAxis = "reflect",
    cval: float = 0.0,
    origin: PerAxis = 0,
    *,
    axes: int | Iterable[int] | None = None,
) -> Array:
    """`scipy.ndimage.uniform_filter`."""
    array, chosen = _array(input), _axes(axes, np.ndim(input))
    options = (_each(v, len(chosen), name) for v, name in ((size, "size"), (mode, "mode"), (origin, "origin")))
    made = _made(array, output)
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
    cval: float = 0.0,
) -> Array:
    """`scipy.ndimage.sobel`."""
    array = _array(input)
    modes = _each(mode, array.ndim, "mode")
    (axis,) = _axes(axis, array.ndim)
    made = _made(array, output)
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


# ---- the one filter behind all


def _array(input: Any) -> Array:
    array = np.asarray(input)
    if np.iscomplexobj(array):
        raise TypeError("input is complex, wanted real numbers")
    return array


def _line(weights: Any) -> Array:
    array = np.asarray(weights)
    if array.ndim != 1:
        raise ValueError(f"weights has {array.ndim} dimensions, wanted 1")
    return array


def _made(input: Array, output: Output) -> Array:
    """The array that is returned: the caller's, or a new one of the input's shape."""
    if isinstance(output, np.ndarray):
        if output.shape != input.shape:
            raise RuntimeError(f"output shape {output.shape} not correct, wanted {input.shape}")
        return output
    return np.empty(input.shape, input.dtype if output is None else output)


def _axes(axes: int | Iterable[int] | None, ndim: int) -> list[int]:
    given = range(ndim) if axes is None else [axes] if isinstance(axes, int | np.integer) else list(axes)
    made = [a + ndim if a < 0 else a for a in given]
    if any(not 0 <= a < ndim for a in made):
        raise ValueError(f"axes is {axes!r} for {ndim} dimensions")
    if len(set(made)) != len(made):
        raise ValueError("axes must be unique")
    return made


def _each(value: PerAxis, count: int, name: str) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [value] * count
    values = list(value)
    if len(values) != count:
        raise RuntimeError(f"{name} has {len(values)} values, wanted one or {count}")
    return values


def _filter(
    input: Any, weights: Any, output: Output, mode: PerAxis, cval: float, origin: Any, axes: Any, *, flip: bool
) -> Array:
    array, weights = _array(input), np.asarray(weights)
    chosen = _axes(axes, array.ndim)
    if weights.ndim != len(chosen):
        raise RuntimeError(f"weights has {weights.ndim} dimensions, wanted one for each of {len(chosen)} axes")
    if weights.size == 0:
        raise RuntimeError("no filter weights given")
    if len(chosen) > 3:
        raise ValueError(f"the filter has {len(chosen)} axes, wanted at most 3")
    origins, modes = _each(origin, len(chosen), "origin"), _each(mode, len(chosen), "mode")
    pads = [_reach(n, int(o), flip) for n, o in zip(weights.shape, origins, strict=True)]
    borders = [_border(m, cval) for m in modes]
    made = _made(array, output)
    if array.size == 0:
        return made
    kind = np.dtype(np.float32 if array.dtype in (np.float32, np.float16) else np.float64)
    kernel = weights.astype(kind)
    if flip:
        kernel = np.flip(kernel)
    along = _along_one if len(chosen) == 1 else _along_some
    result = along(array, kernel, chosen, pads, borders)
    if not isinstance(output, np.ndarray) and made.dtype == result.dtype:
        return result
    made[...] = result
    return made


def _border(mode: str, cval: float) -> PaddingMode:
    if mode not in _MODES:
        raise RuntimeError(f"mode is {mode!r}, wanted one of {', '.join(_MODES)}")
    border: PaddingMode = _MODES[mode]
    return ("constant", cval) if border == "constant" else border


def _along_some(array: Array, kernel: Array, axes: list[int], pads: Any, borders: list[PaddingMode]) -> Array:
    """One channel; the axes that are not filtered are the batch."""
    line = np.moveaxis(array, axes, range(-len(axes), 0))
    first = line.ndim - len(axes)
    for axis, (pad, border) in enumerate(zip(pads, borders, strict=True), first):
        line = _borders.bordered(line, [pad], border, axis, kernel.dtype)
    result = _single_channel.correlate(line.reshape(-1, *line.shape[first:]), kernel, [(0, 0)] * kernel.ndim)
    return np.moveaxis(result.reshape(*line.shape[:first], *result.shape[1:]), range(-len(axes), 0), axes)


def _along_one(array: Array, kernel: Array, axes: list[int], pads: Any, borders: list[PaddingMode]) -> Array:
    """Positions after the axis are the channels of a depthwise convolution, whose kernels are all the same: the sums of
    neighbouring channels run side by side in vectors."""
    axis = axes[0]
    line = array.reshape(math.prod(array.shape[:axis]), array.shape[axis], -1)
    channels = line.shape[-1]
    if channels < _FEWEST_CHANNELS:
        return _along_some(array, kernel, axes, pads, borders)
    line = _borders.bordered(line, pads, borders[0], 1, kernel.dtype)
    same = np.broadcast_to(kernel[None, :, None], (channels, len(kernel), 1))
    result = conv_general(line, same, groups=channels, precision="highest", device="cpu")
    return result.reshape(array.shape)


def _reach(extent: int, origin: int, flip: bool) -> tuple[int, int]:
    """How many elements before and after an output the filter reads. A convolution's is mirrored, and of a filter of
    even extent the centre is then the element before."""
    before = extent // 2 + origin
    after = extent - 1 - before
    if before < 0 or after < 0:
        raise ValueError("invalid origin")
    return (after, before) if flip else (before, after)
