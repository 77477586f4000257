"""`accelerate`: a model whose convolutions are vkconv's."""

from __future__ import annotations

import copy
import inspect
from typing import Any, TypeVar

import torch
from torch import fx, nn

from vkconv.torch import _fusion
from vkconv.torch._fusion import FROZEN
from vkconv.torch._modules import TRAINABLE, plain, trainable
from vkconv.torch._prepared import freeze

Model = TypeVar("Model", bound=nn.Module)


def accelerate(model: nn.Module, example: Any = None, tolerance: float = 1e-3) -> nn.Module:
    """Return a model that computes what `model` does, with every convolution by vkconv. `model` stays as it is.

    In eval mode, convolutions are prepared: the model is copied, and weights are packed once. So are those of linear
    layers, which are convolutions with a kernel of one tap. Batch norms, bias, activations
    and the additions of residual blocks that follow a convolution are computed in its pass wherever the module's graph
    makes sure that nothing else reads what lies between; parts that `torch.fx` cannot trace keep their code, and their
    convolutions are replaced one by one. Gradients reach the input, not the weights: accelerate again after a change.

    In training mode, convolutions become `vkconv.torch.Conv2d` and its like, with the parameters of `model` itself.

    Subclasses of PyTorch's convolutions, and modules with hooks or parametrizations, are left alone.

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
    >>> [type(m).__name__ for m in fast.children()]
    ['FrozenConv']
    """
    made = _with_trainable(model, {}) if model.training else _frozen(copy.deepcopy(model), {})
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


def _frozen(module: nn.Module, memo: dict[nn.Module, nn.Module]) -> nn.Module:
    if module not in memo:
        memo[module] = _freeze(module, memo)
    return memo[module]


def _freeze(module: nn.Module, memo: dict[nn.Module, nn.Module]) -> nn.Module:
    if not plain(module):
        return _with_children(module, memo, _frozen)
    if type(module) in FROZEN:
        return freeze(module)
    if not any(type(m) in FROZEN for m in module.modules()):
        return module
    graph = _trace(module)
    return _with_children(module, memo, _frozen) if graph is None else _fusion.fuse(module, graph)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, qualified_name: str) -> bool:
        return not plain(m) or m.training or super().is_leaf_module(m, qualified_name)


def _trace(module: nn.Module) -> fx.Graph | None:
    """The graph of the module, or None when it may depend on more than one tensor."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    if len(parameters) != 1 or parameters[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return None
    if any(m.training for m in module.modules()):
        return None
    try:
        return _Tracer().trace(module)
    except Exception:  # whatever user code raises on meeting a proxy
        return None


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
