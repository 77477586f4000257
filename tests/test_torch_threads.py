"""vkconv in the threads of PyTorch's OpenMP: threads that come and go, forks at any time, nesting, the end."""

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch")

SETUP = """
import os, signal, sys, threading
import numpy as np, torch, vkconv.torch
x, w = np.ones((16, 40, 40, 8), np.float32), np.ones((32, 3, 3, 8), np.float32)
def conv():
    return vkconv.conv2d(x, w, device="cpu")
def fork(work):
    child = os.fork()
    if child == 0:
        signal.alarm(600)  # a hang ends the child
        os._exit(0 if work() else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
"""

FORK_BEFORE_THE_FIRST_CALL = """
torch.relu(torch.ones(1 << 20))  # the team of the parent has threads, which the child does not have
fork(lambda: conv().shape == (16, 38, 38, 32))
"""

THREADS_COME_AND_GO = """
want, wrong = conv(), []
def work():
    torch.relu(torch.ones(1 << 18))
    if not np.array_equal(conv(), want): wrong.append(1)
for _ in range(60):
    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
assert not wrong
"""

SIZES_CHANGE = """
want = conv()
for i in range(300):
    torch.set_num_threads(1 + i % 3)
    vkconv.set_num_threads(1 + i % 5)
    torch.relu(torch.ones(1 << 18))
    assert np.array_equal(conv(), want)
"""

FORKS_BETWEEN_CALLS = """
want = conv()
for _ in range(20):
    torch.relu(torch.ones(1 << 18))
    fork(lambda: np.array_equal(conv(), want))
    assert np.array_equal(conv(), want)
"""

IN_THE_BACKWARD_PASS = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a): return a * 2
    @staticmethod
    def backward(ctx, g): conv(); return g * 2
def work():
    for _ in range(20):
        a = torch.ones(1 << 16, requires_grad=True)
        Twice.apply(torch.relu(a)).sum().backward()
        assert a.grad is not None
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
"""

THE_END_WHILE_THREADS_COMPUTE = """
started = threading.Semaphore(0)
def work():
    while True:  # without PyTorch, whose own calls abort a process that ends under them
        conv()
        started.release()
torch.relu(torch.ones(1 << 18))
for _ in range(3): threading.Thread(target=work, daemon=True).start()
for _ in range(10): started.acquire()
"""


@pytest.mark.parametrize(
    "code",
    [
        FORK_BEFORE_THE_FIRST_CALL,
        THREADS_COME_AND_GO,
        SIZES_CHANGE,
        FORKS_BETWEEN_CALLS,
        IN_THE_BACKWARD_PASS,
        *[THE_END_WHILE_THREADS_COMPUTE] * 3,
    ],
)
def test_shared_threads(code):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SETUP + textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
