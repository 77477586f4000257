"""Convolution and correlation of whole signals, with the signatures of `scipy.signal`.

    from vkconv import signal

    y = signal.convolve2d(image, kernel, mode='same', boundary='symm')

Whichever is estimated to be faster computes: sums over the kernel, by the convolutions here, or Fourier transforms, by
`scipy.fft` where SciPy is installed and `numpy.fft` otherwise. Integers are exact while sums fit float64's 53 bits.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from vkconv import _borders, _single_channel
from vkconv._config import num_threads
from vkconv._explain import explain
from vkconv._ops import conv_general
from vkconv._types import Array, PaddingMode, PlainPads

__all__ = ["choose_conv_method", "convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve"]

Mode = Literal["full", "same", "valid"]
_BOUNDARIES: dict[str, Any] = {"fill": "constant", "wrap": "circular", "symm": "symmetric"}
# Operations a second of real transforms, 2.5 n log2(n) each, with the data in cache; of several axes, a thread.
_FFT_RATE = {4: 10e9, 8: 6e9}
_FFT_CALL_SECONDS = 60e-6
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
        return np.asarray(a * b)
    shape = [n + m - 1 if min(n, m) else 0 for n, m in zip(a.shape, b.shape, strict=True)]
    starts, counts = _region(a, b, mode)
    result_type = np.result_type(a, b)
    if a.size == 0 or b.size == 0:
        return np.zeros(counts, result_type)
    if method == "auto":
        method = choose_conv_method(a, b, mode)
    if np.iscomplexobj(a) or np.iscomplexobj(b):
        return _complex(a, b, mode, method)
    kind = np.float32 if result_type in (np.float32, np.float16) else np.float64
    run = _direct if method == "direct" else _transformed
    made = run(a.astype(kind, copy=False), b.astype(kind, copy=False), shape, starts, counts)
    if result_type.kind in "iub":
        made = np.rint(made)
    return made.astype(result_type, copy=False)


def correlate(in1: Any, in2: Any, mode: Mode = "full", method: str = "auto") -> Array:
    """`scipy.signal.correlate`."""
    _, b = _operands(in1, in2)
    return convolve(in1, np.conj(np.flip(b)), mode, method)


def fftconvolve(in1: Any, in2: Any, mode: Mode = "full") -> Array:
    """`scipy.signal.fftconvolve`: `convolve` by Fourier transforms. Integers give floats, as there."""
    a, b = _operands(in1, in2)
    common = np.result_type(a, b)
    kind = np.result_type(common, np.float32 if common in (np.float16, np.float32, np.complex64) else np.float64)
    return convolve(a.astype(kind, copy=False), b.astype(kind, copy=False), mode, "fft")


def convolve2d(in1: Any, in2: Any, mode: Mode = "full", boundary: str = "fill", fillvalue: float = 0) -> Array:
    """`scipy.signal.convolve2d`."""
    a, b = _operands(in1, in2)
    if a.ndim != 2:
        raise ValueError(f"in1 has {a.ndim} dimensions, wanted 2")
    if boundary not in _BOUNDARIES:
        raise ValueError(f"boundary is {boundary!r}, wanted 'fill', 'wrap' or 'symm'")
    if mode == "valid" or (boundary == "fill" and fillvalue == 0) or a.size == 0 or b.size == 0:
        return convolve(a, b, mode)
    starts, counts = _region(a, b, mode)
    border: PlainPads = [(m - 1, m - 1) for m in b.shape]
    name: PaddingMode = ("constant", fillvalue) if boundary == "fill" else _BOUNDARIES[boundary]
    around = _borders.bordered(a, border, name, 0)
    whole = [slice(s, s + n + m - 1) for s, n, m in zip(starts, counts, b.shape, strict=True)]
    return convolve(around[tuple(whole)], b, "valid")


def correlate2d(in1: Any, in2: Any, mode: Mode = "full", boundary: str = "fill", fillvalue: float = 0) -> Array:
    """`scipy.signal.correlate2d`."""
    a, b = _operands(in1, in2)
    flipped = np.conj(np.flip(b))
    if mode == "same" and a.ndim == 2:  # SciPy's centre of a kernel of even extent is that of the flipped one
        full = convolve2d(a, flipped, "full", boundary, fillvalue)
        at = [slice(m // 2, m // 2 + n) for n, m in zip(a.shape, b.shape, strict=True)]
        return full[tuple(at)]
    return convolve2d(a, flipped, mode, boundary, fillvalue)


def choose_conv_method(in1: Any, in2: Any, mode: Mode = "full") -> str:
    """'direct' or 'fft', whichever is estimated to take less time."""
    a, b = _operands(in1, in2)
    if a.ndim > _MOST_DIRECT_AXES:
        return "fft"
    if np.result_type(a, b).kind in "iub" or a.ndim == 0 or a.size == 0 or b.size == 0:
        return "direct"
    itemsize = 4 if np.result_type(a, b) in (np.float32, np.float16, np.complex64) else 8
    shape = [n + m - 1 for n, m in zip(a.shape, b.shape, strict=True)]
    return "direct" if _direct_seconds(a, b, mode, itemsize) <= _fft_seconds(shape, itemsize) else "fft"


# ---- shapes


def _operands(in1: Any, in2: Any) -> tuple[Array, Array]:
    a, b = np.asarray(in1), np.asarray(in2)
    if a.ndim != b.ndim:
        raise ValueError(f"in1 has {a.ndim} dimensions, in2 has {b.ndim}: they must agree")
    return a, b


def _region(a: Array, b: Array, mode: Mode) -> tuple[list[int], list[int]]:
    """Where the result begins in the full convolution, and its shape."""
    if mode == "full":
        return [0] * a.ndim, [max(n + m - 1, 0) if min(n, m) else 0 for n, m in zip(a.shape, b.shape, strict=True)]
    if mode == "same":
        return [(m - 1) // 2 for m in b.shape], list(a.shape)
    if mode != "valid":
        raise ValueError(f"mode is {mode!r}, wanted 'full', 'same' or 'valid'")
    pairs = list(zip(a.shape, b.shape, strict=True))
    if not all(n >= m for n, m in pairs) and not all(n <= m for n, m in pairs):
        raise ValueError("for mode 'valid', one input must be at least as large as the other in every dimension")
    return [max(min(n, m) - 1, 0) for n, m in pairs], [abs(n - m) + 1 for n, m in pairs]


# ---- sums


def _correlation(a: Array, b: Array, starts: list[int], counts: list[int]) -> tuple[Array, Array, PlainPads]:
    """Signal, kernel and pads of the correlation that is this part of the full convolution."""
    signal, kernel = (a, b) if a.size >= b.size else (b, a)
    pads = [
        (k - 1 - start, start + count - n)
        for n, k, start, count in zip(signal.shape, kernel.shape, starts, counts, strict=True)
    ]
    return signal[None], np.ascontiguousarray(np.flip(kernel)), pads


def _direct(a: Array, b: Array, shape: list[int], starts: list[int], counts: list[int]) -> Array:
    made: Array = _single_channel.correlate(*_correlation(a, b, starts, counts))[0]
    return made


def _direct_seconds(a: Array, b: Array, mode: Mode, itemsize: int) -> float:
    """The planner's estimate."""
    kind = np.dtype(f"f{itemsize}")
    starts, counts = _region(a, b, mode)
    like = [np.broadcast_to(np.zeros((), kind), v.shape) for v in (a, b)]
    told = explain(conv_general, **_single_channel.call(*_correlation(like[0], like[1], starts, counts)))
    return min((c.seconds for c in told.candidates if c.seconds is not None), default=math.inf)


# ---- transforms


def _fft_module() -> tuple[Any, dict[str, int]]:
    try:
        import scipy.fft  # noqa: PLC0415 - SciPy is optional
    except ModuleNotFoundError:
        return np.fft, {}
    return scipy.fft, {"workers": num_threads()}


def _transformed(a: Array, b: Array, shape: list[int], starts: list[int], counts: list[int]) -> Array:
    fft, options = _fft_module()
    padded = [fft.next_fast_len(n, True) if options else 1 << (n - 1).bit_length() for n in shape]
    if math.prod(padded) < 1 << 16:
        options = dict.fromkeys(options, 1)
    axes = tuple(range(a.ndim))
    product = fft.rfftn(a, padded, axes, **options) * fft.rfftn(b, padded, axes, **options)
    full = fft.irfftn(product, padded, axes, **options)
    at = [slice(s, s + n) for s, n in zip(starts, counts, strict=True)]
    return np.ascontiguousarray(full[tuple(at)])


def _fft_seconds(shape: list[int], itemsize: int) -> float:
    n = math.prod(shape)
    threads = num_threads() if len(shape) > 1 and n >= 1 << 16 else 1
    return _FFT_CALL_SECONDS + 3 * 2.5 * n * math.log2(n + 1) / (_FFT_RATE[itemsize] * threads)


def _complex(a: Array, b: Array, mode: Mode, method: str) -> Array:
    """From convolutions of the real and imaginary parts."""

    def part(x: Array, y: Array) -> Array:
        return convolve(x, y, mode, method)

    if not np.iscomplexobj(b):
        return part(a.real, b) + 1j * part(a.imag, b)
    if not np.iscomplexobj(a):
        return part(a, b.real) + 1j * part(a, b.imag)
    real = part(a.real, b.real) - part(a.imag, b.imag)
    return real + 1j * (part(a.real, b.imag) + part(a.imag, b.real))
