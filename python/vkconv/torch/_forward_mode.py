"""Forward-mode derivatives of the operators, which `torch.library` has no place for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

Operator = Callable[..., Tensor]


def with_tangents(op: Operator, first: Tensor, second: Tensor, *rest: Any) -> Tensor:
    """op(first, second, *rest) and, inside `forward_ad.dual_level` or `torch.func.jvp`, its directional derivative.

    `op` is bilinear in its first two arguments; a tensor after them is a bias, added to every channel.
    """
    if torch.compiler.is_compiling():
        return op(first, second, *rest)
    bias = rest[0] if rest and isinstance(rest[0], Tensor) else None
    (x, dx), (w, dw) = forward_ad.unpack_dual(first), forward_ad.unpack_dual(second)
    b, db = (None, None) if bias is None else forward_ad.unpack_dual(bias)
    dual = dx is not None or dw is not None or db is not None
    # An operator that saves its arguments for a reverse pass has no forward mode: PyTorch says so.
    if not dual or (torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, w, b))):
        return op(first, second, *rest)
    plain = rest if bias is None else (None, *rest[1:])
    y = op(x, w, *(rest if bias is None else (b, *rest[1:])))
    tangent = torch.zeros_like(y)
    if dx is not None:
        tangent = tangent + with_tangents(op, dx, w, *plain)
    if dw is not None:
        tangent = tangent + with_tangents(op, x, dw, *plain)
    if db is not None:
        tangent = tangent + db.view(-1, *[1] * (y.dim() - 2))
    return forward_ad.make_dual(y, tangent)
