"""Convolution and correlation of whole signals, with the signatures of `scipy.signal`.

    from vkconv import signal

    y = signal.convolve2d(image, kernel, mode='same', boundary='symm')

Whichever is estimated to be faster computes: sums over the kernel, by the convolutions here, or Fourier transforms, by
`scipy.fft` where SciPy is installed and `numpy.fft` otherwise. Integers are exact, and wrap where their type ends.
"""

from __future__ import annotations

import math
import operator
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from vkconv import _borders, _integers, _single_channel, _transforms
from vkconv._explain import explain
from vkconv._ops import conv_general
from vkconv._types import Array, PaddingMode, PlainPads

__all__ = ["choose_conv_method", "convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve", "oaconvolve"]

Mode = Literal["full", "same", "valid"]
Axes = int | Iterable[int] | None
_BOUNDARIES: dict[str, Any] = {
    "fill": "constant",  # SciPy's names, of which it documents every other one
    "pad": "constant",
    "wrap": "circular",
    "circular": "circular",
    "symm": "symmetric",
    "symmetric": "symmetric",
}
_MOST_DIRECT_AXES = 3


def convolve(in1: Any, in2: Any, mode: Mode = "full", method: str = "auto") -> Array:
    """`scipy.signal.convolve`.

    Examples
    --------
    >>> signal.convolve([1, 2, 3], [1, 1])
    array([1, 3, 5, 3])
    """
    a, b = _operands(in1, in2)
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"method is {method!r}, wanted 'auto', 'direct' or 'fft'")
    if a.ndim == 0:
        return a * b
    axes = range(a.ndim)
    starts, counts = _region(a, b, mode, axes)
    result_type = np.result_type(a, b)
    if b.size == 0 or (a.size == 0 and mode != "same"):
        raise ValueError(f"in1 has the shape {a.shape}, in2 has {b.shape}: neither can be empty")
    if a.size == 0:
        return np.zeros(counts, result_type)
    if method == "auto":
        method = choose_conv_method(a, b, mode)
    if method == "direct" and _needs_own_arithmetic(a, b, result_type):
        return _tap_by_tap(a, b, starts, counts, result_type)
    if method == "fft" and result_type.kind in "iub":
        return _cut(_integers.convolve(a, b, result_type), starts, counts)
    a, b = _floating(a, b)
    if method == "direct":
        made = _direct(a, b, starts, counts)
    else:
        made = _cut(_transforms.convolve(a, b, axes), starts, counts)
        if not np.isfinite(made.flat[0]):
            warnings.warn("Use of fft convolution spreads NaN and infinities over the result", RuntimeWarning, 2)
    return _integers.wrapped(made, result_type) if result_type.kind in "iub" else made.astype(result_type, copy=False)


def correlate(in1: Any, in2: Any, mode: Mode = "full", method: str = "auto") -> Array:
    """`scipy.signal.correlate`."""
    _, b = _operands(in1, in2)
    return convolve(in1, _mirrored(b), mode, method)


def fftconvolve(in1: Any, in2: Any, mode: Mode = "full", axes: Axes = None) -> Array:
    """`scipy.signal.fftconvolve`: by Fourier transforms along `axes`, broadcasting along the others. Integers give
    floats, as there."""
    return _along(_transforms.convolve, in1, in2, mode, axes)


def oaconvolve(in1: Any, in2: Any, mode: Mode = "full", axes: Axes = None) -> Array:
    """`scipy.signal.oaconvolve`: `fftconvolve` in blocks, for operands of very different extents.

    Examples
    --------
    >>> signal.oaconvolve(np.ones(1000), np.ones(3)).round(6)[:4]
    array([1., 2., 3., 3.])
    """
    return _along(_transforms.overlap_add, in1, in2, mode, axes)


def convolve2d(in1: Any, in2: Any, mode: Mode = "full", boundary: str = "fill", fillvalue: Any = 0) -> Array:
    """`scipy.signal.convolve2d`."""
    a, b = _operands(in1, in2)
    if a.ndim != 2:
        raise ValueError(f"in1 and in2 must both be 2-D arrays, they have {a.ndim} dimensions")
    if boundary not in _BOUNDARIES:
        raise ValueError(f"boundary is {boundary!r}, wanted 'fill', 'wrap' or 'symm'")
    outside = np.asarray(fillvalue)
    if outside.size != 1:
        raise ValueError(f"`fillvalue` must be scalar or an array with one element, got {outside.size}")
    if np.iscomplexobj(outside) and not np.iscomplexobj(a) and not np.iscomplexobj(b):
        raise ValueError(f"could not cast `fillvalue` directly to the output type {np.result_type(a, b)}")
    value = outside.astype(np.result_type(a, b)).reshape(1)
    border = _BOUNDARIES[boundary]
    starts, counts = _region(a, b, mode, (0, 1))
    if b.size == 0 or (a.size == 0 and (mode != "full" or border != "constant")):
        return np.zeros(counts, value.dtype)
    if mode == "valid" or (border == "constant" and value == 0 and a.size > 0):
        return convolve(a, b, mode)
    around = _around(a, [(m - 1, m - 1) for m in b.shape], border, value)
    whole = [slice(s, s + n + m - 1) for s, n, m in zip(starts, counts, b.shape, strict=True)]
    return convolve(around[tuple(whole)], b, "valid")


def correlate2d(in1: Any, in2: Any, mode: Mode = "full", boundary: str = "fill", fillvalue: Any = 0) -> Array:
    """`scipy.signal.correlate2d`. With mode 'valid', an `in2` larger than `in1` and complex numbers, the result is that
    of `correlate`, of which SciPy gives the conjugate here."""
    a, b = _operands(in1, in2)
    flipped = _mirrored(b)
    if mode == "same" and a.ndim == 2 and b.size > 0:
        # SciPy's centre of a kernel of even extent is that of the flipped one.
        full = convolve2d(a, flipped, "full", boundary, fillvalue)
        return _cut(full, [m // 2 for m in b.shape], list(a.shape))
    return convolve2d(a, flipped, mode, boundary, fillvalue)


def choose_conv_method(in1: Any, in2: Any, mode: Mode = "full", measure: bool = False) -> Any:
    """'direct' or 'fft', whichever is estimated to take less time; with `measure`, whichever took less, and a dict of
    the seconds of both."""
    a, b = _operands(in1, in2)
    if measure:
        times = {method: _seconds_of(partial(convolve, a, b, mode, method)) for method in ("fft", "direct")}
        return min(times, key=lambda method: times[method]), times
    kind = np.result_type(a, b).kind
    if kind == "O" or a.ndim == 0 or a.size == 0 or b.size == 0:
        return "direct"
    if a.ndim > _MOST_DIRECT_AXES:
        return "direct" if kind in "iub" else "fft"
    itemsize = min(np.real(_floating(a[:0], b[:0])[0]).itemsize, 8)
    sums = _direct_seconds(a, b, mode, itemsize)
    transforms = _transforms.seconds(_transforms.full_shape(a, b, range(a.ndim)), itemsize)
    if kind in "iub" and sums > transforms:  # they are exact, or not taken; a piece has its own two
        pieces = _integers.pieces(a, b)
        transforms = transforms * (2 * pieces + 1) / 3 if pieces else math.inf
    return "direct" if sums <= transforms else "fft"


def _seconds_of(run: Callable[[], Any]) -> float:
    run()  # plans, and places the memory
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


# ---- shapes


def _operands(in1: Any, in2: Any) -> tuple[Array, Array]:
    a, b = (v.astype(v.dtype.newbyteorder("="), copy=False) for v in (np.asarray(in1), np.asarray(in2)))
    for name, v in (("in1", a), ("in2", b)):
        if v.dtype.kind not in "biufcO":
            raise ValueError(f"{name} has dtype {v.dtype}, wanted numbers")
    if a.ndim != b.ndim:
        raise ValueError(
            f"in1 and in2 should have the same dimensionality: in1 has {a.ndim} dimensions, in2 has {b.ndim}"
        )
    return a, b


def _mirrored(b: Array) -> Array:
    """The operand that makes a correlation of a convolution. Without axes, NumPy takes objects out of their array."""
    return np.asarray(b.conj(), b.dtype) if b.ndim == 0 else np.flip(b).conj()


def _floating(a: Array, b: Array) -> tuple[Array, Array]:
    """In the type the computation runs in: double, unless both hold single or half precision or one holds more."""
    kinds: Any = (np.complex128, np.float64)
    if all(v.dtype in (np.float16, np.float32, np.complex64) for v in (a, b)):
        kinds = (np.complex64, np.float32)
    elif any(v.dtype.char in "gG" for v in (a, b)):
        kinds = (np.clongdouble, np.longdouble)
    first, second = (v.astype(kinds[v.dtype.kind != "c"], copy=False) for v in (a, b))
    return first, second


def _checked_axes(a: Array, b: Array, axes: Axes) -> list[int]:
    """Those along which something is summed; extents along the others broadcast."""
    if axes is None:
        made = list(range(a.ndim))
    else:
        try:
            given = [operator.index(axis) for axis in (axes if isinstance(axes, Iterable) else [axes])]
        except TypeError:
            raise ValueError(f"axes is {axes!r}: axes must be a scalar or iterable of integers") from None
        if not given:
            raise ValueError("when provided, axes cannot be empty")
        if not all(-a.ndim <= axis < a.ndim for axis in given):
            raise ValueError(f"axes is {axes!r}: axes exceeds dimensionality of input, which is {a.ndim}")
        made = [axis % a.ndim for axis in given]
        if len(set(made)) != len(made):
            raise ValueError(f"axes is {axes!r}: all axes must be unique")
    pairs = list(zip(a.shape, b.shape, strict=True))
    if any(axis not in made and n != m and 1 not in (n, m) for axis, (n, m) in enumerate(pairs)):
        raise ValueError(f"incompatible shapes for in1 and in2: {a.shape} and {b.shape} along the other axes")
    return [axis for axis in made if 1 not in pairs[axis]]


def _region(a: Array, b: Array, mode: Mode, axes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Where the result begins in the full convolution along `axes`, and its shape."""
    pairs = list(zip(a.shape, b.shape, strict=True))
    full = [sum(pair) - 1 if axis in axes else max(pair) for axis, pair in enumerate(pairs)]
    if mode == "full":
        return [0] * a.ndim, full
    if mode == "same":
        return [max(f - n, 0) // 2 for f, n in zip(full, a.shape, strict=True)], list(a.shape)
    if mode != "valid":
        raise ValueError(f"mode is {mode!r}: acceptable mode flags are 'valid', 'same', or 'full'")
    along = [pairs[axis] for axis in axes]
    if not all(n >= m for n, m in along) and not all(n <= m for n, m in along):
        raise ValueError("For 'valid' mode, one must be at least as large as the other in every dimension")
    starts = [max(min(pair) - 1, 0) if axis in axes else 0 for axis, pair in enumerate(pairs)]
    return starts, [abs(n - m) + 1 if axis in axes else full[axis] for axis, (n, m) in enumerate(pairs)]


def _cut(full: Array, starts: list[int], counts: list[int]) -> Array:
    return np.ascontiguousarray(full[tuple(slice(s, s + n) for s, n in zip(starts, counts, strict=True))])


def _around(a: Array, pads: PlainPads, border: PaddingMode, value: Array) -> Array:
    """A copy of `a` with its border."""
    if border != "constant":
        return _borders.bordered(a, pads, border, 0)
    return np.pad(a.astype(value.dtype, copy=False), pads, constant_values=value)


# ---- transforms


def _along(run: Callable[[Array, Array, Sequence[int]], Array], in1: Any, in2: Any, mode: Mode, axes: Axes) -> Array:
    a, b = _operands(in1, in2)
    if a.ndim == 0:
        return a * b
    if a.size == 0 or b.size == 0:
        return np.zeros(0)
    along = _checked_axes(a, b, axes)
    starts, counts = _region(a, b, mode, along)
    return _cut(run(*_floating(a, b), along) if along else a * b, starts, counts)


# ---- sums


def _correlation(a: Array, b: Array, starts: list[int], counts: list[int]) -> tuple[Array, Array, PlainPads]:
    """Signal, kernel and pads of the correlation that is this part of the full convolution."""
    signal, kernel = (a, b) if a.size >= b.size else (b, a)
    pads = [
        (k - 1 - start, start + count - n)
        for n, k, start, count in zip(signal.shape, kernel.shape, starts, counts, strict=True)
    ]
    return signal[None], np.ascontiguousarray(np.flip(kernel)), pads


def _direct(a: Array, b: Array, starts: list[int], counts: list[int]) -> Array:
    """Complex operands as sums of their parts."""
    if np.iscomplexobj(a):
        real, imaginary = (_direct(part, b, starts, counts) for part in (a.real, a.imag))
        return real + 1j * imaginary
    if np.iscomplexobj(b):
        return _direct(b, a, starts, counts)
    made: Array = _single_channel.correlate(*_correlation(a, b, starts, counts))[0]
    return made


def _needs_own_arithmetic(a: Array, b: Array, dtype: np.dtype[Any]) -> bool:
    """Objects, long doubles, and integers whose sums may be beyond those that float64 holds exactly."""
    if dtype.kind not in "iu":
        return dtype.kind == "O" or dtype.char in "gG"
    return _integers.largest(a) * _integers.largest(b) * min(a.size, b.size) > 2**53


def _tap_by_tap(a: Array, b: Array, starts: list[int], counts: list[int], dtype: np.dtype[Any]) -> Array:
    signal, kernel = (v.astype(dtype, copy=False) for v in ((a, b) if a.size >= b.size else (b, a)))
    full = np.zeros(_transforms.full_shape(a, b, range(a.ndim)), dtype)
    for tap in np.ndindex(kernel.shape):
        full[tuple(slice(i, i + n) for i, n in zip(tap, signal.shape, strict=True))] += signal * kernel[tap]
    return _cut(full, starts, counts)


def _direct_seconds(a: Array, b: Array, mode: Mode, itemsize: int) -> float:
    """The planner's estimate."""
    kind = np.dtype(f"f{itemsize}")
    starts, counts = _region(a, b, mode, range(a.ndim))
    like = [np.broadcast_to(np.zeros((), kind), v.shape) for v in (a, b)]
    told = explain(conv_general, **_single_channel.call(*_correlation(like[0], like[1], starts, counts)))
    return min((c.seconds for c in told.candidates if c.seconds is not None), default=math.inf)
