"""The command line: python -m vkconv."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import vkconv

_PROBLEM = "as in fwd_f32_n1c64o64_i56x56_k3x3_p1x1"
_DEVICE = "cpu, vulkan, vulkan:0, ... (default: the default device)"


def parser() -> argparse.ArgumentParser:
    """The arguments of every command; `run` of the result is the command's function."""
    top = argparse.ArgumentParser(prog="python -m vkconv", description=(vkconv.__doc__ or "").partition("\n")[0])
    top.add_argument("--version", action="version", version=vkconv.version)
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    info = commands.add_parser("info", help="version, build, instruction set, threads and devices")
    info.add_argument("--json", action="store_true", help="print JSON")

    explain = commands.add_parser("explain", help="the plan of a problem and every algorithm's estimate or refusal")
    explain.add_argument("problem", metavar="PROBLEM", help=_PROBLEM)
    described = ", ".join(vkconv.described_devices())
    explain.add_argument("--device", help=f"{_DEVICE}; a GPU that need not be here: {described}")
    explain.add_argument("--algorithm", help="force an algorithm")
    explain.add_argument("--workspace-limit", type=int, metavar="BYTES", help="scratch memory that a plan may use")
    explain.add_argument("--json", action="store_true", help="print JSON")

    bench = commands.add_parser("bench", help="time problems, by the plan chosen or by every algorithm, and check them")
    bench.add_argument("problems", nargs="+", metavar="PROBLEM", help=_PROBLEM)
    bench.add_argument("--device", help=_DEVICE)
    bench.add_argument("--all", action="store_true", help="every algorithm that can run the problem")
    bench.add_argument(
        "--limit", type=float, default=10.0, metavar="SECONDS", help="leave out what is estimated to take longer"
    )
    bench.add_argument("--json", action="store_true", help="print JSON")

    tune = commands.add_parser("tune", help="measure which algorithm is the fastest, for the planner to take")
    tune.add_argument("problems", nargs="+", metavar="PROBLEM", help=_PROBLEM)
    tune.add_argument("--seconds", type=float, default=30.0, help="time for all of it (default: %(default)s)")
    tune.add_argument("--device", help=_DEVICE)
    tune.add_argument("--prepared", action="store_true", help="with prepared weights")
    tune.add_argument("--out", metavar="FILE", help="add the choices to this file, for VKCONV_TUNING_FILE")
    tune.add_argument("--json", action="store_true", help="print JSON")

    demo = commands.add_parser("demo", help="filter a photograph on every device and check each answer against fp64")
    demo.add_argument("--photo", metavar="FILE", help="another photograph (default: one that comes with Matplotlib)")
    demo.add_argument(
        "--out", metavar="FILE", default="vkconv_demo.png", help="the contact sheet (default: %(default)s)"
    )
    demo.add_argument("--json", action="store_true", help="print JSON, and the tables to stderr")
    demo.add_argument("--device", action="append", help="only this device; may be repeated (default: cpu and vulkan)")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    given = parser()
    arguments = given.parse_args(argv)
    if arguments.command is None:
        given.print_help()
        return 2
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever reads the output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, MemoryError, vkconv.Error) as error:
        print(f"vkconv {arguments.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "info":
        from vkconv._cli.info import info

        return info(arguments.json)
    if arguments.command == "explain":
        from vkconv._cli.explain import explain

        return explain(arguments)
    if arguments.command == "bench":
        from vkconv._cli.bench import bench

        return bench(arguments)
    if arguments.command == "tune":
        from vkconv._cli.tune import tune

        return tune(arguments)
    from vkconv._cli.demo import demo

    return demo(arguments)
