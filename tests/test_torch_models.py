"""What code around a model does with it goes on working when vkconv.torch.accelerate has made it."""

from __future__ import annotations

import copy
import io

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 - after the skip

from vkconv import torch as vt  # noqa: E402

F = nn.functional
NORMS = nn.utils.parametrizations


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3))


def image() -> torch.Tensor:
    return torch.randn(2, 4, 12, 12, generator=torch.Generator().manual_seed(1))


def same(model: nn.Module, *inputs: torch.Tensor) -> nn.Module:
    with torch.no_grad():
        want = model(*inputs)
        fast = vt.accelerate(model)
        torch.testing.assert_close(fast(*inputs), want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model(*inputs), want)
    return fast


class Backbone(nn.Module):
    """Traceable, with more than a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.width = layers(), nn.Linear(600, 5), 6

    def features(self, x):
        return [x := layer(x) for layer in self.body]

    @property
    def dtype(self):
        return next(self.parameters()).dtype

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def test_a_module_keeps_type_attributes_methods_and_children():
    model = Backbone().eval()
    fast = same(model, image())
    assert type(fast) is Backbone and fast.width == 6 and fast.dtype == torch.float32
    with torch.no_grad():
        for a, b in zip(fast.features(image()), model.features(image()), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    conv, kept = fast.body[0], model.body[0]
    assert len(fast.body) == 4 and type(fast.body[1]) is nn.BatchNorm2d
    assert (conv.in_channels, conv.kernel_size, conv.stride) == (kept.in_channels, kept.kernel_size, kept.stride)
    assert torch.equal(conv.weight, kept.weight) and torch.equal(fast.head.weight, model.head.weight)
    assert fast.head.in_features == 600


class Flattens(nn.Module):
    """`view` wants the memory format that PyTorch's convolution would have given."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part, self.head = part, nn.Linear(600, 5)

    def forward(self, x):
        y = self.part(x)
        if y.sum() > 1e30:  # not traceable
            y = y * 2
        return self.head(y.view(y.size(0), -1))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.across = layers(), nn.Conv2d(4, 6, 3)

    def forward(self, x):
        return F.relu(self.body(x) + self.across(x))


class Backwards(nn.Sequential):
    def __iter__(self):
        return reversed(self._modules.values())


@torch.no_grad()
def test_a_sequence_runs_in_its_own_order():
    same(Backwards(nn.ReLU(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)).eval(), image())


class Viewed(nn.Module):
    def forward(self, x):
        return x.view(x.size(0), -1).view_as(torch.zeros(2, 600))


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda module, args, output: None)
    return module


@pytest.mark.parametrize(
    "model",
    [
        Flattens(nn.Conv2d(4, 6, 3)),
        Flattens(layers()),
        Flattens(Residual()),
        Flattens(nn.Sequential(nn.Conv2d(4, 1, 3), nn.SiLU(inplace=True), nn.Conv2d(1, 6, 1))),
        nn.Sequential(layers(), Viewed()),
        nn.Sequential(layers(), hooked(Viewed())),
    ],
    ids=["one layer", "sequence", "graph", "one channel", "traced", "hooked"],
)
def test_views_find_the_memory_format_of_pytorch(model):
    same(model.eval(), image())
    fast = vt.accelerate(model.train())
    torch.testing.assert_close(fast(image()), model(image()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "make", [layers, Residual, lambda: nn.ConvTranspose2d(4, 3, 2, stride=2), lambda: nn.Conv2d(4, 1, 3)]
)
def test_memory_formats(make, training):
    model = make().train(training)
    fast = vt.accelerate(model)
    for form in (torch.contiguous_format, torch.channels_last):
        x = image().contiguous(memory_format=form)
        assert fast(x).stride() == model(x).stride()


def pruned(layer: nn.Module) -> nn.Module:
    return nn.utils.prune.l1_unstructured(layer, "weight", 0.5)


@pytest.mark.parametrize(
    "norm",
    [nn.utils.weight_norm, nn.utils.spectral_norm, NORMS.weight_norm, NORMS.spectral_norm, NORMS.orthogonal, pruned],
)
def test_weights_that_are_computed_in_every_call_are_computed_once(norm):
    model = layers()
    for i in (0, 3):
        norm(model[i])
    model(image())  # what a forward with gradients leaves behind is copied too
    fast = same(model.eval(), image())
    assert all(type(fast[i]._parameters["weight"]) is nn.Parameter for i in (0, 3))
    trained = vt.accelerate(model.train())
    trained(image()).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


class Causal(nn.Conv3d):
    """As in video autoencoders: pads by itself, then convolves as its base does."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=(0, 1, 1))

    def forward(self, x):
        return super().forward(F.pad(x, (0, 0, 0, 0, 2, 0)))


class Standardized(nn.Conv3d):
    def forward(self, x):
        return self._conv_forward(x, self.weight - self.weight.mean(), self.bias)


def test_what_subclasses_inherit(monkeypatch):
    model = nn.Sequential(Causal(4, 8), nn.SiLU(), Causal(8, 4), Standardized(4, 2, 1)).eval()
    x = image().unsqueeze(2)
    fast = same(model, x)
    twice = {k: v * 2 for k, v in model.state_dict().items()}
    for m in (model, fast):
        m.load_state_dict(twice)
    want = model(x)
    monkeypatch.setattr(nn.Conv3d, "_conv_forward", lambda conv, x, *weights: F.conv3d(x, *weights))
    torch.testing.assert_close(fast(x), want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(copy.deepcopy(fast)(x), want, rtol=1e-4, atol=1e-5)


class AsksForType(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return self.conv(x) if isinstance(x, torch.Tensor) else self.conv(x) * 2


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.calls, self.last = nn.Conv2d(4, 4, 1), 0, None

    def forward(self, x):
        self.calls += 1
        self.last = x if self.last is None else self.last
        return self.conv(x) * self.calls + self.last


class Caches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.cache = nn.Conv2d(4, 4, 1), {}

    def forward(self, x):
        if "first" not in self.cache:
            self.cache["first"] = self.conv(x)
        return self.conv(x) + self.cache["first"]


def test_a_trace_that_would_be_wrong_is_not_used():
    same(AsksForType().eval(), image())
    for model in (Caches().eval(), nn.Sequential(Residual(), nn.Conv2d(6, 4, 1), Caches()).eval()):
        fast = vt.accelerate(model)
        for scale in (1, 2):
            torch.testing.assert_close(fast(scale * image()), model(scale * image()), rtol=1e-4, atol=1e-5)
    model = Counts().eval()
    fast = vt.accelerate(model)
    for _ in range(3):
        torch.testing.assert_close(fast(image()), model(image()))
    assert fast.calls == model.calls == 3


def test_stored_programs_need_nothing_of_this_process():
    model = layers().eval()
    fast = vt.accelerate(model)
    traced = torch.jit.trace(fast, image())
    exported = torch.export.export(fast, (image(),))
    for program in (str(traced.inlined_graph), str(exported.graph)):
        assert "vkconv" in program and "prepared_conv" not in program
    stored = io.BytesIO()
    torch.export.save(exported, stored)
    stored.seek(0)
    for made in (traced, torch.export.load(stored).module()):
        torch.testing.assert_close(made(image()), model(image()), rtol=1e-4, atol=1e-5)


def test_copies():
    fast = vt.accelerate(Backbone().eval())
    stored = io.BytesIO()
    torch.save(fast, stored)
    stored.seek(0)
    want = fast(image())
    for made in (copy.deepcopy(fast), torch.load(stored, weights_only=False), vt.accelerate(fast)):
        assert torch.equal(made(image()), want)
    fast.double()
    torch.testing.assert_close(fast(image().double()), want.double(), rtol=1e-4, atol=1e-5)


def other() -> Backbone:
    made = Backbone().eval()
    made.body[1].running_mean.normal_()
    made.body[1].running_var.uniform_(0.5, 2)
    return made


def test_symbolic_trace_and_onnx():
    model = other()
    fast = vt.accelerate(model)
    with torch.no_grad():
        torch.testing.assert_close(torch.fx.symbolic_trace(fast)(image()), model(image()), rtol=1e-4, atol=1e-5)
    stored = io.BytesIO()
    torch.onnx.export(fast, (image(),), stored, dynamo=False)
    assert b"vkconv" not in stored.getvalue()


class OfASize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Conv2d(2, 4, 1)

    def forward(self, size):
        return self.project(torch.ones(size[0], 2, size[1], size[2]))


class Placed(nn.Module):
    """One part is called with no tensor, but with numbers that a trace does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.place = layers(), OfASize()

    def forward(self, x):
        return self.body(x + self.place((x.shape[0], x.shape[2], x.shape[3])))


def test_parts_that_take_no_tensor():
    same(Placed().eval(), image())


def test_the_argument_has_its_name():
    fast = vt.accelerate(other())
    assert torch.equal(fast(x=image()), fast(image()))
    batch = torch.export.Dim("batch", min=1, max=9)
    program = torch.export.export(fast, (image(),), dynamic_shapes={"x": {0: batch}}).module()
    torch.testing.assert_close(program(torch.cat([image()] * 3))[:2], fast(image()), rtol=1e-4, atol=1e-5)


def test_errors_are_pytorchs():
    fast = vt.accelerate(other())
    for wrong, message in ((image()[:, :3], "to have 4 channels"), (image()[:, :, :1, :1], "Kernel size can't be")):
        with pytest.raises(RuntimeError, match=message):
            fast.body(wrong)
    with pytest.raises(RuntimeError, match=r"should be the same"):
        fast(image().double())


class Normed(nn.Module):
    """Traced, where a sequence is not."""

    def __init__(self, conv: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm = conv, norm

    def forward(self, x):
        return self.norm(self.conv(x))


NORMED = {  # what is no batch to the convolution may be one to the norm
    "an image without a batch": (nn.Conv2d, nn.BatchNorm2d, (4, 4, 5)),
    "a line without a batch": (nn.Conv1d, nn.BatchNorm1d, (4, 4)),
    "a transposed one": (nn.ConvTranspose2d, nn.BatchNorm2d, (4, 4, 5)),
    "a norm of smaller rank": (nn.Conv2d, nn.BatchNorm1d, (4, 4, 5)),
    "and a batch": (nn.Conv2d, nn.BatchNorm1d, (2, 4, 4, 5)),
    "a norm of larger rank": (nn.Conv2d, nn.BatchNorm3d, (2, 4, 4, 5)),
}


@pytest.mark.parametrize("name", NORMED)
@pytest.mark.parametrize("make", [nn.Sequential, Normed])
def test_norms_take_what_pytorchs_take(name, make):
    conv, norm, shape = NORMED[name]
    model = make(conv(4, 4, 1), norm(4)).eval()
    *_, last = model.children()
    last.running_mean.normal_()
    outcomes = []
    for m in (model, vt.accelerate(model)):
        try:
            with torch.no_grad():
                outcomes.append(m(torch.ones(shape)))
        except ValueError as error:
            outcomes.append(str(error))
    if isinstance(outcomes[0], str):
        assert outcomes[1] == outcomes[0]
    else:
        torch.testing.assert_close(*outcomes)


@pytest.mark.parametrize(
    "part",
    [lambda: nn.LazyConv2d(4, 3), lambda: torch.jit.script(nn.Conv2d(4, 4, 3))],
    ids=["without a shape", "script"],
)
def test_parts_that_wait_or_are_scripts(part):
    torch.manual_seed(3)
    for model in (part().eval(), nn.Sequential(part(), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()):
        fast = vt.accelerate(model)
        with torch.no_grad():
            fast(image())  # shapes are those of this call
            want = model(image())
            fast.load_state_dict(model.state_dict())
            torch.testing.assert_close(fast(image()), want, rtol=1e-4, atol=1e-5)
