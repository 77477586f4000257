"""The convolutions of `torch.nn` with vkconv's operators: same parameters, same state_dict, trainable."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

from vkconv.torch import _functional
from vkconv.torch._functional import per_axis


def convolve(module: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a convolution of `torch.nn` computes, by vkconv's operators."""
    padding = module.padding
    if module.padding_mode != "zeros":
        input = F.pad(input, module._reversed_padding_repeated_twice, mode=module.padding_mode)
        padding = 0
    rank = len(module.kernel_size)
    return getattr(_functional, f"conv{rank}d")(
        input, weight, bias, module.stride, padding, module.dilation, module.groups
    )


def convolve_transposed(module: Any, input: Tensor, output_size: list[int] | None) -> Tensor:
    """What a transposed convolution of `torch.nn` computes, by vkconv's operators."""
    rank = len(module.kernel_size)
    extra = module._output_padding(
        input, output_size, module.stride, module.padding, module.kernel_size, rank, module.dilation
    )
    return getattr(_functional, f"conv_transpose{rank}d")(
        input,
        module.weight,
        module.bias,
        module.stride,
        module.padding,
        per_axis(extra, rank, "output_padding"),
        module.groups,
        module.dilation,
    )


class Conv1d(nn.Conv1d):
    """`torch.nn.Conv1d` by vkconv."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return convolve(self, input, weight, bias)


class Conv2d(nn.Conv2d):
    """`torch.nn.Conv2d` by vkconv."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return convolve(self, input, weight, bias)


class Conv3d(nn.Conv3d):
    """`torch.nn.Conv3d` by vkconv."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return convolve(self, input, weight, bias)


class ConvTranspose1d(nn.ConvTranspose1d):
    """`torch.nn.ConvTranspose1d` by vkconv."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return convolve_transposed(self, input, output_size)


class ConvTranspose2d(nn.ConvTranspose2d):
    """`torch.nn.ConvTranspose2d` by vkconv."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return convolve_transposed(self, input, output_size)


class ConvTranspose3d(nn.ConvTranspose3d):
    """`torch.nn.ConvTranspose3d` by vkconv."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return convolve_transposed(self, input, output_size)


TRAINABLE: dict[type[nn.Module], type[nn.Module]] = {
    base: cls
    for cls in (Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
    for base in cls.__bases__
}


class StandIn:
    """What `accelerate` puts in the place of a module's forward."""


def stand_in(module: nn.Module) -> StandIn | None:
    """What stands in for the module's forward."""
    made = getattr(vars(module).get("forward"), "__self__", None)
    return made if isinstance(made, StandIn) else None


def hooks(module: nn.Module) -> tuple[dict[int, Any], ...]:
    """What runs around its forward."""
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks


def all_are_hooked() -> bool:
    """Whether something runs around the forward of every module."""
    m = nn.modules.module
    return any((m._global_forward_hooks, m._global_forward_pre_hooks, m._global_backward_hooks,
                m._global_backward_pre_hooks))  # fmt: skip


def own_forward(module: nn.Module) -> bool:
    """The module's forward is its type's, or stands in for it."""
    return "forward" not in vars(module) or stand_in(module) is not None


def plain(module: nn.Module) -> bool:
    """A call of the module does what its type's forward does."""
    return own_forward(module) and not any(hooks(module))


def runs_known_code(module: nn.Module) -> bool:
    """Whether it runs the code of PyTorch and vkconv alone, but on its weights: others' may want contiguous tensors."""
    kind = type(module).__bases__[0] if nn.utils.parametrize.is_parametrized(module) else type(module)
    known = kind.__module__.startswith(("torch.nn.", "torch.ao.nn.", "vkconv.")) and own_forward(module)
    return known and all(runs_known_code(c) for name, c in module.named_children() if name != "parametrizations")
