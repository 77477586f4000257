"""Correlation of signals with one channel, as filters of images have them."""

from __future__ import annotations

import numpy as np

from vkconv._ops import conv_general
from vkconv._types import Array

# Outputs side by side along the last axis that become the channels of one: what fills a tile of the matrix product.
_BLOCK = {4: 32, 8: 16}


def correlate_valid(signal: Array, kernel: Array) -> Array:
    """(N, spatial...) with (kernel...), where the kernel fits: float32 or float64.

    With one channel there is nothing to share between outputs. B neighbouring outputs see B + K - 1 inputs; with the
    kernel shifted by 0 .. B - 1 as B output channels and a stride of B, they become one dense product of a matrix with
    B rows, which is fast although it multiplies zeros. Those zeros must not meet infinities.
    """
    block, reach = _BLOCK[signal.itemsize], kernel.shape[-1]
    outputs = signal.shape[-1] - reach + 1
    if outputs < 2 * block or not np.isfinite(signal).all():
        return _direct(signal, kernel)
    shifted = np.zeros((block, *kernel.shape[:-1], block + reach - 1, 1), kernel.dtype)
    for i in range(block):
        shifted[i, ..., i : i + reach, 0] = kernel
    whole = outputs // block * block
    stride = (1,) * (kernel.ndim - 1) + (block,)
    made = conv_general(signal[..., : whole + reach - 1, None], shifted, stride, precision="highest", device="cpu")
    made = made.reshape(*made.shape[:-2], whole)
    if whole == outputs:
        return made
    return np.concatenate([made, _direct(signal[..., whole:], kernel)], axis=-1)


def _direct(signal: Array, kernel: Array) -> Array:
    return conv_general(signal[..., None], kernel[None, ..., None], precision="highest", device="cpu")[..., 0]
