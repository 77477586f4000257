"""A model that vkconv.torch.accelerate has made follows what is done to it afterwards."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import fx, nn  # noqa: E402

from test_torch_models import NORMS, image, layers, other, pruned, same  # noqa: E402 - after the skip
from vkconv import torch as vt  # noqa: E402


@torch.no_grad()
def written(model):
    for tensor in (*model.parameters(), model.body[1].running_var):
        tensor.mul_(1.5)


def written_past_pytorch(model):
    """Writes that its version counters do not count."""
    for tensor in (*model.parameters(), model.body[1].running_var):
        tensor.data.mul_(1.5)
    model.body[0].weight.detach().numpy()[:] *= 0.5


def written_one_number(model):
    """Which only a counter tells of."""
    weight = model.body[0].weight
    weight.data[1, 1, 1, 1] += 2
    torch.autograd.graph.increment_version(weight)


def another_head(model):
    torch.manual_seed(3)
    model.head = nn.Linear(600, 3)


def another_norm(model):
    model.body[1] = other().body[1]


class Square(nn.Module):
    def forward(self, x):
        return x * x


@torch.no_grad()
def parametrized(model, place, name):
    layer = model.body[place]
    nn.utils.parametrize.register_parametrization(layer, name, Square())
    model.eval()(image())
    layer.parametrizations[name].original.mul_(2)


def without_statistics(model):
    model.body[1].running_mean = model.body[1].running_var = None


CHANGES = {
    "loaded": lambda model: model.load_state_dict(other().state_dict()),
    "assigned": lambda model: model.load_state_dict(other().state_dict(), assign=True),
    "written": written,
    "written past PyTorch": written_past_pytorch,
    "written one number": written_one_number,
    "another head": another_head,
    "another norm": another_norm,
    "weight norm": lambda model: NORMS.weight_norm(model.body[0]),
    "weight parametrized": lambda model: parametrized(model, 0, "weight"),
    "bias parametrized": lambda model: parametrized(model, 0, "bias"),
    "norm parametrized": lambda model: parametrized(model, 1, "weight"),
    "without statistics": without_statistics,
    "pruned": lambda model: pruned(model.body[3]),
    "trained": lambda model: model.train()(image()),
    "trained with another head": lambda model: another_head(model.train()) or model(image()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_are_followed(change):
    torch.manual_seed(7)
    model = other()
    fast = same(model, image())
    for m in (model, fast):
        change(m)
        m.eval()
    for made in (fast, copy.deepcopy(fast.requires_grad_(False))):
        with torch.no_grad():
            torch.testing.assert_close(made(image()), model(image()), rtol=1e-4, atol=1e-5)


class Growing(nn.Module):
    """What it has no parts for yet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.rest, self.more, self.last = nn.Conv2d(4, 4, 3), nn.Sequential(), nn.ModuleList(), Last()
        self.kernel = torch.ones(4, 1, 3, 3) / 9

    def forward(self, x):
        y = self.rest(self.conv(x).relu())
        for part in self.more:
            y = part(y)
        return self.last(nn.functional.conv2d(y, self.kernel, groups=4))


class Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = None

    def forward(self, x):
        return x if self.step is None else self.step(x)


GROWTHS = {
    "sequence": lambda model: model.rest.append(nn.Sigmoid()),
    "list": lambda model: model.more.append(nn.Sigmoid()),
    "child": lambda model: setattr(model.last, "step", nn.Sigmoid()),
    "tensor written": lambda model: model.kernel.mul_(2),
    "tensor replaced": lambda model: setattr(model, "kernel", torch.arange(36.0).reshape(4, 1, 3, 3)),
    "tensor replaced and written": lambda model: [GROWTHS[f"tensor {c}"](model) for c in ("replaced", "written")],
}


@pytest.mark.parametrize("grow", GROWTHS.values(), ids=GROWTHS)
@torch.no_grad()
def test_parts_and_tensors_that_come_later_are_followed(grow):
    model = Growing().eval()
    fast = same(model, image())
    for m in (model, fast):
        grow(m)
        m.eval()
    torch.testing.assert_close(fast(image()), model(image()), rtol=1e-4, atol=1e-5)


def negated(graph_module):
    output = next(n for n in graph_module.graph.nodes if n.op == "output")
    with graph_module.graph.inserting_before(output):
        output.replace_input_with(output.args[0], graph_module.graph.call_function(torch.neg, (output.args[0],)))
    graph_module.recompile()


@torch.no_grad()
def test_another_graph_is_followed():
    model = fx.symbolic_trace(layers().eval())
    fast = same(model, image())
    for m in (model, fast):
        negated(m)
    torch.testing.assert_close(fast(image()), model(image()), rtol=1e-4, atol=1e-5)


def test_weights_of_inference_mode_are_followed():
    with torch.inference_mode():
        model = other()
        fast = same(model, image())
        for m in (model, fast):
            m.body[0].weight.mul_(1.5)
        torch.testing.assert_close(fast(image()), model(image()), rtol=1e-4, atol=1e-5)


def test_the_state_is_that_of_the_model():
    model = other()
    fast = vt.accelerate(model)
    assert fast.state_dict().keys() == model.state_dict().keys()
    assert [n for n, _ in fast.named_modules()] == [n for n, _ in model.named_modules()]
    assert [p.shape for p in fast.parameters()] == [p.shape for p in model.parameters()]
    assert not any(p.requires_grad for p in fast.parameters())
    layers()[0].load_state_dict(fast.body[0].state_dict())


def test_tied_weights_stay_tied():
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1)).eval()
    model[2].weight = model[0].weight
    fast = same(model, image())
    assert fast[0].weight is fast[2].weight


@pytest.mark.parametrize("path", ["", "body", "body.0", "body.3"])
def test_hooks_that_come_later_are_called(path):
    model = other()
    fast = vt.accelerate(model)
    seen = []
    for m in (model, fast):
        m.get_submodule(path).register_forward_hook(lambda module, args, output: seen.append(output) or output * 2)
    with torch.no_grad():
        torch.testing.assert_close(fast(image()), model(image()), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(*seen, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_hooks_of_all_modules_are_called():
    model = other()
    fast, seen = same(model, image()), []
    handle = nn.modules.module.register_module_forward_hook(lambda m, a, y: seen.append(type(m)) or 2 * y)
    try:
        got, called = fast(image()), seen.copy()
        seen.clear()
        want = model(image())
    finally:
        handle.remove()
    assert called == seen
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_it_trains_after_all():
    model = other()
    fast = vt.accelerate(model).requires_grad_()
    losses = []
    for m in (model, fast):
        m.train()
        steps = torch.optim.SGD(m.parameters(), 1e-2)
        for _ in range(2):
            steps.zero_grad()
            loss = m(image()).square().mean()
            loss.backward()
            steps.step()
        losses.append(loss)
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(fast.eval()(image()), model.eval()(image()), rtol=1e-3, atol=1e-4)
    fast.requires_grad_(False)
    assert fast(image()).grad_fn is None


class Listed(nn.Module):
    """Its code reaches a child by a list, and one that it has no name for."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.again = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
        self.parts = [self.first[1], nn.Linear(12, 12)]

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return self.again(x)


def test_in_training_mode_tensors_alone_are_shared():
    model = Listed().train()
    fast, called = vt.accelerate(model), []
    for ours, theirs in ((fast.parameters(), model.parameters()), (fast.buffers(), model.buffers())):
        assert all(a is b for a, b in zip(ours, theirs, strict=True))
    assert fast.parts[1].weight is model.parts[1].weight
    assert type(fast.first[0]) is vt.Conv2d and type(model.first[0]) is nn.Conv2d
    assert fast.first is fast.again and fast.parts[0] is fast.first[1]
    fast.eval()
    assert all(m.training for m in model.modules()) and not fast.parts[0].training
    for module in fast.modules():
        module.register_forward_hook(lambda module, args, output: called.append(module))
    fast.first[0].bias = fast.first[1].weight = fast.first[1].running_mean = None
    fast.first.add_module("2", nn.ReLU())
    model(image())
    assert not called and len(model.first) == 2
    assert None not in (model.first[0].bias, model.first[1].weight, model.first[1].running_mean)


def test_functions_of_the_parameters():
    model = other()
    fast = vt.accelerate(model)
    parameters = {k: v.detach() * 1.2 for k, v in model.named_parameters()}
    many = {k: torch.stack([v, -v]) for k, v in parameters.items()}

    def answers(m):
        def call(p, x):
            return torch.func.functional_call(m, p, (x,))

        each = torch.vmap(torch.func.grad(lambda p, x: call(p, x[None]).sum()), (None, 0))(parameters, image())
        return call(parameters, image()), torch.vmap(call, (0, None))(many, image()), each["body.0.weight"]

    torch.testing.assert_close(answers(fast), answers(model), rtol=1e-3, atol=1e-4)


class Optional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x, scale=None, negative: bool = False):
        y = self.conv(x).relu()
        y = y if scale is None else y * scale
        return -y if negative else y


def test_options_that_are_given_are_followed():
    model, x = Optional().eval(), torch.randn(1, 3, 6, 6)
    fast = vt.accelerate(model)
    shortcut = fast.forward.__self__
    assert shortcut.run is not None
    runs, run = [], shortcut.run.forward
    shortcut.run.forward = lambda x: runs.append(1) or run(x)
    calls = [((), {}), ((None,), {}), ((), {"negative": False}), ((None, False), {})]
    with torch.no_grad():
        for values, named in [*calls, ((2.0,), {}), ((), {"negative": True}), ((3.0,), {"negative": True})]:
            want, got = model(x, *values, **named), fast(x, *values, **named)
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        for values, named in [((None, False, 1), {}), ((), {"other": 1}), ((None,), {"scale": None})]:
            with pytest.raises(TypeError, match="argument"):
                fast(x, *values, **named)
    assert len(runs) == len(calls)


def test_results_keep_their_types():
    class Answer(dict):
        __getattr__ = dict.__getitem__

    class Answers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return Answer(y=self.conv(x).relu())

    assert vt.accelerate(Answers().eval())(torch.randn(1, 3, 6, 6)).y.shape == (1, 4, 4, 4)


def test_a_linear_layer_alone_stays_as_it_is():
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 7), nn.LayerNorm(7)).eval()
    layers = vt.accelerate(model).forward.__self__.run.layers
    assert [type(layer) for layer in layers[1:]] == [nn.Linear, nn.LayerNorm]
