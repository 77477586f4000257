"""python -m vkconv info"""

from __future__ import annotations

from typing import Any

import vkconv
from vkconv._cli import render


def facts() -> dict[str, Any]:
    """Everything `info` tells, as JSON would have it."""
    return {
        "version": vkconv.version,
        "build": vkconv.build_info(),
        "threads": vkconv.num_threads(),
        "default_device": vkconv.default_device(),
        "devices": [device._asdict() for device in vkconv.devices()],
        "no_vulkan_reason": vkconv.no_vulkan_reason(),
        "algorithms": vkconv.algorithms("cpu"),
    }


def info(as_json: bool) -> int:
    """Prints the facts."""
    told = facts()
    if as_json:
        print(render.as_json(told))
        return 0
    build = ", ".join(f"{key} {value}" for key, value in told["build"].items() if key != "version")
    print(f"vkconv {told['version']}  ({build})")
    print(f"threads         {told['threads']}")
    print(f"default device  {told['default_device']}")
    print(f"algorithms      {', '.join(told['algorithms'])}")
    for device in told["devices"]:
        print(f"\n{device['name']}: {device['description']} ({device['kind']})")
        if device["unusable"]:
            print(f"  unusable: {device['unusable']}")
        width = max((len(key) for key in device["properties"]), default=0)
        for key, value in device["properties"].items():
            print(f"  {key:<{width}}  {value}")
    if told["no_vulkan_reason"]:
        print(f"\nno Vulkan device: {told['no_vulkan_reason']}")
    return 0
