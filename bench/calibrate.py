"""Measures the rates behind the CPU's estimates and writes them to cpp/cpu/rates.h.

    python bench/calibrate.py build/dev/vkconv_bench            measures and compares with what is committed
    python bench/calibrate.py build/dev/vkconv_bench --write    writes the header

Rows of other vendors and of instruction sets this processor lacks stay as they are. The best of several runs counts:
rates are those of a machine that nothing else uses.
"""

from __future__ import annotations

import argparse
import json
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
    "shared_cache_read_bytes_per_second",
    "memory_bytes_per_second",
    "more_memory_bytes_per_second",
    "launch_seconds",
)
INSTRUCTION_SETS = ("AVX3", "AVX3_DL", "AVX2", "SSE4", "NEON")
ROW = re.compile(r'// (.+)\n    \{("\w*"(?:, "\w+")?), ([-+.e\d, ]+)\},')
TEXT = """\
// Measured by bench/calibrate.py, which writes this file. Flops are multiply-adds counted as two, of one core in a full
// register tile; bytes are read and written ones of a copy, where they are not said to be read only.
#pragma once
#include <string_view>

namespace vkconv::cpu {{

struct CoreRates {{
  std::string_view vendor;  // CPUID's
  std::string_view isa;     // Highway's name
  double f32_flops_per_second, f64_flops_per_second;
  double bf16_flops_per_second;  // of the dot product instruction; 0: there is none
}};

inline constexpr CoreRates kCoreRates[] = {{
{core}
}};

struct HostRates {{
  std::string_view vendor;
  double cache_bytes_per_second, shared_cache_bytes_per_second;  // of one core, inside L2 and L3
  double shared_cache_read_bytes_per_second;                     // of each core, when all of them read L3
  double memory_bytes_per_second, more_memory_bytes_per_second;  // of one core, and what every further core adds
  double launch_seconds;                                         // of one parallel section whose threads are awake
}};

// The first row serves every vendor without its own.
inline constexpr HostRates kHostRates[] = {{
{host}
}};

}}  // namespace vkconv::cpu
"""
Key = tuple[str, ...]  # vendor, and instruction set of a core's rates
Row = tuple[list[float], str]  # rates, and where they were measured
Rates = dict[str, float]


def measure(tool: Path, instruction_set: str, runs: int) -> tuple[str, Rates] | None:
    """The vendor and the best of several runs, or None where the processor lacks the instruction set."""
    vendor, best = "", Rates()
    for _ in range(runs):
        command = [str(tool), "--calibrate", f"--isa={instruction_set}"]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        if told.returncode:
            return None
        first, *lines = told.stdout.splitlines()
        vendor = first.partition(" ")[2]
        for name, value in (line.split() for line in lines):
            rate = float(value)
            better = min if name == "launch_seconds" else max
            best[name] = better(best.get(name, rate), rate)
    threads = best["threads"]
    more = best["memory_bytes_per_second_all_threads"] - best["memory_bytes_per_second"]
    best["more_memory_bytes_per_second"] = max(0.0, more / max(1.0, threads - 1))
    return vendor, best


def committed() -> dict[Key, Row]:
    """The rows of the header."""
    text = HEADER.read_text() if HEADER.exists() else ""
    return {tuple(json.loads(f"[{m[2]}]")): ([float(v) for v in m[3].split(", ")], m[1]) for m in ROW.finditer(text)}


def row_text(key: Key, row: Row) -> str:
    words = [f'"{word}"' for word in key] + [number(value) for value in row[0]]
    return f"    // {row[1]}\n    {{{', '.join(words)}}},"


def header_text(rows: dict[Key, Row]) -> str:
    """Vendors in the order in which they were measured, instruction sets from the widest vectors to the narrowest."""
    vendors = list(dict.fromkeys(key[0] for key in rows))
    core = [(v, isa) for v in vendors for isa in INSTRUCTION_SETS if (v, isa) in rows]
    text = {"core": core, "host": [(v,) for v in vendors if (v,) in rows]}
    return TEXT.format(**{part: "\n".join(row_text(key, rows[key]) for key in keys) for part, keys in text.items()})


def number(value: float) -> str:
    return f"{value:.3g}".replace("e+", "e").replace("e0", "e").replace("e-0", "e-")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/calibrate.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tool", type=Path, help="the vkconv_bench of a build with -DVKCONV_TESTS=ON")
    parser.add_argument("--runs", type=int, default=3, help="runs an instruction set (default: 3)")
    parser.add_argument("--cores", action="store_true", help="leave the rates of caches and memory as they are")
    parser.add_argument("--write", action="store_true", help="write cpp/cpu/rates.h")
    options = parser.parse_args()
    where = f"{machine.describe()['cpu']}, {date.today().isoformat()}"
    rows = committed()

    def update(key: Key, names: tuple[str, ...], rates: Rates) -> None:
        old, values = rows.get(key, ([0.0] * len(names), ""))[0], [rates[name] for name in names]
        print(*key, ", ".join(f"{n} {number(v)} (was {number(o)})" for n, v, o in zip(names, values, old, strict=True)))
        rows[key] = (values, where)

    host_is_told = options.cores
    for isa in INSTRUCTION_SETS:
        if isa == "AVX3_DL" or (measured := measure(options.tool, isa, options.runs)) is None:
            continue
        vendor, rates = measured
        if isa != "AVX3":
            rates["bf16_flops_per_second"] = 0.0
        # Processors without the dot product are older ones, slower with wide vectors: Highway's AVX3_DL.
        older = isa == "AVX3" and not rates["bf16_flops_per_second"]
        update((vendor, "AVX3_DL" if older else isa), CORE, rates)
        if not host_is_told:
            update((vendor,), MEMORY, rates)
        host_is_told = True
    if options.write:
        HEADER.write_text(header_text(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
