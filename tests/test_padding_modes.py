"""Padding modes, streaming, unfold and fold against plain calls on arrays that NumPy padded."""

from __future__ import annotations

import numpy as np
import pytest

import vkconv

RNG = np.random.default_rng(3)
MODES = {"reflect": "reflect", "symmetric": "symmetric", "edge": "edge", "circular": "wrap"}
PADS = [[(1, 1)], [(2, 0), (1, 3)], [(1, 2), (0, 1), (2, 2)]]


def integers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.integers(-3, 4, shape).astype(dtype)


def padded(x: np.ndarray, pads, mode) -> np.ndarray:
    around = [(0, 0), *pads, (0, 0)]
    if isinstance(mode, tuple):
        return np.pad(x, around, constant_values=mode[1])
    return np.pad(x, around, mode=MODES[mode])


def bordered(x: np.ndarray, pads, mode) -> np.ndarray:
    """What negative numbers crop counts as an element that the border repeats."""
    cut = (slice(None), *(slice(max(-lo, 0), min(hi, 0) or None) for lo, hi in pads))
    return padded(x, [(max(lo, 0), max(hi, 0)) for lo, hi in pads], mode)[cut]


def operands(rank: int, dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    return integers(2, *(7, 5, 6)[:rank], 3, dtype=dtype), integers(4, *(3, 2, 3)[:rank], 3, dtype=dtype)


@pytest.mark.parametrize("mode", [*MODES, ("constant", -2.0)], ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_forward(rank, mode):
    x, w = operands(rank)
    pads = PADS[rank - 1]
    wanted = vkconv.conv_general(padded(x, pads, mode), w, stride=2, activation="relu")
    options = {"stride": 2, "pads": pads, "padding_mode": mode, "activation": "relu"}
    for got in (
        vkconv.conv_general(x, w, **options),
        getattr(vkconv, f"conv{rank}d")(x, w, **options),
        vkconv.prepare(w, **options)(x),
    ):
        assert np.array_equal(got, wanted)
    out = np.empty_like(wanted)
    assert vkconv.conv_general(x, w, **options, out=out) is out and np.array_equal(out, wanted)
    deep = integers(6, *w.shape[1:-1], 1)
    assert np.array_equal(
        getattr(vkconv, f"depthwise_conv{rank}d")(x, deep, pads=pads, padding_mode=mode),
        vkconv.depthwise_conv(padded(x, pads, mode), deep),
    )


# Large enough for an inner part: (input, kernel, pads, other arguments).
LARGE = {
    "1d": ((2, 61, 5), (4, 7, 5), [(3, 2)], {}),
    "1d dilated": ((1, 70, 4), (4, 3, 4), [(8, 9)], {"kernel_dilation": 4, "flip": True}),
    "2d": ((2, 23, 19, 6), (4, 3, 3, 6), [(1, 1), (1, 1)], {}),
    "2d strided": ((1, 30, 33, 4), (6, 3, 5, 2), [(1, 2), (3, 0)], {"stride": (2, 3), "groups": 2}),
    "2d wide border": ((1, 9, 90, 4), (4, 3, 3, 4), [(0, 0), (30, 20)], {}),
    "2d sparse": ((1, 40, 30, 3), (4, 1, 2, 3), [(2, 1), (3, 4)], {"stride": 3}),
    "2d cropped": ((1, 26, 26, 3), (4, 3, 3, 3), [(-2, 2), (1, -3)], {}),
    "2d image": ((1, 40, 38, 1), (1, 5, 5, 1), [(2, 2), (2, 2)], {}),
    "2d depthwise": ((1, 24, 25, 8), (8, 3, 3, 1), [(1, 1), (1, 1)], {"groups": 8}),
    "3d": ((1, 13, 14, 15, 4), (4, 3, 3, 3, 4), [(1, 1), (1, 1), (1, 1)], {}),
}


def views(x: np.ndarray) -> np.ndarray:
    """The same values with gaps between pixels and the first spatial axis backwards in memory."""
    wide = np.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    wide[:, ::-1, ..., : x.shape[-1]] = x
    return wide[:, ::-1, ..., : x.shape[-1]]


@pytest.mark.parametrize("mode", [*MODES, ("constant", -2.0)], ids=str)
@pytest.mark.parametrize("case", LARGE)
def test_inner_part_and_borders(case, mode, device):
    shape, kernel, pads, options = LARGE[case]
    options = {**options, "precision": "highest"}  # exact sums
    x, w, bias = integers(*shape), integers(*kernel), integers(kernel[0])
    whole = bordered(x, pads, mode)
    wanted = vkconv.conv_general(whole, w, **options, bias=bias, activation="relu", device="cpu")
    shared = {**options, "pads": pads, "padding_mode": mode}
    call = {"bias": bias, "activation": "relu", "device": device}
    got = vkconv.conv_general(x, w, **shared, **call)
    assert np.array_equal(got, wanted)
    out = views(np.empty_like(wanted))
    assert vkconv.conv_general(views(x), w, **shared, **call, out=out) is out and np.array_equal(out, wanted)
    on_device = vkconv.conv_general(vkconv.array(x, device), vkconv.array(w, device), **shared, **call)
    assert on_device.device == device and np.array_equal(on_device.numpy(), wanted)
    addend = integers(*wanted.shape)
    conv = vkconv.prepare(w, bias, activation="relu", **shared, device=device)
    plain = vkconv.prepare(w, bias, activation="relu", **options, device="cpu")
    for _ in range(2):
        assert np.array_equal(conv(x, addend=addend), plain(whole, addend=addend))
    assert np.array_equal(conv(vkconv.array(x, device)).numpy(), wanted)


def gradients(x: np.ndarray, w: np.ndarray, pads, mode, options) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A gradient for the output, and from it in float64 those for input and weight, with the border as its own step."""
    places = bordered(np.arange(x.size).reshape(x.shape), pads, mode if isinstance(mode, str) else ("constant", -1))
    whole = bordered(x, pads, mode).astype(np.float64)
    grad = integers(*vkconv.conv_general(whole, w.astype(np.float64), **options).shape, dtype=np.float64)
    of_whole = vkconv.conv_input_grad(grad, w.astype(np.float64), whole.shape, **options)
    of_x = np.zeros(x.size + 1)
    np.add.at(of_x, places.ravel(), of_whole.ravel())
    return grad, of_x[:-1].reshape(x.shape), vkconv.conv_weight_grad(grad, whole, w.shape, **options)


@pytest.mark.parametrize("mode", [*MODES, ("constant", -2.0)], ids=str)
@pytest.mark.parametrize("case", LARGE)
def test_gradients_of_inner_part_and_borders(case, mode, device):
    shape, kernel, pads, options = LARGE[case]
    x, w = integers(*shape), integers(*kernel)
    grad, of_x, of_w = gradients(x, w, pads, mode, options)
    options = {**options, "pads": pads, "padding_mode": mode}
    grad = grad.astype(np.float32)
    assert np.array_equal(vkconv.conv_input_grad(grad, w, x.shape, **options, device=device), of_x)
    assert np.array_equal(vkconv.conv_weight_grad(views(grad), views(x), w.shape, **options, device=device), of_w)
    out = views(np.empty_like(x))
    assert vkconv.conv_input_grad(grad, w, x.shape, **options, device=device, out=out) is out
    assert np.array_equal(out, of_x)
    arrays = [vkconv.array(a, device) for a in (grad, w, x)]
    assert np.array_equal(vkconv.conv_input_grad(*arrays[:2], x.shape, **options).numpy(), of_x)
    for beside in (arrays[2], x):
        assert np.array_equal(vkconv.conv_weight_grad(arrays[0], beside, w.shape, **options).numpy(), of_w)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("mode", MODES)
def test_dtypes_are_rounded_once(mode, dtype, device):
    kind = np.dtype(dtype if dtype != "bfloat16" else pytest.importorskip("ml_dtypes").bfloat16)
    x, w = integers(1, 26, 24, 4).astype(kind), integers(4, 3, 3, 4).astype(kind)
    options = {"pads": [(1, 2), (1, 1)], "padding_mode": mode}
    grad, of_x, of_w = gradients(x.astype(np.float64), w.astype(np.float64), *options.values(), {})
    wanted = vkconv.conv2d(padded(x.astype(np.float64), *options.values()), w.astype(np.float64), device="cpu")
    grad = grad.astype(kind)
    for place in (lambda a: a, lambda a: vkconv.array(a, device)):
        got = (
            vkconv.conv2d(place(x), w, **options, device=device),
            vkconv.conv_input_grad(place(grad), w, x.shape, **options, device=device),
            vkconv.conv_weight_grad(place(grad), place(x), w.shape, **options, device=device),
        )
        for made, exact in zip(got, (wanted, of_x, of_w), strict=True):
            assert np.array_equal(np.asarray(made), exact.astype(kind))


def test_the_input_is_not_copied():
    x, w = integers(1, 512, 512, 16), integers(16, 3, 3, 16)
    y = vkconv.conv2d(x, w, padding=1)
    vkconv.conv2d(x, w, padding=1, padding_mode="reflect", out=y, device="cpu")
    vkconv.reset_memory_peak("cpu")
    before = vkconv.memory_info("cpu").used
    zeros = vkconv.conv2d(x, w, padding=1, out=y, device="cpu") is y and vkconv.memory_info("cpu").peak - before
    vkconv.conv2d(x, w, padding=1, padding_mode="reflect", out=y, device="cpu")
    assert vkconv.memory_info("cpu").peak - before <= zeros + x.nbytes // 20


def test_a_forced_algorithm_is_that_of_the_inner_part():
    x, w = integers(1, 40, 40, 8), integers(8, 3, 3, 8)
    options = {"padding": 1, "padding_mode": "edge", "device": "cpu"}
    told = vkconv.explain(vkconv.conv2d, x, w, algorithm="unfold_gemm", **options)
    assert told.algorithm == "unfold_gemm" and "i40x40" in told.problem and "_p" not in told.problem
    wanted = vkconv.conv2d(padded(x, [(1, 1)] * 2, "edge"), w, device="cpu", precision="highest")
    for algorithm in ("unfold_gemm", "reference", "implicit_gemm"):
        assert np.array_equal(vkconv.conv2d(x, w, algorithm=algorithm, **options), wanted)
    with pytest.raises(ValueError, match="'depthwise' cannot run"):
        vkconv.conv2d(x, w, algorithm="depthwise", **options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("extent", [1, 2, 3])
def test_borders_wider_than_the_input(mode, extent):
    x, w = integers(1, extent, 2), integers(2, 3, 2)
    pads = [(7, 8)]
    assert np.array_equal(vkconv.conv1d(x, w, pads=pads, padding_mode=mode), vkconv.conv1d(padded(x, pads, mode), w))


@pytest.mark.parametrize("padding", ["same", "same_lower", "full", "causal", 1, (1, 0), ((1, 0), (0, 2))])
def test_every_form_of_padding(padding):
    x, w = operands(2)
    zeros = vkconv.conv2d(x, w, 2, padding)
    assert np.array_equal(vkconv.conv2d(x, w, 2, padding, padding_mode=("constant", 0)), zeros)
    assert np.array_equal(vkconv.conv2d(x, w, 2, padding, padding_mode="constant"), zeros)
    assert vkconv.conv2d(x, w, 2, padding, padding_mode="edge").shape == zeros.shape


def test_crops_beside_borders():
    x, w = operands(2)
    wanted = vkconv.conv2d(np.pad(x[:, :-1], [(0, 0), (2, 0), (1, 1), (0, 0)], mode="edge"), w)
    got = vkconv.conv2d(x, w, pads=[(2, -1), (1, 1)], padding_mode="edge")
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("mode", [*MODES, ("constant", 3.0)], ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_are_adjoints(rank, mode):
    """<grad, conv(x, w)> is linear in x and w: its derivatives are the gradients."""
    x, w = operands(rank, np.float64)
    options = {"pads": PADS[rank - 1], "padding_mode": mode, "stride": 2}
    y = vkconv.conv_general(x, w, **options)
    grad = integers(*y.shape, dtype=np.float64)
    dx, dw = integers(*x.shape, dtype=np.float64), integers(*w.shape, dtype=np.float64)
    along_x = vkconv.conv_general(x + dx, w, **options) - y
    of_x = vkconv.conv_input_grad(grad, w, x.shape, **options)
    assert of_x.shape == x.shape and np.vdot(grad, along_x) == np.vdot(of_x, dx)
    out = np.empty_like(x)
    assert vkconv.conv_input_grad(grad, w, x.shape, **options, out=out) is out and np.array_equal(out, of_x)
    of_w = vkconv.conv_weight_grad(grad, x, w.shape, **options)
    assert np.vdot(grad, vkconv.conv_general(x, dw, **options)) == np.vdot(of_w, dw)


def test_bfloat16_and_explain():
    bf16 = pytest.importorskip("ml_dtypes").bfloat16
    x, w = (a.astype(bf16) for a in operands(2))
    wanted = vkconv.conv2d(np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="reflect"), w)
    assert np.array_equal(vkconv.conv2d(x, w, padding=1, padding_mode="reflect"), wanted)
    assert "i9x7" in vkconv.explain(vkconv.conv2d, x, w, padding=1, padding_mode="reflect").problem


def test_on_every_device(device):
    x, w = operands(2)
    wanted = vkconv.conv2d(x, w, padding=1, padding_mode="reflect", device="cpu")
    assert np.array_equal(vkconv.conv2d(x, w, padding=1, padding_mode="reflect", device=device), wanted)


def test_errors():
    x, w = operands(2)
    with pytest.raises(ValueError, match="padding_mode is 'mirror', wanted one of 'zeros'"):
        vkconv.conv2d(x, w, padding_mode="mirror")
    with pytest.raises(ValueError, match="takes no parameters"):
        vkconv.conv2d(x, w, padding_mode=("edge", 1.0))
    with pytest.raises(ValueError, match="input_dilation"):
        vkconv.conv_general(x, w, input_dilation=2, padding_mode="edge")
    with pytest.raises(TypeError, match="input must be"):
        vkconv.conv2d(x.tolist(), w, padding_mode="edge")
    with pytest.raises(TypeError, match="NumPy array"):
        vkconv.unfold(x.tolist(), 2)
    with pytest.raises(ValueError, match="no elements"):
        vkconv.conv2d(x[:, :0], w, padding=3, padding_mode="edge")
    with pytest.raises(ValueError, match="3 dimensions"):
        vkconv.conv2d(x[0], w, padding=1, padding_mode="edge")
    with pytest.raises(ValueError, match="smaller than the kernel"):
        vkconv.conv2d(x[:, :1], w, padding_mode="edge")


# ---- streaming


@pytest.mark.parametrize("first", ["zeros", "edge"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (1, 3), (2, 1), (2, 2)])
def test_a_stream_in_chunks(first, stride, dilation):
    x, w, bias = integers(2, 24, 4), integers(6, 4, 2), integers(6)
    options = {"stride": stride, "dilation": dilation, "groups": 2}
    before = np.repeat(x[:, :1], 3 * dilation, axis=1) * (first == "edge")
    wanted = vkconv.conv1d(np.concatenate([before, x], axis=1), w, bias=bias, activation="relu", **options)
    for sizes in ([24], [2] * 12, [4, 18, 2], [10, 14]):
        state, parts, start = None, [], 0
        for size in sizes:
            chunk = x[:, start : start + size]
            y, state = vkconv.causal_conv1d(chunk, w, bias, state, activation="relu", first=first, **options)
            assert y.shape == (2, size // stride, 6) and state.shape == (2, 3 * dilation, 4)
            parts.append(y)
            start += size
        assert np.array_equal(np.concatenate(parts, axis=1), wanted)


@pytest.mark.parametrize("algorithm", ["implicit_gemm", "unfold_gemm"])
def test_one_algorithm_gives_a_stream_the_bits_of_the_whole(algorithm):
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((1, 50, 64), np.float32), rng.standard_normal((64, 4, 64), np.float32)
    whole, _ = vkconv.causal_conv1d(x, w, algorithm=algorithm)
    state, parts = None, []
    for start, stop in ((0, 1), (1, 3), (3, 20), (20, 50)):
        y, state = vkconv.causal_conv1d(x[:, start:stop], w, state=state, algorithm=algorithm)
        parts.append(y)
    assert np.array_equal(np.concatenate(parts, axis=1), whole)


def test_a_video_in_chunks():
    x, w = integers(1, 9, 6, 5, 3), integers(4, 3, 3, 3, 3)
    wanted = vkconv.conv3d(np.concatenate([x[:, :1]] * 2 + [x], axis=1), w, padding=(0, 1, 1))
    state, parts = None, []
    for start, stop in ((0, 1), (1, 5), (5, 9)):
        y, state = vkconv.causal_conv3d(x[:, start:stop], w, state=state, first="edge")
        parts.append(y)
    assert np.array_equal(np.concatenate(parts, axis=1), wanted)
    y, state = vkconv.causal_conv3d(x[:, :8], w[:, :1], stride=(2, 1, 2), padding=((0, 1), (1, 0)))
    assert np.array_equal(y, vkconv.conv3d(x[:, :8], w[:, :1], (2, 1, 2), pads=[(0, 0), (0, 1), (1, 0)]))
    assert state.shape == (1, 0, 6, 5, 3)


def test_a_stream_of_the_other_byte_order():
    x, w = integers(1, 8, 2), integers(2, 3, 2)
    state, parts = None, []
    for chunk in (x[:, :5], x[:, 5:]):
        y, state = vkconv.causal_conv1d(chunk.astype(">f4"), w, state=state)
        parts.append(y)
    assert np.array_equal(np.concatenate(parts, axis=1), vkconv.conv1d(x, w, padding="causal"))


def test_the_state_owns_its_memory():
    x, w = integers(1, 8, 2), integers(2, 3, 2)
    _, state = vkconv.causal_conv1d(x, w)
    kept = state.copy()
    x[...] = 9
    assert np.array_equal(state, kept)


def test_stream_errors():
    x, w = integers(1, 8, 2), integers(2, 3, 2)
    with pytest.raises(ValueError, match=r"state has shape \(1, 3, 2\), wanted \(1, 2, 2\)"):
        vkconv.causal_conv1d(x, w, state=integers(1, 3, 2))
    with pytest.raises(TypeError, match="state has dtype float64, input has float32: they must agree"):
        vkconv.causal_conv1d(x, w, state=np.zeros((1, 2, 2)))
    with pytest.raises(TypeError, match="state must be"):
        vkconv.causal_conv1d(x, w, state="zeros")
    for wrong in (x[:, :7], x[:, :0]):
        with pytest.raises(ValueError, match="positive multiple of the stride"):
            vkconv.causal_conv1d(wrong, w, stride=2)
    with pytest.raises(ValueError, match="first is"):
        vkconv.causal_conv1d(x, w, first="reflect")
    for first, kind in ((1, "int"), (np.array(["zeros", "edge"]), "ndarray")):
        with pytest.raises(TypeError, match=f"first must be 'zeros' or 'edge', got {kind}"):
            vkconv.causal_conv1d(x, w, first=first)
    with pytest.raises(ValueError, match="dimensions"):
        vkconv.causal_conv3d(x, w)


# ---- unfold and fold


@pytest.mark.parametrize("mode", ["zeros", *MODES])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_unfold_is_the_convolution_before_its_sum(rank, mode):
    x, w = operands(rank)
    options = {"stride": 2, "dilation": 2, "pads": [(2, 3)] * rank, "padding_mode": mode}
    windows = vkconv.unfold(x, w.shape[1:-1], **options)
    wanted = getattr(vkconv, f"conv{rank}d")(x, w, **options)
    assert windows.shape == (*wanted.shape[:-1], *w.shape[1:])
    assert np.array_equal(np.tensordot(windows, w, (range(1 + rank, 2 + 2 * rank), range(1, 2 + rank))), wanted)
    given = integers(*windows.shape)
    assert np.vdot(windows, given) == np.vdot(x, vkconv.fold(given, x.shape, **options))


def test_windows_that_do_not_overlap_may_be_written():
    x = np.ones((1, 8, 3), np.float32)
    for kernel, stride in ((2, 2), (8, 1), (1, 1)):
        windows = vkconv.unfold(x, kernel, stride)
        windows[:] = 0
        assert windows.flags.owndata and x.all()


@pytest.mark.parametrize("mode, first", [("zeros", 1), ("circular", 33)])
def test_fold_allocates_no_border(mode, first):
    windows, padding = np.ones((1, 33, 1, 1), np.float32), [(2**34, 2**34)]
    folded = vkconv.fold(windows, (1, 4, 1), 2**30, pads=padding, padding_mode=mode)
    np.testing.assert_array_equal(folded[0, :, 0], [first, 0, 0, 0])


def test_unfold_errors_and_dtypes():
    x = integers(1, 8, 2, dtype=np.float16)
    windows = vkconv.unfold(x, 3)
    assert windows.dtype == np.float16 and vkconv.fold(windows, x.shape).dtype == np.float16
    options = {"padding": 1, "padding_mode": "reflect"}
    ones = np.ones_like(vkconv.unfold(x, 3, **options))
    np.testing.assert_array_equal(vkconv.fold(ones, x.shape, **options)[0, :, 0], [2, 4, 3, 3, 3, 3, 4, 2])
    for mode, error in ((("constant", "a"), TypeError), ("mirror", ValueError), (("edge", 1), ValueError)):
        for call in (
            lambda m: vkconv.unfold(x, 3, padding_mode=m),
            lambda m: vkconv.fold(ones, x.shape, padding_mode=m),
        ):
            with pytest.raises(error, match="padding_mode"):
                call(mode)
    with pytest.raises(ValueError, match="no elements along axis 1"):
        vkconv.unfold(x[:, :0], 1, padding=1, padding_mode="edge")
    with pytest.raises(ValueError, match="no elements along axis 1"):
        vkconv.fold(np.ones((1, 2, 1, 2)), (1, 0, 2), padding=1, padding_mode="edge")
    with pytest.raises(ValueError, match="smaller than the kernel"):
        vkconv.unfold(x, 9)
    with pytest.raises(ValueError, match="windows has shape"):
        vkconv.fold(windows[:, 1:], x.shape)
    with pytest.raises(ValueError, match="input_shape has 4 values, wanted 3"):
        vkconv.fold(windows, (1, 8, 8, 2))
    with pytest.raises(ValueError, match="windows has 3 dimensions"):
        vkconv.fold(x, x.shape)
    for operand in (np.arange(5).reshape(1, 5, 1), np.ones((1, 5, 1), bool)):
        assert np.array_equal(vkconv.unfold(operand, 1, stride=2**40)[0, :, 0], operand[0, :1])
