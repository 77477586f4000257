"""The call that a problem string describes, with random operands: what bench and tune run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from vkconv._axes import output_extents
from vkconv._gradients import conv_input_grad, conv_weight_grad
from vkconv._ops import conv_general
from vkconv._types import Array

_PASSES: dict[str, Callable[..., Array]] = {
    "fwd": conv_general,
    "igrad": conv_input_grad,
    "wgrad": conv_weight_grad,
}
_HEAD = re.compile(r"(fwd|igrad|wgrad)_(\w+)_n(\d+)c(\d+)o(\d+)(?:g(\d+))?_i([\dx]+)_k([\dx]+)((?:_.+)?)")
_AXES = {"s": "stride", "d": "kernel_dilation", "t": "input_dilation"}


def _dtype(name: str) -> np.dtype[Any]:
    if name == "bf16":
        import ml_dtypes  # noqa: PLC0415 - only bfloat16 needs it

        bf16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bf16
    return np.dtype({"f32": np.float32, "f16": np.float16, "f64": np.float64}[name])


def problem_call(problem: str) -> tuple[Callable[..., Array], tuple[Any, ...], dict[str, Any]]:
    """The operation, operands of random numbers and options that are a problem string, in the form explain gives it."""
    found = _HEAD.fullmatch(problem)
    if not found or "add" in problem.split("_"):  # of operations only a prepared one takes an addend
        raise ValueError(f"there is no call of one operation for the problem {problem}")
    kind, dtype, *counts, space, kernel, rest = found.groups()
    batch, channels, outputs, groups = (int(c or 1) for c in counts)
    extents, taps = (tuple(map(int, text.split("x"))) for text in (space, kernel))
    ones = (1,) * len(extents)
    geometry: dict[str, Any] = {"stride": ones, "pads": [(0, 0)] * len(ones), "kernel_dilation": ones}
    geometry |= {"input_dilation": ones, "groups": groups, "flip": False}
    options, bias = _options(rest.split("_")[1:] if rest else [], geometry)
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, np.float32).astype(_dtype(dtype))

    x_shape, w_shape = (batch, *extents, channels), (outputs, *taps, channels // groups)
    if kind == "fwd":
        extra = {"bias": normal(outputs)} if bias else {}
        return _PASSES[kind], (normal(*x_shape), normal(*w_shape)), geometry | options | extra
    grad = normal(*output_shape(x_shape, w_shape, geometry))
    other, shape = (normal(*w_shape), x_shape) if kind == "igrad" else (normal(*x_shape), w_shape)
    return _PASSES[kind], (grad, other, shape), geometry | options


def output_shape(x: tuple[int, ...], w: tuple[int, ...], geometry: dict[str, Any]) -> tuple[int, ...]:
    """Of a convolution of arrays with these shapes."""
    values = (geometry[k] for k in ("stride", "pads", "kernel_dilation", "input_dilation"))
    return x[0], *output_extents(x[1:-1], w[1:-1], *values), w[0]


def _options(tokens: list[str], geometry: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Fills the geometry in; what is left are keyword arguments, and whether there is a bias."""
    options: dict[str, Any] = {}
    bias = False
    for token in " ".join(tokens).replace("leaky relu", "leaky_relu").split():
        letter, number = token[0], re.fullmatch(r"(leaky_relu|clip)([^:]+)(?::(.+))?", token)
        if letter in _AXES and re.fullmatch(r"[\dx]+", token[1:]):
            geometry[_AXES[letter]] = tuple(map(int, token[1:].split("x")))
        elif letter == "p" and re.fullmatch(r"[-\d:x]+", token[1:]):
            sides = [side.partition(":") for side in token[1:].split("x")]
            geometry["pads"] = [(int(lo), int(hi or lo)) for lo, _, hi in sides]
        elif token == "bias":
            bias = True
        elif token in ("highest", "fast"):
            options["precision"] = token
        elif number:
            options["activation"] = (number[1], *(float(v) for v in number.groups()[1:] if v))
        else:
            options["activation"] = token
    return options, bias
