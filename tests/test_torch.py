"""vkconv.torch: the operators against PyTorch's own, their registrations and gradients."""

from __future__ import annotations

import copy
import doctest
import importlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import vkconv  # noqa: E402 - after the skip
import vkconv.torch as vt  # noqa: E402 - after the skip
from vkconv.torch import _ops  # noqa: E402
from vkconv.torch._arrays import channels_first, channels_last, to_array  # noqa: E402

GEOMETRY = [
    {"stride": 1, "padding": 0},
    {"stride": 2, "padding": 1, "dilation": 2},
    {"padding": "same", "dilation": 3},
    {"stride": 3, "padding": 2, "groups": 2},
    {"padding": 1, "groups": 4},
]
TRANSPOSED = [
    {"stride": 1, "padding": 0},
    {"stride": 2, "padding": 1, "output_padding": 1},
    {"stride": 3, "padding": 2, "output_padding": 2, "groups": 2},
    {"stride": 1, "dilation": 3, "output_padding": 2},
    {"stride": 2, "padding": 1, "groups": 4},
]
DTYPES = {"float32": 1e-6, "float64": 1e-14, "float16": 2e-3, "bfloat16": 1e-2}


def tensors(rank: int, shape_w: tuple[int, int], dtype: torch.dtype = torch.float32, batch: int = 2) -> tuple:
    torch.manual_seed(rank)
    spatial, kernel = (9, 8, 10)[:rank], (3, 2, 3)[:rank]
    outputs = shape_w[0]
    return (
        torch.randn(batch, 4, *spatial).to(dtype),
        torch.randn(*shape_w, *kernel).to(dtype) / 4,
        torch.randn(outputs).to(dtype),
    )


def conv_tensors(rank: int, groups: int = 1, **options: object) -> tuple:
    return tensors(rank, (8, 4 // groups), **options)


def transposed_tensors(rank: int, groups: int = 1, **options: object) -> tuple:
    x, w, _ = tensors(rank, (4, 8 // groups), **options)
    return x, w, torch.randn(8).to(x.dtype)


def assert_near(got: torch.Tensor, want: torch.Tensor, tolerance: float = 1e-6) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    scale = want.double().abs().max()
    assert ((got.double() - want.double()).abs().max() / scale) <= tolerance


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("options", GEOMETRY, ids=str)
def test_conv(rank, options):
    x, w, b = conv_tensors(rank, options.get("groups", 1))
    ours, theirs = getattr(vt, f"conv{rank}d"), getattr(F, f"conv{rank}d")
    assert_near(ours(x, w, b, **options), theirs(x, w, b, **options))
    assert_near(ours(x[0], w, **options), theirs(x[0], w, **options))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("options", TRANSPOSED, ids=str)
def test_conv_transpose(rank, options):
    x, w, b = transposed_tensors(rank, options.get("groups", 1))
    ours, theirs = getattr(vt, f"conv_transpose{rank}d"), getattr(F, f"conv_transpose{rank}d")
    assert_near(ours(x, w, b, **options), theirs(x, w, b, **options))
    assert_near(ours(x, w, **options), theirs(x, w, **options))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    x, w, b = conv_tensors(2, dtype=getattr(torch, dtype))
    want = F.conv2d(x.double(), w.double(), b.double(), padding=1).to(x.dtype)
    assert_near(vt.conv2d(x, w, b, padding=1), want, DTYPES[dtype])
    xt, wt, bt = transposed_tensors(2, dtype=getattr(torch, dtype))
    want = F.conv_transpose2d(xt.double(), wt.double(), bt.double(), 2).to(x.dtype)
    assert_near(vt.conv_transpose2d(xt, wt, bt, 2), want, DTYPES[dtype])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_channels_last_is_not_copied(dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    x = torch.zeros(2, 3, 4, 5, dtype=getattr(torch, dtype)).contiguous(memory_format=torch.channels_last)
    a = channels_last(x)
    assert a.ctypes.data == x.data_ptr() and a.flags.c_contiguous and a.shape == (2, 4, 5, 3)
    back = channels_first(a)
    assert back.data_ptr() == x.data_ptr() and back.dtype == x.dtype and back.stride() == x.stride()
    assert vt.conv2d(x, torch.zeros(4, 3, 1, 1, dtype=x.dtype)).is_contiguous(memory_format=torch.channels_last)


def test_views_of_tensors():
    """Negative views, slices, transposed storage and tensors that require gradients are read where they lie."""
    x, w, _ = conv_tensors(2)
    negative = torch.complex(torch.zeros_like(x), x).conj().imag
    assert negative.is_neg()
    sliced = torch.randn(2, 4, 20, 9).transpose(2, 3)[:, :, ::2, 1::2]
    for view in (negative, sliced, sliced.requires_grad_()):
        assert_near(vt.conv2d(view, w), F.conv2d(view.clone(), w))
    assert to_array(torch.zeros(3)).base is not None


@pytest.mark.parametrize("two", [np.int64(2), torch.tensor(2), torch.Size([2, 2]), [2]], ids=repr)
def test_integers_of_any_type(two):
    x, w, _ = conv_tensors(2)
    assert_near(vt.conv2d(x, w, stride=two, padding=two), F.conv2d(x, w, stride=two, padding=two))


def test_device_and_shape_errors():
    x, w, _ = conv_tensors(2)
    refused = [
        (vt.conv2d, F.conv2d, (x[0, 0], w), {}),
        (vt.conv2d, F.conv2d, (x, w), {"padding": "same", "stride": 2}),
        (vt.conv2d, F.conv2d, (x, w), {"padding": "reflect"}),
        (vt.conv2d, F.conv2d, (x, w), {"stride": (1, 2, 3)}),
        (vt.conv2d, F.conv2d, (x, w), {"padding": (0, -1)}),
        (vt.conv_transpose2d, F.conv_transpose2d, (x, w.transpose(0, 1)), {"padding": -1}),
        (vt.conv2d, F.conv2d, (x, w[:, :1]), {}),
        (vt.conv2d, F.conv2d, (x, w.double()), {}),
        (vt.conv2d, F.conv2d, (None, w), {}),
        (vt.conv_transpose2d, F.conv_transpose2d, (x, w.transpose(0, 1)), {"stride": 2, "output_padding": 2}),
    ]
    for ours, theirs, operands, options in refused:
        with pytest.raises((RuntimeError, TypeError, ValueError)) as want:
            theirs(*operands, **options)
        with pytest.raises(want.type):
            ours(*operands, **options)
    assert vt.conv2d(x.to("meta"), w.to("meta")).device.type == "meta"
    with pytest.raises(TypeError, match="on meta"):
        to_array(x.to("meta"))


def leaves(*values: torch.Tensor) -> tuple:
    return tuple(v.detach().double().requires_grad_() for v in values)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("options", [GEOMETRY[1], GEOMETRY[3]], ids=str)
def test_gradients(rank, options):
    x, w, b = conv_tensors(rank, options.get("groups", 1), batch=1)
    operands = leaves(x[..., :5], w, b)

    def call(*a):
        return getattr(vt, f"conv{rank}d")(*a, **options)

    assert torch.autograd.gradcheck(call, operands, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, operands, fast_mode=True)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("options", TRANSPOSED[1:4], ids=str)
def test_gradients_of_transposed(rank, options):
    x, w, b = transposed_tensors(rank, options.get("groups", 1), batch=1)
    operands = leaves(x[..., :4], w, b)

    def call(*a):
        return getattr(vt, f"conv_transpose{rank}d")(*a, **options)

    assert torch.autograd.gradcheck(call, operands, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, operands, fast_mode=True)


def test_gradcheck_in_full():
    x, w, b = leaves(*conv_tensors(2, 2, batch=1))
    options = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}
    assert torch.autograd.gradcheck(lambda *a: vt.conv2d(*a, **options), (x[..., :6], w, b))


@pytest.mark.parametrize("geometry", [([2, 1], [1, 0, 1, 0], [1, 2], 2), ([1, 1], [0, 1, 2, -1], [1, 1], 1)], ids=str)
def test_opcheck(geometry):
    x, w, b = (t.requires_grad_() for t in conv_tensors(2, geometry[-1]))
    y = _ops.conv(x, w, b, *geometry)
    grad, bias = torch.randn(y.shape, requires_grad=True), torch.randn(4, requires_grad=True)
    torch.library.opcheck(_ops.conv, (x, w, b, *geometry))
    torch.library.opcheck(_ops.conv, (x, w, None, *geometry))
    torch.library.opcheck(_ops.conv_input_grad, (grad, w, None, x.shape[2:], *geometry))
    torch.library.opcheck(_ops.conv_input_grad, (grad, w, bias, x.shape[2:], *geometry))
    torch.library.opcheck(_ops.conv_weight_grad, (grad, x, w.shape[2:], *geometry))


class Net(torch.nn.Module):
    """Trains with every kind of layer that `vkconv.torch` has."""

    def __init__(self, layers) -> None:
        super().__init__()
        self.first = layers.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")
        self.norm = torch.nn.BatchNorm2d(8)
        self.down = layers.Conv2d(8, 8, 3, stride=2, padding=1, groups=8, bias=False)
        self.up = layers.ConvTranspose2d(8, 4, 3, stride=2, padding=1, groups=2)

    def forward(self, x):
        return self.up(F.silu(self.down(F.relu(self.norm(self.first(x))))), output_size=x.shape[2:])


def train(model, x, steps: int = 3) -> list[float]:
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_training_follows_pytorch():
    torch.manual_seed(0)
    theirs, x = Net(torch.nn), torch.randn(2, 3, 10, 12)
    ours, swapped = Net(vt), vt.accelerate(copy.deepcopy(theirs))
    ours.load_state_dict(theirs.state_dict())
    assert type(swapped.first) is vt.Conv2d and type(swapped.up) is vt.ConvTranspose2d
    losses = train(theirs, x)
    assert losses[2] < losses[0]
    np.testing.assert_allclose(train(ours, x), losses, rtol=1e-5)
    np.testing.assert_allclose(train(swapped, x), losses, rtol=1e-5)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(backend):
    torch.manual_seed(0)
    model, x = Net(vt), torch.randn(2, 3, 10, 12)
    compiled = torch.compile(copy.deepcopy(model), backend=backend, fullgraph=True)
    np.testing.assert_allclose(train(compiled, x), train(model, x), rtol=1e-5)


def test_threads_are_shared():
    """With PyTorch's OpenMP where it has one; a child process after fork computes with its own."""
    from vkconv.torch._threads import share_threads

    assert share_threads() == torch.backends.openmp.is_available()
    assert not vkconv._core.share_threads_of("libnothing.so")
    code = """
        import os
        import numpy as np, torch, vkconv.torch
        x, w = np.ones((16, 64, 64, 8), np.float32), np.ones((32, 3, 3, 8), np.float32)
        torch.relu(torch.from_numpy(x))
        want = vkconv.conv2d(x, w, device="cpu")
        child = os.fork()
        if child == 0:
            os._exit(0 if np.array_equal(vkconv.conv2d(x, w, device="cpu"), want) else 1)
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=600)


@pytest.mark.parametrize("name", ["_accelerate", "_functional"])
def test_examples(name):
    module = importlib.import_module(f"vkconv.torch.{name}")
    assert doctest.testmod(module, extraglobs={"torch": torch}).failed == 0


def test_compile_with_dynamic_shapes():
    w = torch.randn(4, 3, 3, 3)
    compiled = torch.compile(lambda x: vt.conv2d(x, w, stride=2, padding=1), backend="eager", dynamic=True)
    for size in (8, 11, 14):
        x = torch.randn(1, 3, size, size + 1)
        assert_near(compiled(x), F.conv2d(x, w, stride=2, padding=1))


@pytest.mark.parametrize("x", [torch.zeros(2, 1, 4, 5), torch.zeros(2, 3, 1, 1), torch.zeros(2, 3, 4, 5)[:, :, 1:]])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [1, 4])
def test_memory_format_of_a_function(x, form, channels):
    x, w = x.to(memory_format=form), torch.zeros(channels, x.shape[1], 1, 1)
    got, want = vt.conv2d(x, w), F.conv2d(x, w)
    assert got.stride() == want.stride()
    for layout in (torch.contiguous_format, torch.channels_last):
        assert got.is_contiguous(memory_format=layout) == want.is_contiguous(memory_format=layout)


@pytest.mark.parametrize("ours, theirs", [(vt.conv2d, F.conv2d), (vt.conv_transpose2d, F.conv_transpose2d)])
def test_complex_numbers(ours, theirs):
    values = torch.Generator().manual_seed(0)

    def numbers(*shape):
        return torch.randn(*shape, dtype=torch.complex128, generator=values).requires_grad_()

    x, b = numbers(2, 4, 6, 5), numbers(6)
    w = numbers(6, 2, 3, 2) if ours is vt.conv2d else numbers(4, 3, 3, 2)
    options = {"bias": b, "stride": (2, 1), "padding": 1, "groups": 2}
    got, want = ours(x.conj(), w, **options), theirs(x.conj(), w, **options)
    torch.testing.assert_close(got, want)
    grad = torch.randn_like(want)
    for a, e in zip(torch.autograd.grad(got, (x, w, b), grad), torch.autograd.grad(want, (x, w, b), grad), strict=True):
        torch.testing.assert_close(a, e)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_results_of_complex_numbers_have_pytorchs_format(layout):
    x, w = (torch.randn(*s, dtype=torch.complex64) for s in ((2, 3, 5, 6), (4, 3, 3, 3)))
    x = x.contiguous(memory_format=layout)
    got, want = vt.conv2d(x, w), F.conv2d(x, w)
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()
    assert vt.conv2d(x[:0], w).shape == (0, *want.shape[1:])


@pytest.mark.parametrize("f", [vt.conv1d, vt.conv_transpose1d])
def test_forward_mode(f):
    x, w, b = (torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((1, 2, 5), (2, 2, 3), (2,)))
    assert torch.autograd.gradcheck(f, (x, w, b), check_forward_ad=True, check_backward_ad=False)
    assert torch.autograd.gradgradcheck(f, (x, w, b), check_fwd_over_rev=True)
    x0, w0 = x.detach(), w.detach()
    y, dy = torch.func.jvp(lambda x: f(x, w0), (x0,), (2 * x0,))
    torch.testing.assert_close(dy, 2 * y)


FUNCTIONS = [(vt.conv2d, F.conv2d), (vt.conv_transpose2d, F.conv_transpose2d)]


@pytest.mark.filterwarnings("error:There is a performance drop")
@pytest.mark.parametrize("ours, theirs", FUNCTIONS)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    "in_dims", [(0, None, None), (None, 1, None), (None, None, 0), (1, 0, None), (None, 2, 1), (0, 0, 0)], ids=str
)
def test_vmap(ours, theirs, groups, in_dims):
    shapes = (2, 4, 6, 5), (4, 4 // groups, 3, 2), (4,)
    operands = [
        torch.randn(*s, dtype=torch.float64) if d is None else torch.randn(3, *s, dtype=torch.float64).movedim(0, d)
        for s, d in zip(shapes, in_dims, strict=True)
    ]

    def mapped(conv):
        return torch.vmap(lambda x, w, b: conv(x, w, b, stride=2, padding=1, groups=groups), in_dims)(*operands)

    torch.testing.assert_close(mapped(ours), mapped(theirs))


@pytest.mark.parametrize("ours, theirs", FUNCTIONS)
def test_functional_derivatives(ours, theirs):
    x, w = (torch.randn(*s, dtype=torch.float64) for s in ((3, 2, 4, 3), (2, 2, 2, 2)))

    def answers(conv):
        def loss(w, x):
            return conv(x[None], w, padding=1).pow(3).sum()

        return {
            "gradients of every sample": torch.vmap(torch.func.grad(loss), (None, 0))(w, x),
            "reverse": torch.func.jacrev(conv, argnums=(0, 1))(x, w),
            "rows at once": torch.autograd.functional.jacobian(conv, (x, w), vectorize=True),
            "forward over reverse": torch.func.hessian(loss)(w, x[0]),
            "reverse over forward": torch.func.jacrev(torch.func.jacfwd(loss))(w, x[0]),
        }

    torch.testing.assert_close(answers(ours), answers(theirs))


@pytest.mark.parametrize("ours, theirs", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(ours, theirs, dtype):
    pytest.importorskip("ml_dtypes")
    x, w, b = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3, requires_grad=True), torch.randn(4)
    with torch.autocast("cpu", dtype):
        got, like = ours(x, w, b), theirs(x, w, b)
        assert ours(x.double(), w.double()).dtype == torch.float64
    assert got.dtype == like.dtype == dtype
    exact = theirs(*(t.to(dtype).double() for t in (x, w, b)))  # PyTorch itself may round every addition
    torch.testing.assert_close(got.double(), exact, rtol=0.01, atol=0.01)
    (grad,) = torch.autograd.grad(got.float().sum(), w)
    assert grad.dtype == torch.float32


def test_traces_hold_for_other_sizes():
    model = torch.nn.Sequential(vt.Conv2d(3, 4, 3), torch.nn.ReLU(), vt.ConvTranspose2d(4, 2, 2, stride=2))
    traces = torch.jit.trace(model, torch.zeros(1, 3, 8, 8)), torch.fx.symbolic_trace(model)
    for size in (8, 11):
        x = torch.randn(1, 3, size, size)
        for traced in traces:
            torch.testing.assert_close(traced(x), model(x))


@pytest.mark.parametrize("ours, theirs", FUNCTIONS)
def test_integers(ours, theirs):
    x, w = torch.arange(48).reshape(1, 3, 4, 4), torch.ones(3, 3, 2, 2, dtype=torch.int64)
    assert torch.equal(ours(x, w), theirs(x, w))
