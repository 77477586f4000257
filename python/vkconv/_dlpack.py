"""Arrays of other libraries as NumPy arrays, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from vkconv._types import Array

_CPU = 1  # kDLCPU of dlpack.h
_BFLOAT = 4  # kDLBfloat


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h, with which DLManagedTensor begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Owner:
    """Keeps the exported memory alive: the capsule frees it when it goes."""

    def __init__(self, capsule: Any, interface: dict[str, Any]) -> None:
        self.capsule, self.__array_interface__ = capsule, interface


def from_dlpack(x: Any) -> Array:
    """View the memory of an array of any library that exports DLPack (PyTorch, JAX, MLX, ...) as a NumPy array.

    bfloat16 becomes that of ml_dtypes. Read-only memory stays read-only, and so does memory whose producer does not say
    that it may be written.

    Parameters
    ----------
    x : object with ``__dlpack__``
        In the CPU's memory.

    Returns
    -------
    ndarray
        Of the same memory, which it keeps alive.

    Raises
    ------
    BufferError
        The memory is not the CPU's, or NumPy has no such dtype.

    Examples
    --------
    >>> x = np.ones((1, 8, 3), np.float32)
    >>> vkconv.from_dlpack(x) is x
    True
    """
    if isinstance(x, np.ndarray):
        return x
    if not (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        raise TypeError(f"x must export DLPack, got {type(x).__name__}")
    kind = int(x.__dlpack_device__()[0])
    if kind != _CPU:
        raise BufferError(f"x is on a device of the DLPack kind {kind}, wanted the CPU's, {_CPU}")
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return _bfloat16(x.__dlpack__())


def _bfloat16(capsule: Any) -> Array:
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        address = pointer_of(capsule, b"dltensor")
    except ValueError:
        raise ValueError("x exports no DLPack capsule, or one that was taken before") from None
    tensor = _Tensor.from_address(address)
    if (tensor.code, tensor.bits, tensor.lanes) != (_BFLOAT, 16, 1):
        raise BufferError(f"x has elements of the DLPack type {tensor.code} with {tensor.bits} bits, which NumPy lacks")
    import ml_dtypes  # noqa: PLC0415 - only bfloat16 needs it

    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(2 * s for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
    interface = {"data": ((tensor.data or 0) + tensor.byte_offset, True), "shape": shape, "strides": strides}
    if 0 in shape:
        return np.empty(shape, ml_dtypes.bfloat16)
    numbers = np.asarray(_Owner(capsule, {**interface, "typestr": "<u2", "version": 3}))
    return numbers.view(ml_dtypes.bfloat16)
