"""Draws the figures of a bench result: the times of the best peers over vkconv's, and all cases under a roofline.

    python bench/plot.py bench/results/cpu_peers.json --to figures
    python bench/plot.py bench/results/h200.json --peak 990000 --bandwidth 4150

Writes `<result>_speedup.svg` and `<result>_roofline.svg`. --peak (billion operations a second) and --bandwidth (GB/s)
are the device's; without them the roof is what the cases themselves reach.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine, report

Row = dict[str, Any]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/plot.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("result", type=Path, help="JSON of bench/run.py or bench/gpu.py")
    parser.add_argument("--to", type=Path, default=Path(), help="directory of the figures (default: here)")
    parser.add_argument("--peak", type=float, help="billion operations a second")
    parser.add_argument("--bandwidth", type=float, help="GB/s")
    return parser.parse_args()


def name(row: Row) -> str:
    return f"{row['case']} {row['dtype']}" if "dtype" in row else str(row["case"])


def colors(rows: list[Row]) -> dict[str, str]:
    """A color for each family, in the order they appear."""
    return {family: f"C{i % 10}" for i, family in enumerate(dict.fromkeys(row["family"] for row in rows))}


def draw_speedups(axis: Any, rows: list[Row]) -> None:
    """A bar a case, to the right of 1 where vkconv is faster."""
    timed = sorted((row for row in rows if report.ratio(row)), key=lambda row: report.ratio(row) or 0)
    shade = colors(rows)
    ratios = [report.ratio(row) or 0 for row in timed]
    axis.barh([name(r) for r in timed], [r - 1 for r in ratios], left=1, color=[shade[r["family"]] for r in timed])
    axis.axvline(1, color="k", lw=1)
    axis.set_xscale("log")
    axis.tick_params(axis="y", labelsize=7)
    axis.margins(y=0.01)
    mean = report.geomean(ratios)
    axis.set(xlabel="time of the best peer / vkconv's", title=f"{len(timed)} cases, geometric mean {mean:.2f}")


def points(rows: list[Row]) -> list[tuple[Row, float, float]]:
    """Of each case operations a byte, and billion operations a second."""
    speeds = [1e3 * row["gflop"] / row["results"][report.own(row)]["ms"] for row in rows]
    return [(row, 1e3 * row["gflop"] / row["megabytes"], speed) for row, speed in zip(rows, speeds, strict=True)]


def draw_roofline(axis: Any, rows: list[Row], peak: float | None, bandwidth: float | None) -> None:
    found = points(rows)
    peak = peak or max(speed for _, _, speed in found)
    bandwidth = bandwidth or max(speed / intensity for _, intensity, speed in found)
    reach = [min(intensity for _, intensity, _ in found) / 2, max(intensity for _, intensity, _ in found) * 2]
    corners = sorted({reach[0], min(max(peak / bandwidth, reach[0]), reach[1]), reach[1]})
    axis.loglog(corners, [min(x * bandwidth, peak) for x in corners], "k-", lw=1)
    for family, color in colors(rows).items():
        of_family = [(x, y) for row, x, y in found if row["family"] == family]
        if of_family:
            axis.loglog(*zip(*of_family, strict=True), "o", color=color, label=family)
    for row, x, y in found:
        axis.annotate(name(row), (x, y), xytext=(4, 2), textcoords="offset points", fontsize=5)
    axis.legend(fontsize=7)
    axis.set(xlabel="operations a byte", ylabel="billion operations a second")
    axis.set_title("operations that Winograd saves count as done")


def main() -> int:
    """Command line entry point."""
    options = arguments()
    machine.require("matplotlib")
    from matplotlib.figure import Figure

    rows = [row for row in json.loads(options.result.read_text())["rows"] if report.own(row)]
    options.to.mkdir(parents=True, exist_ok=True)
    speedup = Figure(figsize=(8, 1 + 0.16 * len(rows)), layout="constrained")
    draw_speedups(speedup.add_subplot(), rows)
    roofline = Figure(figsize=(10, 7), layout="constrained")
    draw_roofline(roofline.add_subplot(), rows, options.peak, options.bandwidth)
    for kind, figure in (("speedup", speedup), ("roofline", roofline)):
        path = options.to / f"{options.result.stem}_{kind}.svg"
        figure.savefig(path)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
