"""Convolutions for JAX on the CPU.

    import vkconv.jax

    y = vkconv.jax.conv2d(x, w, padding=1)                          # channels last, as in vkconv and MLX
    y = vkconv.jax.conv_general_dilated(x, w, (1, 1), "SAME")       # jax.lax's arguments, any dimension numbers

They run under `jit`, `vmap` and derivatives of any order and mode. On JAX's CPU, XLA calls vkconv itself, on its own
memory and without Python (`jax.ffi`); elsewhere, and where vkconv's default device is another than the CPU when a
function is compiled, it calls back to Python, which copies the result once. `vmap` over the input makes a larger batch,
over weights a loop. Batches whose extents are symbols, as `jax.export` has them, are JAX's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from vkconv import _bilinear, _core
from vkconv._axes import check_ranks
from vkconv._bilinear import Geometry, named
from vkconv._types import Axes, NumericPadding, Padding, Pads

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_general",
    "conv_general_dilated",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]

_DOC = "`vkconv.{}` of JAX arrays."
_OWN = jax.lax.conv_general_dilated
_TARGET = "vkconv"
_typeof = jax.typeof if hasattr(jax, "typeof") else jax.core.get_aval  # before JAX 0.6
_MOST_AXES = 3
_DTYPES = {"float32", "float16", "bfloat16", "float64"}


def _primitive(name: str, run: Callable[..., Any], core: Callable[..., Sequence[int]]) -> Primitive:
    """A JAX operation of two arrays with equally many axes of `vmap` before their own, which broadcast; `run` computes
    it and `core` tells the shape of one result. Their parameters are `geometry` and, of gradients, `extents`."""
    made = Primitive(name)
    merge = name != "vkconv_weight_grad"  # the first axis of the first array is a batch

    def shape_of(a: Any, b: Any, **params: Any) -> tuple[int, ...]:
        own = len(params["geometry"].stride) + 2
        leading = np.broadcast_shapes(a.shape[:-own], b.shape[:-own])
        return (*leading, *core(a.shape[-own:], b.shape[-own:], **params))

    def abstract(a: Any, b: Any, **params: Any) -> ShapedArray:
        shape = shape_of(a, b, **params)
        if not _mesh_axes(a):
            return ShapedArray(shape, a.dtype)
        varying: ShapedArray = a.update(shape=shape, sharding=a.sharding.update(spec=jax.P(*[None] * len(shape))))
        return varying

    def compute(a: jax.Array, b: jax.Array, **params: Any) -> jax.Array:
        def on_arrays(x: Any, y: Any) -> Any:
            return run(np.asarray(x), np.asarray(y), **params)

        return jax.pure_callback(on_arrays, jax.ShapeDtypeStruct(shape_of(a, b, **params), a.dtype), a, b)

    def call(a: jax.Array, b: jax.Array, **params: Any) -> jax.Array:
        if _core.current_device() != "cpu":
            return compute(a, b, **params)
        own = len(params["geometry"].stride) + 2
        if a.ndim > own and not (merge and math.prod(b.shape[:-own]) == 1):
            return _loop(partial(call, **params), a, b)
        alone, one = b.shape[-own:], (math.prod(a.shape[: -own + 1]), *a.shape[-own + 1 :])
        like = [np.broadcast_to(np.zeros((), a.dtype), shape) for shape in (one, alone)]
        problem = _core.problem_of(lambda: run(*like, **params))
        result = jax.ShapeDtypeStruct((*core(one, alone, **params),), a.dtype)
        y = jax.ffi.ffi_call(_TARGET, result)(a.reshape(one), b.reshape(alone), problem=problem)
        return y.reshape(shape_of(a, b, **params))

    def batched(arrays: Any, axes: Any, **params: Any) -> Any:
        moved = [a[None] if i is None else jax.numpy.moveaxis(a, i, 0) for a, i in zip(arrays, axes, strict=True)]
        return made.bind(*moved, **params), 0

    compiled = jax.jit(made.bind, static_argnames=("geometry", "extents"))

    @wraps(compiled)
    def now(a: jax.Array, b: jax.Array, **params: Any) -> jax.Array:
        with jax.disable_jit(False) if jax.config.jax_disable_jit else nullcontext():  # else it would call itself
            return compiled(a, b, **params)

    made.def_abstract_eval(abstract)
    made.def_impl(now)
    mlir.register_lowering(made, mlir.lower_fun(compute, multiple_results=False))
    mlir.register_lowering(made, mlir.lower_fun(call, multiple_results=False), platform="cpu")
    batching.primitive_batchers[made] = batched
    return made


def _loop(call: Callable[..., jax.Array], a: jax.Array, b: jax.Array) -> jax.Array:
    """`call` along the first axis of `vmap`, whose extent in one of the arrays may be 1. The loop is XLA's: a
    callback to Python may wait for operands from a thread that waits for the callback."""
    count = np.broadcast_shapes(a.shape[:1], b.shape[:1])[0]

    def step(parts: Any) -> jax.Array:
        return call(*(v[0] if part is None else part for v, part in zip((a, b), parts, strict=True)))

    made: jax.Array = jax.lax.map(step, [v if len(v) == count else None for v in (a, b)])
    return made


def _output_shape(x: Sequence[int], w: Sequence[int], geometry: Geometry) -> Sequence[int]:
    return (x[0], *geometry.outputs(x[1:-1], w[1:-1]), w[0])


def _input_shape(g: Sequence[int], w: Sequence[int], geometry: Geometry, extents: Sequence[int]) -> Sequence[int]:
    return (g[0], *extents, w[-1] * geometry.groups)


def _weight_shape(g: Sequence[int], x: Sequence[int], geometry: Geometry, extents: Sequence[int]) -> Sequence[int]:
    return (g[-1], *extents, x[-1] // geometry.groups)


jax.ffi.register_ffi_target(_TARGET, _core.xla_function(), platform="cpu")

_conv = _primitive("vkconv", _bilinear.conv, _output_shape)
_input_grad = _primitive("vkconv_input_grad", _bilinear.input_grad, _input_shape)
_weight_grad = _primitive("vkconv_weight_grad", _bilinear.weight_grad, _weight_shape)

# Each is linear in both arrays, and their transposes are each other: derivatives of any order exist, in both modes.


def _define_transpose(
    of: Primitive, first: tuple[Primitive, Callable[..., Any]], second: tuple[Primitive, Callable[..., Any]]
) -> None:
    """With respect to each operand: the operation, and its two arrays from the cotangent and the other operand."""

    def rule(unknown: int, cotangent: jax.Array, a: Any, b: Any, geometry: Geometry, extents: Any = None) -> jax.Array:
        (by, order), (wanted, other) = (first, second)[unknown], ((a, b), (b, a))[unknown]
        shape = wanted.aval.shape
        own = shape[-len(geometry.stride) - 1 : -1]
        params = {"geometry": geometry} if by is _conv else {"geometry": geometry, "extents": own}
        made = by.bind(*order(cotangent, other), **params)
        broadcast = [axis for axis, (n, m) in enumerate(zip(made.shape, shape, strict=True)) if n != m]
        return made.sum(broadcast, keepdims=True)

    ad.defbilinear(of, partial(rule, 0), partial(rule, 1))


def _same(cotangent: Any, other: Any) -> Any:
    return cotangent, other


def _swapped(cotangent: Any, other: Any) -> Any:
    return other, cotangent


try:  # Taylor series, where JAX has the rule: that of a release knows how the release scales coefficients
    from jax.experimental.jet import _bilinear_taylor_rule, jet_rules
except ImportError:
    pass
else:
    jet_rules.update({op: partial(_bilinear_taylor_rule, op) for op in (_conv, _input_grad, _weight_grad)})

_define_transpose(_conv, (_input_grad, _same), (_weight_grad, _same))
_define_transpose(_input_grad, (_conv, _same), (_weight_grad, _swapped))
_define_transpose(_weight_grad, (_conv, _swapped), (_input_grad, _swapped))


def _mesh_axes(aval: Any) -> frozenset[Any]:
    """The axes of the mesh over which an array varies inside `jax.shard_map`."""
    axes: frozenset[Any] = aval.mat.varying if hasattr(aval, "mat") else getattr(aval, "vma", frozenset())
    return axes


def _numbers_only(*arrays: Any) -> bool:
    """Whether no extent is a symbol of `jax.export`, whose values calls of vkconv do not learn."""
    return all(isinstance(n, int) for a in arrays for n in a.shape)


def _by_jax(x: jax.Array, w: jax.Array, g: Geometry) -> jax.Array:
    spatial = tuple(range(1, x.ndim - 1))
    layout = (0, x.ndim - 1, *spatial)
    numbers = jax.lax.ConvDimensionNumbers(layout, layout, layout)
    kernel = jax.numpy.flip(w, spatial) if g.flip else w
    return _OWN(x, kernel, g.stride, g.pads, g.input_dilation, g.kernel_dilation, numbers, g.groups)


def _bound(x: jax.Array, w: jax.Array, geometry: Geometry) -> jax.Array:
    if not _numbers_only(x, w):
        return _by_jax(x, w, geometry)
    _bilinear.check_operands(x.shape[-1], tuple(w.shape), np.dtype(x.dtype), np.dtype(w.dtype), geometry.groups)
    shape = _output_shape(x.shape, w.shape, geometry)
    if 0 in shape[1:-1]:
        return jax.numpy.zeros(shape, x.dtype)
    # An operand that is the same everywhere is cast to one that varies, whose cotangents are summed over the mesh.
    axes = [_mesh_axes(_typeof(operand)) for operand in (x, w)]
    missing = [tuple(frozenset().union(*axes) - own) for own in axes]
    cast = (jax.lax.pcast(a, names, to="varying") if names else a for a, names in zip((x, w), missing, strict=True))
    made: jax.Array = _conv.bind(*cast, geometry=geometry)
    return made


def _checked(x: jax.Array, w: jax.Array, rank: int | None = None) -> None:
    for name, array in (("input", x), ("weight", w)):
        if not hasattr(array, "dtype") or not hasattr(array, "ndim"):
            raise TypeError(f"{name} must be a JAX array, got {type(array).__name__}")
    check_ranks(x.ndim - 2 if rank is None else rank, input=x, weight=w)
    if x.dtype != w.dtype:
        raise TypeError(f"input has dtype {x.dtype}, weight has {w.dtype}: they must agree")


def _refuse_jaxs(padding: Any, hint: str) -> None:
    """A list of tuples, which JAX reads as one pair for each axis, and vkconv and MLX as (lo..., hi...)."""
    if isinstance(padding, list) and len(padding) > 0 and all(isinstance(pair, tuple) for pair in padding):
        raise ValueError(f"padding is {padding!r}, wanted a pair (lo..., hi...) of sequences{hint}")


def conv_general(
    input: jax.Array,
    weight: jax.Array,
    stride: Axes = 1,
    padding: Padding = 0,
    kernel_dilation: Axes = 1,
    input_dilation: Axes = 1,
    groups: int = 1,
    flip: bool = False,
    *,
    pads: Pads | None = None,
) -> jax.Array:
    """`vkconv.conv_general` of JAX arrays.

    As there, `pads` has one pair for each axis, which `jax.lax` calls padding; a pair of sequences as `padding` is
    (lo..., hi...). A list of tuples, as JAX's is written, is refused there.

    Examples
    --------
    >>> conv_general(jax.numpy.ones((1, 8, 8, 3)), jax.numpy.ones((4, 3, 3, 3)), stride=2).shape
    (1, 3, 3, 4)
    """
    _checked(input, weight)
    _refuse_jaxs(padding, ": pads= takes JAX's pairs, one an axis")
    geometry = Geometry.of(
        input.shape[1:-1], weight.shape[1:-1], stride, padding, kernel_dilation, input_dilation, groups, flip, pads
    )
    return _bound(input, weight, geometry)


def conv_general_dilated(
    lhs: jax.Array,
    rhs: jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> jax.Array:
    """`jax.lax.conv_general_dilated`, with its errors.

    Channels that are last in `lhs` and in the result, and first in `rhs`, need no transposition: ("NHWC", "OHWI",
    "NHWC"). Sums are in float32 at least, whatever `precision` is. JAX's own convolution runs for integers, complex
    numbers, floats of 8 bits or less, weakly typed arrays, symbolic shapes, no or more than three spatial axes, empty
    results and shardings.
    """
    own = partial(
        _OWN, lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
        batch_group_count, precision, preferred_element_type,
        **({} if out_sharding is None else {"out_sharding": out_sharding}),
    )  # fmt: skip
    result = jax.eval_shape(own)  # JAX's checks of all arguments
    known = {lhs.dtype.name, result.dtype.name} <= _DTYPES and _numbers_only(lhs, rhs)
    rank, ones = lhs.ndim - 2, (1,) * (lhs.ndim - 2)
    if out_sharding is not None or not known or result.weak_type or not 1 <= rank <= _MOST_AXES or result.size == 0:
        return own()
    numbers = jax.lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    computed = max(lhs.dtype, result.dtype, key=lambda d: d.itemsize)
    x = lhs.astype(computed).transpose(numbers.lhs_spec[0], *numbers.lhs_spec[2:], numbers.lhs_spec[1])
    w = rhs.astype(computed).transpose(numbers.rhs_spec[0], *numbers.rhs_spec[2:], numbers.rhs_spec[1])
    strides = tuple(window_strides)
    dilations = [ones if given is None else tuple(given) or ones for given in (rhs_dilation, lhs_dilation)]
    if batch_group_count > 1:  # groups of images become groups of channels
        x = _groups_to_channels(x, batch_group_count)
    sides: Any = {"padding": padding.lower()} if isinstance(padding, str) else {"pads": padding}
    groups = feature_group_count * batch_group_count
    y = conv_general(x, w, strides, kernel_dilation=dilations[0], input_dilation=dilations[1], groups=groups, **sides)
    back = np.argsort((numbers.out_spec[0], *numbers.out_spec[2:], numbers.out_spec[1]))
    return y.astype(result.dtype).transpose(*back)


def _groups_to_channels(x: jax.Array, groups: int) -> jax.Array:
    split = x.reshape(groups, x.shape[0] // groups, *x.shape[1:])
    return jax.numpy.moveaxis(split, 0, -2).reshape(*split.shape[1:-1], groups * x.shape[-1])


def _make_conv(rank: int) -> Callable[..., jax.Array]:
    def conv(
        input: jax.Array,
        weight: jax.Array,
        stride: Axes = 1,
        padding: Padding = 0,
        dilation: Axes = 1,
        groups: int = 1,
        *,
        pads: Pads | None = None,
    ) -> jax.Array:
        _checked(input, weight, rank)
        return conv_general(input, weight, stride, padding, dilation, 1, groups, pads=pads)

    return named(conv, f"conv{rank}d", _DOC)


def _make_transpose(rank: int) -> Callable[..., jax.Array]:
    def conv_transpose(
        input: jax.Array,
        weight: jax.Array,
        stride: Axes = 1,
        padding: NumericPadding = 0,
        dilation: Axes = 1,
        output_padding: Axes = 0,
        groups: int = 1,
    ) -> jax.Array:
        _checked(input, weight, rank)
        _refuse_jaxs(padding, ", not JAX's pairs in a list")
        kernel = weight.shape[1:-1]
        return _bound(
            input,
            weight,
            Geometry.transposed(input.shape[1:-1], kernel, stride, padding, dilation, output_padding, groups),
        )

    return named(conv_transpose, f"conv_transpose{rank}d", _DOC)


conv1d, conv2d, conv3d = (_make_conv(rank) for rank in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (_make_transpose(rank) for rank in (1, 2, 3))
