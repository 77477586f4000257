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


def into_a_wider_result(m, x):
    wide = m.second(x).double()
    y = m.first(x)
    y += wide
    return y


def by_a_method(m, x):
    return F.relu(m.first(x).add_(x))


def into_the_last_axis(m, x):
    y = m.line(x)
    y += x
    return F.relu(y)


SUMS = into_a_residual, into_the_other_term, into_a_wider_result, by_a_method, into_the_last_axis


@pytest.mark.parametrize("code", SUMS, ids=lambda code: code.__name__)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_sums_that_are_made_in_place_keep_their_dtype(code, autocast, grad):
    model = Writes(code)
    model.line = nn.Linear(5, 5)
    fast = vt.accelerate(model.eval())
    assert isinstance(runs(fast), fx.GraphModule)
    x = torch.randn(2, 4, 6, 5)
    with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        want, got = (m.requires_grad_(grad)(x) for m in (model, fast))
    assert got.dtype == want.dtype and got.requires_grad == want.requires_grad
    least = 0.05 if autocast else 1e-5
    torch.testing.assert_close(got, want, rtol=least, atol=least)


def test_sums_that_are_made_in_place_keep_their_shape():
    def code(m, x):
        y = m.first(x[:1])
        y += x
        return y

    model = Writes(code).eval()
    for m in (model, vt.accelerate(model)):
        with torch.no_grad(), pytest.raises(RuntimeError, match="shape"):
            m(torch.randn(2, 4, 6, 5))


# Results that PyTorch has as the tensor itself or a view of it.
OTHER_NAMES = {
    "identity": lambda m, y: m.parts[0](y),
    "dropout": lambda m, y: m.parts[1](y),
    "sequence": lambda m, y: m.parts[2](y),
    "F.dropout": lambda m, y: F.dropout(y, 0.5, m.training),
    "float": lambda m, y: y.float(),
    "to": lambda m, y: y.to(torch.float32),
    "type_as": lambda m, y: y.type_as(m.first.weight),
    "cpu": lambda m, y: y.cpu(),
    "plus": lambda m, y: +y,
    "real": lambda m, y: torch.real(y),
    "conj": lambda m, y: y.conj(),
    "broadcast_to": lambda m, y: torch.broadcast_to(y, y.shape),
    "atleast_3d": lambda m, y: torch.atleast_3d(y),
    "einsum": lambda m, y: torch.einsum("nchw->nwhc", y).transpose(1, 3),
    "keyword": lambda m, y: torch.permute(input=y, dims=(0, 1, 3, 2)).transpose(2, 3),
}
FLAT = {
    "layer": lambda m, y: m.parts[3](y),
    "unflattening layer": lambda m, y: m.parts[4](y),
    "keyword": lambda m, y: torch.flatten(input=y, start_dim=1),
    "channels last": lambda m, y: y.to(memory_format=torch.channels_last),
}
WRITES = {
    "method": lambda m, z: z.mul_(2),
    "layer": lambda m, z: m.parts[5](z),
    "keyword": lambda m, z: torch.relu_(input=z),
    "out": lambda m, z: torch.mul(z, 2, out=z),
    "list": lambda m, z: torch._foreach_mul_([z], 2.0),
    "option by place": lambda m, z: F.threshold(z, 0.0, 9.0, True),
}


def parts() -> list[nn.Module]:
    return [nn.Identity(), nn.Dropout(0.5), nn.Sequential(nn.Identity()), nn.Flatten(), nn.Unflatten(1, (2, 2)),
            nn.ReLU(inplace=True)]  # fmt: skip


def assert_written(code) -> None:
    model = Writes(code)
    model.parts = nn.ModuleList(parts())
    fast = vt.accelerate(model.eval())
    assert inside(fast)
    for format in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 4, 6, 5).to(memory_format=format)
        torch.testing.assert_close(fast(x.clone()), model(x.clone()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OTHER_NAMES)
@torch.no_grad()
def test_writes_are_seen_where_a_tensor_goes_by_another_name(name):
    def code(m, x):
        y = m.first(x)
        rows = OTHER_NAMES[name](m, y).permute(0, 2, 3, 1).contiguous()
        y.mul_(0.5)
        return rows

    assert_written(code)


@pytest.mark.parametrize(
    ("flat", "write"), [*((f, "method") for f in FLAT), *(("keyword", w) for w in WRITES if w != "method")]
)
@torch.no_grad()
def test_writes_into_what_may_be_a_copy(flat, write):
    def code(m, x):
        y = m.first(x)
        WRITES[write](m, FLAT[flat](m, y))
        return y

    assert_written(code)
