"""MLX on the CPU: conv_general, channels last."""

from __future__ import annotations

import math
from importlib.metadata import version

import mlx.core as mx
import numpy as np

from bench.cases import Case
from bench.peers import Array, Peer, Refusal, Run

# MLX multiplies the zeros of input_dilation too, at about 1 GFLOP/s.
DENSE_FLOP_LIMIT = 3.5e10
DTYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


def peers() -> list[Peer]:
    mx.set_default_device(mx.cpu)
    return [Peer("mlx", version("mlx"), _build)]


def _build(case: Case, x: Array, w: Array, threads: int) -> Run:
    del threads  # MLX's CPU back end chooses for itself
    if 2.0 * math.prod(case.y[:-1]) * math.prod(w.shape) > DENSE_FLOP_LIMIT:
        raise Refusal("one call takes over half a minute")
    if case.groups > 1 and w.ndim == 5:
        raise Refusal("no groups in three dimensions")
    g = case.as_general
    low, high = [lo for lo, _ in g["pads"]], [hi for _, hi in g["pads"]]
    xm, wm = (mx.array(a.astype(np.float32)).astype(DTYPES[case.dtype]) for a in (x, w))
    mx.eval(xm, wm)

    def call() -> mx.array:
        y = mx.conv_general(
            xm,
            wm,
            stride=list(g["stride"]),
            padding=(low, high),
            kernel_dilation=list(g["kernel_dilation"]),
            input_dilation=list(g["input_dilation"]),
            groups=case.groups,
            flip=g["flip"],
        )
        mx.eval(y)
        return y

    return Run(call, lambda y: np.array(y.astype(mx.float32)))
