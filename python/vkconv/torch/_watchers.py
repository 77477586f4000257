"""Who follows a call: derivatives, transformations, compilers and exporters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx import _symbolic_trace
from torch.nn import Parameter

_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # the former since PyTorch 2.7

# Whether torch.fx traces; the latter in older releases.
tracing = getattr(_symbolic_trace, "is_fx_symbolic_tracing", _symbolic_trace.is_fx_tracing)


def stored() -> bool:
    """Whether calls become a program, which knows nothing of what is packed in this process."""
    return torch.jit.is_tracing() or _exporting()


def follows_pytorchs_alone() -> bool:
    """Whether something follows that has rules for PyTorch's own operators alone: `torch.func.functionalize`, or
    transformations and forward mode in a compiler, which takes the results of other operators for constants there."""
    transformed = torch._C._are_functorch_transforms_active()
    if torch.compiler.is_compiling():
        return transformed or forward_ad._current_level >= 0
    functorch = torch._C._functorch
    return transformed and any(
        t.key() == functorch.TransformType.Functionalize for t in functorch.get_interpreter_stack() or ()
    )


def followed() -> bool:
    """Whether anything follows derivatives, or maps, at all."""
    if torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        return True
    return not torch.compiler.is_compiling() and forward_ad._current_level >= 0


def differentiated(*tensors: Tensor | None) -> bool:
    """Whether something follows derivatives with respect to one of these, in either mode."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        return True
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return False
    return any(t is not None and forward_ad.unpack_dual(t).tangent is not None for t in tensors)


def batched(*tensors: Tensor) -> bool:
    """Whether a `torch.vmap` maps over one of these."""
    return torch._C._are_functorch_transforms_active() and any(map(torch._C._functorch.is_batchedtensor, tensors))


def noticed(tensor: Tensor) -> bool:
    """Whether something follows the operators of a call with this tensor: a compiler, a mode, a transformation, or the
    tensor itself. Where nothing does, PyTorch's dispatcher is spared, which takes longer than a small convolution."""
    return (
        torch.compiler.is_compiling()
        or type(tensor) not in (Tensor, Parameter)
        or not tensor.is_cpu
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.is_legacy_batchedtensor(tensor)  # of autograd.grad(is_grads_batched=True)
    )
