"""Devices, plan caches, threads, explanations and the environment's twins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import vkconv

X, W = np.ones((1, 8, 9, 4), np.float32), np.ones((6, 3, 3, 4), np.float32)
LONG_CALL_SECONDS = 2.0  # in which a thread that sleeps for milliseconds wakes a few times, on a loaded machine too
SETTINGS = ("VKCONV_DEVICE", "VKCONV_PRECISION", "VKCONV_NUM_THREADS", "VKCONV_WORKSPACE_LIMIT", "VKCONV_LOG")


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in SETTINGS}
    prelude = "import numpy as np, vkconv\nx, w = np.ones((1, 8, 9, 4), 'f4'), np.ones((6, 3, 3, 4), 'f4')\n"
    return subprocess.run([sys.executable, "-c", prelude + textwrap.dedent(code)], env={**clean, **environment},
                          capture_output=True, text=True, check=False)  # fmt: skip


def printed(code: str, **environment: str) -> str:
    done = run(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def restored():
    device, threads = vkconv.default_device(), vkconv.num_threads()
    yield
    vkconv.set_default_device(device)
    if vkconv.num_threads() != threads:
        vkconv.set_num_threads(threads)
    vkconv.set_plan_cache_capacity(128)


def used_device() -> str:
    return vkconv.explain(vkconv.conv2d, X, W).device


# ---- devices


def test_devices():
    listed = vkconv.devices()
    assert listed[0].name == listed[0].kind == "cpu"
    known = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    assert listed[0].description == (known[1] if known else listed[0].properties["instruction_set"])
    assert listed[0].properties["threads"] == str(vkconv.num_threads())
    assert [d.name for d in listed[1:]] == [f"vulkan:{i}" for i in range(len(listed) - 1)]
    assert all(d.kind in ("discrete", "integrated", "virtual", "software", "other") for d in listed[1:])
    assert bool(vkconv.no_vulkan_reason()) == (len(listed) == 1)


def test_the_default_is_a_real_gpu_or_the_cpu():
    real = [d.name for d in vkconv.devices() if d.kind in ("discrete", "integrated") and not d.unusable]
    assert printed("print(vkconv.default_device())") == (real[0] if real else "cpu")


def test_set_default_device_is_of_the_process():
    name = [d.name for d in vkconv.devices() if not d.unusable][-1]
    vkconv.set_default_device(name)
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(vkconv.default_device()))
    thread.start()
    thread.join()
    assert seen == [name] and used_device() == name


def test_every_device_computes():
    wanted = vkconv.conv2d(X, W, device="cpu")
    for d in vkconv.devices():
        if not d.unusable:
            assert np.array_equal(vkconv.conv2d(X, W, device=d.name), wanted)
            assert "reference" in vkconv.algorithms(d.name)


def test_a_missing_device():
    with pytest.raises(vkconv.DeviceError, match="vulkan:999"):
        vkconv.conv2d(X, W, device="vulkan:999")


# ---- plan caches


def test_plan_cache():
    vkconv.set_default_device("cpu")
    vkconv.plan_cache_clear()
    assert vkconv.plan_cache_info() == (0, 0, 0, 128)
    vkconv.conv2d(X, W)
    first = vkconv.plan_cache_info()
    assert first.misses >= 1 and first.hits == 0 and first.size >= 1
    vkconv.conv2d(X, W)
    assert vkconv.plan_cache_info() == (1, *first[1:])
    vkconv.conv2d(X, W, stride=2)
    assert vkconv.plan_cache_info().misses > first.misses
    vkconv.plan_cache_clear()
    assert vkconv.plan_cache_info()[:3] == (0, 0, 0)


def test_equal_work_shares_a_plan():
    """Views, flips and parameters that cannot matter are no part of the key."""
    vkconv.set_default_device("cpu")
    one = np.ones((6, 1, 1, 4), np.float32)
    vkconv.plan_cache_clear()
    vkconv.conv_general(X, one)
    misses = vkconv.plan_cache_info().misses
    vkconv.conv_general(X, one, kernel_dilation=3)
    vkconv.conv_general(X[:, ::-1], one, flip=True)
    vkconv.conv_general(np.asfortranarray(X), one, padding="same")
    assert vkconv.plan_cache_info().misses == misses


def test_everything_that_matters_is_in_the_key():
    vkconv.set_default_device("cpu")
    for change in ({"stride": 2}, {"padding": 1}, {"kernel_dilation": 2}, {"input_dilation": 2}, {"groups": 2},
                   {"bias": np.ones(6, np.float32)}, {"activation": "relu"}, {"activation": ("leaky_relu", 0.5)},
                   {"precision": "highest"}, {"algorithm": "reference"}, {"workspace_limit": 12345}):  # fmt: skip
        w = W[..., :2] if change == {"groups": 2} else W
        vkconv.plan_cache_clear()
        vkconv.conv_general(X, W)
        misses = vkconv.plan_cache_info().misses
        vkconv.conv_general(X, w, **change)
        assert vkconv.plan_cache_info().misses > misses, change


def test_capacity():
    vkconv.set_default_device("cpu")
    vkconv.set_plan_cache_capacity(2)
    for extent in range(3, 12):
        vkconv.conv2d(np.ones((1, extent, extent, 4), np.float32), W)
        assert vkconv.plan_cache_info().size <= 2
    assert vkconv.plan_cache_info().capacity == 2
    vkconv.set_plan_cache_capacity(0)
    vkconv.conv2d(X, W)
    assert vkconv.plan_cache_info().size == 0


def test_capacity_holds_for_devices_opened_later():
    code = (
        "vkconv.set_plan_cache_capacity(3); vkconv.conv2d(x, w, device='cpu'); print(vkconv.plan_cache_info('cpu')[3])"
    )
    assert printed(code) == "3"


# ---- memory


def test_memory_of_every_device():
    x, w = np.ones((1, 64, 64, 4), np.float32), np.ones((4, 3, 3, 4), np.float32)
    for d in vkconv.devices():
        if d.unusable:
            continue
        vkconv.conv2d(x, w, device=d.name)
        vkconv.trim_memory(d.name)
        vkconv.reset_memory_peak(d.name)
        idle = vkconv.memory_info(d.name)
        assert idle.peak == idle.used and idle.cached >= 0
        vkconv.conv2d(x, w, device=d.name)
        assert vkconv.memory_info(d.name).peak >= idle.used + 62 * 62 * 4 * 4
        assert vkconv.memory_info(d.name).used == idle.used


# ---- threads


def test_results_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 20, 21, 8), np.float32), rng.standard_normal((8, 3, 3, 8), np.float32)
    wanted = vkconv.conv2d(x, w, device="cpu", algorithm="reference")
    for n in (1, 2, 5):
        vkconv.set_num_threads(n)
        assert vkconv.num_threads() == n and vkconv.devices()[0].properties["threads"] == str(n)
        assert vkconv.conv2d(x, w, device="cpu", algorithm="reference").tobytes() == wanted.tobytes()


def test_the_interpreter_runs_while_computing():
    x, w = np.ones((1, 64, 64, 16), np.float32), np.ones((16, 5, 5, 16), np.float32)
    stop, ticks, inside, took = threading.Event(), [], 0, 0.0

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    while not ticks:
        time.sleep(0.001)
    while inside < 3 and took < LONG_CALL_SECONDS:
        x = np.concatenate((x, x))
        begin = time.perf_counter()
        vkconv.conv2d(x, w, device="cpu", algorithm="reference")
        end = time.perf_counter()
        inside, took = sum(begin < t < end for t in list(ticks)), end - begin
    stop.set()
    thread.join()
    assert inside >= 3, f"{took} s without three ticks"


def test_calls_from_many_threads():
    wanted = {s: vkconv.conv2d(X, W, s) for s in (1, 2, 3)}
    wrong: list[int] = []

    def work() -> None:
        for i in range(200):
            s = 1 + i % 3
            if i % 50 == 0:
                vkconv.plan_cache_clear()
            if not np.array_equal(vkconv.conv2d(X, W, s), wanted[s]):
                wrong.append(s)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- explain


def test_explain():
    told = vkconv.explain("conv2d", X, W, stride=2, padding=1, device="cpu")
    assert told == vkconv.explain(vkconv.conv2d, X, W, 2, 1, device="cpu")
    assert told == vkconv.explain("fwd_f32_n1c4o6_i8x9_k3x3_s2x2_p1x1", device="cpu")
    assert told.problem == "fwd_f32_n1c4o6_i8x9_k3x3_s2x2_p1x1"
    assert told.device == "cpu" and told.algorithm in vkconv.algorithms("cpu")
    assert [c.algorithm for c in told.candidates] == vkconv.algorithms("cpu")
    assert all((c.seconds is None) != (c.reason == "") for c in told.candidates)
    best = min((c for c in told.candidates if c.seconds is not None), key=lambda c: c.seconds)
    assert best.algorithm == told.algorithm
    table = repr(told)
    assert told.problem in table and f"plan       {told.plan}" in table
    for c in told.candidates:
        assert c.algorithm in table and c.reason in table


def test_explain_computes_nothing():
    huge = np.broadcast_to(np.float32(1), (64, 2000, 2000, 64))
    told = vkconv.explain(vkconv.conv2d, huge, np.ones((64, 3, 3, 64), np.float32), padding=1)
    assert told.problem == "fwd_f32_n64c64o64_i2000x2000_k3x3_p1x1"
    assert vkconv.conv2d(X, W).shape == (1, 6, 7, 6), "and the next call computes again"


def test_explain_says_why_a_forced_algorithm_cannot_run():
    told = vkconv.explain("fwd_f32_n1c4o4_i8x8_k3x3", algorithm="small_kernel_depth", device="cpu")
    reason = next(c.reason for c in told.candidates if c.algorithm == "small_kernel_depth")
    assert told.plan is None and told.algorithm is None
    assert reason and reason in told.reason
    with pytest.raises(ValueError, match="small_kernel_depth"):
        vkconv.conv2d(X, W, algorithm="small_kernel_depth", device="cpu")


def test_explain_every_operation():
    grad = np.ones((1, 6, 7, 6), np.float32)
    for call, prefix in (
        (lambda: vkconv.explain("conv_transpose", X, W, 2), "fwd_f32_n1c4o6_i8x9_k3x3_t2x2"),
        (lambda: vkconv.explain("depthwise_conv", X, W[:4, ..., :1]), "fwd_f32_n1c4o4g4"),
        (lambda: vkconv.explain("conv_input_grad", grad, W, X.shape), "igrad_f32_n1c4o6"),
        (lambda: vkconv.explain("conv_weight_grad", grad, X, W.shape), "wgrad_f32_n1c4o6"),
        (lambda: vkconv.explain("conv_weight_grad", grad, X, W.shape, flip=True), "wgrad_f32_n1c4o6"),
        (lambda: vkconv.explain("conv_bias_grad", grad), "wgrad_f32_n1c1o6_i6x7_k1x1"),
        (lambda: vkconv.explain("causal_conv1d", X[0], W[:, 0]), "fwd_f32_n8c4o6_i9_k3"),
        (lambda: vkconv.explain(vkconv.causal_conv1d, X[0, :, :2], W[:, 0]), "fwd_f32_n8c4o6_i4_k3"),
        (lambda: vkconv.explain("causal_conv3d", X[None], W[:, None]), "fwd_f32"),
    ):
        assert call().problem.startswith(prefix)


# ---- precision


def test_default_precision():
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s, np.float32) for s in ((1, 5, 16, 16, 32), (32, 3, 3, 3, 32)))
    assert vkconv.default_precision() == "high"
    exact = vkconv.conv3d(x, w, precision="highest", device="cpu")
    fast = vkconv.conv3d(x, w, device="cpu")
    try:
        vkconv.set_default_precision("highest")
        assert vkconv.default_precision() == "highest"
        assert np.array_equal(vkconv.conv3d(x, w, device="cpu"), exact)
        assert np.array_equal(vkconv.prepare(w, device="cpu")(x), exact)
        assert np.array_equal(vkconv.conv3d(x, w, precision="high", device="cpu"), fast)
    finally:
        vkconv.set_default_precision("high")
    assert np.array_equal(vkconv.conv3d(x, w, device="cpu"), fast)


def test_precision_from_the_environment():
    for word, told in (("fast", "fast"), ("", "high")):
        assert printed("print(vkconv.default_precision())", VKCONV_PRECISION=word) == told
    done = run("vkconv.conv2d(x, w)", VKCONV_PRECISION="exact")
    assert "ValueError" in done.stderr and "VKCONV_PRECISION is 'exact', wanted one of 'highest'" in done.stderr


# ---- environment


def test_device_from_the_environment():
    assert printed("print(vkconv.default_device(), vkconv.explain(vkconv.conv2d, x, w).device)",
                   VKCONV_DEVICE="cpu") == "cpu cpu"  # fmt: skip
    done = run("vkconv.conv2d(x, w)", VKCONV_DEVICE="toaster")
    assert done.returncode != 0 and "ValueError: VKCONV_DEVICE is 'toaster'" in done.stderr
    assert printed("vkconv.set_default_device('cpu'); print(vkconv.conv2d(x, w).shape)",
                   VKCONV_DEVICE="toaster") == "(1, 6, 7, 6)"  # fmt: skip


def test_threads_from_the_environment():
    assert printed("print(vkconv.num_threads())", VKCONV_NUM_THREADS="3") == "3"
    done = run("vkconv.conv2d(x, w, device='cpu')", VKCONV_NUM_THREADS="many")
    assert "ValueError: VKCONV_NUM_THREADS is 'many', wanted an integer of at least 1" in done.stderr
    code = "vkconv.set_num_threads(2); print(vkconv.conv2d(x, w, device='cpu').shape)"
    assert printed(code, VKCONV_NUM_THREADS="many") == printed(code)


def test_workspace_limit_from_the_environment():
    for limit in ("lots", " -1", f"{2**64}"):
        done = run("vkconv.conv2d(x, w)", VKCONV_WORKSPACE_LIMIT=limit)
        assert "ValueError" in done.stderr and f"VKCONV_WORKSPACE_LIMIT is '{limit}'" in done.stderr
    code = """
        for limit in (None, 0):
            vkconv.plan_cache_clear()
            vkconv.conv2d(x, w, device='cpu', workspace_limit=0)
            misses = vkconv.plan_cache_info('cpu').misses
            vkconv.conv2d(x, w, device='cpu', workspace_limit=limit)
            print(vkconv.plan_cache_info('cpu').misses == misses)
    """
    assert printed(code, VKCONV_WORKSPACE_LIMIT="0").split() == ["True", "True"]
    assert printed(code).split() == ["False", "True"]


def test_log():
    code = "vkconv.conv2d(x, w, 2, device='cpu', algorithm='reference'); vkconv.conv1d(x[0], w[0], device='cpu')"
    lines = run(code, VKCONV_LOG="1").stderr.splitlines()
    assert len(lines) == 2
    device, problem, plan, milliseconds, unit = lines[0].removeprefix("vkconv ").split()
    assert (device, problem, plan, unit) == ("cpu", "fwd_f32_n1c4o6_i8x9_k3x3_s2x2", "reference", "ms")
    assert float(milliseconds) >= 0
    for name in [d.name for d in vkconv.devices()[1:2]]:
        code = f"vkconv.conv1d(x[0], w[0], device='{name}'); vkconv.conv1d(vkconv.array(x[0], '{name}'), w[0])"
        for line in run(code, VKCONV_LOG="1").stderr.splitlines():
            whole, own = map(float, re.search(r"([0-9.]+) ms(?: \(([0-9.]+) ms on the device\))?$", line).groups("0"))
            assert line.startswith(f"vkconv {name} fwd_f32") and 0 <= own <= whole
    for off in ({}, {"VKCONV_LOG": "0"}, {"VKCONV_LOG": ""}):
        assert run(code, **off).stderr == ""


def test_build_info_and_version():
    info = vkconv.build_info()
    assert info["version"] == vkconv.version == vkconv.__version__
    assert vkconv.version.count(".") == 2
    assert isinstance(info["vulkan"], bool) and info["compiler"]
