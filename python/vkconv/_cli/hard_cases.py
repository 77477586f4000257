"""The demo's hard cases: short 3D kernels, awkward depthwise sizes, three passes, an unfolded matrix of 86.6 GB."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import vkconv
from vkconv._cli.operation import Operation, convolution, input_gradient, transposed, weight_gradient
from vkconv._types import Array

MIB = float(2**20)
EXTRA_LIMIT_BYTES = 64 * MIB
SECONDS_LIMIT = 1.0
CPU_FLOPS, SOFTWARE_FLOPS = 1e11, 4e8  # what one case may cost on two cores, and on a software rasteriser


def random(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> Array:
    """Normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def bfloat16() -> Any:
    """bfloat16 if ml_dtypes is installed, else None."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes.bfloat16


def small_kernel_depth(flop_limit: float) -> Iterator[Operation]:
    """Video autoencoder layers, pre-padded: kernels 1, 2, 3 and 5 deep, in fp32 and bf16."""
    full = (17, 64, 64, 256)
    for depth in (1, 2, 3, 5):
        frames, height, width, channels = full
        while 2.0 * frames * height * width * 9 * depth * channels**2 > flop_limit:
            if height > 16:
                height, width = height // 2, width // 2
            else:
                channels //= 2
        scaled = "" if (height, channels) == full[1::2] else ", scaled"
        for dtype in (np.float32, bfloat16()):
            if dtype is None:
                continue
            x = random((1, frames + depth - 1, height + 2, width + 2, channels), 1, dtype)
            w = (random((channels, depth, 3, 3, channels), 2) / math.sqrt(9 * depth * channels)).astype(dtype)
            yield convolution(f"3D kernel {depth} deep, {np.dtype(dtype).name}{scaled}", vkconv.conv3d, x, w)


def depthwise_sizes() -> Iterator[Operation]:
    """3x3 depthwise layers whose sizes are no multiple of any tile, and one that is."""
    for channels, side in ((384, 60), (768, 30), (1536, 15), (384, 64)):
        x, w = random((1, side, side, channels), 3), random((channels, 3, 3, 1), 4) / 3
        yield convolution(f"depthwise, {channels} channels at {side}x{side}", vkconv.depthwise_conv2d, x, w, padding=1)


def three_passes(flop_limit: float) -> Iterator[Operation]:
    """One strided convolution as forward, input gradient and weight gradient."""
    side = 64
    while 2.0 * 4 * (side // 2) ** 2 * 9 * 64 * 128 > flop_limit and side > 8:
        side //= 2
    scaled = "" if side == 64 else ", scaled"
    x, w = random((4, side, side, 64), 5), random((128, 3, 3, 64), 6) / 24
    grad = random((4, side // 2, side // 2, 128), 7)
    yield convolution(f"strided, forward{scaled}", vkconv.conv2d, x, w, stride=2, padding=1)
    yield input_gradient(f"strided, input gradient{scaled}", grad, w, x.shape, stride=2, padding=1)
    yield weight_gradient(f"strided, weight gradient{scaled}", grad, x, w.shape, stride=2, padding=1)


def inverse_transform() -> Operation:
    """conv_transpose1d as an inverse STFT has it: unfolded it would be a matrix of 86.6 GB."""
    x, w = random((1, 5158, 1), 8), random((1, 4096, 1), 9)
    return transposed("inverse STFT, stride 1024", vkconv.conv_transpose1d, x, w, stride=1024, work=2e7)


def cases(device: vkconv.Device) -> list[Operation]:
    """All of them, scaled to what the device can do while somebody waits."""
    limit = {"cpu": CPU_FLOPS, "software": SOFTWARE_FLOPS}.get(device.kind, math.inf)
    return [*small_kernel_depth(limit), *depthwise_sizes(), *three_passes(limit), inverse_transform()]


def extra_memory_bytes(operation: Operation, device: str) -> float:
    """What one call takes, output included: what vkconv allocates, or what the process grows by if that is more."""
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def kilobytes(field: str) -> float:
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return float(line.split()[1])

    vkconv.trim_memory("cpu")
    vkconv.reset_memory_peak("cpu")
    used, resident = vkconv.memory_info("cpu").used, None
    with contextlib.suppress(OSError, StopIteration):  # not every system tells
        reset.write_text("5")  # the high-water mark starts anew
        resident = kilobytes("VmRSS:")
    operation.function(*operation.operands, **operation.options, device=device)
    allocated = float(vkconv.memory_info("cpu").peak - used)
    return allocated if resident is None else max(allocated, (kilobytes("VmHWM:") - resident) * 1024)


def tiled_unfold(device: str) -> list[tuple[str, int, bool]]:
    """unfold_gemm under a limit that forces many tiles: the problem, the limit, and whether the bits are the same."""
    results = []
    for rank, extent in ((1, 600), (2, 40), (3, 16)):
        for groups in (1, 2):
            x = random((2, *(extent,) * rank, 8), 10)
            w = random((6, *(3,) * rank, 8 // groups), 11)
            options: dict[str, Any] = {"padding": 1, "groups": groups, "algorithm": "unfold_gemm", "device": device}
            limit = 64 * 1024
            whole = vkconv.conv_general(x, w, **options)
            tiled = vkconv.conv_general(x, w, **options, workspace_limit=limit)
            told = vkconv.explain(vkconv.conv_general, x, w, **options, workspace_limit=limit)
            same = bool(np.array_equal(whole, tiled)) and told.workspace_bytes <= limit
            results.append((told.problem, told.workspace_bytes, same))
    return results
