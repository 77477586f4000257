"""`accelerate`: a model whose convolutions are vkconv's."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vkconv.torch._calls import FunctionCalls, calls_functions
from vkconv.torch._fusion import inherits, preparable
from vkconv.torch._modules import TRAINABLE, plain
from vkconv.torch._prepared import PreparedInherited, prepare
from vkconv.torch._shortcut import Shortcut, make_all, shortens
from vkconv.torch._weight_norms import settle


def accelerate(model: nn.Module, example: Any = None, tolerance: float = 1e-3) -> nn.Module:
    """Return a model that computes what `model` does, with every convolution by vkconv. `model` stays as it is.

    In eval mode the model is copied. Weights of convolutions are packed when they are first needed. Batch norms, bias,
    activations and the additions of residual blocks that follow a convolution are computed in its pass wherever the
    module's graph makes sure that nothing else reads what lies between, and layers that follow each other in it are one
    call, squeeze-and-excitation blocks among them. Linear layers are convolutions with a kernel of one tap; one with
    nothing to fold beside it stays PyTorch's, which is as fast. Parts that `torch.fx` cannot trace keep their code, and
    their convolutions are replaced one by one; so do parts that change or ask for the modes of autocast and gradients,
    draw random numbers, know where those of a tensor lie, ask for its type, identity or text, assign to its attributes,
    handle exceptions of operators, or change more than their result and buffers: attributes, containers, arrays, and
    the variables that their functions name. What else they do, like printing or writing files, happens while a trace is
    made and not in calls. It holds for calls that give the options of a `forward`, if any, their defaults.

    The copy has the modules, parameters and `state_dict` of the model; only what their `forward` runs is another. It
    follows changes: weights that are loaded or written are packed again, and what is folded is folded anew when a child
    is replaced or a hook comes or goes. Its parameters require no gradient: after `requires_grad_()` and `train()` it
    trains like the model, and `eval()` makes it fast again. Writes that PyTorch does not count, through `.data` or an
    array of NumPy, are seen where they change a whole tensor; of others `torch.autograd.graph.increment_version` tells.
    Changes of other attributes, like `stride`, are not followed: accelerate again after them.

    In training mode the copy has the parameters and buffers of `model` itself, and convolutions are
    `vkconv.torch.Conv2d` and its like.

    Results have the memory format that PyTorch's have where code keeps that of its input; what `contiguous()` or
    `permute` make of it on the way is not followed. `model.to(memory_format=torch.channels_last)` first, or an input in
    that format, spares parts that cannot be traced the copies of a contiguous one.

    Weights that PyTorch's weight and spectral norms or its pruning compute in every call are computed once, and are
    parameters of the copy in the place of what they are computed of. Subclasses of PyTorch's convolutions keep their
    code, and so do modules that call convolutions as functions; where it calls PyTorch's forward or functions,
    vkconv's run. Weights that such code computes of parameters alone (weight standardization) are computed anew when
    those change. Layers with hooks, other parametrizations or a patched forward are left alone.

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
    TypeError
        When `model` is no module, or holds what `copy.deepcopy` refuses.
    RuntimeError
        When the results for `example` disagree.

    Examples
    --------
    >>> layer = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    >>> fast = accelerate(layer, example=torch.ones(1, 3, 8, 8))
    >>> fast.state_dict().keys() == layer.state_dict().keys()
    True
    >>> len(fast.forward.__self__.run.layers)  # the convolution computes all three
    1
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {model!r}")
    made = _trainable(model) if model.training else _prepared(model)
    if example is not None:
        _compare(model, made, example if isinstance(example, tuple) else (example,), tolerance)
    return made


def _trainable(model: nn.Module) -> nn.Module:
    """A copy of the model that has its tensors, with vkconv's convolutions in the place of PyTorch's."""
    made = _deepcopy(model, {id(shared): shared for shared in _shared(model)})
    for module in made.modules():
        if type(module) in TRAINABLE and plain(module):
            module.__class__ = TRAINABLE[type(module)]
    return made


def _shared(model: nn.Module) -> Iterator[Any]:
    """The tensors of modules, those that containers hold among them, and scripts, whose copies have tensors of their
    own."""
    seen, waiting = set[nn.Module](), [model]
    while waiting:
        module = waiting.pop()
        if isinstance(module, torch.jit.ScriptModule):
            yield module
        elif module not in seen:
            seen.add(module)
            for value in _held(vars(module)):
                if isinstance(value, Tensor):
                    yield value
                elif isinstance(value, nn.Module):
                    waiting.append(value)


def _held(container: object) -> Iterator[Any]:
    """What dicts, lists, tuples and sets hold, however deep."""
    seen, waiting = set[int](), [container]
    while waiting:
        value = waiting.pop()
        if not isinstance(value, dict | list | tuple | set):
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)


def _prepared(model: nn.Module) -> nn.Module:
    """A copy of the model, with something else in the place of the forward of its layers and of what calls them."""
    made = settle(_copy(model))
    for parameter in made.parameters():
        if not is_lazy(parameter):
            parameter.requires_grad_(False)
    for module in made.modules():
        if type(module) is nn.Linear:
            continue  # whatever calls it may prepare it, with what follows
        if preparable(module):
            module.__dict__["forward"] = prepare(module).forward
        elif inherits(module):
            inherited = PreparedInherited(module)
            module.__dict__["_conv_forward"] = inherited.forward
            if calls_functions(module):
                module.__dict__["forward"] = _code(module, FunctionCalls(module, inherited).forward)
        elif any(map(preparable, module.modules())):
            if shortens(module):
                module.__dict__["forward"] = Shortcut(module).forward
        elif calls_functions(module):
            module.__dict__["forward"] = _code(module, FunctionCalls(module).forward)
    make_all(made)
    return made


def _code(module: nn.Module, code: Callable[..., Any]) -> Callable[..., Any]:
    """A shortcut of code that calls convolutions as functions, if it can be one."""
    made: Callable[..., Any] = Shortcut(module, code).forward if shortens(module) else code
    return made


def _copy(model: nn.Module) -> nn.Module:
    """Tensors that modules have computed, as those of norms of weights or results that they keep, are no leaves, which
    `deepcopy` refuses."""
    computed = {id(v): v.detach().clone() for v in _shared(model) if isinstance(v, Tensor) and not v.is_leaf}
    with torch.no_grad():  # else the parameters of a script are computed from those of the model
        return _deepcopy(model, computed)


def _deepcopy(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    try:
        return copy.deepcopy(model, memo)
    except (TypeError, RuntimeError, copy.Error, pickle.PicklingError) as error:
        raise TypeError(f"accelerate needs a copy of the model, and copy.deepcopy says: {error}") from error


def _compare(model: nn.Module, made: nn.Module, example: tuple[Any, ...], tolerance: float) -> None:
    with torch.no_grad():
        want, got = model(*example), made(*example)
    pairs = zip(_tensors(want), _tensors(got), strict=True)
    for a, b in pairs:
        if a.shape != b.shape:
            raise RuntimeError(f"the accelerated model differs from the model: shape {b.shape}, wanted {a.shape}")
        if a.dtype != b.dtype:
            raise RuntimeError(f"the accelerated model differs from the model: {b.dtype}, wanted {a.dtype}")
        scale = a.abs().max().clamp(min=torch.finfo(a.dtype).tiny)
        error = float((a - b).abs().max() / scale)
        if not error <= tolerance:
            raise RuntimeError(f"the accelerated model differs from the model by {error:.2g} of the largest output")


def _tensors(value: Any) -> list[torch.Tensor]:
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    return [v for v in leaves if isinstance(v, torch.Tensor) and v.is_floating_point() and v.numel() > 0]
