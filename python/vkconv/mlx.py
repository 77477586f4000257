"""Convolutions for MLX on the CPU.

    import vkconv.mlx

    vkconv.mlx.install()                       # mlx.core's convolutions, and so mlx.nn's layers, are vkconv's now
    y = vkconv.mlx.conv2d(x, w, padding=1)     # or one by one: the signatures of mlx.core, gradients of any order

Inside `mx.compile` and `mx.vmap`, whose arrays have no values yet, MLX's own convolution runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import mlx.core as mx
import numpy as np

from vkconv import _bilinear
from vkconv._bilinear import Geometry
from vkconv._types import Array, Axes, NumericPadding

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
    return mx.array(a)


def _traced(*arrays: mx.array) -> bool:
    """Whether a transformation that allows no evaluation is at work."""
    try:
        mx.eval(*arrays)
    except ValueError:
        return True
    return False


# Each of these is linear in both arrays, and their derivatives are each other: gradients of any order exist.


@lru_cache(256)
def _conv(geometry: Geometry) -> Callable[[mx.array, mx.array], mx.array]:
    @mx.custom_function
    def conv(x: mx.array, w: mx.array) -> mx.array:
        if _traced(x, w):
            return _own_conv(x, w, geometry)
        return _to_mlx(_bilinear.conv(_to_numpy(x), _to_numpy(w), geometry))

    @conv.vjp
    def conv_vjp(primals: Any, grad: mx.array, _: Any) -> Any:
        x, w = primals
        return (
            _input_grad(geometry, tuple(x.shape[1:-1]))(grad, w),
            _weight_grad(geometry, tuple(w.shape[1:-1]))(grad, x),
        )

    @conv.jvp
    def conv_jvp(primals: Any, tangents: Any) -> mx.array:
        return _both(conv, primals, tangents)

    return conv


@lru_cache(256)
def _input_grad(geometry: Geometry, spatial: tuple[int, ...]) -> Callable[[mx.array, mx.array], mx.array]:
    @mx.custom_function
    def input_grad(g: mx.array, w: mx.array) -> mx.array:
        if _traced(g, w):
            shape = (g.shape[0], *spatial, w.shape[-1] * geometry.groups)
            _, (made,) = mx.vjp(lambda x: _own_conv(x, w, geometry), (mx.zeros(shape, g.dtype),), (g,))
            return made
        return _to_mlx(_bilinear.input_grad(_to_numpy(g), _to_numpy(w), spatial, geometry))

    @input_grad.vjp
    def input_grad_vjp(primals: Any, cotangent: mx.array, _: Any) -> Any:
        g, w = primals
        return _conv(geometry)(cotangent, w), _weight_grad(geometry, tuple(w.shape[1:-1]))(g, cotangent)

    @input_grad.jvp
    def input_grad_jvp(primals: Any, tangents: Any) -> mx.array:
        return _both(input_grad, primals, tangents)

    return input_grad


@lru_cache(256)
def _weight_grad(geometry: Geometry, kernel: tuple[int, ...]) -> Callable[[mx.array, mx.array], mx.array]:
    @mx.custom_function
    def weight_grad(g: mx.array, x: mx.array) -> mx.array:
        if _traced(g, x):
            shape = (g.shape[-1], *kernel, x.shape[-1] // geometry.groups)
            _, (made,) = mx.vjp(lambda w: _own_conv(x, w, geometry), (mx.zeros(shape, g.dtype),), (g,))
            return made
        return _to_mlx(_bilinear.weight_grad(_to_numpy(g), _to_numpy(x), kernel, geometry))

    @weight_grad.vjp
    def weight_grad_vjp(primals: Any, cotangent: mx.array, _: Any) -> Any:
        g, x = primals
        return _conv(geometry)(x, cotangent), _input_grad(geometry, tuple(x.shape[1:-1]))(g, cotangent)

    @weight_grad.jvp
    def weight_grad_jvp(primals: Any, tangents: Any) -> mx.array:
        return _both(weight_grad, primals, tangents)

    return weight_grad


def _both(f: Callable[..., mx.array], primals: Any, tangents: Any) -> mx.array:
    """The derivative of a bilinear function along the tangents, of which some may be None."""
    (a, b), (da, db) = primals, tangents
    terms = [f(da, b)] if da is not None else []
    terms += [f(a, db)] if db is not None else []
    return sum(terms[1:], terms[0])


def _own_conv(x: mx.array, w: mx.array, g: Geometry) -> mx.array:
    if isinstance(g.padding, str):
        raise ValueError(
            f"padding={g.padding!r} has no meaning for MLX's own convolution, which a transformation needs"
        )
    lo, hi = ([p[side] for p in g.padding] for side in (0, 1))
    dilations = list(g.kernel_dilation), list(g.input_dilation)
    return _OWN["conv_general"](x, w, list(g.stride), (lo, hi), *dilations, g.groups, g.flip)


def conv_general(
    input: mx.array,
    weight: mx.array,
    stride: Axes = 1,
    padding: NumericPadding = 0,
    kernel_dilation: Axes = 1,
    input_dilation: Axes = 1,
    groups: int = 1,
    flip: bool = False,
    *,
    stream: Any = None,
) -> mx.array:
    """`mlx.core.conv_general` by vkconv."""
    rank = input.ndim - 2
    geometry = Geometry.of(rank, stride, padding, kernel_dilation, input_dilation, groups, flip)
    return _conv(geometry)(input, weight)


def _make_conv(rank: int) -> Callable[..., mx.array]:
    def conv(
        input: mx.array,
        weight: mx.array,
        stride: Axes = 1,
        padding: NumericPadding = 0,
        dilation: Axes = 1,
        groups: int = 1,
        *,
        stream: Any = None,
    ) -> mx.array:
        if input.ndim != rank + 2:
            raise ValueError(f"input has {input.ndim} dimensions, wanted {rank + 2}")
        return _conv(Geometry.of(rank, stride, padding, dilation, 1, groups))(input, weight)

    return _named(conv, f"conv{rank}d")


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
        if input.ndim != rank + 2:
            raise ValueError(f"input has {input.ndim} dimensions, wanted {rank + 2}")
        kernel = weight.shape[1:-1]
        geometry = Geometry.transposed(kernel, stride, padding, dilation, output_padding, groups)
        return _conv(geometry)(input, weight)

    return _named(conv_transpose, f"conv_transpose{rank}d")


def _named(function: Callable[..., mx.array], name: str) -> Callable[..., mx.array]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`mlx.core.{name}` by vkconv."
    return function


conv1d, conv2d, conv3d = (_make_conv(rank) for rank in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (_make_transpose(rank) for rank in (1, 2, 3))


def install() -> None:
    """Let `mlx.core.conv2d` and the others compute by vkconv, in every module that calls them by these names.

    MLX's own run where a stream is given or the dtype is not float32, float16 or bfloat16.
    """
    for name, own in _OWN.items():
        setattr(mx, name, _replacement(globals()[name], own))


def uninstall() -> None:
    """Undo `install`."""
    for name, own in _OWN.items():
        setattr(mx, name, own)


def _replacement(ours: Callable[..., mx.array], own: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def chosen(input: mx.array, weight: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        mine = kwargs.get("stream") is None and input.dtype in FLOATS and weight.dtype == input.dtype
        return (ours if mine else own)(input, weight, *args, **kwargs)

    return _named(chosen, ours.__name__)
