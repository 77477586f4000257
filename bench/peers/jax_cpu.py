"""JAX on the CPU: a jitted lax.conv_general_dilated, channels last."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax

from bench.cases import Case
from bench.peers import Array, Peer, Run

LAYOUTS = {1: ("NWC", "OWI", "NWC"), 2: ("NHWC", "OHWI", "NHWC"), 3: ("NDHWC", "ODHWI", "NDHWC")}


def peers() -> list[Peer]:
    jax.config.update("jax_platforms", "cpu")
    return [Peer("jax", jax.__version__, _build)]


def _build(case: Case, x: Array, w: Array, threads: int) -> Run:
    del threads  # JAX has one thread a CPU that this process may use
    g = case.as_general
    weight = np.flip(w, tuple(range(1, w.ndim - 1))) if g["flip"] else w

    @jax.jit
    def convolve(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            a,
            b,
            window_strides=g["stride"],
            padding=g["pads"],
            lhs_dilation=g["input_dilation"],
            rhs_dilation=g["kernel_dilation"],
            dimension_numbers=LAYOUTS[case.rank],
            feature_group_count=case.groups,
        )

    xj, wj = jax.device_put(x), jax.device_put(np.ascontiguousarray(weight))
    return Run(lambda: convolve(xj, wj).block_until_ready(), np.asarray)
