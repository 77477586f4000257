"""Writes README's table from bench results: python bench/table.py RESULT.json

The table stands between two marker lines of README.md; everything between them is replaced.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import report

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
TITLES = {"vkconv_prepared": "vkconv, prepared", "torch_cl": "PyTorch, channels last", "torch": "PyTorch"}
TITLES |= {"onnxruntime": "ONNX Runtime", "jax": "JAX", "mlx": "MLX"}


def table(result: dict[str, Any]) -> str:
    """A Markdown table, the best time of each row in bold, and a sentence about where it was measured."""
    rows = [row for row in result["rows"] if report.own(row)]
    names = report.columns(rows)
    lines = [
        "| ms | " + " | ".join(TITLES.get(name, name) for name in names) + " | best peer / vkconv |",
        "|---|" + "--:|" * (len(names) + 1),
    ]
    lines += [_line(row, names) for row in rows]
    ratios = [r for row in rows if (r := report.ratio(row))]
    lines += [
        f"| geometric mean | {'| ' * len(names)}| **{report.geomean(ratios):.2f}x** |",
        "",
        _caption(result, rows),
    ]
    return "\n".join(lines)


def _line(row: dict[str, Any], names: list[str]) -> str:
    timed = {name: r["ms"] for name, r in row["results"].items() if "ms" in r}
    best = min(timed, key=lambda name: timed[name])
    cells = []
    for name in names:
        text = report.cell(row["results"].get(name))
        cells.append(f"**{text}**" if name == best else text)
    ratio = report.ratio(row)
    return f"| `{row['case']}` | {' | '.join(cells)} | {f'{ratio:.2f}x' if ratio else ''} |"


def _caption(result: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    m = result["machine"]
    versions = ", ".join(f"{TITLES.get(n, n)} {v}" for n, v in result["versions"].items() if n not in report.OURS)
    losses = sum(1 for row in rows if (r := report.ratio(row)) and r < 1)
    return (
        f"Median milliseconds, float32, one process, {result['threads']} threads on {m['cpu']}, {m['date']}, commit "
        f"{m['commit']}: `{command(result)}`. Every answer was compared with fp64 before it was timed. {losses} of "
        f"{len(rows)} rows are lost. {versions}."
    )


def command(result: dict[str, Any]) -> str:
    """What measures these columns again."""
    peers = [name for name in result["versions"] if name not in report.OURS]
    device = "" if result["device"] == "cpu" else f" --device {result['device']}"
    return f"./run bench --suite {result['suite']}{device} --peers {','.join(peers) or 'none'}"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    result = json.loads(Path(sys.argv[1]).read_text())
    text = README.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n{table(result)}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
