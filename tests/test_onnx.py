"""ONNX's own tests of Conv and ConvTranspose: its attributes, channels second, as vkconv's arguments."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import vkconv

onnx = pytest.importorskip("onnx")

from onnx.backend.test.case.node import collect_testcases  # noqa: E402 - after the skip
from onnx.backend.test.loader import load_model_tests  # noqa: E402

OPERATORS = {"Conv", "ConvTranspose", "Relu"}
WORDS = {b"SAME_UPPER": "same", b"SAME_LOWER": "same_lower"}


def both_sides(pads: list[int]) -> list[tuple[int, int]]:
    """ONNX has all low sides, then all high sides."""
    return list(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True))


def conv(x, w, bias=None, *, auto_pad=b"NOTSET", dilations, group=1, kernel_shape=None, pads, strides):
    padding = {"padding": WORDS[auto_pad]} if auto_pad in WORDS else {"pads": both_sides(pads)}
    x, w = np.moveaxis(x, 1, -1), np.moveaxis(w, 1, -1)
    options = {"stride": strides, "kernel_dilation": dilations, "groups": group, "bias": bias, **padding}
    return np.moveaxis(vkconv.conv_general(x, w, **options), -1, 1)


def conv_transpose(
    x, w, bias=None, *, auto_pad=b"NOTSET", dilations, group=1, kernel_shape=None, output_padding=None,
    output_shape=None, pads, strides,
):  # fmt: skip
    spatial, kernel = x.shape[2:], w.shape[2:]
    extra = output_padding or [0] * len(kernel)
    wanted = output_shape or [n * s for n, s in zip(spatial, strides, strict=True)]
    if output_shape or auto_pad in WORDS:  # what is too much is cut off, an odd element where auto_pad says
        whole = [
            (n - 1) * s + (k - 1) * d + 1 + e
            for n, s, k, d, e in zip(spatial, strides, kernel, dilations, extra, strict=True)
        ]
        total = [n - m for n, m in zip(whole, wanted, strict=True)]
        low = [t // 2 if auto_pad == b"SAME_UPPER" else t - t // 2 for t in total]
        pads = [*low, *(t - lo for t, lo in zip(total, low, strict=True))]
    grouped = w.reshape(group, -1, *w.shape[1:])  # (groups, C / groups, O / groups, kernel...)
    weight = np.moveaxis(grouped, 1, -1).reshape(-1, *kernel, grouped.shape[1])
    options = {"stride": strides, "dilation": dilations, "output_padding": extra, "groups": group, "bias": bias}
    y = vkconv.conv_transpose(np.moveaxis(x, 1, -1), weight, pads=both_sides(pads), **options)
    return np.moveaxis(y, -1, 1)


def run(node, operands):
    """The result of one node of a graph."""
    if node.op_type == "Relu":
        return np.maximum(operands[0], 0)
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    rank = operands[0].ndim - 2
    filled = {"dilations": [1] * rank, "strides": [1] * rank, "pads": [0] * (2 * rank), **attributes}
    return (conv if node.op_type == "Conv" else conv_transpose)(*operands, **filled)


def stored(folder: str) -> Iterator[tuple[list, list]]:
    """Inputs and outputs that lie beside a model."""

    def load(files):
        return [onnx.numpy_helper.to_array(onnx.load_tensor(str(f))) for f in sorted(files)]

    for data in sorted(Path(folder).glob("test_data*")):
        yield load(data.glob("input_*.pb")), load(data.glob("output_*.pb"))


def cases() -> Iterator:
    with warnings.catch_warnings():  # of the numbers of other operators
        warnings.simplefilter("ignore")
        made = [case for operator in ("Conv", "ConvTranspose") for case in collect_testcases(operator)]
    for case in made:
        yield pytest.param(case.model, case.data_sets, id=case.name)
    for kind in ("pytorch-converted", "pytorch-operator"):
        for case in load_model_tests(kind=kind):
            model = onnx.load(Path(case.model_dir) / "model.onnx")
            yield pytest.param(model, stored(case.model_dir), id=case.name)


def only_convolves(model) -> bool:
    names = {node.op_type for node in model.graph.node}
    return names <= OPERATORS and names != {"Relu"}


@pytest.mark.parametrize("model, data", [case for case in cases() if only_convolves(case.values[0])])
def test_models(model, data):
    graph = model.graph
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    for inputs, outputs in data:
        known = dict(constants)
        known.update(zip((i.name for i in graph.input if i.name not in constants), inputs, strict=True))
        for node in graph.node:
            known[node.output[0]] = run(node, [known[name] for name in node.input])
        got, want = known[graph.output[0].name], outputs[0]
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-6)
