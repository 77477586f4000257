"""Every public argument, wrong in every way, raises a TypeError or ValueError that names it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import vkconv
from calls import CASES, F32, W, X, array, parameters_of

HUGE = 2**70

RANK = {name: int(name[-2]) if name.endswith("d") and name[-2].isdigit() else 2 for name in CASES}

NOT_ARRAYS = [[[[1.0]]], 1.0, None, "x", F32(1)]
WRONG_DTYPES = [np.int32, np.uint8, np.bool_, np.complex64, np.longdouble, object, "U1", "M8[s]"]
NOT_INTEGERS = [1.0, "1", None, True, 1j, {1: 1}, {1}, b"1", object()]
ARRAY_ARGUMENTS = ("input", "weight", "grad", "bias", "out")  # unfold takes any dtype, and only one array
AXIS_ARGUMENTS = ("stride", "kernel_dilation", "input_dilation", "dilation", "output_padding")
WORDS = ("precision", "device", "algorithm")


def pairs(*arguments: str) -> list[tuple[str, str]]:
    return [(name, a) for name, case in CASES.items() for a in arguments if a in parameters_of(case.op)]


def fails(kind, name: str, argument: str, value, mention: str | None = None) -> None:
    with pytest.raises(kind) as raised:
        CASES[name](**{argument: value})
    assert re.search(rf"\b{mention or argument}\b", str(raised.value)), f"{raised.value} does not name {argument}"


def test_the_cases_are_correct_calls():
    for name, case in CASES.items():
        assert case() is not None, name


def test_no_public_argument_is_forgotten():
    covered = {
        *ARRAY_ARGUMENTS,
        *AXIS_ARGUMENTS,
        *WORDS,
        "groups",
        "flip",
        "padding",
        "pads",
        "activation",
        "padding_mode",
    }
    covered |= {"workspace_limit", "input_shape", "weight_shape", "state", "first", "windows", "kernel"}
    for case in CASES.values():
        assert parameters_of(case.op) <= covered


@pytest.mark.parametrize("name, argument", pairs(*ARRAY_ARGUMENTS))
def test_arrays_wanted(name, argument):
    for value in NOT_ARRAYS:
        if value is None and argument in ("bias", "out"):
            continue
        fails(TypeError, name, argument, value)


@pytest.mark.parametrize("name, _", pairs("padding_mode"))
def test_padding_modes_wanted(name, _):
    for value in (None, 1, b"edge", ["edge"], (), ("constant", "1"), ("constant", HUGE**20), object()):
        fails(TypeError, name, "padding_mode", value)
    for value in ("", "mirror", "EDGE", ("edge", 1), ("constant", 1, 2)):
        fails(ValueError, name, "padding_mode", value)


@pytest.mark.parametrize("name, _", pairs("padding_mode"))
def test_arrays_wanted_where_there_is_a_border(name, _):
    for argument in {"input", "weight", "grad"} & parameters_of(CASES[name].op):
        for value in NOT_ARRAYS:
            with pytest.raises(TypeError, match=argument):
                CASES[name](**{argument: value, "padding_mode": "edge"})


@pytest.mark.parametrize("name, argument", pairs(*ARRAY_ARGUMENTS))
def test_masks_are_not_ignored(name, argument):
    like = CASES[name].arguments.get(argument, array(6))
    fails(TypeError, name, argument, np.ma.masked_array(like, mask=False))


@pytest.mark.parametrize("name, argument", [pair for pair in pairs(*ARRAY_ARGUMENTS) if "unfold" not in pair])
def test_dtypes_wanted(name, argument):
    like = CASES[name].arguments.get(argument, array(6))
    for dtype in WRONG_DTYPES:
        fails(TypeError, name, argument, np.zeros(like.shape, dtype))


@pytest.mark.parametrize("name, argument", [p for p in pairs("input", "weight", "grad") if "unfold" not in p])
def test_dimensions_and_dtypes_must_agree(name, argument):
    good = CASES[name].arguments[argument]
    fails(ValueError, name, argument, array(3))
    fails(ValueError, name, argument, array(*[1] * 6))
    if len(CASES[name].arguments) > 1:
        fails(TypeError, name, argument, good.astype(np.float64))


@pytest.mark.parametrize("name, argument", pairs(*AXIS_ARGUMENTS))
def test_one_integer_or_one_an_axis(name, argument):
    for value in NOT_INTEGERS:
        fails(TypeError, name, argument, value)
        fails(TypeError, name, argument, (value,) * RANK[name])
    wrong = -1 if argument == "output_padding" else 0
    for value in (wrong, -7, HUGE, -HUGE, (), (1,) * (RANK[name] + 1), (wrong,) * RANK[name], np.ones(5, int)):
        fails(ValueError, name, argument, value)


@pytest.mark.parametrize("name, argument", pairs("groups"))
def test_groups(name, argument):
    for value in (1.0, "1", None, True, (1,), [1, 1]):
        fails(TypeError, name, argument, value)
    for value in (0, -1, HUGE, 5):
        fails(ValueError, name, argument, value)


@pytest.mark.parametrize("name, argument", pairs("flip"))
def test_flip(name, argument):
    for value in (1, 0, None, "yes", np.bool_(True)):
        fails(TypeError, name, argument, value)


@pytest.mark.parametrize("name, argument", pairs("padding"))
def test_padding(name, argument):
    rank = 2 if name == "causal_conv3d" else RANK[name]
    for value in (1.0, None, True, {1: 2}, object(), (1.5,) * rank, ((0,) * rank, 1), (None,) * rank):
        fails(TypeError, name, argument, value)
    one = (0,) * rank
    for value in (
        "Same",
        "",
        "reflect",
        HUGE,
        -HUGE,
        (),
        (0,) * (rank + 1),
        (one,),
        (one, one, one),
        (one, (*one, 0)),
    ):
        fails(ValueError, name, argument, value)


@pytest.mark.parametrize("name", [n for n in CASES if "transpose" in n])
def test_transposed_convolutions_have_no_named_padding(name):
    for word in ("valid", "same", "same_lower", "full", "causal"):
        fails(ValueError, name, "padding", word)


@pytest.mark.parametrize("name, argument", pairs("pads"))
def test_pads(name, argument):
    rank = RANK[name]
    for value in (1, "same", [1] * rank, [(0, 1.0)] * rank, [("a", 0)] * rank, [None] * rank, {0: (1, 2)}):
        fails(TypeError, name, argument, value)
    for value in ([], [(0, 0)] * (rank + 1), [(0,)] * rank, [(0, 0, 0)] * rank, [(HUGE, 0)] * rank):
        fails(ValueError, name, argument, value)
    with pytest.raises(ValueError, match="padding and pads"):
        CASES[name](padding=1, pads=[(1, 1)] * rank)


@pytest.mark.parametrize("name, argument", pairs("input_shape", "weight_shape"))
def test_shapes(name, argument):
    good = CASES[name].arguments[argument]
    for value in (None, 1, "1111", (1.0, *good[1:]), {}, (None, *good[1:]), np.zeros(good), np.zeros((len(good), 1))):
        fails(TypeError, name, argument, value)
    for value in ((), good[:-1], (*good, 1), (-1, *good[1:]), (HUGE, *good[1:])):
        fails(ValueError, name, argument, value)


def test_shapes_that_disagree_with_grad():
    with pytest.raises(ValueError, match=r"grad has shape \(1, 6, 7, 6\), wanted \(1, 7, 7, 6\)"):
        CASES["conv_input_grad"](input_shape=(1, 9, 9, 4))
    with pytest.raises(ValueError, match=r"grad has shape \(1, 6, 7, 6\), wanted \(2, 6, 7, 6\)"):
        CASES["conv_input_grad"](input_shape=(2, 8, 9, 4))
    with pytest.raises(ValueError, match=r"grad has shape \(1, 6, 7, 6\), wanted \(1, 6, 7, 5\)"):
        CASES["conv_weight_grad"](weight_shape=(5, 3, 3, 4))
    with pytest.raises(ValueError, match="weight has 3 input channels per group, input has 4 in 1 group"):
        CASES["conv_weight_grad"](weight_shape=(6, 3, 3, 3))


@pytest.mark.parametrize("name, argument", pairs("bias"))
def test_bias(name, argument):
    for value in (array(7), array(1), array(6, 1), array()):
        fails(ValueError, name, argument, value)
    fails(TypeError, name, argument, array(6, dtype=np.float16))


@pytest.mark.parametrize("name, argument", pairs("activation"))
def test_activation(name, argument):
    for value in (1, True, (), (1, "relu"), b"relu", ("clip", "a", 1), ("leaky_relu", None), {"relu": 1}):
        fails(TypeError, name, argument, value)
    nan = float("nan")
    for value in ("RELU", "", "clip", ("relu", 1), ("clip", 1), ("clip", 2, 1), ("clip", nan, 1), ("leaky_relu", 1, 2)):
        fails(ValueError, name, argument, value)


def test_every_activation_is_documented():
    with pytest.raises(ValueError, match="activation is 'RELU', wanted None or one of") as raised:
        vkconv.conv2d(X, W, activation="RELU")
    for name in re.findall(r"'(\w+)'", str(raised.value).partition("wanted")[2]):
        assert f"'{name}'" in (vkconv._ops.__doc__ or ""), name
    assert np.array_equal(vkconv.conv2d(X, W, activation="identity"), vkconv.conv2d(X, W))


@pytest.mark.parametrize("name, argument", pairs(*WORDS))
def test_words(name, argument):
    for value in (1, True, b"cpu", ("cpu",), 1.5):
        fails(TypeError, name, argument, value)
    for value in ("", "no such", "CPU", "vulkan:", "vulkan:-1", "vulkan:x", "cpu\0", "\udc80"):
        fails(ValueError, name, argument, value)


@pytest.mark.parametrize("name, argument", pairs("workspace_limit"))
def test_workspace_limit(name, argument):
    for value in (1.0, "1", True, (1,)):
        fails(TypeError, name, argument, value)
    for value in (-1, HUGE):
        fails(ValueError, name, argument, value)


@pytest.mark.parametrize("name, argument", pairs("out"))
def test_out(name, argument):
    good = np.zeros_like(CASES[name]())
    assert CASES[name](out=good) is good
    fails(TypeError, name, argument, good.astype(np.float64))
    fails(TypeError, name, argument, good.astype(good.dtype.newbyteorder()))
    fails(ValueError, name, argument, good[None])
    fails(ValueError, name, argument, good[..., :-1])
    good.flags.writeable = False
    fails(ValueError, name, argument, good)


def test_messages_say_what_came_and_what_was_wanted():
    for call, message in (
        (
            lambda: vkconv.conv2d(X, array(6, 3, 3, 2)),
            "weight has 2 input channels per group, input has 4 in 1 group: channels are the last axis",
        ),
        (lambda: vkconv.conv2d(X[0], W), "input has 3 dimensions, wanted 4: batch, spatial axes, channels"),
        (lambda: vkconv.conv2d(X, W[0]), "weight has 3 dimensions, wanted 4: output channels, spatial axes, channels"),
        (lambda: vkconv.conv2d(X, W, algorithm="gemm"), "algorithm is 'gemm', wanted None or one of 'reference', "),
        (lambda: vkconv.conv2d(X, W, groups=3), "groups is 3, which does not divide the 4 channels of input"),
        (lambda: vkconv.conv2d(X, array(5, 3, 3, 2), groups=2), "groups is 2, which does not divide the 5 output"),
        (lambda: vkconv.conv2d(X, W, stride=(1, 2, 3)), "stride has 3 values, wanted an integer or 2 values"),
        (lambda: vkconv.conv2d(X, W[..., :1]), "weight has 1 input channel per group, input has 4 in 1 group"),
        (lambda: vkconv.conv_bias_grad(X[0, 0, 0]), "grad has 1 dimension, wanted 3 to 5"),
        (lambda: vkconv.conv2d(X, W, device="cpu\0"), r"device is 'cpu\x00', wanted text"),
        (lambda: vkconv.unfold(X, (2,)), "kernel has 1 value, wanted an integer or 2 values"),
        (lambda: vkconv.unfold(X[0, 0], 2), "input has 2 dimensions, wanted 3 to 5"),
        (lambda: vkconv.fold(X, X.shape[:2]), "input_shape has 2 values, wanted 3"),
        (lambda: vkconv.fold(np.ones((1, 6, 0, 3)), (1, 8, 3)), "windows has the kernel (0,), wanted at least 1"),
        (lambda: vkconv.causal_conv1d(X[0], np.ones((3, 0, 4))), "weight's kernel extent is 0, wanted at least 1"),
        (lambda: vkconv.causal_conv3d(X[None], W[None], dilation=(1, 2)), "dilation has 2 values, wanted an integer"),
        (lambda: vkconv.causal_conv1d(X, W), "input has 4 dimensions, wanted 3"),
        (lambda: vkconv.depthwise_conv(X, W), "weight has 4 input channels per group, wanted 1"),
        (
            lambda: vkconv.depthwise_conv(X, array(6, 3, 3, 1)),
            "weight has 6 output channels, wanted a multiple of the 4",
        ),
        (lambda: vkconv.conv2d(X, array(6, 0, 3, 4)), "weight has a kernel extent of 0"),
        (lambda: vkconv.conv1d(X, W), "input has 4 dimensions, wanted 3"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            call()


@pytest.mark.parametrize("batch", [0, 1])
def test_input_smaller_than_the_kernel(batch):
    x = array(batch, 4, 9, 4)
    with pytest.raises(ValueError, match="input is smaller than the kernel along spatial axis 0"):
        vkconv.conv2d(x, array(6, 5, 3, 4))
    with pytest.raises(ValueError, match="along spatial axis 1: extent 9 with padding -4 and -3, kernel reach 3"):
        vkconv.conv2d(x, W, pads=[(0, 0), (-4, -3)])
    with pytest.raises(ValueError, match="kernel reach 7"):
        vkconv.conv2d(x, W, dilation=3, padding=1)
    assert vkconv.conv2d(x, array(6, 5, 3, 4), padding=(1, 0)).shape == (batch, 2, 7, 6)


def test_padding_that_leaves_no_transposed_output():
    x, w = np.ones((1, 4, 4, 3), np.float32), np.ones((2, 3, 3, 3), np.float32)
    with pytest.raises(
        ValueError, match="padding 5 leaves no output along spatial axis 0: it is taken from 6 elements"
    ):
        vkconv.conv_transpose2d(x, w, padding=5)
    with pytest.raises(ValueError, match=r"padding 9 and 1 leaves no output along spatial axis 1: .* from 10 elements"):
        vkconv.prepare_transpose(w, stride=2, output_padding=1, pads=[(0, 0), (9, 1)])(x)


def test_sizes_that_overflow():
    x = np.broadcast_to(F32(0), (2**40, 4, 4, 4))
    with pytest.raises(ValueError, match="64-bit"):
        vkconv.conv2d(x, np.broadcast_to(F32(0), (2**40, 1, 1, 4)))
    for change in ({"stride": 2**62}, {"dilation": 2**62}, {"padding": 2**62}, {"output_padding": 2**62}):
        with pytest.raises(ValueError):
            vkconv.conv_transpose2d(X, W, **change)
    with pytest.raises(ValueError):
        vkconv.conv_general(X, W, input_dilation=2**62)
    with pytest.raises(ValueError, match="stride along width is 1152921504606846976, wanted 1 to 2147483647"):
        vkconv.conv1d(array(1, 2, 64), array(1, 3, 64), stride=2**60, pads=[(0, 2**61 + 1)])
    for name in ("kernel_dilation", "input_dilation"):
        with pytest.raises(ValueError, match=rf"\b{name}\b.* along height is 2147483648, wanted 1 to 2147483647"):
            vkconv.conv_general(X, W, **{name: (2**31, 1)}, pads=((2**33, 0), (0, 0)))
    with pytest.raises(ValueError, match="padding along width is beyond 1099511627776"):
        vkconv.conv1d(array(1, 2, 64), array(1, 3, 64), stride=2**31 - 1, pads=[(2**41, -(2**41) + 2)])


def test_borders_beyond_64_bits():
    far = {"dilation": 2**31 - 1, "pads": [(2**30, 2**30 - 1)] * 2}
    for mode in ("reflect", "symmetric", "edge", "circular"):
        with pytest.raises(ValueError, match="exceeds 64-bit integers"):
            vkconv.conv2d(array(1, 1, 1, 1), array(1, 2, 2, 1), padding_mode=mode, **far)


def test_too_many_phases_are_not_planned_one_by_one():
    told = vkconv.explain("fwd_f32_n2c1o1_i400x400x400_k3x3x3_d130x130x130", device="cpu")
    assert "4096 phases" in {c.algorithm: c.reason for c in told.candidates}["dilation_phases"]


def test_too_large_for_memory():
    x = np.broadcast_to(F32(0), (2**44, 4, 4, 1))
    peak = vkconv.memory_info().peak
    with pytest.raises(MemoryError):
        vkconv.conv2d(x, array(1, 1, 1, 1))
    assert vkconv.memory_info().peak <= peak + 4096
    assert vkconv.conv2d(array(1, 4, 4, 1), array(1, 1, 1, 1)).shape == (1, 4, 4, 1)


def test_prepared_call():
    conv = vkconv.prepare(W)
    for value in NOT_ARRAYS:
        with pytest.raises(TypeError, match="input"):
            conv(value)
    with pytest.raises(ValueError, match="weight has 4 input channels per group, input has 3"):
        conv(array(1, 8, 9, 3))
    with pytest.raises(ValueError, match="input has 3 dimensions, wanted 4: batch, spatial axes, channels"):
        conv(array(1, 8, 4))
    with pytest.raises(TypeError, match="input has dtype float64, the prepared weight has float32"):
        conv(X.astype(np.float64))
    with pytest.raises(TypeError, match="out"):
        conv(X, out=[1])


def test_explain():
    with pytest.raises(TypeError, match="op"):
        vkconv.explain(3)
    with pytest.raises(TypeError, match="op"):
        vkconv.explain(len, [])
    with pytest.raises(ValueError, match="problem string"):
        vkconv.explain("nonsense")
    with pytest.raises(ValueError, match="stride"):
        vkconv.explain(vkconv.conv2d, X, W, stride=0)
    with pytest.raises(TypeError, match="stride"):
        vkconv.explain("fwd_f32_n1c1o1_i8_k3", stride=2)
    with pytest.raises(TypeError, match="precision, device, algorithm, workspace_limit as keywords, got stride"):
        vkconv.explain("fwd_f32_n1c1o1_i8_k3", stride=2)
    with pytest.raises(TypeError, match="as keywords, got int"):
        vkconv.explain("fwd_f32_n1c1o1_i8_k3", 3)
    with pytest.raises(TypeError, match=r"op is 'conv2dd', which is no operation; .* as keywords, got ndarray"):
        vkconv.explain("conv2dd", X, W)
    with pytest.raises(ValueError, match="a parameter of the activation is NaN"):
        vkconv.explain("fwd_f32_n1c1o1_i8_k3_leaky_relunan")
    with pytest.raises(ValueError, match=r"problem string is '\\udc80', wanted text"):
        vkconv.explain("\udc80")


def test_settings():
    for call, value, kind in (
        (vkconv.set_num_threads, 0, ValueError),
        (vkconv.set_num_threads, 10**6, ValueError),
        (vkconv.set_num_threads, "2", TypeError),
        (vkconv.set_num_threads, True, TypeError),
        (vkconv.set_plan_cache_capacity, -1, ValueError),
        (vkconv.set_plan_cache_capacity, 1.5, TypeError),
        (vkconv.set_default_device, "gpu", ValueError),
        (vkconv.set_default_device, None, TypeError),
        (vkconv.set_default_precision, "exact", ValueError),
        (vkconv.set_default_precision, None, TypeError),
        (vkconv.algorithms, 3, TypeError),
        (vkconv.algorithms, "gpu", ValueError),
        (vkconv.plan_cache_info, "gpu", ValueError),
        (vkconv.memory_info, "gpu", ValueError),
        (vkconv.trim_memory, 3, TypeError),
        (vkconv.reset_memory_peak, 1, TypeError),
    ):
        with pytest.raises(kind):
            call(value)
    for name, kind in (("gpu", ValueError), (None, TypeError), ("vulkan:1000", vkconv.DeviceError)):
        with pytest.raises(kind), vkconv.device(name):
            pass


def test_error_classes():
    assert issubclass(vkconv.DeviceError, vkconv.Error)
    assert issubclass(vkconv.Error, RuntimeError)
    with pytest.raises(vkconv.DeviceError, match="vulkan:1000"):
        vkconv.conv2d(X, W, device="vulkan:1000")
