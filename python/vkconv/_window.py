"""One filter over a window of neighbours: what every function of `vkconv.ndimage` comes to."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from vkconv import _single_channel
from vkconv._ops import conv_general
from vkconv._types import Array, PaddingMode, PlainPads

Output = Array | np.dtype[Any] | type | str | None
PerAxis = Any  # a value, or a sequence with one for each axis

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
_MOST_ROUNDINGS = 64  # of a sum, in units of its last place
_FEWEST_LONG = 64  # weights of one: sums of sums are faster
_FEWEST_CHANNELS = 8  # that make a depthwise convolution worth its while


def window_filter(
    input: Any,
    weights: Any,
    output: Output,
    mode: str,
    cval: complex,
    origin: int | Sequence[int],
    axes: int | Iterable[int] | None,
    *,
    flip: bool,
    divisor: int = 1,
    zeros_see: bool = True,
) -> Array:
    """The correlation of `input` with `weights` along `axes`, or with `flip` the convolution, over `divisor`. What is
    not finite reaches sums by weights of zero too, unless `zeros_see` says no."""
    array, weights = np.asarray(input), np.asarray(weights)
    if np.iscomplexobj(cval) and array.dtype.kind != "c":
        raise ValueError(f"cval is {cval!r}, wanted a real number: the input is real")
    chosen, pads = _window(array.ndim, weights, origin, axes, flip=flip)
    border = _border(mode)
    kernel = np.flip(weights) if flip else weights.conj()
    made = made_output(array, output, complex_weights=kernel.dtype.kind == "c")
    if array.size == 0:
        return made
    kind = np.float32 if array.dtype in (np.float32, np.float16, np.complex64) else np.float64
    along = _along_one if len(chosen) == 1 else _along_some

    def sums(values: Array, taps: Array, outside: float) -> Array:
        around: PaddingMode = ("constant", outside) if border == "constant" else border
        return along(values, taps.astype(kind), chosen, pads, around)

    result = _sums_of_parts(sums if zeros_see else partial(_by_those_that_see, sums), array, kernel, cval)
    if divisor != 1:
        result /= divisor
    if not isinstance(output, np.ndarray) and made.dtype == result.dtype:
        return np.asarray(result, order="C")  # like `made`; `ascontiguousarray` would give a number an axis
    if made.dtype.kind in "iub":
        result = np.asarray(_as_c_casts(_past_roundings(result), made.dtype))  # scalars do not wrap
    with np.errstate(invalid="ignore"):
        made[...] = result
    return made


@np.errstate(all="ignore")
def _by_those_that_see(sums: Callable[[Array, Array, float], Array], x: Array, w: Array, cval: float) -> Array:
    """`sums` by the weights that SciPy does not take for zeros. Where others beside them meet what is not finite, that
    is left out, and its kinds are counted."""
    made, see = sums(x, w, cval), np.abs(w) > np.finfo(np.float64).eps
    if see.all() or np.isfinite(made.sum()):
        return made
    around = np.asarray(cval)

    def count(kind: Callable[[Array], Array], weights: Array) -> Array:
        return sums(kind(x), weights, float(kind(around)))

    made = sums(np.where(np.isfinite(x), x, 0), w, float(np.where(np.isfinite(around), around, 0)))
    up, down = see & (w > 0), see & (w < 0)
    made[count(np.isposinf, up) + count(np.isneginf, down) > 0.5] += np.inf
    made[count(np.isposinf, down) + count(np.isneginf, up) > 0.5] -= np.inf
    made[count(np.isnan, see) > 0.5] = np.nan
    return made


def _past_roundings(sums: Array) -> Array:
    """So far away from zero that a sum which is an integer but for its roundings is cast to that integer."""
    past: Array = sums + np.clip(sums * (_MOST_ROUNDINGS * np.finfo(sums.dtype).eps), -0.25, 0.25)
    return past


def _as_c_casts(sums: Array, dtype: np.dtype[Any]) -> Array:
    """SciPy's integers: truth is at least 1, and an unsigned output keeps the low bits of the sum. NumPy's casts of
    what an unsigned type cannot hold depend on the processor."""
    if dtype.kind == "b":
        return np.abs(sums) >= 1
    if dtype.kind == "u" and dtype.itemsize < 8:
        return sums.astype(np.int64)
    if dtype.kind == "u" and sums.min() < 0:
        sizes = np.abs(sums).astype(dtype)
        return np.where(sums < 0, -sizes, sizes)
    return sums


def _sums_of_parts(sums: Callable[[Array, Array, float], Array], x: Array, w: Array, cval: complex) -> Array:
    """`sums` over real arrays, of the real and imaginary parts that there are."""
    real, imaginary = float(np.real(cval)), float(np.imag(cval))
    x_complex, w_complex = x.dtype.kind == "c", w.dtype.kind == "c"
    if not x_complex and not w_complex:
        return sums(x, w, real)
    if not w_complex:
        return _joined(sums(x.real, w, real), sums(x.imag, w, imaginary))
    if not x_complex:
        return _joined(sums(x, w.real, real), sums(x, w.imag, real))
    return _joined(
        sums(x.real, w.real, real) - sums(x.imag, w.imag, imaginary),
        sums(x.real, w.imag, real) + sums(x.imag, w.real, imaginary),
    )


def _joined(real: Array, imaginary: Array) -> Array:
    made = np.empty(real.shape, np.result_type(real, np.complex64))
    made.real, made.imag = real, imaginary
    return made


def made_output(input: Array, output: Output, *, complex_weights: bool = False) -> Array:
    """The array that is returned: the caller's, or a new one of the input's shape."""
    needs_complex = complex_weights or input.dtype.kind == "c"
    _check_type(input.dtype)
    if isinstance(output, np.ndarray):
        _check_type(output.dtype)
        if output.shape != input.shape:
            raise RuntimeError(f"output shape {output.shape} not correct, wanted {input.shape}")
        if needs_complex and output.dtype.kind != "c":
            raise RuntimeError(f"output has dtype {output.dtype}: output must have complex dtype")
        return output
    dtype = np.dtype(input.dtype.newbyteorder("=") if output is None else output)
    _check_type(dtype)
    if needs_complex and dtype.kind != "c":
        if isinstance(output, str):
            raise RuntimeError(f"output is {output!r}: output must have complex dtype")
        if output is not None:
            warnings.warn("promoting specified output dtype to complex", stacklevel=4)
        dtype = np.promote_types(dtype, np.complex64)
    return np.empty(input.shape, dtype)


def _check_type(dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biufc" or dtype.char in "gG":
        raise RuntimeError(f"array type {dtype} not supported")


def checked_axes(axes: int | Iterable[int] | None, ndim: int) -> list[int]:
    given: Any = range(ndim) if axes is None else axes if np.iterable(axes) else [axes]
    made = [operator.index(a) for a in given]
    for axis in made:
        if not -ndim <= axis < ndim:
            raise ValueError(f"axis {axis} is out of range for {ndim} dimensions")
    made = [a % ndim for a in made]
    if len(set(made)) != len(made):
        raise ValueError(f"axes is {axes!r}: axes must be unique")
    return made


def one_each(value: PerAxis, count: int, name: str) -> list[Any]:
    if isinstance(value, str) or not np.iterable(value):  # arrays without axes are not
        return [value] * count
    values = list(value)
    if len(values) != count:
        raise RuntimeError(
            f"{name} has {len(values)} values for {count} axes: sequence argument must have length equal to input rank"
        )
    return values


def _window(ndim: int, weights: Array, origin: Any, axes: Any, *, flip: bool) -> tuple[list[int], PlainPads]:
    """The axes that are filtered, ascending as those of `weights` are, and what the filter reads around an output.
    Origins belong to `axes` as given, unless all axes are."""
    given = checked_axes(axes, ndim)
    if weights.ndim != len(given):
        raise RuntimeError(f"weights.ndim ({weights.ndim}) must match len(axes) ({len(given)})")
    if weights.size == 0:
        raise RuntimeError("no filter weights given")
    origins, chosen = one_each(origin, len(given), "origin"), sorted(given)
    if len(given) < ndim:
        origins = [origins[given.index(axis)] for axis in chosen]
    return chosen, [_reach(n, operator.index(o), flip=flip) for n, o in zip(weights.shape, origins, strict=True)]


def _border(mode: str) -> Any:
    if not isinstance(mode, str):
        raise RuntimeError(f"mode is {mode!r}, wanted a string: a filter of several axes has one mode")
    if mode not in _MODES:
        raise RuntimeError(f"mode is {mode!r}, wanted one of {', '.join(_MODES)}")
    return _MODES[mode]


def _along_some(array: Array, kernel: Array, axes: list[int], pads: PlainPads, border: PaddingMode) -> Array:
    """One channel; the axes that are not filtered are the batch."""
    line = np.moveaxis(array, axes, range(-len(axes), 0))
    first = line.ndim - len(axes)
    line = line.astype(kernel.dtype, order="C", copy=False)
    result = _single_channel.correlate(line.reshape(-1, *line.shape[first:]), kernel, pads, border)
    return np.moveaxis(result.reshape((*line.shape[:first], *result.shape[1:])), range(-len(axes), 0), axes)


def _along_one(array: Array, kernel: Array, axes: list[int], pads: PlainPads, border: PaddingMode) -> Array:
    """Antisymmetric weights w are summed by parts: differences of neighbours times -(w[0] + ... + w[k]). Where the
    input is constant the sum is zero, as in SciPy, and not what rounding leaves of w x - w x."""
    if len(kernel) >= _FEWEST_LONG and np.array_equal(kernel, np.ones_like(kernel)):
        return _long_sums(array, kernel, axes[0], pads[0], border)
    if not _antisymmetric(kernel):
        return _line_filter(array, kernel, axes, pads, border)
    half = -np.cumsum(kernel[: len(kernel) // 2])
    steps = _line_filter(array, np.array([-1, 1], kernel.dtype), axes, pads, border)
    made = _line_filter(steps, np.concatenate([half, half[::-1]]), axes, [(0, 0)], border)
    if np.isfinite(made).all():
        return made
    return _line_filter(array, kernel, axes, pads, border)  # differences may overflow, and of infinities are NaN


def _long_sums(array: Array, ones: Array, axis: int, pads: tuple[int, int], border: PaddingMode) -> Array:
    """Sums of `short` neighbours, of which every `short`-th are summed, and the sum of what is left of the window: some
    two roots of its length are the additions. Nothing is subtracted, as it is from running sums: roundings, infinities
    and NaN stay in the windows that see them."""
    size, extent = len(ones), array.shape[axis]
    short = min(range(2, size), key=lambda n: n + size // n + size % n)
    count, rest = divmod(size, short)
    fill = -(extent + size - short) % short
    sums = _line_filter(array, ones[:short], [axis], [(pads[0], pads[1] + fill)], border)
    rows = sums.reshape(math.prod(array.shape[:axis]), -1, short * math.prod(array.shape[axis + 1 :]))
    made = _line_filter(rows, ones[:count], [1], [(0, 0)], "zeros")
    made = made.reshape(*array.shape[:axis], -1, *array.shape[axis + 1 :])
    made = made[(slice(None),) * axis + (slice(extent),)]
    if rest == 0:
        return np.ascontiguousarray(made)
    return made + _line_filter(array, ones[:rest], [axis], [(pads[0] - count * short, pads[1])], border)


def _antisymmetric(kernel: Array) -> bool:
    """Whether w[k] = -w[-k], and the products are rounded: those of -1, 0, 1 are not."""
    rounded = len(kernel) > 3 or np.abs(kernel).max() != 1
    return rounded and len(kernel) % 2 == 1 and len(kernel) > 1 and np.array_equal(kernel, -kernel[::-1])


def _line_filter(array: Array, kernel: Array, axes: list[int], pads: PlainPads, border: PaddingMode) -> Array:
    """Positions after the axis are the channels of a depthwise convolution, whose kernels are all the same: the sums of
    neighbouring channels run side by side in vectors."""
    axis = axes[0]
    line = array.reshape(math.prod(array.shape[:axis]), array.shape[axis], -1)
    channels = line.shape[-1]
    if channels < _FEWEST_CHANNELS:
        return _along_some(array, kernel, axes, pads, border)
    line = line.astype(kernel.dtype, copy=False)
    same = np.broadcast_to(kernel[None, :, None], (channels, len(kernel), 1))
    result = conv_general(
        line, same, groups=channels, pads=pads, padding_mode=border, precision="highest", device="cpu"
    )
    return result.reshape(*array.shape[:axis], -1, *array.shape[axis + 1 :])


def _reach(extent: int, origin: int, *, flip: bool) -> tuple[int, int]:
    """How many elements before and after an output the filter reads. A convolution's is mirrored, and of a filter of
    even extent the centre is then the element before."""
    before = extent // 2 + origin
    after = extent - 1 - before
    if before < 0 or after < 0:
        raise ValueError(f"origin is {origin}, which places the filter of {extent} weights beside its output")
    return (after, before) if flip else (before, after)
