"""cuDNN through PyTorch on an NVIDIA GPU: device time of one call, the best of its layouts and algorithms.

Not one of the peers that bench/run.py calls with NumPy arrays: bench/gpu.py asks for device times. They are taken in a
process of their own, which is ended when a case takes too long.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch

from bench.cases import Case
from bench.peers import Refusal
from bench.peers.pytorch import DTYPES, _call, _in_layout, gradient

IDLE_SECONDS, COLD_SECONDS, WARM_SECONDS = 0.2, 0.6, 0.02  # an idle GPU lowers its clocks and takes time to raise them
BATCH_MILLISECONDS = 10.0
BATCHES = 5
MOST_CALLS = 200
START_SECONDS, MOST_SECONDS = 120.0, 8.0  # of the process, and of a case with its search for an algorithm

_clock = {"last_busy": 0.0}


def available() -> bool:
    return torch.cuda.is_available()


def version() -> str:
    return f"{torch.backends.cudnn.version()}, PyTorch {torch.__version__}"


def all_milliseconds(cases: list[Case]) -> dict[Case, float]:
    """Device times of the cases that are computed in time."""
    times: dict[Case, float] = {}
    process = None
    for case in cases:
        if process is None:
            process, connection = _start()
        connection.send(case)
        answer = connection.recv() if connection.poll(MOST_SECONDS) else f"more than {MOST_SECONDS:g} s"
        if isinstance(answer, float):
            times[case] = answer
            continue
        print(f"cuDNN, {case.name} {case.dtype}: {answer}", file=sys.stderr)
        if answer.startswith("more"):
            process.kill()
            process = None
    if process:
        connection.send(None)
        process.join()
    return times


def _start() -> tuple[Any, Connection]:
    spawn = multiprocessing.get_context("spawn")
    connection, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    if not connection.poll(START_SECONDS):
        raise TimeoutError("PyTorch does not start")
    connection.recv()
    return process, connection


def _serve(connection: Connection) -> None:
    torch.zeros(1, device="cuda")
    connection.send("ready")
    while case := connection.recv():
        try:
            connection.send(_best_milliseconds(case))
        except (RuntimeError, Refusal) as error:
            connection.send("refused: " + str(error).splitlines()[0])


def _best_milliseconds(case: Case) -> float:
    """Of a convolution of random data; fp32 without TF32."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    case = case.zero_padded()
    try:
        return min(_in_one_layout(case, channels_last) for channels_last in (True, False))
    finally:
        torch.cuda.empty_cache()


def _in_one_layout(case: Case, channels_last: bool) -> float:
    dtype, device = DTYPES[case.dtype], "cuda"

    def tensor(shape: tuple[int, ...]) -> torch.Tensor:
        channels_first = (shape[0], shape[-1], *shape[1:-1])
        return _in_layout(torch.rand(channels_first, dtype=dtype, device=device) - 0.5, channels_last)

    w_shape = case.w
    if case.transposed:
        w_shape = (case.w[-1] * case.groups, *case.w[1:-1], case.w[0] // case.groups)
    x, w = tensor(case.x), tensor(w_shape)
    call = partial(_call(case), x, w) if case.direction == "forward" else partial(gradient(case), tensor(case.y), x, w)
    with torch.inference_mode():
        return _timed(call)


def _timed(call: Callable[[], Any]) -> float:
    """Milliseconds a call: the median of batches between two events, replayed from a graph so that no launch shows."""
    for _ in range(2):
        call()  # chooses the algorithm
    once = _milliseconds(call)
    count = min(MOST_CALLS, max(1, int(BATCH_MILLISECONDS / once)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    warm = COLD_SECONDS if time.monotonic() - _clock["last_busy"] > IDLE_SECONDS else WARM_SECONDS
    begin = time.monotonic()
    while time.monotonic() - begin < warm:
        _milliseconds(graph.replay)
    times = [_milliseconds(graph.replay) / count for _ in range(BATCHES)]
    _clock["last_busy"] = time.monotonic()
    return statistics.median(times)


def _milliseconds(run: Callable[[], Any]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))
