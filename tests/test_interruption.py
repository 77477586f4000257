"""Ctrl-C in a long call: KeyboardInterrupt soon after, nothing kept, and the next call right."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Of the processor, which all threads of the process take: other processes may stop it at any time. Two threads that
# stop after 0.3 s by the clock stay below.
SECONDS = 0.5 * (os.cpu_count() or 1)

CALLS = """
import os, signal, sys, threading, time
import numpy as np, vkconv
from vkconv._problem_call import problem_call

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
device, algorithm, problem = sys.argv[1:]
operation, operands, options = problem_call(problem)
options |= {"device": device, "algorithm": algorithm or None}

def long():
    return operation(*operands, **options)

x, w = (np.random.default_rng(0).standard_normal(shape, np.float32) for shape in ((2, 30, 30, 64), (64, 3, 3, 64)))

def short():
    return vkconv.conv2d(x, w, device=device)
"""

# On a device that is faster than the timer, the calls follow each other until one is interrupted. The first
# interruption also waits for kernels that are compiled.
INTERRUPTED = (
    CALLS
    + """
def interrupted():
    sent = []
    def send():
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Timer(0.3, send)
    timer.start()
    try:
        while True:
            long()
    except KeyboardInterrupt:
        took = time.process_time() - sent[0]
    timer.join()
    return took, vkconv.memory_info(device).used

wanted = short()
interrupted()
(_, before), (took, after) = interrupted(), interrupted()
assert np.array_equal(short(), wanted)
assert after <= before, (after, before)
print(took)
"""
)

# A handler that computes, and does not raise: what it interrupts goes on as if nothing had been.
HANDLED = (
    CALLS
    + """
wanted = [short(), long(), short()]
handled = []
def handle(*_):
    handled.append((long if len(handled) == 1 else short)())
    if len(handled) < len(wanted):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.1)
while len(handled) < len(wanted):
    assert np.array_equal(long(), wanted[1])
assert all(np.array_equal(*pair) for pair in zip(handled, wanted))
"""
)

LONG = [
    ("cpu", "", "fwd_f32_n1c64o64_i64x64x64_k7x7x7_p3x3x3"),
    ("cpu", "implicit_gemm", "fwd_f32_n1c64o64_i64x64x64_k7x7x7_p3x3x3"),
    ("cpu", "reference", "fwd_f32_n1c64o64_i200x200_k9x9"),
    ("cpu", "depthwise", "fwd_f32_n1c256o256g256_i200x200_k31x31_p15x15"),
    ("cpu", "weight_grad", "wgrad_f32_n1c64o64_i64x64x64_k7x7x7_p3x3x3"),
    ("cpu", "winograd_weight_grad", "wgrad_f32_n1c256o256_i300x300_k3x3_p1x1"),
    ("vulkan", "", "fwd_f32_n1c64o64_i128x128_k9x9_p4x4"),
    ("vulkan", "reference", "fwd_f32_n1c64o64_i64x64_k9x9_p4x4"),
]


def run(code: str, device: str, algorithm: str, problem: str) -> str:
    command = [sys.executable, "-c", code, device, algorithm, problem]
    # A call stops between submits, which are as short as optimised kernels make them.
    optimised = {name: value for name, value in os.environ.items() if name != "GALLIVM_PERF"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=optimised)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("place, algorithm, problem", LONG)
def test_ctrl_c(place, algorithm, problem, device):
    if not device.startswith(place):
        pytest.skip("of the other device")
    assert float(run(INTERRUPTED, device, algorithm, problem)) < SECONDS


@pytest.mark.parametrize("algorithm, problem", [("winograd", LONG[0][2]), ("", "fwd_f32_n1c64o64_i80x80_k9x9_p4x4")])
def test_a_handler_computes(algorithm, problem, device):
    if (device == "cpu") != bool(algorithm):
        pytest.skip("of the other device")
    run(HANDLED, device, algorithm, problem)
