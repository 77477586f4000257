"""PyTorch on the CPU (oneDNN): contiguous and channels-last memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from bench.cases import Case
from bench.peers import Array, Peer, Refusal, Run, channels_last, transposed_weight

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def peers() -> list[Peer]:
    version = torch.__version__
    return [Peer(n, version, partial(_build, last), True) for n, last in (("torch_cl", True), ("torch", False))]


def _tensor(a: Array, dtype: str) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(a, dtype=np.float32)).to(DTYPES[dtype])


def _in_layout(t: torch.Tensor, channels_last_memory: bool) -> torch.Tensor:
    """PyTorch has no channels-last format of rank 1: there the tensor is a view of channels-last storage."""
    if not channels_last_memory:
        return t.contiguous()
    if t.dim() == 3:
        return t.movedim(1, -1).contiguous().movedim(-1, 1)
    return t.contiguous(memory_format=torch.channels_last if t.dim() == 4 else torch.channels_last_3d)


def _build(channels_last_memory: bool, case: Case, first: Array, second: Array, threads: int) -> Run:
    torch.set_num_threads(threads)

    def tensor(a: Array) -> torch.Tensor:
        return _in_layout(_tensor(a, case.dtype), channels_last_memory)

    def weight(w: Array) -> torch.Tensor:
        return tensor(transposed_weight(w, case.groups) if case.transposed else np.moveaxis(w, -1, 1))

    a = tensor(np.moveaxis(first, -1, 1))
    if case.direction == "weight_grad":
        if set(case.w[1:-1]) == {1} and max(case.stride) > 1 and case.w[-1] % 16 != 0:
            raise Refusal("on CPUs PyTorch 2.13 writes beyond its memory in such gradients of strided 1x1 kernels")
        convolve = partial(gradient(case), a, tensor(np.moveaxis(second, -1, 1)), weight(np.zeros(case.w, np.float32)))
    elif case.direction == "input_grad":
        convolve = partial(gradient(case), a, tensor(np.moveaxis(np.zeros(case.x, np.float32), -1, 1)), weight(second))
    else:
        convolve = partial(_call(case), a, weight(second))

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return convolve()

    return Run(call, lambda y: channels_last(y.float().numpy()))


def gradient(case: Case) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]:
    """One gradient, given the output's, the input and the weight."""
    if case.transposed or any(lo != hi for lo, hi in case.pads):
        raise Refusal("gradients of symmetric padding, not transposed, are timed")
    which = ("input_grad", "weight_grad").index(case.direction)
    asked = [which == 0, which == 1, False]
    low = [lo for lo, _ in case.pads]
    geometry = (list(case.stride), low, list(case.dilation), False, [0] * case.rank, case.groups)
    return lambda dy, x, w: torch.ops.aten.convolution_backward(dy, x, w, None, *geometry, asked)[which]


def _call(case: Case) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    low = tuple(lo for lo, _ in case.pads)
    if case.transposed:
        op = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[case.rank - 1]
        return lambda x, w: op(x, w, None, case.stride, low, case.extra, case.groups, case.dilation)
    conv = (F.conv1d, F.conv2d, F.conv3d)[case.rank - 1]
    if all(lo == hi for lo, hi in case.pads):
        return lambda x, w: conv(x, w, None, case.stride, low, case.dilation, case.groups)
    pads = [n for pair in reversed(case.pads) for n in pair]
    return lambda x, w: conv(F.pad(x, pads), w, None, case.stride, 0, case.dilation, case.groups)
