"""A correct call of every public operation, for tests that change one or more arguments of it."""

from __future__ import annotations

import numpy as np

import vkconv

F32 = np.float32


def array(*shape: int, dtype: type = F32) -> np.ndarray:
    return np.zeros(shape, dtype)


class Case:
    """A correct call: tests replace one argument at a time."""

    def __init__(self, op, **arguments):
        self.op, self.arguments = op, arguments

    def __call__(self, **changes):
        return self.op(**{**self.arguments, **changes})


X, W = array(1, 8, 9, 4), array(6, 3, 3, 4)
CASES = {
    "conv_general": Case(vkconv.conv_general, input=X, weight=W),
    "conv1d": Case(vkconv.conv1d, input=array(1, 8, 4), weight=array(6, 3, 4)),
    "conv2d": Case(vkconv.conv2d, input=X, weight=W),
    "conv3d": Case(vkconv.conv3d, input=array(1, 5, 6, 7, 2), weight=array(2, 3, 3, 3, 2)),
    "conv_transpose": Case(vkconv.conv_transpose, input=X, weight=W),
    "conv_transpose1d": Case(vkconv.conv_transpose1d, input=array(1, 8, 4), weight=array(6, 3, 4)),
    "conv_transpose2d": Case(vkconv.conv_transpose2d, input=X, weight=W),
    "conv_transpose3d": Case(vkconv.conv_transpose3d, input=array(1, 5, 6, 7, 2), weight=array(2, 3, 3, 3, 2)),
    "depthwise_conv": Case(vkconv.depthwise_conv, input=X, weight=array(8, 3, 3, 1)),
    "depthwise_conv1d": Case(vkconv.depthwise_conv1d, input=array(1, 8, 4), weight=array(4, 3, 1)),
    "depthwise_conv2d": Case(vkconv.depthwise_conv2d, input=X, weight=array(4, 3, 3, 1)),
    "depthwise_conv3d": Case(vkconv.depthwise_conv3d, input=array(1, 5, 6, 7, 2), weight=array(2, 3, 3, 3, 1)),
    "conv_input_grad": Case(vkconv.conv_input_grad, grad=array(1, 6, 7, 6), weight=W, input_shape=X.shape),
    "conv_weight_grad": Case(vkconv.conv_weight_grad, grad=array(1, 6, 7, 6), input=X, weight_shape=W.shape),
    "conv_bias_grad": Case(vkconv.conv_bias_grad, grad=array(1, 6, 7, 6)),
    "prepare": Case(vkconv.prepare, weight=W),
    "prepare_transpose": Case(vkconv.prepare_transpose, weight=W),
    "causal_conv1d": Case(vkconv.causal_conv1d, input=array(1, 8, 4), weight=array(6, 3, 4)),
    "causal_conv3d": Case(vkconv.causal_conv3d, input=array(1, 5, 6, 7, 2), weight=array(2, 3, 3, 3, 2)),
    "unfold": Case(vkconv.unfold, input=X, kernel=3),
    "fold": Case(vkconv.fold, windows=array(1, 6, 7, 3, 3, 4), input_shape=X.shape),
}


def parameters_of(op) -> set[str]:
    return set(op.__code__.co_varnames[: op.__code__.co_argcount + op.__code__.co_kwonlyargcount])
