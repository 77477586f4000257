"""Derivatives of the operators of _ops.py, in both modes and of any order, and their rules under `torch.vmap`.

The operators are bilinear and closed under differentiation: the derivatives of each are the other two. `torch.library`
takes reverse-mode derivatives, which torch.compile traces. `torch.func` and forward mode need an `autograd.Function`,
which torch.compile does not take with all of its methods. Both take longer than a small convolution; where nothing but
reverse mode follows a call, an `autograd.Function` without those methods takes half of that. `call` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from vkconv.torch import _ops
from vkconv.torch._arrays import contiguous, is_channels_last, with_channels_beside
from vkconv.torch._watchers import differentiated, noticed, stored

Operator = Any  # one of _ops.py
Grads = tuple[Tensor | None, ...]


def call(op: Operator, first: Tensor, second: Tensor, *rest: Any, dense: bool = False) -> Tensor:
    """`op(first, second, *rest)` with derivatives, in PyTorch's contiguous format if `dense`. After two tensors comes
    the bias, which may be None, but in `conv_weight_grad`; the rest is geometry, `groups` last."""
    tensors = [t for t in (first, second, *rest[:1]) if isinstance(t, Tensor)]
    if torch.compiler.is_compiling():
        run = op
    elif torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        run = _functions[op].apply
    elif stored() or any(map(noticed, tensors)):
        run = op
    elif differentiated(*tensors):
        run, rest, dense = _eager[op].apply, (*rest, dense), False
    else:
        run = op._init_fn
    made: Tensor = run(first, second, *rest)
    return contiguous(made) if dense else made


def _bias_grad(grad: Tensor) -> Tensor:
    return grad.sum([0, *range(2, grad.dim())])


def _in_format_of(tensor: Tensor, grad: Tensor) -> Tensor:
    """The gradient with respect to `tensor`, where what follows in a backward pass reads both side by side, as PyTorch
    has it."""
    return grad if is_channels_last(tensor) else contiguous(grad)


def _conv_backward(ctx: Any, grad: Tensor | None) -> Grads:
    if grad is None:
        return (None,) * 7
    input, weight = ctx.saved_tensors
    geometry = ctx.rest[1:]
    of_input, of_weight, of_bias = ctx.needs_input_grad[:3]
    if of_input and of_weight:
        grad = with_channels_beside(grad)
    return (
        _in_format_of(input, call(_ops.conv_input_grad, grad, weight, None, input.shape[2:], *geometry))
        if of_input
        else None,
        call(_ops.conv_weight_grad, grad, input, weight.shape[2:], *geometry) if of_weight else None,
        _bias_grad(grad) if of_bias else None,
        *[None] * 4,
    )


def _input_grad_backward(ctx: Any, double: Tensor | None) -> Grads:
    if double is None:
        return (None,) * 8
    grad, weight = ctx.saved_tensors
    geometry = ctx.rest[2:]
    of_grad, of_weight, of_bias = ctx.needs_input_grad[:3]
    if of_grad and of_weight:
        double = with_channels_beside(double)
    return (
        _in_format_of(grad, call(_ops.conv, double, weight, None, *geometry)) if of_grad else None,
        call(_ops.conv_weight_grad, grad, double, weight.shape[2:], *geometry) if of_weight else None,
        _bias_grad(double) if of_bias else None,
        *[None] * 5,
    )


def _weight_grad_backward(ctx: Any, double: Tensor | None) -> Grads:
    if double is None:
        return (None,) * 7
    grad, input = ctx.saved_tensors
    geometry = ctx.rest[1:]
    of_grad, of_input = ctx.needs_input_grad[:2]
    return (
        call(_ops.conv, input, double, None, *geometry) if of_grad else None,
        call(_ops.conv_input_grad, grad, double, None, input.shape[2:], *geometry) if of_input else None,
        *[None] * 5,
    )


def _save(ctx: Any, inputs: Sequence[Any], output: Tensor) -> None:
    first, second, *ctx.rest = inputs
    if ctx.rest and isinstance(ctx.rest[0], Tensor):
        ctx.rest[0] = None  # of the bias nothing is needed
    ctx.save_for_backward(first, second)


def _function(op: Operator, backward: Callable[..., Grads], axes: tuple[int, int, int]) -> Any:
    """`op` as an `autograd.Function`. `axes` are those of the first two tensors and of the result along which groups
    lie, which is where `vmap` puts its batch: as groups, unless a larger batch will do."""
    has_bias = op is not _ops.conv_weight_grad

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _save(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:2])
        ctx.set_materialize_grads(False)
        ctx.shape = output.shape

    def jvp(ctx: Any, d_first: Tensor | None, d_second: Tensor | None, *d_rest: Any) -> Tensor:
        first, second = ctx.saved_tensors
        terms = [] if d_first is None else [call(op, d_first, second, *ctx.rest)]
        terms += [] if d_second is None else [call(op, first, d_second, *ctx.rest)]
        if has_bias and d_rest[0] is not None:
            terms += [d_rest[0].view(-1, *[1] * (len(ctx.shape) - 2)).expand(ctx.shape)]
        return sum(terms[1:], terms[0])

    def vmap(info: Any, in_dims: Any, first: Tensor, second: Tensor, *rest: Any) -> tuple[Tensor, int]:
        batch, (of_first, of_second, *others) = info.batch_size, in_dims
        bias, geometry = (rest[:1], rest[1:]) if has_bias else ((), rest)
        if has_bias and of_second is None and others[0] is None:
            first = first.movedim(of_first, 0)
            return call(op, first.flatten(0, 1), second, *rest).unflatten(0, first.shape[:2]), 0
        pair = (_merged(t, d, batch, a) for t, d, a in zip((first, second), in_dims[:2], axes[:2], strict=True))
        bias = tuple(b if b is None else _merged(b, others[0], batch, 0) for b in bias)
        y = call(op, *pair, *bias, *geometry[:-1], geometry[-1] * batch)
        return y.unflatten(axes[2], (batch, -1)), axes[2]

    methods = {"forward": op, "setup_context": setup_context, "backward": backward, "jvp": jvp, "vmap": vmap}
    return type(op._name, (torch.autograd.Function,), {name: staticmethod(f) for name, f in methods.items()})


def _eager_function(op: Operator, backward: Callable[..., Grads]) -> Any:
    """`op` as an `autograd.Function` for reverse mode alone, whose last argument is `dense` of `call`."""

    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *inputs, dense = arguments
        made = op._init_fn(*inputs)
        _save(ctx, inputs, made)
        ctx.set_materialize_grads(False)
        return contiguous(made) if dense else made

    methods = {"forward": forward, "backward": lambda ctx, grad: (*backward(ctx, grad), None)}
    return type(op._name, (torch.autograd.Function,), {name: staticmethod(f) for name, f in methods.items()})


def mapped(tensor: Tensor, dim: int | None, batch: int) -> Tensor:
    """`tensor` with the axis `dim` of a `vmap`, or as many repetitions, as the first."""
    return tensor.expand(batch, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _merged(tensor: Tensor, dim: int | None, batch: int, axis: int) -> Tensor:
    """The same as the outer part of `axis`."""
    return mapped(tensor, dim, batch).movedim(0, axis).flatten(axis, axis + 1)


_RULES: dict[Operator, tuple[Callable[..., Grads], tuple[int, int, int]]] = {
    _ops.conv: (_conv_backward, (1, 0, 1)),
    _ops.conv_input_grad: (_input_grad_backward, (1, 0, 1)),
    _ops.conv_weight_grad: (_weight_grad_backward, (1, 1, 0)),
}
_functions = {op: _function(op, *rules) for op, rules in _RULES.items()}
_eager = {op: _eager_function(op, backward) for op, (backward, _) in _RULES.items()}
for _op, (_backward, _) in _RULES.items():
    _op.register_autograd(_backward, setup_context=_save)
