"""Bench results as text: one row a case, geometric means by family, every loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from bench.peers import NO_GRADIENTS

OURS = ("vkconv_prepared", "vkconv")  # the first that was timed stands against the peers
Row = dict[str, Any]


def own(row: Row) -> str | None:
    """The name under which vkconv's own time of this row stands."""
    return next((name for name in OURS if "ms" in row["results"].get(name, {})), None)


def is_right(row: Row) -> bool:
    """Whether vkconv timed this row in every mode that was asked for; gradients have one."""
    asked = [r for n in OURS if (r := row["results"].get(n)) and r.get("refused") != NO_GRADIENTS]
    return bool(asked) and all("ms" in result for result in asked)


def best_peer(row: Row) -> str | None:
    """The fastest other library with a right answer."""
    timed = {n: r["ms"] for n, r in row["results"].items() if n not in OURS and "ms" in r}
    return min(timed, key=lambda n: timed[n]) if timed else None


def ratio(row: Row) -> float | None:
    """How many times faster than the best peer."""
    mine, peer = own(row), best_peer(row)
    return row["results"][peer]["ms"] / row["results"][mine]["ms"] if mine and peer else None


def geomean(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def number(ms: float) -> str:
    """Three significant digits."""
    return f"{ms:.3f}" if ms < 1 else f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def cell(result: Row | None) -> str:
    if result is None:
        return ""
    return number(result["ms"]) if "ms" in result else "wrong" if "error" in result else "-"


def columns(rows: Sequence[Row]) -> list[str]:
    """vkconv first, then the peers in the order they appear."""
    seen = dict.fromkeys(name for row in rows for name in row["results"])
    return [n for n in reversed(OURS) if n in seen] + [n for n in seen if n not in OURS]


def line(row: Row, names: Sequence[str]) -> str:
    cells = "".join(f"{cell(row['results'].get(name)):>{max(9, len(name) + 1)}}" for name in names)
    r = ratio(row)
    return f"{row['case']:<28}{row['gflop']:>8.2f}{cells}{f'{r:.2f}x' if r else '':>8}  {row.get('plan', '')}"


def header(names: Sequence[str]) -> str:
    cells = "".join(f"{name:>{max(9, len(name) + 1)}}" for name in names)
    return f"{'case (median ms)':<28}{'GFLOP':>8}{cells}{'ratio':>8}  plan"


def by_family(rows: Sequence[Row]) -> dict[str, tuple[float, int]]:
    """Geometric mean of the ratios and the number of cases, a family."""
    means = {}
    for family in dict.fromkeys(row["family"] for row in rows):
        ratios = [r for row in rows if row["family"] == family and (r := ratio(row))]
        if ratios:
            means[family] = (geomean(ratios), len(ratios))
    return means


def summary(rows: Sequence[Row]) -> str:
    ratios = [r for row in rows if (r := ratio(row))]
    if not ratios:
        return "no case was timed both here and by a peer"
    lines = ["", "times faster than the best peer, geometric means:"]
    lines += [f"  {family:<28}{mean:6.2f}x  ({count})" for family, (mean, count) in by_family(rows).items()]
    lines += [f"  {'all':<28}{geomean(ratios):6.2f}x  ({len(ratios)})"]
    losses = sorted(((r, row) for row in rows if (r := ratio(row)) and r < 1), key=lambda pair: pair[0])
    lines += [f"losses: {len(losses)}"]
    lines += [f"  {row['case']:<28}{r:6.2f}x of {best_peer(row)}" for r, row in losses]
    return "\n".join(lines)
