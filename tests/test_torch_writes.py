"""Code that writes into tensors, which may have other names, as vkconv.torch.accelerate runs it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812
from torch import fx, nn  # noqa: E402

from test_torch_accelerate import inside, runs  # noqa: E402 - after the skip
from vkconv import torch as vt  # noqa: E402


def before_the_activation(m, x):
    y = m.first(x)
    x.add_(1)
    return F.relu(y) + x


def before_the_addition(m, x):
    y = m.first(x)
    x.relu_()
    return y + x


def between_addition_and_activation(m, x):
    term = m.second(x)
    y = m.first(x) + term
    term.mul_(2)
    return F.relu(y) + term


def into_the_input(m, x):
    x += 1
    return m.second(m.first(x))


def into_another_name(m, x):
    y = other = m.first(x)
    y += 1
    y *= 2
    y -= 0.5
    y /= 3
    return m.second(other)


def into_a_view(m, x):
    y = m.first(x)
    part = y[:, ::2].permute(0, 2, 3, 1)
    part += 5
    return m.second(y)


def into_an_attribute(m, x):
    y = m.first(x)
    y.data += 1
    return m.second(y)


def into_a_residual(m, x):
    y = m.second(m.first(x))
    y += x
    return F.relu(y)


def into_the_other_term(m, x):
    y = torch.cat([m.first(x), x], 1)[:, 4:]
    y += m.second(x)
    return F.relu(y)


def into_a_term_that_is_read(m, x):
    y = m.first(x)
    part = y[:, 1:]
    y += m.second(x)
    return F.relu(y)[:, 1:] + part


def into_a_number(m, x):
    count = x.shape[0]
    count += 1
    return m.second(m.first(x)) * count


def into_patches(m, x):
    y = m.first(x).flatten(2).transpose(1, 2)
    y += 1
    return m.second(y.transpose(1, 2).reshape(x.shape))


def into_what_is_flattened(m, x):
    y = m.first(x)
    line = y.flatten(1)
    line.add_(1)
    return m.second(y)


def into_a_contiguous_tensor(m, x):
    y = m.first(x)
    same = y.contiguous().transpose(2, 3)
    F.relu(same, inplace=True)
    return m.second(y)


def before_a_view_is_read(m, x):
    y = m.first(x)
    line = y.view(1, -1)
    y += 1
    return m.second(line.view(x.shape))


TRACED = (
    before_the_activation,
    before_the_addition,
    between_addition_and_activation,
    into_the_input,
    into_another_name,
    into_a_view,
    into_an_attribute,
    into_a_residual,
    into_the_other_term,
    into_a_term_that_is_read,
    into_a_number,
    into_patches,
)
# Code whose views a trace would make copies of.
KEPT = into_what_is_flattened, into_a_contiguous_tensor, before_a_view_is_read


class Writes(nn.Module):
    def __init__(self, code) -> None:
        super().__init__()
        self.code, self.first, self.second = code, nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return self.code(self, x)


@pytest.mark.parametrize("code", TRACED + KEPT, ids=lambda code: code.__name__)
@torch.no_grad()
def test_writes_are_seen_by_every_name_and_keep_their_order(code):
    model = Writes(code).eval()
    fast = vt.accelerate(model)
    given = torch.randn(2, 4, 6, 5)
    x, own = given.clone(), given.clone()
    torch.testing.assert_close(fast(own), model(x), rtol=1e-4, atol=1e-5)
    assert torch.equal(own, x)
    assert isinstance(runs(fast), fx.GraphModule) == (code in TRACED)
    assert inside(fast)


@pytest.mark.parametrize("code", [into_a_residual, into_the_other_term], ids=lambda code: code.__name__)
def test_a_residual_that_is_added_in_place_is_part_of_the_convolution(code):
    (layer,) = [p for p in inside(vt.accelerate(Writes(code).eval())) if p.activation]
    assert layer.activation == "relu"
