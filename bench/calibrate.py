"""Measures the rates behind the CPU's estimates and writes them to cpp/cpu/rates.h.

    python bench/calibrate.py build/dev/vkconv_bench            measures and compares with what is committed
    python bench/calibrate.py build/dev/vkconv_bench --write    writes the header

An instruction set this processor lacks keeps its committed row. The best of several runs counts: rates are those of a
machine that nothing else uses.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine

HEADER = Path(__file__).parents[1] / "cpp" / "cpu" / "rates.h"
CORE = ("f32_flops_per_second", "f64_flops_per_second", "bf16_flops_per_second")
MEMORY = (
    "cache_bytes_per_second",
    "shared_cache_bytes_per_second",
    "memory_bytes_per_second",
    "more_memory_bytes_per_second",
    "launch_seconds",
)
INSTRUCTION_SETS = ("AVX3", "AVX2", "SSE4", "NEON")
NUMBER = r"[-+.e\d]+"
ROW = re.compile(rf'// (.+)\n    \{{"(\w+)", ({NUMBER}), ({NUMBER}), ({NUMBER})\}},')
TEXT = """\
// Measured by bench/calibrate.py, which writes this file. Flops are multiply-adds counted as two, of one core in a full
// register tile; bytes are read and written ones of a copy.
#pragma once
#include <string_view>

namespace vkconv::cpu {{

struct CoreRates {{
  std::string_view isa;  // Highway's name
  double f32_flops_per_second, f64_flops_per_second;
  double bf16_flops_per_second;  // of the dot product instruction; 0: there is none
}};

// From the widest vectors to the narrowest; the last one serves the instruction sets that are not listed.
inline constexpr CoreRates kCoreRates[] = {{
{rows}
}};

// {where}
inline constexpr struct {{
  double cache_bytes_per_second, shared_cache_bytes_per_second;  // of one core, inside L2 and L3
  double memory_bytes_per_second, more_memory_bytes_per_second;  // of one core, and what every further core adds
  double launch_seconds;                                         // of one parallel section whose threads are awake
}} kHostRates{{{memory}}};

}}  // namespace vkconv::cpu
"""
Rates = dict[str, float]


def measure(tool: Path, instruction_set: str, runs: int) -> Rates | None:
    """The best of several runs, or None where the processor lacks the instruction set."""
    best: Rates = {}
    for _ in range(runs):
        command = [str(tool), "--calibrate", f"--isa={instruction_set}"]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        if told.returncode:
            return None
        for name, value in (line.split() for line in told.stdout.splitlines()[1:]):
            rate = float(value)
            better = min if name == "launch_seconds" else max
            best[name] = better(best.get(name, rate), rate)
    threads = best["threads"]
    more = best["memory_bytes_per_second_all_threads"] - best["memory_bytes_per_second"]
    best["more_memory_bytes_per_second"] = max(0.0, more / max(1.0, threads - 1))
    return best


def committed() -> dict[str, tuple[list[float], str]]:
    """The rows of the header: rates and where they were measured."""
    text = HEADER.read_text() if HEADER.exists() else ""
    return {m[2]: ([float(m[3]), float(m[4]), float(m[5])], m[1]) for m in ROW.finditer(text)}


def number(value: float) -> str:
    return f"{value:.3g}".replace("e+", "e").replace("e0", "e").replace("e-0", "e-")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/calibrate.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tool", type=Path, help="the vkconv_bench of a build with -DVKCONV_TESTS=ON")
    parser.add_argument("--runs", type=int, default=3, help="runs an instruction set (default: 3)")
    parser.add_argument("--write", action="store_true", help="write cpp/cpu/rates.h")
    options = parser.parse_args()
    where = f"{machine.describe()['cpu']}, {date.today().isoformat()}"
    rows, host = committed(), Rates()
    for isa in INSTRUCTION_SETS:
        measured = measure(options.tool, isa, options.runs)
        if measured is None:
            continue
        host = host or measured
        values = [measured[name] for name in CORE]
        old = rows.get(isa, ([0.0] * len(CORE), ""))[0]
        print(isa, ", ".join(f"{n} {number(v)} (was {number(o)})" for n, v, o in zip(CORE, values, old, strict=True)))
        rows[isa] = (values if isa == "AVX3" else [*values[:2], 0.0], where)
    print("host", ", ".join(f"{name} {number(host[name])}" for name in MEMORY))
    if options.write:
        lines = [
            f'    // {rows[isa][1]}\n    {{"{isa}", {", ".join(number(v) for v in rows[isa][0])}}},'
            for isa in INSTRUCTION_SETS
            if isa in rows
        ]
        memory = ", ".join(number(host[name]) for name in MEMORY)
        HEADER.write_text(TEXT.format(rows="\n".join(lines), where=where, memory=memory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
