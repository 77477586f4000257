"""The same convolutions through other libraries, in vkconv's layout. A test skips where the library is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from oracle import pad_pairs, per_axis

Array = np.ndarray


def first(a: Array) -> Array:
    """Channels first."""
    return np.ascontiguousarray(np.moveaxis(a, -1, 1))


def last(a: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(a, 1, -1))


def swap_in_out(w: Array, groups: int) -> Array:
    """(O, k..., C/groups) as (C, k..., O/groups), what PyTorch and ONNX hold for transposed convolutions."""
    per_group = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    swapped = np.swapaxes(per_group, 1, -1)
    return swapped.reshape(groups * w.shape[-1], *w.shape[1:-1], w.shape[0] // groups)


def torch_conv(x: Array, w: Array, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Array:
    torch = pytest.importorskip("torch")
    rank = x.ndim - 2
    sides = [v for pair in reversed(pad_pairs(padding, rank)) for v in pair]
    y = getattr(torch.nn.functional, f"conv{rank}d")(
        torch.nn.functional.pad(torch.tensor(first(x)), sides),
        torch.tensor(first(w)),
        None,
        per_axis(stride, rank),
        0,
        per_axis(dilation, rank),
        groups,
    )
    return last(y.numpy())


def torch_conv_transpose(
    x: Array, w: Array, stride: Any = 1, padding: Any = 0, dilation: Any = 1, output_padding: Any = 0, groups: int = 1
) -> Array:
    torch = pytest.importorskip("torch")
    rank = x.ndim - 2
    y = getattr(torch.nn.functional, f"conv_transpose{rank}d")(
        torch.tensor(first(x)),
        torch.tensor(first(swap_in_out(w, groups))),
        None,
        per_axis(stride, rank),
        per_axis(padding, rank),
        per_axis(output_padding, rank),
        groups,
        per_axis(dilation, rank),
    )
    return last(y.numpy())


def run_onnx(op: str, x: Array, w: Array, **attributes: Any) -> Array:
    helper = pytest.importorskip("onnx.helper")
    runtime = pytest.importorskip("onnxruntime")
    from onnx import TensorProto

    node = helper.make_node(op, ["x", "w"], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "conv",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, w.shape),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x.astype(np.float32), "w": w.astype(np.float32)})[0]


def onnx_conv(x: Array, w: Array, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Array:
    rank = x.ndim - 2
    pairs = pad_pairs(padding, rank)
    return last(
        run_onnx(
            "Conv",
            first(x),
            first(w),
            strides=per_axis(stride, rank),
            dilations=per_axis(dilation, rank),
            group=groups,
            pads=[p[0] for p in pairs] + [p[1] for p in pairs],
        )
    )


def onnx_conv_transpose(
    x: Array, w: Array, stride: Any = 1, padding: Any = 0, dilation: Any = 1, output_padding: Any = 0, groups: int = 1
) -> Array:
    rank = x.ndim - 2
    return last(
        run_onnx(
            "ConvTranspose",
            first(x),
            first(swap_in_out(w, groups)),
            strides=per_axis(stride, rank),
            dilations=per_axis(dilation, rank),
            group=groups,
            pads=per_axis(padding, rank) * 2,
            output_padding=per_axis(output_padding, rank),
        )
    )


def mlx_core() -> Any:
    core = pytest.importorskip("mlx.core")
    core.set_default_device(core.cpu)
    return core


def mlx_conv_general(
    x: Array,
    w: Array,
    stride: Any = 1,
    padding: Sequence[tuple[int, int]] | int = 0,
    kernel_dilation: Any = 1,
    input_dilation: Any = 1,
    groups: int = 1,
    flip: bool = False,
) -> Array:
    core = mlx_core()
    rank = x.ndim - 2
    pairs = pad_pairs(padding, rank)
    y = core.conv_general(
        core.array(x.astype(np.float32)),
        core.array(w.astype(np.float32)),
        per_axis(stride, rank),
        ([p[0] for p in pairs], [p[1] for p in pairs]),
        per_axis(kernel_dilation, rank),
        per_axis(input_dilation, rank),
        groups,
        flip,
    )
    return np.array(y)
