"""Measures the rates behind the CPU's estimates and writes them to cpp/cpu/rates.h.

    python bench/calibrate.py build/dev/vkconv_bench            measures and compares with what is committed
    python bench/calibrate.py build/dev/vkconv_bench --write    writes the header

Rows of other vendors and of instruction sets this processor lacks stay as they are. The best of several runs counts:
rates are those of a machine that nothing else uses, of two of its CPUs (cpu/device.cpp says what more of them add). Of
memory and of parts it is the median: L3 holds more of an array at times, and where others use the machine, tiles load
at a half to a third of the rate.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine

HEADER = Path(__file__).parents[1] / "cpp" / "cpu" / "rates.h"
CORE = (
    "f32_flops_per_second",
    "f64_flops_per_second",
    "bf16_flops_per_second",
    "bf16_tile_flops_per_second",
    "f32_parts_flops_per_second",
)
BF16 = slice(2, 5)  # of CORE
MEMORY = (
    "cache_bytes_per_second",
    "shared_cache_bytes_per_second",
    "shared_cache_read_bytes_per_second",
    "memory_bytes_per_second",
    "more_memory_bytes_per_second",
    "memory_read_bytes_per_second",
    "launch_seconds",
)
INSTRUCTION_SETS = ("AVX3", "AVX2", "SSE4", "NEON")
ROW = re.compile(r"// (.+)\n    \{(.+)\},")
TEXT = """\
// Measured by bench/calibrate.py, which writes this file. Flops are multiply-adds counted as two, of one core in a full
// register tile; bytes are read and written ones of a copy, where they are not said to be read only.
#pragma once
#include <string_view>

namespace vkconv::cpu {{

struct CoreRates {{
  std::string_view vendor;  // CPUID's, as the family
  int family;
  std::string_view isa;  // Highway's name
  bool avx10;
  double f32_flops_per_second, f64_flops_per_second;
  double bf16_flops_per_second, bf16_tile_flops_per_second;  // of the dot product, of matrix tiles; 0: there is none
  double f32_parts_flops_per_second;                         // of float32 as parts in tiles
}};

inline constexpr CoreRates kCoreRates[] = {{
{core}
}};

struct HostRates {{
  std::string_view vendor;
  int family;
  double cache_bytes_per_second, shared_cache_bytes_per_second;  // of one core, inside L2 and L3
  double shared_cache_read_bytes_per_second;                     // of each of two cores that read L3
  double memory_bytes_per_second, more_memory_bytes_per_second;  // of one core, and what a second one adds
  double memory_read_bytes_per_second;  // of two cores that read; Zen 4's is that of weights of winograd
  double launch_seconds;                // of one parallel section whose threads are awake
}};

// The first row serves every vendor without its own.
inline constexpr HostRates kHostRates[] = {{
{host}
}};

}}  // namespace vkconv::cpu
"""
Rates = dict[str, float]
OF_RUNS: dict[str, Callable[[list[float]], float]] = {
    "launch_seconds": min,
    "memory_bytes_per_second": statistics.median,
    "memory_bytes_per_second_all_threads": statistics.median,
    "memory_read_bytes_per_second": statistics.median,
    "f32_parts_flops_per_second": statistics.median,
}


class Row(NamedTuple):
    """Of a core's instruction set; or, without one, of the caches and memory."""

    where: str
    vendor: str
    family: int
    isa: str
    avx10: bool
    rates: list[float]

    def replaces(self, other: Row) -> bool:
        """Processors of one family may differ in AVX10 and the instructions for bfloat16, which the newer ones have."""
        same = self[1:5] == other[1:5]
        return same and (not self.isa or self.has_bf16() == other.has_bf16())

    def has_bf16(self) -> list[bool]:
        return [rate > 0 for rate in self.rates[BF16]]

    def order(self) -> tuple[str, int, int, float]:
        """Newer families and wider vectors first."""
        width = INSTRUCTION_SETS.index(self.isa) if self.isa else 0
        return self.vendor, -self.family, width, -sum(self.rates[BF16])

    def text(self) -> str:
        key = [f'"{self.vendor}"', str(self.family)]
        key += [f'"{self.isa}"', str(self.avx10).lower()] if self.isa else []
        return f"    // {self.where}\n    {{{', '.join(key + [number(rate) for rate in self.rates])}}},"


def measure(tool: Path, instruction_set: str, runs: int) -> tuple[str, Rates] | None:
    """The vendor and the best of several runs, or None where the processor lacks the instruction set."""
    vendor, told_rates = "", defaultdict[str, list[float]](list)
    for _ in range(runs):
        command = [str(tool), "--calibrate", f"--isa={instruction_set}"]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        if told.returncode:
            return None
        first, *lines = told.stdout.splitlines()
        vendor = first.partition(" ")[2]
        for name, value in (line.split() for line in lines):
            told_rates[name].append(float(value))
    best = {name: OF_RUNS.get(name, max)(rates) for name, rates in told_rates.items()}
    threads = best["threads"]
    more = best["memory_bytes_per_second_all_threads"] - best["memory_bytes_per_second"]
    best["more_memory_bytes_per_second"] = max(0.0, more / max(1.0, threads - 1))
    return vendor, best


def committed() -> list[Row]:
    """The rows of the header."""
    rows = []
    for match in ROW.finditer(HEADER.read_text()):
        vendor, family, *rest = json.loads(f"[{match[2]}]")
        isa, avx10, rates = (rest[0], rest[1], rest[2:]) if isinstance(rest[0], str) else ("", False, rest)
        rows.append(Row(match[1], vendor, family, isa, avx10, [float(rate) for rate in rates]))
    return rows


def header_text(rows: list[Row]) -> str:
    ordered = sorted(rows, key=Row.order)
    core, host = ([row.text() for row in ordered if bool(row.isa) == of_core] for of_core in (True, False))
    return TEXT.format(core="\n".join(core), host="\n".join(host))


def number(value: float) -> str:
    return f"{value:.3g}".replace("e+", "e").replace("e0", "e").replace("e-0", "e-")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/calibrate.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tool", type=Path, help="the vkconv_bench of a build with -DVKCONV_TESTS=ON")
    parser.add_argument("--runs", type=int, default=3, help="runs an instruction set (default: 3)")
    parser.add_argument("--cores", action="store_true", help="leave the rates of caches and memory as they are")
    parser.add_argument("--write", action="store_true", help="write cpp/cpu/rates.h")
    options = parser.parse_args()
    machine.pin(2)
    where = f"{machine.describe()['cpu']}, {date.today().isoformat()}"
    rows = committed()

    def update(vendor: str, isa: str, names: tuple[str, ...], rates: Rates) -> None:
        avx10 = isa == "AVX3" and rates["avx10"] > 0
        new = Row(where, vendor, int(rates["family"]), isa, avx10, [rates[name] for name in names])
        old = next((row.rates for row in rows if new.replaces(row)), [0.0] * len(names))
        told = (f"{n} {number(v)} (was {number(o)})" for n, v, o in zip(names, new.rates, old, strict=True))
        print(vendor, new.family, isa, ", ".join(told))
        rows[:] = [row for row in rows if not new.replaces(row)] + [new]

    host_is_told = options.cores
    for isa in INSTRUCTION_SETS:
        if (measured := measure(options.tool, isa, options.runs)) is None:
            continue
        vendor, rates = measured
        if isa != "AVX3":
            rates.update(dict.fromkeys(CORE[BF16], 0.0))
        update(vendor, isa, CORE, rates)
        if not host_is_told:
            update(vendor, "", MEMORY, rates)
        host_is_told = True
    if options.write:
        HEADER.write_text(header_text(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
