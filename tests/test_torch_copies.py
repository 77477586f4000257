"""Copies that vkconv.torch.accelerate makes of a model, and such as are made of its own."""

from __future__ import annotations

import pickle
import threading

import pytest

torch = pytest.importorskip("torch")

from torch import fx, nn  # noqa: E402

from test_torch_models import Residual, image, layers  # noqa: E402 - after the skip
from vkconv import torch as vt  # noqa: E402


class Keeping(Residual):
    """It keeps what it has computed, derivatives and all."""

    def __init__(self) -> None:
        super().__init__()
        self.kept, self.last = [], {}

    def forward(self, x):
        y = super().forward(x)
        self.kept.append(y)
        self.last["y"] = (y,)
        return y


@pytest.mark.parametrize("training", [False, True])
def test_a_model_may_keep_results(training):
    model = Keeping().eval()
    model(image())
    fast = vt.accelerate(model.train(training))
    assert len(fast.kept) == 1 and (fast.kept[0] is model.kept[0]) == training
    torch.testing.assert_close(fast.eval()(image()), model.eval()(image()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_what_cannot_be_copied_is_told(training):
    model = layers().train(training)
    model.lock = threading.Lock()
    with pytest.raises(TypeError, match=r"accelerate.*copy.*lock"):
        vt.accelerate(model)


class Holder:
    """What a copy of a model copies with it."""


def test_results_that_no_container_holds_are_told():
    model = Keeping().eval()
    model.holder = Holder()
    model.holder.kept = 2 * model(image())
    with pytest.raises(TypeError, match=r"accelerate needs a copy.*deepcopy"):
        vt.accelerate(model)


@torch.no_grad()
@pytest.mark.parametrize("training", [False, True])
def test_containers_may_hold_themselves(training):
    model = layers().train(training)
    model.settings = {"list": []}
    model.settings["list"] += [model.settings["list"], model.settings]
    fast = vt.accelerate(model).eval()
    assert fast.settings["list"][1] is fast.settings
    torch.testing.assert_close(fast(image()), model.eval()(image()), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_graphs_may_be_stored():
    graph = fx.symbolic_trace(layers().eval())
    for model in (graph, nn.Sequential(graph, nn.Conv2d(6, 4, 1)).eval()):
        stored = pickle.dumps(vt.accelerate(model))
        torch.testing.assert_close(pickle.loads(stored)(image()), model(image()), rtol=1e-4, atol=1e-5)
