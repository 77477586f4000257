"""Calls that PyTorch refuses and calls at the edge of those, with and without numbers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812 - after the skip
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from vkconv import torch as vt  # noqa: E402


def numbers(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), device=device).reshape(shape).div(8).to(dtype)


def outcome(call, module, *arguments):
    """The result, or the error and its message."""
    try:
        return call(module, *arguments)
    except Exception as error:
        return error


def assert_alike(call, *arguments) -> None:
    want, got = (outcome(call, module, *arguments) for module in (F, vt))
    assert type(got) is type(want), got
    if isinstance(want, Exception):
        assert str(got) == str(want)
    else:
        torch.testing.assert_close(got, want)


EDGES = {
    "no groups": lambda m: m.conv1d(numbers(1, 2, 5), numbers(2, 2, 3), groups=0),
    "no groups, transposed": lambda m: m.conv_transpose1d(numbers(1, 2, 5), numbers(2, 2, 3), groups=0),
    "no groups, a bias": lambda m: m.conv_transpose1d(numbers(1, 2, 5), numbers(2, 2, 3), numbers(2), groups=0),
    "no output": lambda m: m.conv_transpose1d(numbers(1, 2, 1), numbers(2, 1, 2), stride=3, padding=1),
    "no output, a bias": lambda m: m.conv_transpose1d(
        numbers(1, 2, 1), numbers(2, 1, 2), numbers(1), stride=3, padding=1
    ),
    "no output along one axis": lambda m: m.conv_transpose2d(
        numbers(1, 2, 1, 3), numbers(2, 1, 2, 2), stride=3, padding=1
    ),
    "less than no output": lambda m: m.conv_transpose1d(numbers(1, 2, 1), numbers(2, 1, 2), stride=3, padding=2),
    "no output, batch of two": lambda m: m.conv_transpose2d(
        numbers(2, 2, 1, 1), numbers(2, 1, 2, 2), numbers(1), stride=3, padding=1
    ),
    "no batch and no output": lambda m: m.conv_transpose2d(
        numbers(0, 2, 1, 1), numbers(2, 1, 2, 2), numbers(1), stride=3, padding=1
    ),
    "no batch and an output padding of the stride": lambda m: m.conv_transpose2d(
        numbers(0, 3, 4, 4), numbers(3, 2, 2, 2), output_padding=1
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name):
    assert_alike(EDGES[name])


BIASES = {
    "numbers": lambda m, x, w, b: getattr(m, f"conv{w.dim() - 2}d")(x, w, b),
    "valid": lambda m, x, w, b: getattr(m, f"conv{w.dim() - 2}d")(x, w, b, padding="valid"),
    "same": lambda m, x, w, b: getattr(m, f"conv{w.dim() - 2}d")(x, w, b, padding="same"),
    "transposed": lambda m, x, w, b: getattr(m, f"conv_transpose{w.dim() - 2}d")(x, w, b),
}


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("batch", [1, 2])  # PyTorch has other algorithms for the latter, which refuse more
def test_a_bias_of_another_dtype_is_taken_where_pytorch_takes_it(name, rank, dtype, batch):
    assert_alike(BIASES[name], numbers(batch, 2, *[4] * rank), numbers(2, 2, *[3] * rank), numbers(2).mul(8).to(dtype))


@pytest.mark.parametrize("name", ["numbers", "valid", "same"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_refuse_a_wider_bias(name, dtype):
    assert_alike(BIASES[name], numbers(2, 2, 4, 4, dtype=dtype), numbers(2, 2, 3, 3, dtype=dtype), numbers(2))


class Padded(nn.Module):
    """A layer of a graph whose input is a layer's result."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.first, self.conv = type(conv)(4, 4, 1), conv

    def forward(self, x):
        return self.conv(self.first(x)).relu()


@pytest.mark.parametrize("make", [lambda conv: nn.Sequential(conv, nn.ReLU()), Padded], ids=["sequence", "graph"])
@pytest.mark.parametrize("mode", ["reflect", "circular"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_borders_that_are_larger_than_the_input(rank, mode, make):
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[rank]
    model = make(conv(4, 4, 3, padding=(*[1] * (rank - 1), 5), padding_mode=mode)).eval()
    fast, taken = vt.accelerate(model), []
    for last in (4, 5, 6):
        for x in (torch.randn(2, 4, *[3] * (rank - 1), last), torch.randn(4, *[3] * (rank - 1), last)):
            with torch.no_grad():
                want, got = (outcome(lambda m, x=x: m(x), m) for m in (model, fast))
            assert type(got) is type(want)
            if isinstance(want, torch.Tensor):
                taken.append(last)
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            else:
                assert str(got) == str(want)
    assert sorted(taken) == ([6, 6] if mode == "reflect" else [5, 5, 6, 6])


TRANSPOSED = {
    "no output": lambda: nn.ConvTranspose1d(4, 4, 3, padding=3),
    "output": lambda: nn.ConvTranspose1d(4, 4, 3, padding=2),
    "less than no output": lambda: nn.ConvTranspose1d(4, 4, 3, padding=4),
    "output padding": lambda: nn.ConvTranspose1d(4, 4, 3, stride=2, output_padding=1),
    "output padding of the dilation": lambda: nn.ConvTranspose1d(4, 4, 3, dilation=2, output_padding=1),
    "output padding of the stride": lambda: nn.ConvTranspose1d(4, 4, 3, output_padding=1),
    "output padding of both": lambda: nn.ConvTranspose1d(4, 4, 3, stride=2, dilation=2, output_padding=2),
}


@pytest.mark.parametrize("make", [lambda conv: conv, lambda conv: nn.Sequential(conv, nn.ReLU()), Padded],
                         ids=["layer", "sequence", "graph"])  # fmt: skip
@pytest.mark.parametrize("name", TRANSPOSED)
@torch.no_grad()
def test_transposed_layers_give_and_refuse_what_pytorchs_do(name, make):
    model = make(TRANSPOSED[name]()).eval()
    x = torch.randn(2, 4, 4)
    if make is Padded:
        model.first = nn.Conv1d(4, 4, 1)
    fast = vt.accelerate(model)
    want, got = (outcome(lambda m: m(x), m) for m in (model, fast))
    assert type(got) is type(want), got
    if isinstance(want, Exception):
        assert str(got) == str(want)
    else:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_a_bias_of_another_dtype_has_its_gradient():
    b = numbers(2, dtype=torch.float64).requires_grad_()
    (grad,) = torch.autograd.grad(vt.conv_transpose2d(numbers(1, 2, 3, 3), numbers(2, 2, 2, 2), b).sum(), b)
    assert torch.equal(grad, torch.full_like(b, 16))


def mismatches():
    """Calls whose operands do not fit: a function's or an operator's name, shapes of operands, arguments."""
    conv = [((2, 3, 7, 7), (6, 4, 3, 3)), ((2, 3, 7, 2), (6, 3, 3, 3)), ((2, 3, 0, 7), (6, 3, 1, 1)),
            ((2, 3, 7, 7), (6, 3, 3)), ((2, 3, 7, 7), (6, 3, 3, 3, 3)), ((2, 3, 7, 7), (6, 3, 3, 3), (5,)),
            ((2, 3, 7, 7), (6, 3, 0, 1)), ((2, 3, 7, 7), (6, 3, 3, 3), (6, 1))]  # fmt: skip
    yield from (("conv2d", shapes, {}) for shapes in conv)
    for name, n in (("groups", 3), ("groups", 2), ("groups", 0), ("groups", -1), ("stride", 0), ("dilation", 0)):
        yield "conv2d", ((2, 3, 7, 7), (4, 1, 3, 3)), {name: n}
        yield "conv_transpose2d", ((2, 3, 7, 7), (4, 1, 3, 3), (2,)), {name: n}
        yield "conv_transpose2d", ((2, 3, 7, 7), (4, 1, 3, 3)), {name: n}
    yield from (("conv_transpose2d", ((2, 3, 7, 7), (3, 4, 3, 3), bias), {}) for bias in ((3,), (4, 1)))


@pytest.mark.parametrize("wide", [None, 0, 1, 2], ids=["shapes", "input", "weight", "bias"])
@pytest.mark.parametrize("where", ["meta", "fake"])
def test_calls_without_numbers_refuse_what_calls_with_numbers_do(where, wide):
    """Shapes that do not fit, or one operand of another dtype."""
    calls = list(mismatches())
    if wide is not None:
        calls = [
            ("conv2d", ((2, 3, 7, 7), (3, 3, 3, 3), (3,)), {}),
            ("conv_transpose2d", ((2, 3, 7, 7), (3, 3, 3, 3)), {}),
        ]

    def result(name, shapes, options, device="cpu"):
        dtypes = [torch.float64 if i == wide else torch.float32 for i in range(len(shapes))]
        operands = [torch.ones(s, dtype=d, device=device) for s, d in zip(shapes, dtypes, strict=True)]
        return outcome(lambda m: getattr(m, name)(*operands, **options), vt)

    for call in calls[: 1 if wide == 2 else None]:
        assert isinstance(result(*call), Exception), call
        if where == "meta":
            assert isinstance(result(*call, device="meta"), Exception), call
        else:
            with FakeTensorMode():
                assert isinstance(result(*call), Exception), call


IMAGE, WEIGHT, GRAD, FLOAT, DOUBLE = (2, 3, 7, 7), (6, 3, 3, 3), (2, 6, 5, 5), torch.float32, torch.float64
GEOMETRY = [1, 1], [0] * 4, [1, 1]
REFUSED = {  # an operator, shapes, dtypes unless all are float32, what comes before the geometry, groups
    "channels": ("conv", (IMAGE, (6, 4, 3, 3)), (), [None], 1),
    "channel of a group": ("conv", ((2, 4, 7, 7), (6, 1, 3, 3)), (), [None], 2),
    "groups": ("conv", (IMAGE, WEIGHT), (), [None], 2),
    "groups of the output": ("conv", ((2, 4, 7, 7), (6, 1, 3, 3)), (), [None], 4),
    "no groups": ("conv", (IMAGE, WEIGHT), (), [None], 0),
    "kernel": ("conv", ((2, 3, 7, 2), WEIGHT), (), [None], 1),
    "dtype": ("conv", (IMAGE, WEIGHT), (FLOAT, DOUBLE), [None], 1),
    "integers": ("conv", (IMAGE, WEIGHT), (torch.int64, FLOAT), [None], 1),
    "bias": ("conv", (IMAGE, WEIGHT, (5,)), (), [], 1),
    "dtype of the bias": ("conv", (IMAGE, WEIGHT, (6,)), (FLOAT, FLOAT, DOUBLE), [], 1),
    "dtype of the bias of halves": ("conv", (IMAGE, WEIGHT, (6,)), (torch.float16, torch.float16, DOUBLE), [], 1),
    "gradient's channels": ("conv_input_grad", ((2, 5, 5, 5), WEIGHT), (), [None, [7, 7]], 1),
    "gradient's extents": ("conv_input_grad", (GRAD, WEIGHT), (), [None, [9, 7]], 1),
    "gradient's dtype": ("conv_input_grad", (GRAD, WEIGHT), (DOUBLE, FLOAT), [None, [7, 7]], 1),
    "transposed, bias": ("conv_input_grad", (GRAD, WEIGHT, (4,)), (), [[7, 7]], 1),
    "batches": ("conv_weight_grad", (GRAD, (3, 3, 7, 7)), (), [[3, 3]], 1),
    "gradient's groups": ("conv_weight_grad", (GRAD, IMAGE), (), [[3, 3]], 2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operators_refuse_in_the_same_words(name):
    operator, shapes, dtypes, rest, groups = REFUSED[name]

    def refused(device):
        given = dtypes or [FLOAT] * len(shapes)
        operands = [numbers(*s, dtype=d, device=device) for s, d in zip(shapes, given, strict=True)]
        with pytest.raises((TypeError, ValueError)) as error:
            getattr(torch.ops.vkconv, operator)(*operands, *rest, *GEOMETRY, groups)
        return error.type, str(error.value)

    assert refused("meta") == refused("cpu")


def test_prepared_layers_refuse_without_numbers():
    for layer in (nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3)):
        fast = vt.accelerate(nn.Sequential(layer, nn.ReLU()).eval()).to("meta")
        assert fast(torch.empty(2, 3, 7, 7, device="meta")).shape[1] == 4
        for shape in [(2, 5, 7, 7), *([(2, 3, 2, 2)] if type(layer) is nn.Conv2d else [])]:
            with pytest.raises((RuntimeError, ValueError)):
                fast(torch.empty(shape, device="meta"))


def test_symbols_for_extents_are_not_bound():
    w, b = numbers(4, 3, 3, 3), numbers(4)
    image = torch.export.Dim("height", min=3, max=64)

    class Both(nn.Module):
        def forward(self, x):
            y = vt.conv2d(x, w, b, stride=2, padding=1)
            return vt.conv_transpose2d(y, w, stride=2, output_padding=1)

    program = torch.export.export(Both(), (numbers(2, 3, 6, 5),), dynamic_shapes={"x": {2: image}})
    for height in (5, 12):
        x = numbers(2, 3, height, 5)
        torch.testing.assert_close(program.module()(x), Both()(x))
