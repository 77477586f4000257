"""Types of the public arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy.typing as npt

Array = npt.NDArray[Any]
Axes = int | Sequence[int]
Pads = Sequence[tuple[int, int]]
PaddingWord = Literal["valid", "same", "same_lower", "full", "causal"]
Padding = int | Sequence[int] | tuple[Sequence[int], Sequence[int]] | PaddingWord
NumericPadding = int | Sequence[int] | tuple[Sequence[int], Sequence[int]]
PlainPads = list[tuple[int, int]]
PaddingModeWord = Literal["zeros", "reflect", "symmetric", "edge", "circular", "constant"]
PaddingMode = PaddingModeWord | tuple[Literal["constant"], float]
Activation = str | tuple[str] | tuple[str, float] | tuple[str, float, float]
Precision = Literal["highest", "high", "fast"]
