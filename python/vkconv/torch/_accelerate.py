"""`accelerate`: a model whose convolutions are vkconv's."""

from __future__ import annotations

import copy
import functools
from typing import Any, TypeVar

import torch
from torch import nn

from vkconv.torch import _fusion
from vkconv.torch._fusion import freezable
from vkconv.torch._modules import TRAINABLE, plain, trainable
from vkconv.torch._prepared import freeze
from vkconv.torch._trace import trace
from vkconv.torch._weight_norms import settle

Model = TypeVar("Model", bound=nn.Module)


def accelerate(model: nn.Module, example: Any = None, tolerance: float = 1e-3) -> nn.Module:
    """Return a model that computes what `model` does, with every convolution by vkconv. `model` stays as it is.

    In eval mode, convolutions are prepared: the model is copied, and weights are packed once. So are those of linear
    layers, which are convolutions with a kernel of one tap. Batch norms, bias, activations
    and the additions of residual blocks that follow a convolution are computed in its pass wherever the module's graph
    makes sure that nothing else reads what lies between; parts that `torch.fx` cannot trace keep their code, and their
    convolutions are replaced one by one. Every module keeps its type, attributes, methods and children. Gradients reach
    the input, not the weights: accelerate again after a change.

    In training mode, convolutions become `vkconv.torch.Conv2d` and its like, with the parameters of `model` itself.

    Results have the memory format that PyTorch's have. `model.to(memory_format=torch.channels_last)` first, or an input
    in that format, spares parts that cannot be traced the copies of a contiguous one.

    Weights that PyTorch's weight and spectral norms compute are computed once in eval mode. Subclasses of PyTorch's
    convolutions, and modules with hooks, other parametrizations or a forward of their own, are left alone.

    Parameters
    ----------
    model : torch.nn.Module
    example : Tensor or tuple, optional
        Arguments of one call. When given, both models are called with it and must agree.
    tolerance : float
        Largest difference that `example` may show, relative to the largest output.

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    RuntimeError
        When the results for `example` disagree.

    Examples
    --------
    >>> layer = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    >>> fast = accelerate(layer, example=torch.ones(1, 3, 8, 8))
    >>> [type(m).__name__ for m in fast]
    ['FrozenConv2d', 'BatchNorm2d', 'ReLU']
    >>> len(fast.forward.__self__.layers)  # the convolution computes all three
    1
    """
    made = _with_trainable(model, {}) if model.training else _Frozen()(settle(copy.deepcopy(model)))
    if example is not None:
        _compare(model, made, example if isinstance(example, tuple) else (example,), tolerance)
    return made


def _with_trainable(module: nn.Module, memo: dict[nn.Module, nn.Module]) -> nn.Module:
    if module not in memo:
        if type(module) in TRAINABLE and plain(module):
            memo[module] = trainable(module)
        else:
            memo[module] = _with_children(module, memo, _with_trainable)
    return memo[module]


def _with_children(module: Model, memo: dict[nn.Module, nn.Module], change: Any) -> Model:
    """A module with the same attributes and parameters, and its children changed; itself when none changes."""
    children = {name: child and change(child, memo) for name, child in module._modules.items()}
    if all(children[name] is child for name, child in module._modules.items()):
        return module
    made = copy.copy(module)
    made._modules = children
    return made


class _Frozen:
    """One copy of a model: modules that it shares stay shared, and so do frozen layers."""

    def __init__(self) -> None:
        self.memo: dict[nn.Module, nn.Module] = {}
        self.freeze = functools.cache(freeze)

    def __call__(self, module: nn.Module, _: Any = None) -> nn.Module:
        if module not in self.memo:
            self.memo[module] = self._made(module)
        return self.memo[module]

    def _made(self, module: nn.Module) -> nn.Module:
        if not plain(module):
            return _with_children(module, self.memo, self)
        if freezable(module):
            return self.freeze(module)
        if not any(map(freezable, module.modules())):
            return module
        if type(module).forward is nn.Sequential.forward:
            return self._sequence(module)
        graph = trace(module)
        made = _with_children(module, self.memo, self)
        if graph is not None:
            # The module keeps its type, methods and children; only its forward is another.
            fused = _fusion.fuse(module, graph, self.freeze)
            made._modules["_fused"] = fused
            made.__dict__["forward"] = fused.forward
        return made

    def _sequence(self, module: nn.Module) -> nn.Module:
        """The children stay, for code that indexes them; calling the sequence skips those that are folded."""
        made = _with_children(module, self.memo, self)
        places, steps = list(module._modules), []
        while places:
            place = places.pop(0)
            layer = module._modules[place]
            folded = _fusion.fold_next(layer, [module._modules[p] for p in places[:2]], self.freeze)
            if folded is not None:
                made._modules[place]._modules["folded"], count = folded
                del places[:count]
            steps.append(made._modules[place] if folded is None else folded[0])
        made.__dict__["forward"] = _fusion.Steps(steps).forward
        return made


def _compare(model: nn.Module, made: nn.Module, example: tuple[Any, ...], tolerance: float) -> None:
    with torch.no_grad():
        want, got = model(*example), made(*example)
    pairs = zip(_tensors(want), _tensors(got), strict=True)
    for a, b in pairs:
        if a.shape != b.shape:
            raise RuntimeError(f"the accelerated model differs from the model: shape {b.shape}, wanted {a.shape}")
        scale = a.abs().max().clamp(min=torch.finfo(a.dtype).tiny)
        error = float((a - b).abs().max() / scale)
        if not error <= tolerance:
            raise RuntimeError(f"the accelerated model differs from the model by {error:.2g} of the largest output")


def _tensors(value: Any) -> list[torch.Tensor]:
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    return [v for v in leaves if isinstance(v, torch.Tensor) and v.is_floating_point() and v.numel() > 0]
