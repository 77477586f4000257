"""Devices, the `full` marker, and the Vulkan validation layer: any message it has fails the test that caused it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LAYER_FOLDERS = ("/usr/share/vulkan", "/usr/local/share/vulkan", "/etc/vulkan", os.environ.get("VK_LAYER_PATH", ""))
LAYER = "VkLayer_khronos_validation.json"


def validation_layer_installed() -> bool:
    """Asking for a layer that is missing would leave no Vulkan device at all."""
    return any(next(Path(folder).rglob(LAYER), None) for folder in LAYER_FOLDERS if folder)


if validation_layer_installed():
    # Read when the Vulkan loader is opened, which is at the earliest when the first test is collected.
    os.environ.setdefault("VKCONV_VALIDATION", "1")


def pytest_report_header() -> str:
    on = os.environ.get("VKCONV_VALIDATION", "0")
    return "Vulkan validation layer: " + ("on" if on != "0" else "not installed (Debian: vulkan-validationlayers)")


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--full", action="store_true", help="also run the tests marked full")


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "full: long or large; runs with --full only")
    if config.getoption("--full"):  # for helpers that have no fixture
        os.environ["VKCONV_FULL"] = "1"


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    if not config.getoption("--full"):
        for item in items:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.skip(reason="needs --full"))


def device_names() -> list[str]:
    """The CPU, and the first Vulkan device: lavapipe where there is no other."""
    import vkconv

    names = [d.name for d in vkconv.devices()]
    return ["cpu", *[n for n in names if n.startswith("vulkan")][:1]]


def pytest_generate_tests(metafunc: Any) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", device_names(), scope="session")


@pytest.fixture(autouse=True)
def no_validation_messages() -> Iterator[None]:
    yield
    if "vkconv" in sys.modules:
        messages = sys.modules["vkconv"]._core.take_validation_messages()
        assert not messages, "validation layer:\n" + "\n".join(messages)


@pytest.fixture
def clean_cache() -> Iterator[None]:
    """An empty plan cache of the usual capacity, before and after."""
    import vkconv

    capacity = vkconv.plan_cache_info().capacity
    vkconv.plan_cache_clear()
    yield
    vkconv.set_plan_cache_capacity(capacity)
    vkconv.plan_cache_clear()
