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
    with pytest.raises(TypeError, match="NumPy array"):
        vkconv.conv2d(x.tolist(), w, padding_mode="edge")
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


def test_the_state_owns_its_memory():
    x, w = integers(1, 8, 2), integers(2, 3, 2)
    _, state = vkconv.causal_conv1d(x, w)
    kept = state.copy()
    x[...] = 9
    assert np.array_equal(state, kept)


def test_stream_errors():
    x, w = integers(1, 8, 2), integers(2, 3, 2)
    with pytest.raises(ValueError, match="state is float32"):
        vkconv.causal_conv1d(x, w, state=integers(1, 3, 2))
    with pytest.raises(ValueError, match="multiple of the stride"):
        vkconv.causal_conv1d(x[:, :7], w, stride=2)
    with pytest.raises(ValueError, match="first is"):
        vkconv.causal_conv1d(x, w, first="reflect")
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


def test_unfold_errors_and_dtypes():
    x = integers(1, 8, 2, dtype=np.float16)
    windows = vkconv.unfold(x, 3)
    assert windows.dtype == np.float16 and vkconv.fold(windows, x.shape).dtype == np.float16
    with pytest.raises(ValueError, match="smaller than the kernel"):
        vkconv.unfold(x, 9)
    with pytest.raises(ValueError, match="windows has shape"):
        vkconv.fold(windows[:, 1:], x.shape)
    with pytest.raises(ValueError, match="windows has 4 dimensions"):
        vkconv.fold(windows, (1, 8, 8, 2))
