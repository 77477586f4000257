"""Arrays that stay on a device between operations.

Every operation takes `Array` where it takes a NumPy array. The first operand decides where it runs: beside an Array as
``input`` (``grad`` in gradients), the other operands are Arrays of the same device or NumPy arrays, which are uploaded
with each call, and the result, or ``out``, is an Array of that device; beside a NumPy array all are NumPy arrays.

On a Vulkan device nothing waits: work is recorded in the order of the calls, submitted in batches, and done when
`Array.numpy` or `synchronize` returns. A NumPy operand may change as soon as the call returns. What goes wrong on the
device is raised by the next call that waits. On the CPU an Array is NumPy's memory, so that code is the same for both.
`unfold`, `fold` and the causal streams are for NumPy arrays.
"""

from __future__ import annotations

from vkconv import _core
from vkconv._core import Array
from vkconv._types import AnyArray


def array(x: AnyArray, device: str | None = None) -> Array:
    """Copy an array to a device.

    Parameters
    ----------
    x : ndarray or Array
        Of one to five dimensions and any strides, of a dtype that the operations take. An Array of another device is
        moved.
    device : str, optional
        'cpu', 'vulkan', 'vulkan:0', ...; the default is the device a call would use.

    Returns
    -------
    Array
        With ``shape``, ``dtype``, ``ndim``, ``size``, ``nbytes`` and ``device``; ``.numpy()`` copies it back.
        ``a[1:3, ::2]`` is a view of the same memory: slices, and integers but for the last axis, whose slices have
        step 1. ``numpy.from_dlpack`` and its like share the memory where the host can see it.

    Examples
    --------
    >>> x = vkconv.array(np.ones((2, 8, 8, 3), np.float32), device='cpu')
    >>> y = vkconv.conv2d(x, np.ones((4, 3, 3, 3), np.float32))
    >>> y
    <vkconv.Array float32 (2, 6, 6, 4) on cpu>
    >>> float(y[1:].numpy().max())
    27.0
    """
    return _core.array(x, device)


def synchronize(device: str | None = None) -> None:
    """Wait for the work on the Arrays of a device, of every device in use if None, and raise what went wrong in it."""
    _core.synchronize(device)
