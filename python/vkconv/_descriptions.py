"""Devices as data: plans for a GPU that this machine lacks.

A description holds the features, limits and measured rates of a Vulkan device as JSON. `vkconv.explain` takes one as
``device`` and answers as that device would.
"""

from __future__ import annotations

from vkconv import _core
from vkconv._core import DeviceDescription


def described_devices() -> list[str]:
    """Names of the descriptions that come with the package.

    Examples
    --------
    >>> vkconv.described_devices()
    ['h100', 'h200', 'integrated', 'lavapipe']
    """
    return _core.described_devices()


def describe_device(name: str) -> DeviceDescription:
    """Describe a device: one of `described_devices`, or a Vulkan device of this machine ('vulkan:0').

    ``.json`` is its text, to be changed and given to `DeviceDescription`, or to be kept for a machine without it.

    Examples
    --------
    >>> h200 = vkconv.describe_device('h200')
    >>> h200
    <vkconv.DeviceDescription NVIDIA H200>
    >>> vkconv.explain('fwd_f32_n1c64o64_i56x56_k3x3_p1x1', device=h200).device
    'described: NVIDIA H200'
    """
    return _core.describe_device(name)
