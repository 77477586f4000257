"""Calls from many threads, in forked processes, and from threads that the interpreter does not wait for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import fuzz
import vkconv
from soak import Job

THREADS = 16

DAEMON = """
import sys, threading, time
import numpy as np, vkconv
x, w = np.ones((1, 120, 120, 64), np.float32), np.ones((64, 3, 3, 64), np.float32)
small = x[:, :5, :5], w
started = threading.Semaphore(0)
def compute(*arrays):
    while True:
        vkconv.conv2d(*arrays, device=sys.argv[1])
        started.release()
# One thread is in a long call when the interpreter ends; of many with short ones, some wait for its lock.
threading.Thread(target=compute, args=(x, w), daemon=True).start()
for _ in range(int(sys.argv[2])):
    threading.Thread(target=compute, args=small, daemon=True).start()
for _ in range(10):
    started.acquire()
"""

RECORDED = """
import sys
import numpy as np, vkconv
x = vkconv.array(np.ones((1, 60, 60, 32), np.float32), sys.argv[1])
w = vkconv.array(np.ones((32, 3, 3, 32), np.float32), sys.argv[1])
for _ in range(20):
    x = vkconv.conv2d(x, w, padding=1, activation=("clip", 0.0, 1.0))
"""

# Forks while other threads compute: whatever lock one of them holds, the child must get its answers, or be told.
FORKING = """
import os, signal, sys, threading
import numpy as np, vkconv
device, forks = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
problems = [(rng.standard_normal((1, n, n, 8), np.float32), rng.standard_normal((8, 3, 3, 8), np.float32))
            for n in range(3, 40)]
wanted = [vkconv.conv2d(x, w, device=device) for x, w in problems]
vkconv.set_plan_cache_capacity(8)
stop = False
def compute():
    while not stop:
        for x, w in problems:
            vkconv.conv2d(x, w, device=device)
            vkconv.prepare(w, device="cpu")(x)
threads = [threading.Thread(target=compute) for _ in range(4)]
for t in threads: t.start()
def child():
    signal.alarm(600)  # a hang ends the child
    if device != "cpu":
        try:
            vkconv.conv2d(*problems[0], device=device)
            return 1
        except vkconv.DeviceError as error:
            if "fork" not in str(error): return 2
        return 0 if vkconv.conv2d(*problems[0], device="cpu").shape == wanted[0].shape else 3
    right = all(np.array_equal(vkconv.conv2d(x, w), y) and np.array_equal(vkconv.prepare(w)(x), y)
                for (x, w), y in zip(problems[:5], wanted))
    return 0 if right else 4
failed = []
for i in range(forks):
    pid = os.fork()
    if pid == 0:
        os._exit(child())
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status: failed.append((i, status))
    if len(failed) > 2: break
stop = True
for t in threads: t.join()
raise SystemExit(str(failed) if failed else 0)
"""

# Forks while a thread opens the device and makes its first plans.
OPENING = """
import os, signal, sys, threading
import numpy as np, vkconv
device = sys.argv[1]
vkconv.devices()
x, w = np.ones((1, 9, 9, 8), np.float32), np.ones((8, 3, 3, 8), np.float32)
opened = threading.Thread(target=lambda: vkconv.conv2d(x, w, device=device))
opened.start()
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        signal.alarm(600)
        os._exit(int(vkconv.conv2d(x, w, device="cpu")[0, 0, 0, 0] != 72))
    assert os.waitpid(pid, 0)[1] == 0
opened.join()
"""

# Forks in a handler of signals that interrupts a call.
FORK_IN_A_CALL = """
import os, signal, sys
import numpy as np, vkconv
vkconv.set_num_threads(2)
x, w = np.ones((16, 300, 300, 64), np.float32), np.ones((128, 5, 5, 64), np.float32)
pids = []
raises = sys.argv[1] == "raises"
def fork(*_):
    pids.append(os.fork())
    if pids == [0] and raises: raise RuntimeError("forked within a call, says the handler")
signal.signal(signal.SIGALRM, fork)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    y = vkconv.conv2d(x, w, device="cpu", algorithm="implicit_gemm")
except RuntimeError as error:
    known = pids == [0] and "forked within a call" in str(error) and raises == ("handler" in str(error))
    small = vkconv.conv2d(x[:1, :9, :9], w, device="cpu", algorithm="implicit_gemm")
    os._exit(0 if known and (small == 1600).all() else 1)
assert (y == 1600).all() and len(pids) == 1, pids
assert os.waitpid(pids[0], 0)[1] == 0
"""

WORKERS = """
import multiprocessing, sys
import numpy as np, vkconv
x, w = np.ones((4, 30, 30, 16), np.float32), np.ones((16, 3, 3, 16), np.float32)
want = vkconv.conv2d(x, w, device="cpu")
def work(i):
    return np.array_equal(vkconv.conv2d(x, w, device="cpu"), want)
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert all(pool.map_async(work, range(40)).get(600))
"""


def run(code: str, *arguments: str, timeout: float = 900) -> None:
    """Runs the program to a clean end."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("others", [0, 3, 8])
def test_the_interpreter_ends_while_daemon_threads_compute(others, device):
    run(DAEMON, device, str(others))


def test_the_interpreter_ends_while_recorded_work_runs(device):
    run(RECORDED, device)


def calls_of_a_thread(device: str, jobs: list[Job], thread: int, calls: int) -> int:
    """How many of its calls gave other bits than the serial ones."""
    return sum(not jobs[i]() for i in np.random.default_rng(thread).integers(len(jobs), size=calls))


def compare_with_serial(device: str, calls: int, problems: int) -> None:
    jobs = [Job(case, device) for case in fuzz.cases(7, problems)]
    assert all(job() for job in jobs)
    with ThreadPoolExecutor(THREADS) as executor:
        wrong = executor.map(lambda thread: calls_of_a_thread(device, jobs, thread, calls), range(THREADS))
        assert sum(wrong) == 0


def test_sixteen_threads(device):
    compare_with_serial(device, *((1000, 300) if device == "cpu" else (8, 10)))


def test_stacks_of_128_kib():
    """The main thread's and those of the pool: what musl gives a thread."""
    fuzzer = [sys.executable, str(Path(fuzz.__file__)), "--device", "cpu", "--count", "1000", "--seed", "1"]
    subprocess.run(["sh", "-c", 'ulimit -s 128 && exec "$@"', "sh", *fuzzer], check=True, timeout=600)


@pytest.mark.full
def test_sixteen_threads_on_a_software_device(device):
    if device != "cpu":
        compare_with_serial(device, calls=1000, problems=60)


def test_fork_while_threads_compute(device):
    run(FORKING, device, "40" if device == "cpu" else "5")


def test_fork_while_a_thread_opens_the_device(device):
    run(OPENING, device)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a single thread has no others")
@pytest.mark.parametrize("handler", ["returns", "raises"])
def test_fork_in_a_handler_of_signals(handler):
    run(FORK_IN_A_CALL, handler, timeout=120)


@pytest.mark.full
def test_many_forks_while_threads_compute():
    run(FORKING, "cpu", "2000", timeout=3600)


def test_forked_workers():
    run(WORKERS)


def test_open_files_and_threads_do_not_grow_with_threads(device):
    """Threads come and go; what they leave behind is bounded."""
    x, w = np.ones((1, 20, 20, 8), np.float32), np.ones((8, 3, 3, 8), np.float32)

    def held() -> tuple[int, int]:
        return tuple(len(os.listdir(Path("/proc/self", name))) for name in ("task", "fd"))

    for rounds in range(4):
        with ThreadPoolExecutor(8) as executor:
            list(executor.map(lambda _: vkconv.conv2d(x, w, device=device), range(40)))
        if rounds == 1:
            before = held()
    for _ in range(100):  # a thread that ended is listed for a moment
        grown = [now > then for now, then in zip(held(), before, strict=True)]
        if not any(grown):
            break
        time.sleep(0.05)
    assert not any(grown)
