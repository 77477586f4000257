"""Correlation of signals with one channel, as filters of images have them."""

from __future__ import annotations

from typing import Any

import numpy as np

from vkconv._ops import conv_general
from vkconv._types import Array, PlainPads

# Outputs side by side along the last axis that become the channels of one: what fills a tile of the matrix product.
_BLOCK = {4: 32, 8: 16}


def correlate(signal: Array, kernel: Array, pads: PlainPads) -> Array:
    """(N, spatial...) with (kernel...), float32 or float64, with `pads` zeros around the signal (or cut off)."""
    call, whole = blocks(signal, kernel, pads)
    if whole == 0 or not np.isfinite(signal).all():
        return _direct(signal, kernel, pads)
    made: Array = conv_general(**call)
    made = made.reshape(*made.shape[:-2], whole)
    lo, hi = pads[-1]
    if whole == signal.shape[-1] + lo + hi - kernel.shape[-1] + 1:
        return made
    return np.concatenate([made, _direct(signal, kernel, [*pads[:-1], (lo - whole, hi)])], axis=-1)


def blocks(signal: Array, kernel: Array, pads: PlainPads) -> tuple[dict[str, Any], int]:
    """A call of `conv_general` and how many outputs along the last axis it computes; 0 when they are too few.

    With one channel there is nothing to share between outputs. B neighbouring outputs see B + K - 1 inputs; with the
    kernel shifted by 0 .. B - 1 as B output channels and a stride of B, they become one dense product of a matrix with
    B rows, which is fast although it multiplies zeros. Those zeros must not meet infinities.
    """
    block, reach, (lo, hi) = _BLOCK[signal.itemsize], kernel.shape[-1], pads[-1]
    outputs = signal.shape[-1] + lo + hi - reach + 1
    if outputs < 2 * block:
        return {}, 0
    shifted = np.zeros((block, *kernel.shape[:-1], block + reach - 1, 1), kernel.dtype)
    for i in range(block):
        shifted[i, ..., i : i + reach, 0] = kernel
    whole = outputs // block * block
    last = (lo, hi - (outputs - whole))
    return {
        "input": signal[..., None],
        "weight": shifted,
        "stride": (1,) * (kernel.ndim - 1) + (block,),
        "pads": [*pads[:-1], last],
        "precision": "highest",
        "device": "cpu",
    }, whole


def _direct(signal: Array, kernel: Array, pads: PlainPads) -> Array:
    made = conv_general(signal[..., None], kernel[None, ..., None], pads=pads, precision="highest", device="cpu")
    return made[..., 0]
