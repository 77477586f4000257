"""Types of the public arguments."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Literal, TypeAlias, TypeVar

import numpy.typing as npt

from vkconv import _core

Array = npt.NDArray[Any]
AnyArray: TypeAlias = Array | _core.Array
ArrayT = TypeVar("ArrayT", Array, _core.Array)  # of the operand that decides where an operation runs, and of its result
Index: TypeAlias = int | slice | EllipsisType
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
