"""Whether the tensors that something was made of are what they were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from vkconv._types import Array
from vkconv.torch._arrays import to_array

_SAMPLES = 16


class Store(Protocol):
    """What holds tensors, as the dictionaries of modules do."""

    def values(self) -> Iterable[Any]: ...


Stores = Iterable[Store]


def tensors_in(stores: Stores) -> list[Tensor]:
    """Those that these hold now."""
    return [t for store in stores for t in store.values() if t is not None]


class Sources:
    """Tensors as they are now.

    PyTorch counts writes, but not those through `.data`, an array of NumPy or another process, nor any to tensors of
    inference mode. Such a write of a whole tensor shows in some of its numbers.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._aliases = [t.detach() for t in tensors]  # keep their memory, so that no other tensor has its address
        self._samples: dict[int, list[Array]] = {}
        for alias in self._aliases:
            self._samples.setdefault(alias.element_size(), []).append(_sample(alias))
        self._inference = any(map(Tensor.is_inference, tensors))
        self._state, self._numbers = self._now(tensors), self._read()

    def _now(self, tensors: Sequence[Tensor]) -> tuple[list[int], list[int]]:
        counted = [t for t in tensors if not t.is_inference()] if self._inference else tensors
        return list(map(Tensor.data_ptr, tensors)), list(map(_version, counted))

    def _read(self) -> list[bytes]:
        return [np.concatenate(samples).tobytes() for samples in self._samples.values()]

    def changed(self, tensors: Sequence[Tensor]) -> bool:
        return self._state != self._now(tensors) or self._numbers != self._read()


_version = attrgetter("_version")


def _sample(tensor: Tensor) -> Array:
    """Up to sixteen numbers where they lie, as integers. The distance between them is seldom a multiple of a kernel's
    taps, of which a mask may leave some zero."""
    numbers = to_array(tensor).ravel(order="K")
    return numbers[:: numbers.size // _SAMPLES + 1].view(f"u{numbers.itemsize}")
