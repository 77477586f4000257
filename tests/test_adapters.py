"""What the adapters for other libraries share: checks of arguments, and their words."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkconv

ADAPTERS = {"jax": ("jax.numpy", "asarray"), "mlx": ("mlx.core", "array"), "dask": ("dask.array", "from_array")}
X, W = np.ones((1, 8, 8, 4), np.float32), np.ones((6, 3, 3, 4), np.float32)


@pytest.fixture(params=ADAPTERS)
def adapter(request) -> Any:
    """The module, and its functions of NumPy arrays."""
    library, make = ADAPTERS[request.param]
    to_library = getattr(pytest.importorskip(library), make)
    module = importlib.import_module(f"vkconv.{request.param}")
    weights: Callable[..., Any] = to_library if request.param != "dask" else np.asarray
    return module, lambda name, x, w, *args, **kwargs: getattr(module, name)(to_library(x), weights(w), *args, **kwargs)


WRONG_TYPES = [
    ("stride", [1.5, True, None, "2", {1}, (1.0, 2), np.array(1.0)]),
    ("padding", [1.0, True, None, {1, 2}, (1.5, 1), iter((1, 2)), ((1, 2), 3), (None, 1)]),
    ("dilation", [1.5, True, None]),
    ("groups", [1.0, True, None, "1", (1,)]),
]


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize(("argument", "values"), WRONG_TYPES)
def test_arguments_of_wrong_types_are_named(adapter, name, argument, values):
    for value in values:
        with pytest.raises(TypeError, match=rf"{argument} must be an? .*, got \w+"):
            adapter[1](name, X, W, **{argument: value})


def test_arguments_of_wrong_values_are_named(adapter):
    call = adapter[1]
    for value in ((1, 2, 3), (), ((1, 1),), ((1, 1), (2, 2), (3, 3)), ((1, 1), (2, 2, 2)), 2**70):
        with pytest.raises(ValueError, match="padding "):
            call("conv2d", X, W, padding=value)
    for groups in (0, 3, 2**70):
        with pytest.raises(ValueError, match="groups is"):
            call("conv2d", X, W, groups=groups)
    with pytest.raises(TypeError, match="flip must be a bool, got int"):
        call("conv_general", X, W, flip=1)


def test_numbers_may_be_of_numpy(adapter):
    call, one = adapter[1], np.array(1)
    want = np.asarray(call("conv2d", X, W, 1, 1))
    for options in ({"padding": one, "stride": np.int64(1)}, {"padding": [1]}, {"padding": np.array([1, 1])}):
        assert np.array_equal(np.asarray(call("conv2d", X, W, **options)), want)
    assert np.array_equal(np.asarray(call("conv2d", X, W, padding=([1], [1]), groups=one)), want)


def test_what_is_no_array_is_refused(adapter):
    module, _ = adapter
    for name in ("conv_general", "conv2d", "conv_transpose2d"):
        for value in ([[1.0]], None, 3.0):
            with pytest.raises(TypeError, match=r"input must be an? .*array, got"):
                getattr(module, name)(value, W)


@pytest.mark.parametrize("word", ["same", "same_lower", "causal"])
@pytest.mark.parametrize("stride", [1, 2, 5])
def test_words_of_padding_leave_an_empty_axis_empty(adapter, word, stride):
    call, w = adapter[1], np.ones((2, 4, 3, 3), np.float32)
    for shape in ((2, 0, 6, 3), (2, 6, 0, 3), (2, 0, 0, 3)):
        want = vkconv.conv2d(np.ones(shape, np.float32), w, stride, word)
        got = np.asarray(call("conv2d", np.ones(shape, np.float32), w, stride, word))
        assert got.shape == want.shape and got.dtype == want.dtype and got.size == 0
    with pytest.raises(ValueError, match="weight has 4 input channels"):
        call("conv2d", np.ones((1, 0, 6, 3), np.float32), W, stride, word)
    for padding in (1, "valid"):
        with pytest.raises(ValueError, match="input is smaller than the kernel along spatial axis 0: extent 0 with"):
            call("conv2d", np.ones((1, 0, 6, 3), np.float32), w, stride, padding)
