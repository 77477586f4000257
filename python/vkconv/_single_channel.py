"""Images and signals of one channel as convolutions of one input and one output channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from vkconv import _borders
from vkconv._ops import conv_general
from vkconv._types import Array, PaddingMode, PlainPads

_MOST_AXES = 3


def call(signal: Array, kernel: Array, pads: PlainPads, mode: PaddingMode = "zeros") -> dict[str, Any]:
    """The arguments of `conv_general` that correlate (N, spatial...) with (kernel...), float32 or float64."""
    return {
        "input": signal[..., None],
        "weight": kernel[None, ..., None],
        "pads": pads,
        "padding_mode": mode,
        "precision": "highest",
        "device": "cpu",
    }


def correlate(signal: Array, kernel: Array, pads: PlainPads, mode: PaddingMode = "zeros") -> Array:
    """The result (N, spatial...), with `pads` around the signal (or cut off).

    Of more than three axes, the first is summed here: its taps correlate slices of the signal. Without an axis there is
    nothing to sum.
    """
    if kernel.ndim == 0:
        return signal * kernel
    if kernel.ndim <= _MOST_AXES:
        made: Array = conv_general(**call(signal, kernel, pads, mode))
        return made[..., 0]
    border, kept = _borders.split(pads[:1])
    around = _borders.bordered(signal, border, mode)[kept]
    outputs = around.shape[1] - len(kernel) + 1
    total: Any = 0
    for i, taps in enumerate(kernel):
        slices = around[:, i : i + outputs]
        total = total + correlate(slices.reshape(-1, *slices.shape[2:]), taps, pads[1:], mode)
    return np.reshape(total, (len(signal), outputs, *total.shape[1:]))
