"""What a result must say about where it was measured."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    return {
        "date": date.today().isoformat(),
        "cpu": _cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "commit": _commit(),
    }


def require(*modules: str) -> None:
    """Ends the program with a line that names the modules which are not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(f"{Path(sys.argv[0]).name}: {', '.join(missing)} missing; pip install {' '.join(missing)}")


def find_tool() -> str:
    """The vkconv_bench of this checkout."""
    root = Path(__file__).resolve().parents[1]
    for build in ("dev", "release"):
        if (tool := root / "build" / build / "vkconv_bench").exists():
            return str(tool)
    raise SystemExit(f"{Path(sys.argv[0]).name}: there is no vkconv_bench; ./run setup builds it")


def parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The options of bench/`name`.py, of which every program that times something on CPUs has the first."""
    made = argparse.ArgumentParser(prog=f"bench/{name}.py", description=(doc or "").partition("\n")[0])
    made.add_argument("--threads", type=int, default=2, help="CPUs, for each library (default: 2)")
    return made


def add_names(made: argparse.ArgumentParser, suite: str) -> None:
    """The options that `bench.cases.named` reads, with this default."""
    made.add_argument(
        "--suite",
        default=suite,
        help="comma-separated: all, core, peers, gpu, layers, training, a family or a case (default: %(default)s)",
    )
    made.add_argument("--only", default="", help="only cases with one of these words (comma-separated)")
    made.add_argument("--part", default="1/1", help="only the i-th of n parts of the cases: i/n (default: %(default)s)")


def add_cases(made: argparse.ArgumentParser, suite: str, gflop_limit: float) -> None:
    """The options that `bench.cases.chosen` reads, with these defaults."""
    add_names(made, suite)
    made.add_argument(
        "--gflop-limit", type=float, default=gflop_limit, help="larger cases are scaled down (default: %(default)s)"
    )


def add_random(made: argparse.ArgumentParser) -> None:
    """Options for layers that are drawn in place of a suite's cases."""
    made.add_argument("--random", type=int, default=0, help="this many random layers, of at most --gflop-limit")
    made.add_argument("--seed", type=int, default=0, help="of the random layers (default: 0)")
    made.add_argument("--most-channels", type=int, default=512, help="of a random layer (default: 512)")


def suite_name(options: argparse.Namespace) -> str:
    """What the cases are of, for results."""
    return f"random, seed {options.seed}" if options.random else str(options.suite)


def random_layers(options: argparse.Namespace) -> list[Any]:
    """The layers that these options ask for."""
    from bench.random_layers import random_layers

    return random_layers(options.random, options.seed, options.gflop_limit * 1e9, options.most_channels)


def some_cases(options: argparse.Namespace, images: int | None = None, gradients: bool = False) -> list[Any]:
    """The forward passes, or gradients, among the random layers that these options ask for, or the cases of a suite."""
    from bench.cases import chosen

    if options.random:
        layers = random_layers(options)
        return [layer.batched(images) for layer in layers if (layer.direction != "forward") == gradients]
    return chosen(options, images)


def pin(threads: int) -> None:
    """Leaves this process the first `threads` of its CPUs: libraries that size their own pools follow."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ.setdefault("VKCONV_NUM_THREADS", str(threads))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    match = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    return match[1] if match else platform.machine()


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()

    commit = git("rev-parse", "--short=12", "HEAD")
    return f"{commit}+changes" if commit and git("status", "--porcelain", "--untracked-files=no") else commit
