"""Convolutions for JAX on the CPU.

    import vkconv.jax

    y = vkconv.jax.conv2d(x, w, padding=1)                          # channels last, as in vkconv and MLX
    y = vkconv.jax.conv_general_dilated(x, w, (1, 1), "SAME")       # jax.lax's arguments, any dimension numbers

They run under `jit`, `grad` (of any order, reverse mode) and `vmap`, as a callback: arrays reach vkconv where they lie,
the result is copied once. `vmap` over the input makes a larger batch, not a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from vkconv import _bilinear, _core
from vkconv._bilinear import Geometry, check_ranks, named
from vkconv._types import Axes, NumericPadding

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


def _callback(run: Callable[..., Any], shape: tuple[int, ...], a: jax.Array, b: jax.Array) -> jax.Array:
    def on_arrays(x: Any, y: Any) -> Any:
        return run(np.asarray(x), np.asarray(y))

    result = jax.ShapeDtypeStruct(shape, a.dtype)
    return jax.pure_callback(on_arrays, result, a, b, vmap_method="expand_dims")


# Each of these is linear in both arrays, and their derivatives are each other: gradients of any order exist.


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _conv(x: jax.Array, w: jax.Array, geometry: Geometry) -> jax.Array:
    shape = (x.shape[0], *_output_extents(x.shape[1:-1], w.shape[1:-1], geometry), w.shape[0])
    return _callback(partial(_bilinear.conv, geometry=geometry), shape, x, w)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _input_grad(g: jax.Array, w: jax.Array, spatial: tuple[int, ...], geometry: Geometry) -> jax.Array:
    shape = (g.shape[0], *spatial, w.shape[-1] * geometry.groups)
    return _callback(partial(_bilinear.input_grad, spatial=spatial, geometry=geometry), shape, g, w)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _weight_grad(g: jax.Array, x: jax.Array, kernel: tuple[int, ...], geometry: Geometry) -> jax.Array:
    shape = (g.shape[-1], *kernel, x.shape[-1] // geometry.groups)
    return _callback(partial(_bilinear.weight_grad, kernel=kernel, geometry=geometry), shape, g, x)


def _conv_forward(x: jax.Array, w: jax.Array, geometry: Geometry) -> Any:
    return _conv(x, w, geometry), (x, w)


def _conv_backward(geometry: Geometry, saved: Any, grad: jax.Array) -> Any:
    x, w = saved
    return _input_grad(grad, w, x.shape[1:-1], geometry), _weight_grad(grad, x, w.shape[1:-1], geometry)


def _input_grad_forward(g: jax.Array, w: jax.Array, spatial: tuple[int, ...], geometry: Geometry) -> Any:
    return _input_grad(g, w, spatial, geometry), (g, w)


def _input_grad_backward(spatial: tuple[int, ...], geometry: Geometry, saved: Any, cotangent: jax.Array) -> Any:
    g, w = saved
    return _conv(cotangent, w, geometry), _weight_grad(g, cotangent, w.shape[1:-1], geometry)


def _weight_grad_forward(g: jax.Array, x: jax.Array, kernel: tuple[int, ...], geometry: Geometry) -> Any:
    return _weight_grad(g, x, kernel, geometry), (g, x)


def _weight_grad_backward(kernel: tuple[int, ...], geometry: Geometry, saved: Any, cotangent: jax.Array) -> Any:
    g, x = saved
    return _conv(x, cotangent, geometry), _input_grad(g, cotangent, x.shape[1:-1], geometry)


_conv.defvjp(_conv_forward, _conv_backward)
_input_grad.defvjp(_input_grad_forward, _input_grad_backward)
_weight_grad.defvjp(_weight_grad_forward, _weight_grad_backward)


def _output_extents(spatial: Sequence[int], kernel: Sequence[int], g: Geometry) -> list[int]:
    sides = zip(spatial, kernel, g.stride, g.kernel_dilation, g.input_dilation, g.padding, strict=True)
    return [((n - 1) * e + lo + hi - d * (k - 1)) // s + 1 for n, k, s, d, e, (lo, hi) in sides]


def _checked(x: jax.Array, w: jax.Array, rank: int) -> None:
    check_ranks(rank, input=x, weight=w)
    if x.dtype != w.dtype:
        raise TypeError(f"input has dtype {x.dtype}, weight has {w.dtype}: they must agree")


def conv_general(
    input: jax.Array,
    weight: jax.Array,
    stride: Axes = 1,
    padding: NumericPadding = 0,
    kernel_dilation: Axes = 1,
    input_dilation: Axes = 1,
    groups: int = 1,
    flip: bool = False,
) -> jax.Array:
    """`vkconv.conv_general` of JAX arrays.

    Examples
    --------
    >>> conv_general(jax.numpy.ones((1, 8, 8, 3)), jax.numpy.ones((4, 3, 3, 3)), stride=2).shape
    (1, 3, 3, 4)
    """
    rank = input.ndim - 2
    _checked(input, weight, rank)
    geometry = Geometry.of(rank, stride, padding, kernel_dilation, input_dilation, groups, flip)
    if isinstance(geometry.padding, str):
        raise ValueError(f"padding is {padding!r}, wanted numbers")
    return _conv(input, weight, geometry)


def conv_general_dilated(
    lhs: jax.Array,
    rhs: jax.Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
) -> jax.Array:
    """`jax.lax.conv_general_dilated`, for one batch group.

    Channels that are last in `lhs` and in the result, and first in `rhs`, need no transposition: ("NHWC", "OHWI",
    "NHWC").
    """
    numbers = jax.lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    rank = lhs.ndim - 2
    ones = (1,) * rank
    x = lhs.transpose(numbers.lhs_spec[0], *numbers.lhs_spec[2:], numbers.lhs_spec[1])
    w = rhs.transpose(numbers.rhs_spec[0], *numbers.rhs_spec[2:], numbers.rhs_spec[1])
    dilations = tuple(rhs_dilation or ones), tuple(lhs_dilation or ones)
    if isinstance(padding, str):
        seen = [(n - 1) * e + 1 for n, e in zip(x.shape[1:-1], dilations[1], strict=True)]
        words: dict[str, Any] = {"SAME": "same", "SAME_LOWER": "same_lower", "VALID": "valid"}
        if padding.upper() not in words:
            raise ValueError(f"padding is {padding!r}, wanted pairs of numbers, 'SAME', 'SAME_LOWER' or 'VALID'")
        padding = _core.resolved_pads(
            seen, w.shape[1:-1], tuple(window_strides), words[padding.upper()], dilations[0], None
        )
    sides: Any = tuple(zip(*padding, strict=True))
    y = conv_general(x, w, tuple(window_strides), sides, *dilations, feature_group_count)
    back = np.argsort((numbers.out_spec[0], *numbers.out_spec[2:], numbers.out_spec[1]))
    return y.transpose(*back)


def _make_conv(rank: int) -> Callable[..., jax.Array]:
    def conv(
        input: jax.Array,
        weight: jax.Array,
        stride: Axes = 1,
        padding: NumericPadding = 0,
        dilation: Axes = 1,
        groups: int = 1,
    ) -> jax.Array:
        _checked(input, weight, rank)
        return conv_general(input, weight, stride, padding, dilation, 1, groups)

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
        kernel = weight.shape[1:-1]
        return _conv(input, weight, Geometry.transposed(kernel, stride, padding, dilation, output_padding, groups))

    return named(conv_transpose, f"conv_transpose{rank}d", _DOC)


conv1d, conv2d, conv3d = (_make_conv(rank) for rank in (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = (_make_transpose(rank) for rank in (1, 2, 3))
