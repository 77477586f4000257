"""cuDNN through PyTorch on an NVIDIA GPU: device time of one call, the best of its layouts and algorithms.

Not one of the peers that bench/run.py calls with NumPy arrays: bench/gpu.py asks for device times.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

from bench.cases import Case
from bench.peers.pytorch import DTYPES, _call, _in_layout

WARM_MILLISECONDS = 300.0  # an idle GPU takes this long to reach its clocks
BATCH_MILLISECONDS = 10.0
BATCHES = 5


def version() -> str:
    return f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"


def microseconds(case: Case) -> float:
    """Device time of a convolution of random data; fp32 without TF32."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return min(_in_one_layout(case, channels_last) for channels_last in (True, False))


def _in_one_layout(case: Case, channels_last: bool) -> float:
    dtype, device = DTYPES[case.dtype], "cuda"
    x = torch.randn((case.x[0], case.x[-1], *case.x[1:-1]), dtype=dtype, device=device)
    w_shape = (case.w[0], case.w[-1], *case.w[1:-1])
    if case.transposed:
        w_shape = (case.w[-1] * case.groups, case.w[0] // case.groups, *case.w[1:-1])
    w = torch.randn(w_shape, dtype=dtype, device=device) * 0.05
    x, w = _in_layout(x, channels_last), _in_layout(w, channels_last)
    convolve = _call(case)
    with torch.inference_mode():
        convolve(x, w)  # chooses the algorithm
        return _timed(lambda: convolve(x, w)) * 1e3


def _timed(call: Any) -> float:
    """Milliseconds a call: the median of batches between two events."""
    once = _batch(call, 3)
    _batch(call, max(3, int(WARM_MILLISECONDS / once)))
    count = max(3, int(BATCH_MILLISECONDS / once))
    return statistics.median(_batch(call, count) for _ in range(BATCHES))


def _batch(call: Any, count: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / count
