"""Convolutions for MLX on the CPU.

    import vkconv.mlx

    vkconv.mlx.install()                       # mlx.core's convolutions, and so mlx.nn's layers, are vkconv's now
    y = vkconv.mlx.conv2d(x, w, padding=1)     # or one by one: the signatures of mlx.core, gradients of any order

Inside `mx.compile` and `mx.vmap`, whose arrays have no values yet, MLX's own convolution runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import mlx.core as mx
import numpy as np

from vkconv import _bilinear
from vkconv._axes import check_ranks, dilated
from vkconv._bilinear import Geometry, named
from vkconv._types import Array, Axes, NumericPadding, Padding

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_general",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "install",
    "uninstall",
]

FLOATS = (mx.float32, mx.float16, mx.bfloat16)
_DOC = "`mlx.core.{}` by vkconv."
_OWN = {name: getattr(mx, name) for name in __all__ if name.startswith("conv")}


def _to_numpy(a: mx.array) -> Array:
    """The memory of `a`, which is evaluated first. Raises ValueError while a transformation traces."""
    if a.dtype != mx.bfloat16:
        return np.array(a, copy=False)
    import ml_dtypes  # noqa: PLC0415 - only bfloat16 needs it

    return np.array(a.view(mx.uint16), copy=False).view(ml_dtypes.bfloat16)


def _to_mlx(a: Array) -> mx.array:
    if a.dtype.name == "bfloat16":
        return mx.array(a.view(np.uint16)).view(mx.bfloat16)
    return mx.array(a, mx.float64 if a.dtype == np.float64 else None)  # which MLX would narrow


def _traced(*arrays: mx.array) -> bool:
    """Whether a transformation that allows no evaluation is at work."""
    try:
        mx.eval(*arrays)
    except ValueError:
        return True
    return False


def _operator(
    run: Callable[[Array, Array], Array],
    own: Callable[[mx.array, mx.array], mx.array],
    vjp: Callable[[mx.array, mx.array, mx.array], tuple[mx.array, mx.array]],
) -> Callable[[mx.array, mx.array], mx.array]:
    """A function of two arrays that is linear in both: by `run`, or by MLX's `own` operations while it is traced.

    `vjp(a, b, cotangent)` are the cotangents of a and b.
    """

    @mx.custom_function
    def operator(a: mx.array, b: mx.array) -> mx.array:
        return own(a, b) if _traced(a, b) else _to_mlx(run(_to_numpy(a), _to_numpy(b)))

    @operator.vjp
    def operator_vjp(primals: Any, cotangent: mx.array, _: Any) -> Any:
        a, b = primals
        return vjp(a, b, cotangent)

    @operator.jvp
    def operator_jvp(primals: Any, tangents: Any) -> mx.array:
        (a, b), (da, db) = primals, tangents  # of the tangents one may be None
        terms = [operator(da, b)] if da is not None else []
        terms += [operator(a, db)] if db is not None else []
        return sum(terms[1:], terms[0])

    return operator


# The derivatives of each of these are the other two: gradients of any order exist.


@lru_cache(256)
def _conv(geometry: Geometry) -> Callable[[mx.array, mx.array], mx.array]:
    def vjp(x: mx.array, w: mx.array, grad: mx.array) -> tuple[mx.array, mx.array]:
        spatial, kernel = tuple(x.shape[1:-1]), tuple(w.shape[1:-1])
        return _input_grad(geometry, spatial)(grad, w), _weight_grad(geometry, kernel)(grad, x)

    return _operator(partial(_bilinear.conv, geometry=geometry), partial(_own_conv, geometry=geometry), vjp)


@lru_cache(256)
def _input_grad(geometry: Geometry, spatial: tuple[int, ...]) -> Callable[[mx.array, mx.array], mx.array]:
    def vjp(g: mx.array, w: mx.array, cotangent: mx.array) -> tuple[mx.array, mx.array]:
        return _conv(geometry)(cotangent, w), _weight_grad(geometry, tuple(w.shape[1:-1]))(g, cotangent)

    own = partial(_own_input_grad, spatial=spatial, geometry=geometry)
    return _operator(partial(_bilinear.input_grad, extents=spatial, geometry=geometry), own, vjp)


@lru_cache(256)
def _weight_grad(geometry: Geometry, kernel: tuple[int, ...]) -> Callable[[mx.array, mx.array], mx.array]:
    def vjp(g: mx.array, x: mx.array, cotangent: mx.array) -> tuple[mx.array, mx.array]:
        return _conv(geometry)(x, cotangent), _input_grad(geometry, tuple(x.shape[1:-1]))(g, cotangent)

    own = partial(_own_weight_grad, kernel=kernel, geometry=geometry)
    return _operator(partial(_bilinear.weight_grad, extents=kernel, geometry=geometry), own, vjp)


def _own_conv(x: mx.array, w: mx.array, geometry: Geometry) -> mx.array:
    """By MLX, which would cut off as many elements as a negative padding says, however far apart they are."""
    cut, lo, hi = [slice(None)], [], []
    for n, pads, step in zip(x.shape[1:-1], geometry.pads, geometry.input_dilation, strict=True):
        first, last = (max(-(pad // step), 0) for pad in pads)
        if first + last >= n:
            extents = geometry.outputs(x.shape[1:-1], w.shape[1:-1])
            return mx.zeros((x.shape[0], *extents, w.shape[0]), x.dtype)
        cut.append(slice(first, n - last))
        lo.append(pads[0] + first * step)
        hi.append(pads[1] + last * step)
    dilations = list(geometry.kernel_dilation), list(geometry.input_dilation)
    seen = x[tuple(cut)]
    return _OWN["conv_general"](seen, w, list(geometry.stride), (lo, hi), *dilations, geometry.groups, geometry.flip)


def _own_adjoint(linear: Callable[[mx.array], mx.array], shape: tuple[int, ...], cotangent: mx.array) -> mx.array:
    """By MLX, which makes other shapes where the input is dilated."""
    _, (made,) = mx.vjp(linear, (mx.zeros(shape, cotangent.dtype),), (cotangent,))
    return made


def _own_input_grad(g: mx.array, w: mx.array, spatial: tuple[int, ...], geometry: Geometry) -> mx.array:
    """Where the input is dilated, the convolution of the cotangent with the mirrored kernel."""
    if max(geometry.input_dilation) == 1:
        shape = (g.shape[0], *spatial, w.shape[-1] * geometry.groups)
        return _own_adjoint(lambda x: _own_conv(x, w, geometry), shape, g)
    groups, kernel, (outputs, inputs) = geometry.groups, w.shape[1:-1], (w.shape[0], w.shape[-1])
    parts = w.reshape(groups, outputs // groups, *kernel, inputs)
    swapped = mx.swapaxes(parts, 1, -1).reshape(groups * inputs, *kernel, outputs // groups)
    lo = [d * (k - 1) - lo for k, d, (lo, _) in zip(kernel, geometry.kernel_dilation, geometry.pads, strict=True)]
    steps = geometry.input_dilation, geometry.kernel_dilation, geometry.stride
    return _own_conv(g, swapped, _making(spatial, g.shape[1:-1], kernel, lo, *steps, groups, not geometry.flip))


def _own_weight_grad(g: mx.array, x: mx.array, kernel: tuple[int, ...], geometry: Geometry) -> mx.array:
    """Where the input is dilated, its convolution with the cotangent: the batch is their channels."""
    if max(geometry.input_dilation) == 1:
        shape = (g.shape[-1], *kernel, x.shape[-1] // geometry.groups)
        return _own_adjoint(lambda w: _own_conv(x, w, geometry), shape, g)
    groups, spatial, (batch, inputs) = geometry.groups, x.shape[1:-1], (x.shape[0], x.shape[-1])
    parts = x.reshape(batch, *spatial, groups, inputs // groups)
    signal = mx.swapaxes(parts, 0, -1).reshape(inputs // groups, *spatial, groups * batch)
    steps, lo = (geometry.kernel_dilation, geometry.stride, geometry.input_dilation), [p[0] for p in geometry.pads]
    making = _making(kernel, spatial, g.shape[1:-1], lo, *steps, groups, False)
    made = mx.swapaxes(_own_conv(signal, mx.swapaxes(g, 0, -1), making), 0, -1)
    mirrored = slice(None), *[slice(None, None, -1)] * len(kernel)
    return made[mirrored] if geometry.flip else made


def _making(
    outputs: Sequence[int], spatial: Sequence[int], kernel: Sequence[int], lo: Sequence[int], stride: tuple[int, ...],
    kernel_dilation: tuple[int, ...], input_dilation: tuple[int, ...], groups: int, flip: bool,
) -> Geometry:  # fmt: skip
    """What makes so many outputs: their extents and `lo` say what the padding is at the other end."""
    axes = zip(outputs, spatial, kernel, lo, stride, kernel_dilation, input_dilation, strict=True)
    pads = tuple((p, (m - 1) * s + dilated(k, d) - dilated(n, e) - p) for m, n, k, p, s, d, e in axes)
    return Geometry(stride, pads, kernel_dilation, input_dilation, groups, flip)


def _checked(x: mx.array, w: mx.array, rank: int | None = None) -> None:
    for name, array in (("input", x), ("weight", w)):
        if not isinstance(array, mx.array):
            raise TypeError(f"{name} must be an mlx.core.array, got {type(array).__name__}")
    check_ranks(x.ndim - 2 if rank is None else rank, input=x, weight=w)


def _result(x: mx.array, w: mx.array, geometry: Geometry) -> mx.array:
    extents = geometry.outputs(x.shape[1:-1], w.shape[1:-1])
    if 0 not in extents:
        return _conv(geometry)(x, w)
    dtypes = (_to_numpy(mx.zeros(1, a.dtype)).dtype for a in (x, w))
    _bilinear.check_operands(x.shape[-1], tuple(w.shape), *dtypes, geometry.groups)
    return mx.zeros((x.shape[0], *extents, w.shape[0]), x.dtype)


def conv_general(
    input: mx.array,
    weight: mx.array,
    stride: Axes = 1,
    padding: Padding = 0,
    kernel_dilation: Axes = 1,
    input_dilation: Axes = 1,
    groups: int = 1,
    flip: bool = False,
    *,
    stream: Any = None,
) -> mx.array:
    """`mlx.core.conv_general` by vkconv."""
    _checked(input, weight)
    extents = input.shape[1:-1], weight.shape[1:-1]
    geometry = Geometry.of(*extents, stride, padding, kernel_dilation, input_dilation, groups, flip)
    return _result(input, weight, geometry)


def _make_conv(rank: int) -> Callable[..., mx.array]:
    def conv(
        input: mx.array,
        weight: mx.array,
        stride: Axes = 1,
        padding: Padding = 0,
        dilation: Axes = 1,
        groups: int = 1,
        *,
        stream: Any = None,
    ) -> mx.array:
        _checked(input, weight, rank)
        geometry = Geometry.of(input.shape[1:-1], weight.shape[1:-1], stride, padding, dilation, 1, groups)
        return _result(input, weight, geometry)

    return named(conv, f"conv{rank}d", _DOC)


def _make_transpose(rank: int) -> Callable[..., mx.array]:
    def conv_transpose(
        input: mx.array,
        weight: mx.array,
        stride: Axes = 1,
        padding: NumericPadding = 0,
        dilation: Axes = 1,
        output_padding: Axes = 0,
        groups: int = 1,
        *,
        stream: Any = None,
    ) -> mx.array:
        _checked(input, weight, rank)
        kernel = weight.shape[1:-1]
        geometry = Geometry.transposed(input.shape[1:-1], kernel, stride, padding, dilation, output_padding, groups)
        return _result(input, weight, geometry)

    return named(conv_transpose, f"conv_transpose{rank}d", _DOC)


conv1d, conv2d, conv3d = (_make_conv(rank) for rank in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (_make_transpose(rank) for rank in (1, 2, 3))


def install() -> None:
    """Let `mlx.core.conv2d` and the others compute by vkconv, in every module that calls them by these names.

    MLX's own run where a stream is given, the dtype is not float32, float16 or bfloat16, or the arrays have other ranks
    than the function's name says, which MLX allows, or no values yet, as inside `mx.compile`.
    """
    for name, own in _OWN.items():
        setattr(mx, name, _replacement(globals()[name], own))


def uninstall() -> None:
    """Undo `install`."""
    for name, own in _OWN.items():
        setattr(mx, name, own)


def _replacement(ours: Callable[..., mx.array], own: Callable[..., mx.array]) -> Callable[..., mx.array]:
    ranks = (int(ours.__name__[-2]),) if ours.__name__.endswith("d") else (1, 2, 3)

    def mine(input: Any, weight: Any) -> bool:
        if not isinstance(input, mx.array) or not isinstance(weight, mx.array):
            return False
        if input.dtype not in FLOATS or weight.dtype != input.dtype or input.ndim != weight.ndim:
            return False
        return input.ndim - 2 in ranks and not _traced(input, weight)

    def chosen(input: mx.array, weight: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        run = ours if kwargs.get("stream") is None and mine(input, weight) else own
        return run(input, weight, *args, **kwargs)

    return named(chosen, ours.__name__, _DOC)
