"""Devices, plan caches, threads, memory and facts about the build."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple

from vkconv import _core
from vkconv._types import Precision


class Device(NamedTuple):
    """A device of this machine.

    ``kind`` is 'cpu', 'discrete', 'integrated', 'virtual', 'software' or 'other'; ``description`` names the processor
    or GPU; ``unusable`` says why the device cannot be used and is empty when it can; ``properties`` are features and
    limits, for people.
    """

    name: str
    kind: str
    description: str
    unusable: str
    properties: dict[str, str]


class PlanCacheInfo(NamedTuple):
    """Counters of a device's plan cache, as in `functools.lru_cache`."""

    hits: int
    misses: int
    size: int
    capacity: int


class MemoryInfo(NamedTuple):
    """Memory on a device, in bytes.

    ``used`` is in Arrays, results, workspaces and prepared weights; ``peak`` is the most it was; ``cached`` was freed
    and is kept for reuse; ``staging`` is host memory for transfers to and from the device; ``total`` is what this
    process may use.
    """

    used: int
    peak: int
    cached: int
    staging: int
    total: int


def devices() -> list[Device]:
    """List the devices: the CPU first, then the Vulkan devices, best first. The first call opens Vulkan.

    Examples
    --------
    >>> vkconv.devices()[0].name
    'cpu'
    """
    return [Device(*d) for d in _core.devices()]


def default_device() -> str:
    """Name of the device a call uses without ``device=`` and outside of `device`.

    VKCONV_DEVICE, else a discrete or integrated GPU if there is one, else 'cpu'.
    """
    return _core.default_device()


def set_default_device(name: str) -> None:
    """Use the device ``name`` ('cpu', 'vulkan', 'vulkan:0', ...) by default, in every thread."""
    _core.set_default_device(name)


class device:  # noqa: N801 - used like a function
    """Use a device in a ``with`` block, in this thread or task of asyncio. Blocks end in the opposite order.

    Examples
    --------
    >>> with vkconv.device('cpu'):
    ...     vkconv.conv1d(np.ones((1, 8, 1), np.float32), np.ones((1, 3, 1), np.float32)).shape
    (1, 6, 1)
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> device:
        _core.push_device(self.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _core.pop_device()


def default_precision() -> Precision:
    """The precision of calls without ``precision=``: VKCONV_PRECISION, else 'high'."""
    return _core.default_precision()


def set_default_precision(precision: Precision) -> None:
    """Compute with this precision ('highest', 'high' or 'fast', see `conv_general`) by default, in every thread.

    It reaches calls of the adapters for other libraries as well, compiled ones too; what was prepared before keeps its
    own.

    Examples
    --------
    >>> vkconv.set_default_precision('high')
    >>> vkconv.default_precision()
    'high'
    """
    _core.set_default_precision(precision)


def algorithms(device: str | None = None) -> list[str]:
    """Names of the algorithms of a device, as ``algorithm=`` takes them."""
    return _core.algorithms(device)


def plan_cache_info(device: str | None = None) -> PlanCacheInfo:
    """Counters of the plan cache of a device, the one a call would use if None."""
    return PlanCacheInfo(*_core.plan_cache_info(device))


def plan_cache_clear() -> None:
    """Forget the plans of all devices and zero the counters."""
    _core.plan_cache_clear()


def set_plan_cache_capacity(capacity: int) -> None:
    """Keep up to ``capacity`` plans a device (128 at first); 0 keeps none. The least recently used go first."""
    _core.set_plan_cache_capacity(capacity)


def set_num_threads(n: int) -> None:
    """Compute with ``n`` threads on the CPU. Results do not depend on it."""
    _core.set_num_threads(n)


def num_threads() -> int:
    """Number of CPU threads: VKCONV_NUM_THREADS, else the processors this process may use."""
    return _core.num_threads()


def memory_info(device: str | None = None) -> MemoryInfo:
    """Memory on a device, the one a call would use if None; ``peak`` counts from `reset_memory_peak`."""
    return MemoryInfo(*_core.memory_info(device))


def reset_memory_peak(device: str | None = None) -> None:
    """Start counting the peak of `memory_info` anew."""
    _core.reset_memory_peak(device)


def trim_memory(device: str | None = None) -> None:
    """Give a device's cached blocks back to the system."""
    _core.trim_memory(device)


def build_info() -> dict[str, str | bool]:
    """Version, compiler, build type and whether Vulkan is built in."""
    return _core.build_info()


def no_vulkan_reason() -> str:
    """Why `devices` lists no Vulkan device; empty when it lists one."""
    return _core.no_vulkan_reason()


version: str = str(_core.build_info()["version"])
