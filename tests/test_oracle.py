"""The oracle itself, against loops, against its other formulation, and against other libraries."""

import itertools

import numpy as np
import pytest

import oracle
import peers

RANDOM_CASES = 60


def random_case(seed: int, rank: int | None = None, plain: bool = False) -> tuple[np.ndarray, np.ndarray, dict]:
    """Small integers and the arguments of a conv_general that has an output. `plain`: what every library knows."""
    rng = np.random.default_rng(seed)
    rank = rank or int(rng.integers(1, 4))
    while True:
        groups = int(rng.choice([1, 1, 2, 3]))
        channels, outputs = groups * rng.integers(1, 4), groups * rng.integers(1, 4)
        space, kernel = rng.integers(1, 8, rank), rng.integers(1, 4, rank)
        args = {
            "stride": tuple(map(int, rng.integers(1, 4, rank))),
            "padding": [(int(a), int(b)) for a, b in rng.integers(0 if plain else -2, 4, (rank, 2))],
            "kernel_dilation": tuple(map(int, rng.integers(1, 4, rank))),
            "input_dilation": (1,) * rank if plain else tuple(map(int, rng.integers(1, 4, rank))),
            "groups": groups,
            "flip": not plain and bool(rng.integers(2)),
        }
        out = map(
            oracle.output_extent,
            map(int, space),
            map(int, kernel),
            args["stride"],
            args["kernel_dilation"],
            args["input_dilation"],
            args["padding"],
        )
        if min(out) > 0:
            x = rng.integers(-4, 5, (int(rng.integers(1, 3)), *space, channels)).astype(np.float64)
            return x, rng.integers(-4, 5, (outputs, *kernel, channels // groups)).astype(np.float64), args


def loops(x, w, stride, padding, kernel_dilation, input_dilation, groups, flip):
    """The definition with nothing clever in it: write out the dilated, padded signal, then sum."""
    rank = x.ndim - 2
    signal = np.zeros(
        (x.shape[0], *(oracle.dilated(n, t) for n, t in zip(x.shape[1:-1], input_dilation, strict=True)), x.shape[-1])
    )
    signal[(slice(None), *(slice(None, None, t) for t in input_dilation))] = x
    grow = [(0, 0), *((max(lo, 0), max(hi, 0)) for lo, hi in padding), (0, 0)]
    # A crop may reach into the padding of the other side, so pad first and cut afterwards.
    padded = np.pad(signal, grow)
    crop = tuple(slice(max(-lo, 0), n - max(-hi, 0)) for (lo, hi), n in zip(padding, padded.shape[1:-1], strict=True))
    padded = padded[(slice(None), *crop)]
    if flip:
        w = w[(slice(None), *(slice(None, None, -1),) * rank)]
    out = [(padded.shape[1 + a] - (w.shape[1 + a] - 1) * kernel_dilation[a] - 1) // stride[a] + 1 for a in range(rank)]
    y = np.zeros((x.shape[0], *out, w.shape[0]))
    per_in, per_out = w.shape[-1], w.shape[0] // groups
    for o in range(w.shape[0]):
        first = o // per_out * per_in
        for at in itertools.product(*map(range, out)):
            window = tuple(
                slice(
                    at[a] * stride[a],
                    at[a] * stride[a] + (w.shape[1 + a] - 1) * kernel_dilation[a] + 1,
                    kernel_dilation[a],
                )
                for a in range(rank)
            )
            values = padded[(slice(None), *window, slice(first, first + per_in))]
            y[(slice(None), *at, o)] = (values * w[o]).sum(axis=tuple(range(1, rank + 2)))
    return y


@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_gather_equals_loops(seed):
    x, w, args = random_case(seed)
    np.testing.assert_array_equal(oracle.conv_general(x, w, **args), loops(x, w, **args))


@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_scatter_equals_gather(seed):
    rng = np.random.default_rng(1000 + seed)
    rank = int(rng.integers(1, 4))
    groups = int(rng.integers(1, 3))
    x = rng.integers(-4, 5, (2, *rng.integers(1, 6, rank), 2 * groups)).astype(float)
    w = rng.integers(-4, 5, (3 * groups, *rng.integers(1, 4, rank), 2)).astype(float)
    stride, dilation = rng.integers(1, 4, rank), rng.integers(1, 3, rank)
    extra, padding = rng.integers(0, 3, rank), rng.integers(0, 5, rank)
    reached = (np.array(x.shape[1:-1]) - 1) * stride + (np.array(w.shape[1:-1]) - 1) * dilation + 1
    padding = np.minimum(padding, (reached + extra - 1) // 2)
    reach = (np.array(w.shape[1:-1]) - 1) * dilation
    pads = list(zip((reach - padding).tolist(), (reach - padding + extra).tolist(), strict=True))
    scattered = oracle.conv_transpose(x, w, stride, padding, dilation, extra, groups)
    gathered = oracle.conv_general(x, w, 1, pads, dilation, stride, groups, True)
    np.testing.assert_array_equal(scattered, gathered)


@pytest.mark.parametrize("seed", range(RANDOM_CASES))
def test_gradients_are_adjoint(seed):
    x, w, args = random_case(2000 + seed)
    y = oracle.conv_general(x, w, **args)
    g = np.random.default_rng(seed).integers(-4, 5, y.shape).astype(float)
    dx = oracle.conv_input_grad(g, w, x.shape, **args)
    dw = oracle.conv_weight_grad(g, x, w.shape, **args)
    assert (y * g).sum() == (x * dx).sum() == (w * dw).sum()


@pytest.mark.parametrize("seed", range(30))
def test_scipy(seed):
    signal = pytest.importorskip("scipy.signal")
    x, w, args = random_case(3000 + seed)
    rank = x.ndim - 2
    args |= {
        "stride": (1,) * rank,
        "kernel_dilation": (1,) * rank,
        "input_dilation": (1,) * rank,
        "groups": 1,
        "padding": [(k - 1, k - 1) for k in w.shape[1:-1]],
    }
    x = x[..., : w.shape[-1]]
    function = signal.convolve if args["flip"] else signal.correlate
    want = np.stack(
        [
            np.stack(
                [
                    sum(function(x[n, ..., c], w[o, ..., c], method="direct") for c in range(w.shape[-1]))
                    for o in range(w.shape[0])
                ],
                axis=-1,
            )
            for n in range(x.shape[0])
        ]
    )
    np.testing.assert_array_equal(oracle.conv_general(x, w, **args), want)


def channels_first(a):
    return np.moveaxis(a, -1, 1)


@pytest.mark.parametrize("seed", range(30))
def test_torch(seed):
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    x, w, args = random_case(4000 + seed, plain=True)
    rank = x.ndim - 2
    tx = torch.tensor(channels_first(x).copy(), requires_grad=True)
    tw = torch.tensor(channels_first(w).copy(), requires_grad=True)
    padded = functional.pad(tx, [v for pair in reversed(args["padding"]) for v in pair])
    ty = getattr(functional, f"conv{rank}d")(
        padded, tw, None, args["stride"], 0, args["kernel_dilation"], args["groups"]
    )
    y = oracle.conv_general(x, w, **args)
    np.testing.assert_array_equal(channels_first(y), ty.detach().numpy())
    g = np.random.default_rng(seed).integers(-4, 5, y.shape).astype(float)
    ty.backward(torch.tensor(channels_first(g).copy()))
    np.testing.assert_array_equal(channels_first(oracle.conv_input_grad(g, w, x.shape, **args)), tx.grad.numpy())
    np.testing.assert_array_equal(channels_first(oracle.conv_weight_grad(g, x, w.shape, **args)), tw.grad.numpy())


@pytest.mark.parametrize("peer", [peers.torch_conv_transpose, peers.onnx_conv_transpose])
@pytest.mark.parametrize("seed", range(30))
def test_transposes_of_peers(seed, peer):
    rng = np.random.default_rng(5000 + seed)
    rank, groups = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    stride, dilation = rng.integers(1, 4, rank), rng.integers(1, 3, rank)
    kernel, space = rng.integers(1, 4, rank), rng.integers(2, 6, rank)
    extra = np.array([rng.integers(0, s) for s in stride])
    reached = (space - 1) * stride + (kernel - 1) * dilation + 1
    padding = np.array([rng.integers(0, (r + e - 1) // 2 + 1) for r, e in zip(reached, extra, strict=True)])
    x = rng.integers(-4, 5, (2, *space, 2 * groups)).astype(float)
    w = rng.integers(-4, 5, (3 * groups, *kernel, 2)).astype(float)
    args = (stride, padding, dilation, extra, groups)
    np.testing.assert_array_equal(oracle.conv_transpose(x, w, *args), peer(x, w, *args))


@pytest.mark.parametrize("seed", range(30))
def test_onnx(seed):
    x, w, args = random_case(6000 + seed, plain=True)
    want = peers.onnx_conv(x, w, args["stride"], args["padding"], args["kernel_dilation"], args["groups"])
    np.testing.assert_array_equal(oracle.conv_general(x, w, **args), want)


@pytest.mark.parametrize("seed", range(30))
def test_mlx(seed):
    x, w, args = random_case(7000 + seed, rank=1 + seed % 3)
    if x.ndim == 5 and args["groups"] > 1:
        pytest.skip("MLX has no groups in 3-D")
    # A negative padding crops the dilated signal here and in JAX; MLX crops before it dilates.
    args["padding"] = [(max(lo, 0), max(hi, 0)) for lo, hi in args["padding"]]
    np.testing.assert_array_equal(oracle.conv_general(x, w, **args), peers.mlx_conv_general(x, w, **args))


def test_progression_against_search():
    for n_in, n_out, stride, step, offset in itertools.product(
        (0, 1, 4), (1, 3, 7), (1, 2, 3, 4), (1, 2, 3, 6), range(-9, 10)
    ):
        pairs = [(o, i) for o in range(n_out) for i in range(n_in) if o * stride + offset == i * step]
        found = oracle.progression(n_in, n_out, stride, offset, step)
        got = [] if found is None else list(zip(range(n_out)[found[0]], range(n_in)[found[1]], strict=True))
        assert got == pairs, (n_in, n_out, stride, step, offset)


def test_infinite_weight_over_padding_is_not_nan():
    y = oracle.conv_general(np.ones((1, 2, 1)), np.array([[[np.inf], [1.0], [2.0]]]), 1, 1)
    np.testing.assert_array_equal(y[0, :, 0], [3.0, np.inf])


BORDERS = {"reflect": "reflect", "symmetric": "symmetric", "edge": "edge", "circular": "wrap", "constant": "constant"}


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("mode", BORDERS)
def test_borders(mode, seed):
    """As NumPy pads, without what is cropped; the adjoint has the same inner products."""
    rng = np.random.default_rng(8000 + seed)
    rank = 1 + seed % 3
    x = rng.integers(-4, 5, (2, *rng.integers(1, 6, rank), 3)).astype(np.float64)
    pads = [(int(lo), int(hi)) for lo, hi in rng.integers(0, 8, (rank, 2))]
    sources = oracle.border_sources(x.shape, pads, mode)
    whole = np.pad(x, [(0, 0), *pads, (0, 0)], mode=BORDERS[mode])
    np.testing.assert_array_equal(oracle.bordered(x, sources), whole)
    cropped = oracle.border_sources(x.shape, [(lo - 3, hi) for lo, hi in pads], mode)
    np.testing.assert_array_equal(oracle.bordered(x, cropped), whole[(slice(None), *[slice(3, None)] * rank)])
    grad = rng.integers(-4, 5, whole.shape).astype(np.float64)
    assert (grad * whole).sum() == (oracle.border_adjoint(grad, sources, x.shape) * x).sum()
