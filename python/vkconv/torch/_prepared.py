"""Convolutions whose weights are packed once, with batch norm, addition and activation in the same pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn

import vkconv
from vkconv._axes import transposed_extents
from vkconv._types import Activation, PaddingMode
from vkconv.torch import _ops
from vkconv.torch._arrays import (
    channels_first,
    channels_last,
    contiguous,
    has_strides,
    is_channels_last,
    to_array,
)
from vkconv.torch._computed import Computed
from vkconv.torch._folding import hardened, normalized
from vkconv.torch._functional import pads_of, per_axis
from vkconv.torch._modules import StandIn, convolve, convolve_transposed
from vkconv.torch._prepared_ops import handle_of, prepared_conv, prepared_conv_add
from vkconv.torch._sources import Sources, Stores, tensors_in
from vkconv.torch._watchers import batched, differentiated, followed, follows_pytorchs_alone, noticed, stored, tracing

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)

_PADDING_MODES: dict[str, PaddingMode] = {
    "zeros": "zeros",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "circular",
}

ONCE = ("reflect", "circular")  # modes of which PyTorch refuses pads that are larger than the input

_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
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
        if isinstance(conv, nn.Linear):
            return Geometry((1,), (0, 0), (1,), 1)
        rank = len(conv.kernel_size)
        stride = tuple(conv.stride)
        dilation = tuple(conv.dilation)
        if isinstance(conv, TRANSPOSED):
            pads = per_axis(conv.padding, rank, "padding") * 2
            return Geometry(stride, tuple(pads), dilation, conv.groups, tuple(conv.output_padding))
        pads = pads_of(conv.padding, conv.kernel_size, stride, dilation)
        return Geometry(stride, tuple(pads), dilation, conv.groups, padding_mode=conv.padding_mode)

    def can_pad(self, spatial: Sequence[int]) -> bool:
        """Whether PyTorch pads an input with `spatial`, which it mirrors or repeats once at most."""
        if self.padding_mode not in ONCE:
            return True
        extents = [n - (self.padding_mode == "reflect") for n in spatial]
        return all(pad <= n for pad, n in zip(self.pads, extents * 2, strict=True))

    def output_extents(self, spatial: Sequence[int], kernel: Sequence[int]) -> list[int]:
        """Extents of the output for an input with `spatial`."""
        pads = list(zip(self.pads[: self.rank], self.pads[self.rank :], strict=True))
        if self.output_padding is not None:
            return list(transposed_extents(spatial, kernel, self.stride, pads, self.dilation, self.output_padding))
        axes = zip(spatial, kernel, self.stride, pads, self.dilation, strict=True)
        return [(n + lo + hi - d * (k - 1) - 1) // s + 1 for n, k, s, (lo, hi), d in axes]


class Prepared(nn.Module, StandIn):
    """A convolution by weights that are packed once: `forward(input, addend)` is
    activation(norm(layer(input)) + addend), or of a linear layer activation(scale * layer(input) + addend). A sum that
    code makes in place, `into` the "result" of the layer or the "addend", has the dtype and shape of that.

    `layer` and `norm` keep their parameters, which are packed when they are first needed and again after a change.
    Where derivatives with respect to them are followed, and in programs that are stored, operators with gradients
    compute the same. The result has PyTorch's memory format, or is always channels last with `any_format`, which spares
    a copy.
    """

    def __init__(
        self,
        layer: Any,
        norm: Any = None,
        activation: Activation | None = None,
        any_format: bool = False,
        scale: Any = None,
        into: str | None = None,
    ) -> None:
        super().__init__()
        # No children: the model owns them.
        self.__dict__.update(layer=layer, norm=norm, scale=scale)
        self.geometry = Geometry.of(layer)
        self.activation, self.any_format, self.into = activation, any_format, into
        # Without the activation, for addends of other shapes and dtypes than the sums have. A compiler makes no layers.
        self.__dict__["alone"] = self if activation is None else type(self)(layer, norm, any_format=True, scale=scale)
        self._renew()

    def _renew(self) -> None:
        self.handle = handle_of(self)
        self._packed: tuple[Any, Sources] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_packed", "handle")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._renew()

    def stores(self) -> Stores:
        """Where every tensor is that packed weights are made of, and what a norm counts its updates in: those of its
        statistics leave no trace in them."""
        own = self.layer.stores() if isinstance(self.layer, Computed) else (self.layer._parameters,)
        norm = () if self.norm is None else (self.norm._parameters, self.norm._buffers)
        scale = () if self.scale is None else (self.scale.owner._parameters,)
        return *own, *norm, *scale

    def source(self) -> Any:
        """The weight, or what it is computed of."""
        if isinstance(self.layer, Computed):
            return self.layer.source()
        own = self.layer._parameters
        return own.get("weight") if "bias" in own else None  # of which a parametrization is the other

    def is_computed(self) -> bool:
        """Whether what would be packed is computed in every call, by something that came after the layer was prepared:
        weights of other parameters, or statistics of the batch where the norm keeps none any more."""
        return self.source() is None or (self.norm is not None and self.norm._buffers.get("running_var") is None)

    def output_shape(self, input: Tensor) -> tuple[int, list[int], int]:
        """Batch, spatial extents and channels."""
        g, (rows, columns, *kernel) = self.geometry, self.layer.weight.shape
        spatial = g.output_extents(input.shape[2:], kernel or (1,))  # a linear layer has one tap
        return input.shape[0], spatial, columns * g.groups if g.transposed else rows

    def in_channels(self) -> int:
        rows, columns, *_ = self.layer.weight.shape
        channels: int = rows if self.geometry.transposed else columns * self.geometry.groups
        return channels

    def packed(self) -> Any:
        """The packed weights of now."""
        tensors, known = tensors_in(self.stores()), self._packed
        if known is None or known[1].changed(tensors):
            known = self._packed = self._pack(), Sources(tensors)
        return known[0]

    def _pack(self) -> Any:
        g, bias, activation = self.geometry, self.layer.bias, self.activation
        weight = self.layer.weight.detach()
        if isinstance(self.layer, nn.Linear):
            weight = weight.unsqueeze(-1)
        if self.norm is not None:
            weight, bias = normalized(weight, bias, self.norm, g.groups if g.transposed else None)
        if self.scale is not None:
            scale = self.scale().detach().flatten()
            if not _keeps_dtype(weight, scale):
                raise TypeError("the scale has a wider dtype than the weight")
            weight, bias = weight * scale.view(-1, 1, 1), None if bias is None else bias.detach() * scale
        if activation == "hardsigmoid":
            channels = weight.shape[1] * g.groups if g.transposed else len(weight)
            weight, bias, activation = *hardened(weight, bias, channels), ("clip", 0, 1)
        w, b = channels_last(weight), None if bias is None else to_array(bias)
        pads = list(zip(g.pads[: g.rank], g.pads[g.rank :], strict=True))
        if g.output_padding is None:
            return vkconv.prepare(
                w, b, stride=g.stride, pads=pads, padding_mode=_PADDING_MODES[g.padding_mode],
                kernel_dilation=g.dilation, groups=g.groups, activation=activation, device="cpu",
            )  # fmt: skip
        return vkconv.prepare_transpose(
            _ops.transposed_weight(w, g.groups), b, stride=g.stride, pads=pads, dilation=g.dilation,
            output_padding=g.output_padding, groups=g.groups, activation=activation, device="cpu",
        )  # fmt: skip

    def fits(self, *operands: Tensor) -> bool:
        """Whether these, which are no batches yet, can be."""
        return all(has_strides(x) and x.dim() == self.geometry.rank + 2 for x in operands)

    def as_batch(self, operand: Tensor) -> Tensor:
        return operand

    def of_batch(self, result: Tensor, input: Tensor) -> Tensor:
        """The result in the form that goes with `input`."""
        return result

    def forward(self, input: Tensor, addend: Tensor | None = None) -> Tensor:
        operands = (input,) if addend is None else (input, addend)  # of which the latter may be a number
        if not all(isinstance(x, Tensor) and has_strides(x) for x in operands) or self._needs_operators(*operands):
            return self._by_operators(input, addend)
        if not torch.is_autocast_enabled("cpu"):
            return self._summed(input, addend)
        # The packed weights keep their dtype; the result has that of PyTorch's.
        own = self.layer.weight.dtype
        dtype = own if own == torch.float64 else torch.get_autocast_dtype("cpu")  # which leaves the former as they are
        if self.scale is not None:
            dtype = torch.promote_types(dtype, self.scale().dtype)
        if addend is not None:
            dtype = self._dtype_of_sum(dtype, addend.dtype)
            addend = addend.to(torch.promote_types(own, torch.float32)) if own != torch.float64 else addend
        return self._summed(input.to(own), addend).to(dtype)

    def _dtype_of_sum(self, result: torch.dtype, addend: torch.dtype) -> torch.dtype:
        return {"result": result, "addend": addend}.get(str(self.into), torch.promote_types(result, addend))

    def _added(self, y: Any, addend: Any) -> Any:
        if self.into is None:
            return y + addend
        total, other = (y, addend) if self.into == "result" else (addend, y)
        total += other
        return total

    def _needs_operators(self, *operands: Tensor) -> bool:
        if self.is_computed() or stored() or follows_pytorchs_alone():
            return True
        return followed() and (differentiated(*operands, *(sources := tensors_in(self.stores()))) or batched(*sources))

    def _by_operators(self, input: Tensor, addend: Tensor | None) -> Tensor:
        y = self._normed(convolve(self.layer, input, self.layer.weight, self.layer.bias))
        return activate(y if addend is None else self._added(y, addend), self.activation)

    def _normed(self, y: Tensor) -> Tensor:
        n = self.norm  # of a subclass, which may do more than a batch norm does
        if n is None:
            return y
        n._check_input_dim(y)
        of_batch = n.running_mean is None and n.running_var is None
        return F.batch_norm(y, n.running_mean, n.running_var, n.weight, n.bias, of_batch, eps=n.eps)

    def _summed(self, input: Tensor, addend: Tensor | None) -> Tensor:
        """An addend in the pass has the dtype of the sums and that of the result, which in halves are two."""
        if addend is None or addend.dtype == input.dtype == torch.promote_types(input.dtype, torch.float32):
            return self._by_packed(input, addend)
        return activate(self._added(self.alone(input), addend), self.activation)

    def _by_packed(self, input: Tensor, addend: Tensor | None) -> Tensor:
        axes, weight = input.dim() - self.geometry.rank, self.source()
        if input.dtype != weight.dtype or axes not in (1, 2) or not self.geometry.can_pad(input.shape[axes:]):
            return self._by_operators(input, addend)
        if axes == 1 and self.norm is not None:  # which takes the channels for a batch, or refuses them
            return self._by_operators(input, addend)
        if axes == 1:
            return self._by_packed(input.unsqueeze(0), None if addend is None else addend.unsqueeze(0)).squeeze(0)
        try:
            y = self._of_batch(input, addend)
        except (TypeError, ValueError):
            return self._by_operators(input, addend)  # which raises what PyTorch raises, or is an empty tensor
        keeps = self.any_format or is_channels_last(input) or is_channels_last(weight)
        return y if keeps and not batched(y) else contiguous(y)  # of a `vmap`, some of PyTorch's layers take no other

    def _of_batch(self, input: Tensor, addend: Tensor | None) -> Tensor:
        if addend is None:
            return prepared_conv(input, self.handle) if noticed(input) else self.convolved(input)
        batch, spatial, channels = self.output_shape(input)
        if addend.shape != (batch, channels, *spatial):
            return activate(self._added(self.alone(input), addend), self.activation)
        return prepared_conv_add(input, addend, self.handle) if noticed(input) else self.convolved(input, addend)

    def convolved(self, input: Tensor, addend: Tensor | None = None) -> Tensor:
        """Of a batch whose channels lie side by side, and an addend of the result's shape in the dtype of the sums."""
        terms = {} if addend is None else {"addend": channels_last(addend)}
        return channels_first(self.packed()(channels_last(input), **terms))


class PreparedTransposed(Prepared):
    """A transposed convolution; `output_size` as in `nn.ConvTranspose2d`."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return super().forward(input) if output_size is None else self._by_operators(input, None, output_size)

    def _by_operators(self, input: Tensor, addend: Tensor | None, output_size: list[int] | None = None) -> Tensor:
        y = convolve_transposed(self.layer, input, output_size)
        return activate(self._normed(y), self.activation)


class PreparedInherited(Prepared):
    """What the forward of a subclass reaches when it calls that of `nn.Conv2d`, in the place of `_conv_forward`."""

    def forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[override]
        if tracing():  # where weights that are computed find layers of their own
            return type(self.layer)._conv_forward(self.layer, input, weight, bias)
        own = weight is self.layer.weight and bias is self.layer.bias and Geometry.of(self.layer) == self.geometry
        return super().forward(input) if own else convolve(self.layer, input, weight, bias)


class PreparedLinear(Prepared):
    """A linear layer as a convolution whose kernel has one tap."""

    def is_plain(self) -> bool:
        """Whether it computes nothing else: PyTorch's own is as fast, and its call takes less time."""
        return self.activation is None and self.scale is None

    def fits(self, *operands: Tensor) -> bool:
        rows = operands[0].shape[:-1]
        return all(has_strides(x) and x.dim() > 0 and x.shape[:-1] == rows for x in operands)

    def as_batch(self, operand: Tensor) -> Tensor:
        return _as_line(operand)

    def of_batch(self, result: Tensor, input: Tensor) -> Tensor:
        return result.transpose(1, 2).reshape(*input.shape[:-1], result.shape[1])

    def _by_operators(self, input: Tensor, addend: Tensor | None) -> Tensor:
        y = F.linear(input, self.layer.weight, self.layer.bias)
        y = y if self.scale is None else y * self.scale().flatten()
        return activate(y if addend is None else self._added(y, addend), self.activation)

    def _by_packed(self, input: Tensor, addend: Tensor | None) -> Tensor:
        weight = self.layer._parameters["weight"]
        outputs, inputs = weight.shape
        if input.dtype != weight.dtype or input.dim() == 0 or input.shape[-1] != inputs:
            return self._by_operators(input, addend)
        if self.scale is not None and not _keeps_dtype(input, self.scale()):
            return self._by_operators(input, addend)
        shape = (*input.shape[:-1], outputs)
        if addend is not None and addend.shape != shape and self.into != "addend":
            addend = addend.expand(torch.broadcast_shapes(addend.shape, shape))
        if addend is not None and addend.shape != shape:
            return self._by_operators(input, addend)
        terms = None if addend is None else _as_line(addend)
        return self.of_batch(self._of_batch(_as_line(input), terms), input)


def _keeps_dtype(input: Tensor, other: Tensor) -> bool:
    """Whether what PyTorch computes of both has the dtype of `input`, as the result of packed weights has."""
    return torch.promote_types(input.dtype, other.dtype) == input.dtype


def _as_line(x: Tensor) -> Tensor:
    """(..., C) as (1, C, rows), or (0, C, 1) when there are no rows."""
    rows = math.prod(x.shape[:-1])
    return x.reshape(min(rows, 1), max(rows, 1), x.shape[-1]).transpose(1, 2)


def prepare(
    module: Any,
    norm: Any = None,
    activation: Activation | None = None,
    any_format: bool = False,
    scale: Any = None,
    into: str | None = None,
) -> Prepared:
    """A convolution or a linear layer with what follows it."""
    kind = Prepared
    if isinstance(module, nn.Linear):
        kind = PreparedLinear
    elif isinstance(module, TRANSPOSED):
        kind = PreparedTransposed
    return kind(module, norm, activation, any_format, scale, into)
