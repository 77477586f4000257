"""`with vkconv.device(name):` in blocks, threads and tasks."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import vkconv

X, W = np.ones((1, 8, 9, 4), np.float32), np.ones((6, 3, 3, 4), np.float32)


@pytest.fixture(autouse=True)
def on_the_cpu():
    device = vkconv.default_device()
    vkconv.set_default_device("cpu")
    yield
    vkconv.set_default_device(device)


def used_device() -> str:
    return vkconv.explain(vkconv.conv2d, X, W).device


def test_with_device():
    names = [d.name for d in vkconv.devices() if not d.unusable]
    for name in names:
        with vkconv.device(name) as block:
            assert block.name == name and used_device() == name
            with vkconv.device("cpu"):
                assert used_device() == "cpu"
            assert used_device() == name
            assert vkconv.explain(vkconv.conv2d, X, W, device="cpu").device == "cpu"
        assert used_device() == "cpu"
    with pytest.raises(KeyError), vkconv.device(names[-1]):
        raise KeyError
    assert used_device() == "cpu"
    with pytest.raises(ValueError, match="device"), vkconv.device("gpu"):
        pass
    assert used_device() == "cpu"


def test_with_device_is_of_one_thread():
    name = [d.name for d in vkconv.devices() if not d.unusable][-1]
    seen: list[str] = []
    with vkconv.device(name):
        thread = threading.Thread(target=lambda: seen.append(used_device()))
        thread.start()
        thread.join()
        assert used_device() == name
    assert seen == ["cpu"]


def test_with_device_is_of_one_task():
    names = [d.name for d in vkconv.devices() if not d.unusable]

    async def uses(name: str, seconds: float) -> list[str]:
        seen = []
        with vkconv.device(name):
            for _ in range(2):
                await asyncio.sleep(seconds)
                seen.append(used_device())
        return seen

    async def both() -> list[list[str]]:
        return await asyncio.gather(uses(names[-1], 0.02), uses("cpu", 0.015))

    assert asyncio.run(both()) == [[names[-1]] * 2, ["cpu"] * 2]
    assert used_device() == "cpu"
