"""Importing is cheap and touches no device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

LIMIT = 0.5  # of what NumPy takes


def run(code: str, **environment: str) -> str:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, **environment},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_adds_little_to_numpy():
    """The best of five processes, in processor time: the first one fills the page cache, others may share the core."""
    code = """
        import time
        begin = time.process_time()
        import numpy
        middle = time.process_time()
        import vkconv
        print((time.process_time() - middle) / (middle - begin))
    """
    shares = [float(run(code)) for _ in range(5)]
    assert min(shares) < LIMIT, shares


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_import_opens_no_vulkan_and_starts_no_thread():
    told = json.loads(
        run("""
        import json, os, sys, threading, numpy
        before = len(os.listdir("/proc/self/task"))
        import vkconv
        maps = open("/proc/self/maps").read()
        print(json.dumps({"threads": len(os.listdir("/proc/self/task")) - before, "vulkan": "libvulkan" in maps,
                          "ml_dtypes": "ml_dtypes" in sys.modules}))
    """)
    )
    assert told == {"threads": 0, "vulkan": False, "ml_dtypes": False}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("arguments", "default"), [('x, x, device="cpu"', ""), ("x, x", "cpu")])
def test_calls_that_name_the_cpu_open_no_vulkan(arguments, default):
    code = f"""
        import numpy as np, vkconv
        x = np.ones((1, 3, 2), np.float32)
        vkconv.conv1d({arguments})
        print("libvulkan" in open("/proc/self/maps").read())
    """
    assert run(code, VKCONV_DEVICE=default).strip() == "False"


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the module that makes subinterpreters has another name")
def test_subinterpreters():
    """As servers of the web have them. Before Python 3.12 pybind11 knows none, which is said at once."""
    told = run("""
        import faulthandler, sys, _xxsubinterpreters as interpreters
        faulthandler.dump_traceback_later(60, exit=True)
        other = interpreters.create(isolated=False)
        try:
            interpreters.run_string(other, f"import sys; sys.path[:] = {sys.path!r}; import vkconv, numpy as np\\n"
                "print(vkconv.conv1d(np.ones((1, 4, 1)), np.ones((1, 2, 1)), device='cpu').sum())")
        except interpreters.RunFailedError as error:
            print(error)
        interpreters.destroy(other)
    """)
    assert ("6.0" if sys.version_info >= (3, 12) else "vkconv cannot be imported in a subinterpreter") in told


def test_no_network():
    """Neither Python's sockets nor the C library's."""
    run("""
        import pathlib, sys
        def hook(event, arguments):
            assert not event.startswith(("socket.", "urllib.", "http.", "ssl.")), event
        sys.addaudithook(hook)
        import numpy as np, vkconv
        for device in vkconv.devices():
            vkconv.conv1d(np.ones((1, 4, 1), np.float32), np.ones((1, 2, 1), np.float32), device=device.name)
        imported = pathlib.Path(vkconv._core.__file__).read_bytes().split(b"\\0")
        assert b"dlopen" in imported and not {b"socket", b"connect", b"getaddrinfo"} & set(imported)
    """)


def test_numpy_is_the_only_dependency():
    """With every other installed package hidden, the package imports and works."""
    run("""
        import importlib.abc, sys
        class OnlyNumPy(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                root = name.partition(".")[0]
                if root in sys.stdlib_module_names or root in ("numpy", "vkconv") or root.startswith("_"):
                    return None
                raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, OnlyNumPy())
        import numpy as np, vkconv
        assert vkconv.conv1d(np.ones((1, 4, 1), np.float32), np.ones((1, 2, 1), np.float32), device="cpu").sum() == 6
    """)


def test_public_names():
    told = json.loads(
        run("""
        import json, vkconv
        missing = [n for n in vkconv.__all__ if not hasattr(vkconv, n)]
        documented = [n for n in vkconv.__all__ if not n.endswith(("version", "version__"))]
        undocumented = [n for n in documented if not getattr(vkconv, n).__doc__]
        print(json.dumps([missing, undocumented, sorted(vkconv.__all__) == vkconv.__all__]))
    """)
    )
    assert told == [[], [], True]
