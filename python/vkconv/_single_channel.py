"""Correlation of signals with one channel, as filters of images have them."""

from __future__ import annotations

from typing import Any

from vkconv._ops import conv_general
from vkconv._types import Array, PlainPads


def call(signal: Array, kernel: Array, pads: PlainPads) -> dict[str, Any]:
    """The arguments of `conv_general` that correlate (N, spatial...) with (kernel...), float32 or float64."""
    return {
        "input": signal[..., None],
        "weight": kernel[None, ..., None],
        "pads": pads,
        "precision": "highest",
        "device": "cpu",
    }


def correlate(signal: Array, kernel: Array, pads: PlainPads) -> Array:
    """The result (N, spatial...), with `pads` zeros around the signal (or cut off)."""
    made: Array = conv_general(**call(signal, kernel, pads))
    return made[..., 0]
