"""ncnn: a one-layer net with weights transformed when it is loaded, from and to ncnn's own packed layout, in fp32.

`build` serves ncnn_vulkan too, whose extractor takes and returns the same Mats in host memory.
"""

from __future__ import annotations

import struct
import tempfile
from functools import partial
from importlib.metadata import version

import ncnn
import numpy as np

from bench.cases import Case
from bench.peers import Array, Peer, Refusal, Run, channels_first

# Parameter numbers of ncnn's layers, one an axis from the last (W) to the first (D).
KERNEL, DILATION, STRIDE = (1, 11, 21), (2, 12, 22), (3, 13, 23)
PAD_LOW, PAD_HIGH = (4, 14, 24), (15, 16, 17)
OUTPUT_PADDING = (18, 19, 20)
PACKED = 0b1  # Extractor.extract: leave the output packed


def peers() -> list[Peer]:
    return [Peer("ncnn", version("ncnn"), partial(build, vulkan=False))]


def _layer(case: Case) -> str:
    name = "Deconvolution" if case.transposed else "Convolution"
    name += "DepthWise" if case.groups > 1 else ""
    return name + {1: "1D", 2: "", 3: "3D"}[case.rank]


def _param(case: Case, weights: int) -> str:
    values = {0: case.w[0], 5: 0, 6: weights}
    axes = list(reversed(range(case.rank)))
    for i, a in enumerate(axes):
        values |= {KERNEL[i]: case.w[1 + a], DILATION[i]: case.dilation[a], STRIDE[i]: case.stride[a]}
        values |= {PAD_LOW[i]: case.pads[a][0], PAD_HIGH[i]: case.pads[a][1]}
        if case.transposed:
            values[OUTPUT_PADDING[i]] = case.extra[a]
    if case.groups > 1:
        values[7] = case.groups
    fields = " ".join(f"{k}={v}" for k, v in sorted(values.items()))
    return f"7767517\n2 2\nInput in 0 1 in\n{_layer(case)} conv 1 1 in out {fields}\n"


def _options(net: ncnn.Net, threads: int, vulkan: bool) -> None:
    net.opt.num_threads = threads
    net.opt.use_vulkan_compute = vulkan
    for name in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage", "bf16_packed"):
        setattr(net.opt, f"use_{name}", False)


def _load_weight(net: ncnn.Net, weight: Array) -> None:
    """Through a file: load_model_mem keeps pointers into a copy that ends with the call."""
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(struct.pack("<I", 0) + weight.tobytes())  # 0: fp32, as it is
        file.flush()
        net.load_model(file.name)


def build(case: Case, x: Array, w: Array, threads: int, *, vulkan: bool) -> Run:
    """The case as a net on the CPU or on ncnn's first Vulkan device."""
    if case.dtype != "f32":
        raise Refusal("timed in fp32")
    if case.x[0] != 1:
        raise Refusal("one image a call")
    if case.rank == 1 and case.groups > 1 and case.transposed:
        raise Refusal("no such layer")
    ncnn.set_omp_num_threads(threads)
    net = ncnn.Net()
    _options(net, threads, vulkan)
    weight = channels_first(w)
    if net.load_param_mem(_param(case, weight.size)):
        raise Refusal("no such layer")
    _load_weight(net, weight)
    image = channels_first(x)[0]
    packed = ncnn.Mat()
    pack = next(p for p in (16, 8, 4, 1) if case.x[-1] % p == 0)
    ncnn.convert_packing(ncnn.Mat(image), packed, pack, net.opt)

    def call() -> tuple[ncnn.Extractor, ncnn.Mat]:
        extractor = net.create_extractor()
        extractor.input("in", packed)
        return extractor, extractor.extract("out", PACKED)[1]  # the extractor owns the memory of the result

    def output(result: tuple[ncnn.Extractor, ncnn.Mat]) -> Array:
        unpacked = ncnn.Mat()
        ncnn.convert_packing(result[1], unpacked, 1, net.opt)
        return np.moveaxis(np.array(unpacked), 0, -1)[None]

    return Run(call, output, keep=image)  # an unpacked Mat is a view of it
