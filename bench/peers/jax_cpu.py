"""JAX on the CPU: a jitted lax.conv_general_dilated, channels last, and its transposes."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from bench.cases import Case
from bench.peers import Array, Peer, Run

LAYOUTS = {1: ("NWC", "OWI", "NWC"), 2: ("NHWC", "OHWI", "NHWC"), 3: ("NDHWC", "ODHWI", "NDHWC")}


def peers() -> list[Peer]:
    jax.config.update("jax_platforms", "cpu")
    return [Peer("jax", jax.__version__, _build, gradients=True)]


def _build(case: Case, first: Array, second: Array, threads: int) -> Run:
    del threads  # JAX has one thread a CPU that this process may use
    g = case.as_general
    taps = tuple(range(1, len(case.w) - 1)) if g["flip"] else ()
    of_weight = case.direction == "weight_grad"

    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x,
            w,
            window_strides=g["stride"],
            padding=g["pads"],
            lhs_dilation=g["input_dilation"],
            rhs_dilation=g["kernel_dilation"],
            dimension_numbers=LAYOUTS[case.rank],
            feature_group_count=case.groups,
        )

    def input_grad(grad: jax.Array, w: jax.Array) -> jax.Array:
        return jax.linear_transpose(lambda x: convolve(x, w), jax.ShapeDtypeStruct(case.x, w.dtype))(grad)[0]

    def weight_grad(grad: jax.Array, x: jax.Array) -> jax.Array:
        return jax.linear_transpose(lambda w: convolve(x, w), jax.ShapeDtypeStruct(case.w, x.dtype))(grad)[0]

    call = jax.jit({"forward": convolve, "input_grad": input_grad, "weight_grad": weight_grad}[case.direction])
    a, b = jax.device_put(first), jax.device_put(second if of_weight else np.flip(second, taps))
    flipped = taps if of_weight else ()
    return Run(lambda: call(a, b).block_until_ready(), lambda y: np.flip(np.asarray(y), flipped))
