"""A short share of tests/soak.py, each in a process of its own; `./run soak` is the whole."""

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).with_name("soak.py")
SHARES = {"cpu": (12_000, 200, 1_000), "vulkan": (300, 30, 0)}  # calls, shapes, distinct shapes
FULL = {"cpu": (200_000, 2_000, 10_000), "vulkan": (3_000, 100, 0)}


def soak(device: str, calls: int, shapes: int, distinct: int) -> None:
    counts = ["--calls", str(calls), "--shapes", str(shapes), "--distinct", str(distinct)]
    command = [sys.executable, str(SOAK), "--device", device, *counts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_grows(device):
    soak(device, *SHARES[device.split(":")[0]])


@pytest.mark.full
def test_nothing_grows_for_long(device):
    soak(device, *FULL[device.split(":")[0]])
