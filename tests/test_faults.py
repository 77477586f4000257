"""Memory that runs out under a Python program. tests/cpp/test_*_faults.cpp fail every allocation one by one."""

import subprocess
import sys

import numpy as np
import pytest

import vkconv

SHORT_OF_MEMORY = """
import resource
import numpy as np, vkconv
x, w = np.ones((1, 64, 64, 8), np.float32), np.ones((8, 3, 3, 8), np.float32)
large = np.ones((1, 500, 500, 16), np.float32), np.ones((16, 3, 3, 16), np.float32)
calls = (
    lambda: vkconv.conv2d(*large, padding=1, device="cpu"),
    lambda: vkconv.conv2d(*large, algorithm="unfold_gemm", device="cpu"),
    lambda: vkconv.conv_weight_grad(large[0], large[0], (16, 3, 3, 16), padding=1, device="cpu"),
    lambda: vkconv.prepare(np.broadcast_to(large[1], (4000, 16, 3, 3, 16)).reshape(64000, 3, 3, 16), device="cpu"),
)
want, used = vkconv.conv2d(x, w, device="cpu"), vkconv.memory_info("cpu").used
raised = answered = 0
for call in calls:
    for extra in range(0, 96 << 20, 2 << 20):
        vkconv.trim_memory("cpu")
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra, resource.RLIM_INFINITY))
        try:
            call()
            answered += 1
        except MemoryError:
            raised += 1
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert np.array_equal(vkconv.conv2d(x, w, device="cpu"), want)
assert raised and answered, (raised, answered)
assert vkconv.memory_info("cpu").used - used < 4 << 20
"""


def test_a_process_short_of_memory():
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_array_no_machine_has_memory_for(device):
    """Refused before anything is computed; the next call is right."""
    x, w = np.ones((1, 8, 8, 4), np.float32), np.ones((4, 3, 3, 4), np.float32)
    want, used = vkconv.conv2d(x, w, device=device), vkconv.memory_info(device).used
    for channels in (2**36, 2**40):
        wide = np.broadcast_to(np.float32(1), (channels, 3, 3, 4))
        with pytest.raises((MemoryError, vkconv.Error)):
            vkconv.conv2d(x, wide, device=device)
        np.testing.assert_array_equal(vkconv.conv2d(x, w, device=device), want)
    assert vkconv.memory_info(device).used <= used
