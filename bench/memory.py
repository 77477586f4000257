"""Extra memory of every case at its peak, beside input, weight and output: it must stay within the workspace limit.

    python bench/memory.py --suite all,peers

Every case runs in a process of its own. `pool` is what vkconv's memory pool counts (workspaces, scratch, prepared
weights are the caller's and not counted); `process` is what the whole process grew by.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine

MEBIBYTE = 2**20
# Of a process that runs its first convolution: code that is paged in, stacks of threads.
PROCESS_ALLOWANCE = 16 * MEBIBYTE


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def peak_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(case: Any, prepared: bool, options: argparse.Namespace) -> dict[str, Any]:
    """Runs in its own process."""
    import vkconv

    x, w = case.arrays()
    settings = case.zero_padded().as_general | {"device": "cpu", "workspace_limit": options.limit_mib * MEBIBYTE}
    convolve = vkconv.prepare(w, **settings) if prepared else None
    told = vkconv.explain(convolve, x) if convolve else vkconv.explain(vkconv.conv_general, x, w, **settings)
    if told.plan is None:
        return {"case": case.name, "reason": told.reason}
    # The first call makes the prepared layout, which stays; the second one's memory is the execution's.
    y = convolve(x) if convolve else None
    del y
    Path("/proc/self/clear_refs").write_text("5")  # the peak of the process starts anew
    vkconv.reset_memory_peak()
    used, resident = vkconv.memory_info().used, resident_bytes()
    y = convolve(x) if convolve else vkconv.conv_general(x, w, **settings)
    pool = vkconv.memory_info().peak - used - y.nbytes
    process = peak_resident_bytes() - resident - y.nbytes
    return {"case": case.name, "plan": told.plan, "pool": pool, "process": process}


def main() -> int:
    parser = machine.parser("memory", __doc__)
    machine.add_cases(parser, suite="all,peers", gflop_limit=20.0)
    parser.add_argument("--limit-mib", type=int, default=256, help="workspace limit (default: 256)")
    options = parser.parse_args()
    machine.pin(options.threads)
    from bench import cases

    fork = multiprocessing.get_context("fork")
    above = 0
    print(f"{'MiB':<32}{'pool':>8}{'process':>9}  plan")
    for case in cases.chosen(options):
        for prepared in (False, True):
            with fork.Pool(1) as process:
                row = process.apply(measure, (case, prepared, options))
            name = case.name + (", prepared" if prepared else "")
            if "plan" not in row:
                print(f"{name:<32}{'':17}  {row['reason']}")
                continue
            limit = options.limit_mib * MEBIBYTE
            over = row["pool"] > limit or row["process"] > limit + PROCESS_ALLOWANCE
            above += over
            print(f"{name:<32}{row['pool'] / MEBIBYTE:8.1f}{row['process'] / MEBIBYTE:9.1f}  {row['plan']}"
                  + ("  ABOVE" if over else ""), flush=True)  # fmt: skip
    print(f"{above} above the limit of {options.limit_mib} MiB")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
