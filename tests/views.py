"""NumPy views of every kind, with the values of a given array, but for those that repeat some of them: `REPEATING`."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

import vkconv

Array = np.ndarray
Generator = np.random.Generator

mprotect = ctypes.CDLL(None, use_errno=True).mprotect
mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
NO_ACCESS, ALL_ACCESS = 0, mmap.PROT_READ | mmap.PROT_WRITE


def plain(a: Array, rng: Generator) -> Array:
    return a


def strided(a: Array, rng: Generator) -> Array:
    """Every second or third element of a larger array, along any axes, the channels included."""
    steps = rng.integers(1, 4, a.ndim)
    big = np.full([max(n, 1) * int(s) for n, s in zip(a.shape, steps, strict=True)], 77, a.dtype)
    view = big[tuple(slice(0, n * int(s), int(s)) for n, s in zip(a.shape, steps, strict=True))]
    view[...] = a
    return view


def cropped(a: Array, rng: Generator) -> Array:
    """A window of a larger array along all axes but the last, so that the channels stay contiguous."""
    before = [*map(int, rng.integers(0, 3, a.ndim - 1)), 0]
    big = np.full([n + 2 * b for n, b in zip(a.shape, before, strict=True)], 77, a.dtype)
    view = big[tuple(slice(b, b + n) for b, n in zip(before, a.shape, strict=True))]
    view[...] = a
    return view


def transposed(a: Array, rng: Generator) -> Array:
    order = rng.permutation(a.ndim)
    return np.ascontiguousarray(a.transpose(order)).transpose(np.argsort(order))


def reversed_axes(a: Array, rng: Generator) -> Array:
    chosen = tuple(slice(None, None, -1 if rng.random() < 0.5 else 1) for _ in range(a.ndim))
    return np.ascontiguousarray(a[chosen])[chosen]


def broadcast(a: Array, rng: Generator) -> Array:
    axis = int(rng.integers(a.ndim))
    return np.broadcast_to(a.take([0], axis), a.shape) if a.shape[axis] else a


def overlapping(a: Array, rng: Generator) -> Array:
    """Steps of so few elements that many share memory."""
    if not a.size:
        return a
    steps = rng.integers(0, 4, a.ndim)
    memory = np.resize(a, 1 + int(steps @ (np.array(a.shape) - 1)))
    return as_strided(memory, a.shape, tuple(int(s) * a.itemsize for s in steps), writeable=False)


def read_only(a: Array, rng: Generator) -> Array:
    b = a.copy()
    b.flags.writeable = False
    return b


def unaligned(a: Array, rng: Generator) -> Array:
    raw = np.empty(a.nbytes + 1, np.uint8)[1:]
    b = raw.view(a.dtype).reshape(a.shape) if a.size else a.copy()
    b[...] = a
    return b


def big_endian(a: Array, rng: Generator) -> Array:
    return a.astype(a.dtype.newbyteorder(">")) if a.dtype.kind == "f" else a


def records(a: Array, rng: Generator) -> Array:
    """A field of records, in steps that are no multiple of its size."""
    b = np.zeros(a.shape, np.dtype([("flag", np.uint8), ("value", a.dtype)]))["value"]
    b[...] = a
    return b


class Fenced(mmap.mmap):
    """Memory between two pages that nothing may touch: one byte read or written beyond it ends the process."""

    def __new__(cls, nbytes: int) -> Fenced:
        pages = -(-nbytes // mmap.PAGESIZE)
        self = super().__new__(cls, -1, (pages + 2) * mmap.PAGESIZE)
        self.first, self.last = mmap.PAGESIZE, (pages + 1) * mmap.PAGESIZE
        self.protect(NO_ACCESS)
        return self

    def protect(self, access: int) -> None:
        start = ctypes.addressof(ctypes.c_char.from_buffer(self))
        for fence in (0, self.last):
            if mprotect(start + fence, mmap.PAGESIZE, access):
                raise OSError(ctypes.get_errno(), "mprotect")


def fenced(a: Array, rng: Generator) -> Array:
    """The array against the fence before it or behind it."""
    memory = Fenced(a.nbytes)
    offset = memory.first if rng.random() < 0.3 else memory.last - a.nbytes
    b = np.frombuffer(memory, a.dtype, a.size, offset).reshape(a.shape)
    b[...] = a
    return b


VIEWS: dict[str, Callable[[Array, Generator], Array]] = {
    "plain": plain,
    "strided": strided,
    "cropped": cropped,
    "transposed": transposed,
    "reversed": reversed_axes,
    "broadcast": broadcast,
    "overlapping": overlapping,
    "read_only": read_only,
    "unaligned": unaligned,
    "big_endian": big_endian,
    "fenced": fenced,
    "records": records,
}


REPEATING = {"broadcast", "overlapping"}


class Surrounded:
    """A copy of an array on a device: a view, in steps forwards or backwards, of a larger one that is 77 elsewhere."""

    def __init__(self, a: Array, device: str, rng: Generator) -> None:
        steps = [*map(int, rng.choice((1, 1, 2, -1, -2), a.ndim - 1)), 1]  # channels are contiguous
        margins = [*map(int, rng.integers(0, 3, a.ndim))]
        shape = [abs(s) * n + 2 * m for n, s, m in zip(a.shape, steps, margins, strict=True)]
        inner = tuple(slice(m, length - m) for m, length in zip(margins, shape, strict=True))
        self._keys = inner, tuple(slice(None, None, s) for s in steps)
        self._around = np.full(shape, 77, a.dtype)
        self._of(self._around)[...] = a
        self._whole = vkconv.array(self._around, device)
        self.view = self._of(self._whole)

    def _of(self, whole: Any) -> Any:
        inner, steps = self._keys
        return whole[inner][steps]

    def intact(self) -> bool:
        """Whether nothing outside of the view was written."""
        after = self._whole.numpy()
        self._of(after)[...] = 0
        self._of(self._around)[...] = 0
        return bool((after == self._around).all())


DESTINATIONS = (plain, strided, cropped, transposed, reversed_axes, unaligned)


def destination(shape: tuple[int, ...], dtype: np.dtype[Any], rng: Generator) -> Array:
    """An array to be written, a view of any kind into a larger one that is all 77 with it."""
    make = DESTINATIONS[rng.integers(len(DESTINATIONS))]
    view = make(np.full(shape, 77, dtype), rng)
    return guarded(view) if make is plain else view


def guarded(a: Array, margin: int = 64) -> Array:
    """A copy with `margin` elements of 77 before and behind it in the same memory."""
    memory = np.full(a.size + 2 * margin, 77, a.dtype)
    return memory[margin : margin + a.size].reshape(a.shape)


def surroundings_intact(a: Array) -> bool:
    """Whether nothing outside of the view was written. Leaves the view itself full of 77."""
    a[...] = 77
    owner = a
    while isinstance(owner.base, np.ndarray) and owner.base.dtype == a.dtype:
        owner = owner.base
    return bool((owner == np.array(77, a.dtype)).all())
