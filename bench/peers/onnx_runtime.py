"""ONNX Runtime: one Conv or ConvTranspose node with a constant weight, all optimizations on."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from bench.cases import Case
from bench.peers import Array, Peer, Refusal, Run, channels_first, channels_last, transposed_weight


def peers() -> list[Peer]:
    return [Peer("onnxruntime", ort.__version__, _build)]


def _model(case: Case, w: Array, shape: tuple[int, ...]) -> bytes:
    pads = [lo for lo, _ in case.pads] + [hi for _, hi in case.pads]
    attributes = {"strides": case.stride, "dilations": case.dilation, "pads": pads, "group": case.groups}
    if case.transposed:
        attributes["output_padding"] = case.extra
    node = helper.make_node("ConvTranspose" if case.transposed else "Conv", ["x", "w"], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def _build(case: Case, x: Array, w: Array, threads: int) -> Run:
    if case.dtype != "f32":
        raise Refusal("its CPU kernels are fp32")
    xf = channels_first(x)
    weight = transposed_weight(w, case.groups) if case.transposed else channels_first(w)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(_model(case, weight, xf.shape), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise Refusal(str(error).splitlines()[0]) from error
    binding = session.io_binding()
    value = ort.OrtValue.ortvalue_from_numpy(xf)
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")

    def call() -> Array:
        session.run_with_iobinding(binding)
        return binding

    def output(bound: ort.IOBinding) -> Array:
        return channels_last(np.asarray(bound.get_outputs()[0].numpy()))

    return Run(call, output, keep=xf)  # a bound value may be a view of it
