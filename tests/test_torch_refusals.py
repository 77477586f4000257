"""Calls that PyTorch refuses, and calls at the edge of those: functions of vkconv.torch do what PyTorch's do."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812 - after the skip

from vkconv import torch as vt  # noqa: E402


def numbers(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), device=device).reshape(shape).to(dtype) / 8


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


def test_a_bias_of_another_dtype_has_its_gradient():
    b = numbers(2, dtype=torch.float64).requires_grad_()
    (grad,) = torch.autograd.grad(vt.conv_transpose2d(numbers(1, 2, 3, 3), numbers(2, 2, 2, 2), b).sum(), b)
    assert torch.equal(grad, torch.full_like(b, 16))
