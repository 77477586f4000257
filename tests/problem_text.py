"""The text form of a problem, `fwd_f32_n1c64o64_i56x56_k3x3_p1x1`: cpp/core/problem_text.cpp gives the grammar."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

import oracle

Extents = tuple[int, ...]
PRECISIONS = ("highest", "high", "fast")
ACTIVATIONS = ("relu", "relu6", "silu", "gelu", "sigmoid", "tanh", "hardswish")
PARAMETRIC = re.compile(r"(leaky_relu|clip)(.+)")


def dtype_of(name: str) -> np.dtype[Any]:
    if name == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"f32": np.float32, "f16": np.float16, "f64": np.float64}[name])


@dataclass(frozen=True)
class Problem:
    """Geometry of the forward convolution, whatever the pass; one entry a spatial axis."""

    op: str  # fwd, igrad or wgrad: which of output, input and weight is computed
    dtype: str
    batch: int
    channels: int
    outputs: int
    groups: int
    space: Extents
    kernel: Extents
    stride: Extents
    dilation: Extents
    input_dilation: Extents
    pads: tuple[tuple[int, int], ...]
    flip: bool = False
    bias: bool = False
    activation: str | None = None
    alpha: float = 0.0
    beta: float = 0.0
    precision: str = "high"

    @property
    def rank(self) -> int:
        return len(self.space)

    @property
    def out(self) -> Extents:
        return tuple(
            map(
                oracle.output_extent,
                self.space,
                self.kernel,
                self.stride,
                self.dilation,
                self.input_dilation,
                self.pads,
            )
        )

    @property
    def input_shape(self) -> Extents:
        return (self.batch, *self.space, self.channels)

    @property
    def weight_shape(self) -> Extents:
        return (self.outputs, *self.kernel, self.channels // self.groups)

    @property
    def output_shape(self) -> Extents:
        return (self.batch, *self.out, self.outputs)

    @property
    def multiply_adds(self) -> int:
        return int(np.prod(self.output_shape) * np.prod(self.weight_shape[1:]))

    @property
    def result_shape(self) -> Extents:
        return {"fwd": self.output_shape, "igrad": self.input_shape, "wgrad": self.weight_shape}[self.op]

    @property
    def terms(self) -> int:
        """The most that one element of the result is the sum of."""
        factors = {
            "fwd": self.weight_shape[1:],
            "igrad": (*self.kernel, self.outputs // self.groups),
            "wgrad": (self.batch, *self.out),
        }
        return int(np.prod(factors[self.op]))

    def replace(self, **changes: Any) -> Problem:
        return dataclasses.replace(self, **changes)

    def geometry(self) -> dict[str, Any]:
        """The arguments that the oracle's functions share."""
        return {
            "stride": self.stride,
            "padding": self.pads,
            "kernel_dilation": self.dilation,
            "input_dilation": self.input_dilation,
            "groups": self.groups,
            "flip": self.flip,
        }

    def __str__(self) -> str:
        def join(values: tuple[Any, ...]) -> str:
            return "x".join(map(str, values))

        ones = (1,) * self.rank
        text = f"{self.op}_{self.dtype}_n{self.batch}c{self.channels}o{self.outputs}"
        text += f"g{self.groups}" if self.groups != 1 else ""
        text += f"_i{join(self.space)}_k{join(self.kernel)}"
        for letter, values in (("s", self.stride), ("d", self.dilation), ("t", self.input_dilation)):
            text += f"_{letter}{join(values)}" if values != ones else ""
        if any(map(any, self.pads)):
            text += "_p" + join(tuple(f"{lo}" if lo == hi else f"{lo}:{hi}" for lo, hi in self.pads))
        text += "_flip" * self.flip + "_bias" * self.bias
        if self.activation:
            numbers = {"leaky_relu": f"{self.alpha:g}", "clip": f"{self.alpha:g}:{self.beta:g}"}
            text += f"_{self.activation}{numbers.get(self.activation, '')}"
        return text + (f"_{self.precision}" if self.precision != "high" else "")


def extents(text: str) -> Extents:
    return tuple(map(int, text.split("x")))


def parse(text: str) -> Problem:
    op, dtype, counts, space, kernel, *options = text.replace("leaky_relu", "leaky-relu").split("_")
    found = re.fullmatch(r"n(\d+)c(\d+)o(\d+)(?:g(\d+))?", counts)
    if not found or space[0] != "i" or kernel[0] != "k":
        raise ValueError(f"not a problem: {text}")
    batch, channels, outputs, groups = (int(v or 1) for v in found.groups())
    rank = len(extents(space[1:]))
    fields: dict[str, Any] = {
        "stride": (1,) * rank,
        "dilation": (1,) * rank,
        "input_dilation": (1,) * rank,
        "pads": ((0, 0),) * rank,
    }
    for option in options:
        fields.update(parse_option(option.replace("leaky-relu", "leaky_relu")))
    return Problem(op, dtype, batch, channels, outputs, groups, extents(space[1:]), extents(kernel[1:]), **fields)


def parse_option(token: str) -> dict[str, Any]:
    if token in ("flip", "bias"):
        return {token: True}
    if token in PRECISIONS:
        return {"precision": token}
    if token in ACTIVATIONS:
        return {"activation": token}
    if found := PARAMETRIC.fullmatch(token):
        alpha, _, beta = found[2].partition(":")
        return {"activation": found[1], "alpha": float(alpha), "beta": float(beta or 0)}
    names = {"s": "stride", "d": "dilation", "t": "input_dilation"}
    if token[0] in names:
        return {names[token[0]]: extents(token[1:])}
    if token[0] != "p":
        raise ValueError(f"not an option: {token}")
    sides = [side.partition(":") for side in token[1:].split("x")]
    return {"pads": tuple((int(lo), int(hi or lo)) for lo, _, hi in sides)}
