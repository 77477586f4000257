"""Convolutions with fixed weights as modules: packed once, batch norm and activation in the same pass."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

import vkconv
from vkconv._types import Activation, PaddingMode
from vkconv.torch import _functional, _ops
from vkconv.torch._arrays import channels_first, channels_last, innermost, is_channels_last, to_array
from vkconv.torch._autograd import call, differentiated, merged
from vkconv.torch._functional import pads_of, per_axis

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

_PADDING_MODES: dict[str, PaddingMode] = {
    "zeros": "zeros",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "circular",
}

_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "clip": torch.clamp,
}


def activate(x: Tensor, activation: Activation | None) -> Tensor:
    """The activation as PyTorch computes it."""
    if activation is None:
        return x
    name, *parameters = (activation,) if isinstance(activation, str) else activation
    return _ACTIVATIONS[str(name)](x, *parameters)


@dataclass(frozen=True)
class Geometry:
    """What a convolution has beside its weights. `padding_mode` is PyTorch's; `output_padding` is that of a transposed
    convolution and None in others."""

    stride: tuple[int, ...]
    pads: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    output_padding: tuple[int, ...] | None = None
    padding_mode: str = "zeros"

    @property
    def rank(self) -> int:
        return len(self.stride)

    @property
    def transposed(self) -> bool:
        return self.output_padding is not None

    @staticmethod
    def of(conv: Any) -> Geometry:
        rank = len(conv.kernel_size)
        stride = tuple(conv.stride)
        dilation = tuple(conv.dilation)
        if isinstance(conv, TRANSPOSED):
            pads = per_axis(conv.padding, rank, "padding") * 2
            return Geometry(stride, tuple(pads), dilation, conv.groups, tuple(conv.output_padding))
        pads = pads_of(conv.padding, conv.kernel_size, stride, dilation)
        return Geometry(stride, tuple(pads), dilation, conv.groups, padding_mode=conv.padding_mode)

    def output_extents(self, spatial: Sequence[int], kernel: Sequence[int]) -> list[int]:
        """Extents of the output for an input with `spatial`."""
        extents = []
        for a in range(self.rank):
            around = self.pads[a] + self.pads[self.rank + a]
            reach = self.dilation[a] * (kernel[a] - 1)
            if self.output_padding is not None:
                extents.append((spatial[a] - 1) * self.stride[a] - around + reach + self.output_padding[a] + 1)
            else:
                extents.append((spatial[a] + around - reach - 1) // self.stride[a] + 1)
        return extents


_handles = itertools.count()
_by_handle: weakref.WeakValueDictionary[int, FrozenConv] = weakref.WeakValueDictionary()


class FrozenConv(nn.Module):
    """A convolution with fixed weights; `forward(input, addend)` is activation(conv(input) + addend + bias).

    Gradients reach `input` and `addend`, not the weights: `weight` and `bias`, in PyTorch's layout, require none. The
    result has PyTorch's memory format, or is always channels last with `any_format`, which spares a copy.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
        activation: Activation | None = None,
        any_format: bool = False,
    ) -> None:
        nn.Module.__init__(self)
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self.geometry = geometry
        self.activation = activation
        self.any_format = any_format
        self._renew()

    @staticmethod
    def of(conv: Any, norm: Any = None, activation: Activation | None = None, any_format: bool = False) -> FrozenConv:
        """`conv`, then `norm` with its running statistics, then the activation. It has the attributes of `conv`."""
        geometry = Geometry.of(conv)
        weight, bias = conv.weight.detach(), conv.bias
        if norm is not None:
            weight, bias = _normalized(weight, bias, norm, geometry)
        made = _KINDS[type(conv)](weight, bias, geometry, activation, any_format)
        made.__dict__.update({k: v for k, v in vars(conv).items() if k == "training" or k not in vars(made)})
        return made

    def _renew(self) -> None:
        self.handle = next(_handles)
        _by_handle[self.handle] = self
        self._prepared: Any = None

    def prepared(self) -> Any:
        """The packed weights, made when they are first needed."""
        if self._prepared is None:
            self._prepared = self._prepare()
        return self._prepared

    def _prepare(self) -> Any:
        g, weight = self.geometry, channels_last(self.weight)
        bias = None if self.bias is None else to_array(self.bias)
        pads = list(zip(g.pads[: g.rank], g.pads[g.rank :], strict=True))
        if g.output_padding is None:
            return vkconv.prepare(
                weight, bias, stride=g.stride, pads=pads, padding_mode=_PADDING_MODES[g.padding_mode],
                kernel_dilation=g.dilation, groups=g.groups, activation=self.activation, device="cpu",
            )  # fmt: skip
        return vkconv.prepare_transpose(
            _ops.transposed_weight(weight, g.groups), bias, stride=g.stride, pads=pads, dilation=g.dilation,
            output_padding=g.output_padding, groups=g.groups, activation=self.activation, device="cpu",
        )  # fmt: skip

    def forward(self, input: Tensor, addend: Tensor | None = None) -> Tensor:
        if input.dim() == self.geometry.rank + 1:
            return self.forward(input.unsqueeze(0), None if addend is None else addend.unsqueeze(0)).squeeze(0)
        if torch.is_autocast_enabled("cpu"):
            return self._autocast(input, addend)
        y = self._convolve(input, addend)
        keeps = self.any_format or is_channels_last(input) or is_channels_last(self.weight)
        return y if keeps else y.contiguous()

    def _autocast(self, input: Tensor, addend: Tensor | None) -> Tensor:
        """The packed weights keep their dtype; the result has that of PyTorch's."""
        dtype = torch.get_autocast_dtype("cpu")
        if self.weight.dtype == torch.float64:  # which autocast leaves as it is
            dtype = torch.float64
        elif addend is not None:
            dtype = torch.promote_types(dtype, addend.dtype)
            addend = addend.to(torch.promote_types(self.weight.dtype, torch.float32))
        with torch.autocast("cpu", enabled=False):
            return self.forward(input.to(self.weight.dtype), addend).to(dtype)

    def _convolve(self, input: Tensor, addend: Tensor | None) -> Tensor:
        input = innermost(input)
        # A program that is stored knows nothing of what is packed in this process.
        stored = torch.jit.is_tracing() or torch.compiler.is_exporting()
        if stored or differentiated(input) or differentiated(addend):
            return self._differentiable(input, addend)
        if addend is None:
            return prepared_conv(input, self.handle)
        if addend.dtype == torch.promote_types(input.dtype, torch.float32) and addend.dim() == input.dim():
            spatial = self.geometry.output_extents(input.shape[2:], self.weight.shape[2:])
            if addend.shape == (input.shape[0], channels_out(self), *spatial):
                return prepared_conv_add(input, addend, self.handle)
        return self._differentiable(input, addend)

    def _differentiable(self, input: Tensor, addend: Tensor | None) -> Tensor:
        """The same from operators that have gradients, and for every addend that can be broadcast."""
        g = self.geometry
        if g.output_padding is None:
            pads = g.pads
            if g.padding_mode != "zeros":
                sides = [side for a in reversed(range(g.rank)) for side in (pads[a], pads[g.rank + a])]
                input, pads = innermost(F.pad(input, sides, g.padding_mode)), (0,) * len(pads)
            y = call(_ops.conv, input, self.weight, self.bias, g.stride, pads, g.dilation, g.groups)
        else:
            y = self._transposed(input, g.output_padding)
        return activate(y if addend is None else y + addend, self.activation)

    def _transposed(self, input: Tensor, output_padding: Sequence[int]) -> Tensor:
        g, transposed = self.geometry, getattr(_functional, f"conv_transpose{self.geometry.rank}d")
        pads = g.pads[: g.rank]
        made: Tensor = transposed(input, self.weight, self.bias, g.stride, pads, output_padding, g.groups, g.dilation)
        return made

    def extra_repr(self) -> str:
        shape, g = tuple(self.weight.shape), self.geometry
        return f"{shape}, stride={g.stride}, pads={g.pads}, groups={g.groups}, activation={self.activation}"

    # Whatever may change the weights drops what was packed.
    def _apply(self, *args: Any, **kwargs: Any) -> FrozenConv:
        super()._apply(*args, **kwargs)
        self._prepared = None
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._prepared = None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_prepared", "handle")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._renew()


class FrozenTransposed(FrozenConv):
    """A transposed convolution with fixed weights; `output_size` as in `nn.ConvTranspose2d`."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if output_size is None:
            return super().forward(input)
        conv: Any = self
        extra = tuple(
            conv._output_padding(
                input, output_size, conv.stride, conv.padding, conv.kernel_size, self.geometry.rank, conv.dilation
            )
        )
        if extra == self.geometry.output_padding:
            return super().forward(input)
        return activate(self._transposed(input, extra), self.activation)


# Models ask for the types of their layers: isinstance(layer, nn.Conv1d).
_KINDS: dict[type[nn.Module], type[FrozenConv]] = {
    kind: type(f"Frozen{kind.__name__}", (made, kind), {"__module__": __name__, "__doc__": made.__doc__})
    for kinds, made in ((CONVOLUTIONS, FrozenConv), (TRANSPOSED, FrozenTransposed))
    for kind in kinds
}
globals().update({kind.__name__: kind for kind in _KINDS.values()})  # where pickle looks for them


def channels_out(conv: FrozenConv) -> int:
    return conv.weight.shape[1] * conv.geometry.groups if conv.geometry.transposed else conv.weight.shape[0]


class FrozenLinear(nn.Linear):
    """A linear layer with fixed weights, as a convolution whose kernel has one tap; `addend` as in FrozenConv."""

    def __init__(self, linear: nn.Linear, activation: Activation | None = None) -> None:
        nn.Module.__init__(self)
        one_tap = Geometry((1,), (0, 0), (1,), 1)
        self.conv = FrozenConv(linear.weight.unsqueeze(-1), linear.bias, one_tap, activation, any_format=True)
        self.in_features, self.out_features = linear.in_features, linear.out_features

    @property
    def weight(self) -> Tensor:
        return self.conv.weight.squeeze(-1)

    @property
    def bias(self) -> Tensor | None:
        return self.conv.bias

    def forward(self, input: Tensor, addend: Tensor | None = None) -> Tensor:
        shape = (*input.shape[:-1], self.out_features)
        terms = () if addend is None else (_as_line(addend.expand(shape)),)
        return self.conv(_as_line(input), *terms).transpose(1, 2).reshape(shape)


def _as_line(x: Tensor) -> Tensor:
    """(..., C) as (1, C, rows), or (0, C, 1) when there are no rows."""
    rows = math.prod(x.shape[:-1])
    return x.reshape(min(rows, 1), max(rows, 1), x.shape[-1]).transpose(1, 2)


def freeze(
    module: Any, norm: Any = None, activation: Activation | None = None, any_format: bool = False
) -> FrozenConv | FrozenLinear:
    """A convolution or a linear layer with what follows it."""
    if isinstance(module, nn.Linear):
        return FrozenLinear(module, activation)
    return FrozenConv.of(module, norm, activation, any_format)


def _normalized(weight: Tensor, bias: Tensor | None, norm: Any, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """Weight and bias of the convolution followed by the batch norm of `norm`'s running statistics."""
    scale = torch.rsqrt(norm.running_var.detach().double() + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight.detach().double()
    shift = (0 if bias is None else bias.detach().double()) - norm.running_mean.detach().double()
    shift = shift * scale
    if norm.bias is not None:
        shift = shift + norm.bias.detach().double()
    ones = (1,) * geometry.rank
    if geometry.transposed:  # (C, O / groups, kernel...): the rows of a group of inputs make a group of outputs
        grouped = weight.double().unflatten(0, (geometry.groups, -1))
        folded = (grouped * scale.view(geometry.groups, 1, -1, *ones)).flatten(0, 1)
    else:
        folded = weight.double() * scale.view(-1, 1, *ones)
    wide = torch.promote_types(weight.dtype, torch.float32)  # the dtype sums run in
    return folded.to(weight.dtype), shift.to(wide)


@torch.library.custom_op("vkconv::prepared_conv", mutates_args=(), device_types="cpu")
def prepared_conv(input: Tensor, handle: int) -> Tensor:
    """The FrozenConv with this handle, applied."""
    return channels_first(_by_handle[handle].prepared()(channels_last(input)))


@torch.library.custom_op("vkconv::prepared_conv_add", mutates_args=(), device_types="cpu")
def prepared_conv_add(input: Tensor, addend: Tensor, handle: int) -> Tensor:
    """The same, with an addend of the output's shape in the dtype sums run in."""
    return channels_first(_by_handle[handle].prepared()(channels_last(input), addend=channels_last(addend)))


def _fake(input: Tensor, handle: int) -> Tensor:
    conv = _by_handle[handle]
    spatial = conv.geometry.output_extents(input.shape[2:], conv.weight.shape[2:])
    return _ops.empty_channels_last(input, input.shape[0], spatial, channels_out(conv))


def _mapped(op: Any) -> Callable[..., tuple[Tensor, int]]:
    """The rule of `torch.vmap`: one larger batch."""

    def rule(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        *tensors, handle = arguments
        whole = (merged(t, d, info.batch_size, 0) for t, d in zip(tensors, in_dims, strict=False))
        return op(*whole, handle).unflatten(0, (info.batch_size, -1)), 0

    return rule


prepared_conv.register_fake(_fake)
prepared_conv_add.register_fake(lambda input, addend, handle: _fake(input, handle))
for _op in (prepared_conv, prepared_conv_add):
    _op.register_vmap(_mapped(_op))
