"""Whether the tensors that something was made of are what they were."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from vkconv._types import Array
from vkconv.torch._arrays import to_array

_SAMPLES = 16


class Sources:
    """Tensors as they are now.

    PyTorch counts writes, but not those through `.data`, an array of NumPy or another process, nor any to tensors of
    inference mode. Such a write of a whole tensor shows in some of its numbers.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._aliases = [t.detach() for t in tensors]  # keep their memory, so that no other tensor has its address
        self._samples = [_sample(t) for t in self._aliases]
        self._state, self._numbers = _state(tensors), self._read()

    def _read(self) -> list[bytes]:
        return [s.tobytes() for s in self._samples]

    def changed(self, tensors: Sequence[Tensor]) -> bool:
        return self._state != _state(tensors) or self._numbers != self._read()


def _state(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors]


def _sample(tensor: Tensor) -> Array:
    """Up to sixteen numbers where they lie. The distance between them is seldom a multiple of a kernel's taps, of which
    a mask may leave some zero."""
    numbers = to_array(tensor).ravel(order="K")
    return numbers[:: numbers.size // _SAMPLES + 1]
