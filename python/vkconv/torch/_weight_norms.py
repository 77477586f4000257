"""Weights that PyTorch's weight and spectral norms and its pruning compute in every call, computed once."""

from __future__ import annotations

from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, remove_spectral_norm, remove_weight_norm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm


def settle(model: nn.Module) -> nn.Module:
    """`model`, in eval mode, changed: its weights are plain parameters wherever a norm of PyTorch's made them."""
    for module in list(model.modules()):
        for hook in list(module._forward_pre_hooks.values()):
            if isinstance(hook, WeightNorm):
                remove_weight_norm(module, hook.name)
            elif isinstance(hook, SpectralNorm):
                remove_spectral_norm(module, hook.name)
            elif isinstance(hook, prune.BasePruningMethod):
                prune.remove(module, hook._tensor_name)
        if parametrize.is_parametrized(module) and _by_pytorch(module):
            _unparametrize(module)
    return model


def _by_pytorch(module: nn.Module) -> bool:
    steps = (step for chain in module._modules["parametrizations"].children() for step in chain)
    return all(type(step).__module__ == parametrizations.__name__ for step in steps)


def _unparametrize(module: nn.Module) -> None:
    """`parametrize.remove_parametrizations` takes properties off a class that copies of the module share."""
    values = {name: getattr(module, name).detach().clone() for name in module._modules["parametrizations"]._modules}
    del module._modules["parametrizations"]
    module.__class__ = type(module).__bases__[0]
    for name, value in values.items():
        module.register_parameter(name, nn.Parameter(value))
