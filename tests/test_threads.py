"""Calls from threads that the interpreter does not wait for."""

import subprocess
import sys

import pytest

DAEMON = """
import sys, threading, time
import numpy as np, vkconv
x, w = np.ones((1, 120, 120, 64), np.float32), np.ones((64, 3, 3, 64), np.float32)
started = threading.Event()
def compute():
    while True:
        vkconv.conv2d(x, w, device=sys.argv[1])
        started.set()
threading.Thread(target=compute, daemon=True).start()
started.wait()
"""


@pytest.mark.parametrize("attempt", range(3))
def test_the_interpreter_ends_while_a_daemon_thread_computes(attempt, device):
    command = [sys.executable, "-c", DAEMON, device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
