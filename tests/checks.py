"""Runs a problem through vkconv's public functions and holds the answer against the oracle.

Metric: c = max |y - y64| / (u * sum |x||w|), u the unit roundoff of the output's type. For data of small integers every
sum is exact in the accumulator, so an algorithm without transforms must return the correctly rounded result itself.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

import oracle
import vkconv
from problem_text import Problem, dtype_of, parse

Array = np.ndarray
UNIT_ROUNDOFF = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
# Half of the smallest subnormal: what rounding may cost where the relative bound no longer holds.
HALF_SUBNORMAL = {"f64": 2.0**-1075, "f32": 2.0**-150, "f16": 2.0**-25, "bf16": 2.0**-134}
OPERATIONS = {"fwd": "conv_general", "igrad": "conv_input_grad", "wgrad": "conv_weight_grad"}
SMOOTH = ("silu", "gelu", "sigmoid", "tanh", "hardswish")
ROUNDED_SHARE = 0.995
CONSTANT = 2.0
MOST_EMULATED_GROUPS = 16


@dataclass(frozen=True)
class Operands:
    input: Array
    weight: Array
    grad: Array  # with respect to the output
    bias: Array | None
    addend: Array | None = None  # of a prepared convolution
    outside: str = "zeros"  # what the padding holds: a padding mode, of which "constant" is CONSTANT

    def arrays(self) -> dict[str, Array]:
        return {name: v for name, v in vars(self).items() if isinstance(v, np.ndarray)}


def sums_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What products of this dtype are added in: that of bias and addend."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], integers: bool) -> Array:
    data = rng.integers(-3, 4, shape).astype(np.float64) if integers else rng.uniform(-1, 1, shape)
    return data.astype(dtype)


def operands(p: Problem, seed: int = 0, integers: bool = True) -> Operands:
    rng, dtype = np.random.default_rng(seed), dtype_of(p.dtype)
    return Operands(
        values(rng, p.input_shape, dtype, integers),
        values(rng, p.weight_shape, dtype, integers),
        values(rng, p.output_shape, dtype, integers) if p.op != "fwd" else np.empty(0),
        values(rng, (p.outputs,), sums_dtype(dtype), integers) if p.bias else None,
    )


def positive(a: Operands) -> Operands:
    """Sums whose roundings do not cancel."""
    return dataclasses.replace(a, **{name: np.abs(v) for name, v in a.arrays().items()})


def exact(p: Problem, a: Operands) -> Array:
    """The result in double precision, before any rounding."""
    if a.outside != "zeros":
        return exact_with_border(p, a)
    if p.op == "igrad":
        return oracle.conv_input_grad(a.grad, a.weight, p.input_shape, **p.geometry())
    if p.op == "wgrad":
        return oracle.conv_weight_grad(a.grad, a.input, p.weight_shape, **p.geometry())
    y = oracle.conv_general(a.input, a.weight, **p.geometry(), bias=a.bias)
    if a.addend is not None:
        y = y + oracle.f64(a.addend)
    return oracle.activate(y, p.activation, p.alpha, p.beta)


def exact_with_border(p: Problem, a: Operands) -> Array:
    """The convolution, without padding, of an input with its border around it."""
    sources = oracle.border_sources(p.input_shape, p.pads, a.outside)
    whole = p.replace(space=sources.shape[1:-1], pads=((0, 0),) * p.rank)
    if p.op == "igrad":
        return oracle.border_adjoint(exact(whole, dataclasses.replace(a, outside="zeros")), sources, p.input_shape)
    return exact(whole, dataclasses.replace(a, outside="zeros", input=oracle.bordered(a.input, sources, CONSTANT)))


def magnitudes(p: Problem, a: Operands) -> Array:
    """The sum of |x||w| behind every element, of those that are finite; an activation adds its result, to which its own
    error is relative."""
    absolute = {name: finite(np.abs(v.astype(np.float64))) for name, v in a.arrays().items()}
    sums = exact(p.replace(activation=None), dataclasses.replace(a, **absolute))
    return sums if p.activation is None else sums + finite(np.abs(exact(p, a)))


def finite(a: Array) -> Array:
    """Zero instead of infinities and NaN."""
    return np.where(np.isfinite(a), a, 0)


def tile_magnitudes(p: Problem, a: Operands, tree: str) -> Array:
    """The same for Winograd: its transforms mix a tile, so that an element has its neighbours' errors too, a weight
    gradient also those of pixels that no tap brings together. Where its products are a problem of their own, or plans
    are not known, points are kept in halves, which may be subnormal and then are rounded as the smallest normal number
    is."""
    sums = magnitudes(p, a)
    most = sums.max(axis=tuple(range(1, p.rank + 1)), keepdims=True) if sums.size else sums
    if p.op == "wgrad" and sums.size:
        most = np.where(most == 0, sums.mean(), most)
    return most + (HALF_SUBNORMAL[p.dtype] / UNIT_ROUNDOFF[p.dtype] if re.search(r"winograd(_f\d\(|$)", tree) else 0)


def arguments(p: Problem) -> dict[str, Any]:
    """The keyword arguments that every vkconv operation on `p` takes."""
    return {
        "stride": p.stride,
        "pads": p.pads,
        "kernel_dilation": p.dilation,
        "input_dilation": p.input_dilation,
        "groups": p.groups,
        "flip": p.flip,
        "precision": p.precision,
    }


def border(a: Operands) -> dict[str, Any]:
    """The keyword argument for what lies outside of the input."""
    mode = ("constant", CONSTANT) if a.outside == "constant" else a.outside
    return {} if mode == "zeros" else {"padding_mode": mode}


def activation(p: Problem) -> str | tuple[Any, ...] | None:
    return {"leaky_relu": ("leaky_relu", p.alpha), "clip": ("clip", p.alpha, p.beta)}.get(p.activation, p.activation)


def positional(p: Problem, a: Operands) -> tuple[Any, ...]:
    if p.op == "igrad":
        return a.grad, a.weight, p.input_shape
    if p.op == "wgrad":
        return a.grad, a.input, p.weight_shape
    return a.input, a.weight


def keywords(p: Problem, a: Operands, **options: Any) -> dict[str, Any]:
    epilogue = {"bias": a.bias, "activation": activation(p)} if p.op == "fwd" else {}
    return arguments(p) | border(a) | epilogue | options


def run(p: Problem, a: Operands, **options: Any) -> Array:
    return getattr(vkconv, OPERATIONS[p.op])(*positional(p, a), **keywords(p, a, **options))


def explain(p: Problem, a: Operands, **options: Any) -> Any:
    return vkconv.explain(getattr(vkconv, OPERATIONS[p.op]), *positional(p, a), **keywords(p, a, **options))


def is_software(device: str) -> bool:
    return any(d.name == device and d.kind == "software" for d in vkconv.devices())


def claiming(p: Problem, a: Operands, **options: Any) -> list[str]:
    """Every algorithm of the device that says it can run the problem. Of more groups than MOST_EMULATED_GROUPS the
    matrices that a software device emulates, mostly zeros, take up to half a minute: those are for full runs."""
    names = [c.algorithm for c in explain(p, a, **options).candidates if c.seconds is not None]
    emulated = is_software(options.get("device", "cpu")) and not os.environ.get("VKCONV_FULL")
    if emulated and p.groups > MOST_EMULATED_GROUPS:
        return [n for n in names if not n.endswith("_matrix")]
    return names


def rounded(want: Array, dtype: str) -> Array:
    with np.errstate(over="ignore"):
        return want.astype(dtype_of(dtype))


def same(got: Array, want: Array) -> Array:
    """Elementwise, NaN being the same as NaN."""
    return (got == want) | ((got != got) & (want != want))


def error_c(got: Array, want: Array, magnitude: Array, dtype: str) -> float:
    """The metric c; infinite where only one of oracle and result is finite, or they are not the same infinity."""
    if got.size == 0:
        return 0.0
    result, right = got.astype(np.float64), rounded(want, dtype).astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(result - want)
        error[~np.isfinite(right) & same(result, right)] = 0
        error = np.maximum(error - HALF_SUBNORMAL[dtype], 0)
        scale = UNIT_ROUNDOFF[dtype] * magnitude
        ratio = np.where(error == 0, 0.0, error / scale)
    return float(np.nan_to_num(ratio, nan=np.inf, posinf=np.inf).max())


def rounded_share(got: Array, want: Array, dtype: str) -> float:
    return float(same(got, rounded(want, dtype)).mean()) if got.size else 1.0


def bound(tree: str, cancelling: bool = True) -> float:
    """The bound of c for a plan: 8 for direct sums, 12 where products of one sign leave roundings that are not
    `cancelling`, 16 of fp32 split into halves, 16 and 64 for Winograd F2 and F4.

    F4 where it does not say.
    """
    if "winograd" in tree:
        return 16.0 if re.search("[Ff]2(?!x)", tree) else 64.0
    return 16.0 if "matrix(split)" in tree else 8.0 if cancelling else 12.0


def assert_right(
    p: Problem,
    a: Operands,
    got: Array,
    *,
    tree: str = "",
    integers: bool = True,
    independent: bool = True,
    cancelling: bool = True,
) -> float:
    """The metric c of `got`. `tree` is the plan that ran. Where operands repeat their values, and so are not
    `independent`, the roundings of a sum may all err to one side, and many sums together. `cancelling` is
    as in `bound`."""
    if a.outside != "zeros" and p.precision != "highest":
        tree += " winograd"  # the outputs at the border have plans of their own
    want = exact(p, a)
    assert got.shape == want.shape, f"{p}: shape {got.shape}, wanted {want.shape}"
    assert got.dtype == dtype_of(p.dtype), f"{p}: dtype {got.dtype}"
    winograd = "winograd" in tree
    if integers and not winograd and p.activation not in SMOOTH:
        wrong = np.argwhere(~same(got, rounded(want, p.dtype)))
        assert not len(wrong), (
            f"{p} {tree}: {len(wrong)} of {got.size} differ, the first at {wrong[0]}: "
            f"{got[tuple(wrong[0])]}, wanted {want[tuple(wrong[0])]}"
        )
        return 0.0
    magnitude = tile_magnitudes(p, a, tree) if winograd else magnitudes(p, a)
    c = error_c(got, want, magnitude, p.dtype)
    most = bound(tree, cancelling)
    if not independent or (p.dtype == "f64" and not cancelling):  # float64's oracle rounds too
        # A rounding of each partial sum, of which the i-th of n is i / n of the last.
        most = max(most, 1 + p.terms / 2)
    assert c <= most, f"{p} {tree}: c = {c:.3g} > {most}"
    if p.dtype in ("f16", "bf16") and independent and got.size >= 200 and not winograd and p.activation not in SMOOTH:
        share = rounded_share(got, want, p.dtype)
        # Four standard deviations below the share that a large array must have.
        least = ROUNDED_SHARE - 4 * math.sqrt((1 - ROUNDED_SHARE) / got.size)
        assert share >= least, f"{p} {tree}: {share:.4f} correctly rounded"
    return c


def check(text: str, *, seed: int = 0, integers: bool = True, **options: Any) -> Array:
    """One problem string against the oracle; returns the result."""
    p = parse(text)
    a = operands(p, seed, integers)
    got = run(p, a, **options)
    assert_right(p, a, got, tree=explain(p, a, **options).plan, integers=integers)
    return got
