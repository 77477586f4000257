"""Writes README's tables from bench results: python bench/table.py RESULT.json

A table stands between two marker lines of README.md, one pair for results of bench/run.py and one for those of
bench/gpu.py; everything between them is replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import report

HALVES_ROUNDED = 0.995  # of the outputs
README = Path(__file__).parents[1] / "README.md"
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


def gpu_table(result: dict[str, Any]) -> str:
    """The mean ratio of every kind of case and dtype; folded away, every case under its kind, losses too."""
    rows = result["rows"]
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    rule = "|---|" + "--:|" * len(dtypes)
    means = ["| cuDNN's time / vkconv's | " + " | ".join(dtypes) + " |", rule]
    cases = ["| us, vkconv / cuDNN (ratio) | " + " | ".join(dtypes) + " |", rule]
    for kind in dict.fromkeys(row["family"] for row in rows):
        of_kind = [row for row in rows if row["family"] == kind]
        mean = [_mean([row for row in of_kind if row["dtype"] == dtype]) for dtype in dtypes]
        means.append(f"| {kind} | " + " | ".join(mean) + " |")
        cases.append(f"| **{kind}** |" + " |" * len(dtypes))
        for name in dict.fromkeys(row["case"] for row in of_kind):
            by_dtype = {row["dtype"]: row for row in of_kind if row["case"] == name}
            cases.append(f"| `{name}` | " + " | ".join(_pair(by_dtype.get(dtype)) for dtype in dtypes) + " |")
    folded = ["<details><summary>Every case</summary>", "", *cases, "", "</details>"]
    return "\n".join([*means, "", _gpu_caption(result), "", *folded])


def _mean(rows: list[dict[str, Any]]) -> str:
    ratios = [r for row in rows if (r := report.ratio(row))]
    return f"{report.geomean(ratios):.2f}x" if ratios else ""


def _pair(row: dict[str, Any] | None) -> str:
    if row is None or not report.own(row):
        return "-"
    times = [row["results"].get(name, {}).get("ms") for name in ("vkconv_prepared", "cudnn")]
    own, peer = (f"{report.number(ms * 1e3)}" if ms else "-" for ms in times)
    ratio = report.ratio(row)
    return f"{own} / {peer}" + (f" ({ratio:.2f}x)" if ratio else "")


def _gpu_caption(result: dict[str, Any]) -> str:
    m = result["machine"]
    ratios = [r for row in result["rows"] if (r := report.ratio(row))]
    return (
        f"Microseconds of device time, weights prepared, clocks warmed, one run on {m['gpu']}, {m['date']}, commit "
        f"{m['commit']}: `python bench/gpu.py`. cuDNN {result['versions']['cudnn']}: benchmark on, the better layout, "
        f"no TF32, replayed from a CUDA graph; - where it took over 8 s or refused. Samples of every answer were "
        f"compared with fp64{_halves(result['rows'])}. {sum(r < 1 for r in ratios)} of {len(ratios)} rows are lost."
    )


def _halves(rows: list[dict[str, Any]]) -> str:
    """The least share of correctly rounded results: matrix units cut off what they align, which long sums show.

    Of Winograd, which rounds its points too, each c.
    """
    halves = [(row, row["results"][report.own(row)]) for row in rows if row["dtype"] != "f32" and report.own(row)]
    winograd = [result["c"] for row, result in halves if "winograd" in row["plan"]]
    shares = [(result["rounded"], row) for row, result in halves if "winograd" not in row["plan"]]
    if not shares:
        return ""
    least, worst = min(shares, key=lambda pair: pair[0])
    below = sum(share < HALVES_ROUNDED for share, _ in shares)
    text = (
        f": of the halves' samples {HALVES_ROUNDED:.1%} should be correctly rounded, which {below} of {len(shares)} "
        f"cases miss (least: {least:.1%}, {worst['case']} in {worst['dtype']})"
    )
    return text + (f"; Winograd's error c is at most {max(winograd):.2g} in {len(winograd)}" if winograd else "")


def main() -> int:
    """Command line entry point."""
    parser = argparse.ArgumentParser(prog="bench/table.py", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("result", type=Path, help="what bench/run.py or bench/gpu.py wrote")
    result = json.loads(parser.parse_args().result.read_text())
    on_gpu = "gpu" in result["machine"]
    name, text = ("gpu", gpu_table(result)) if on_gpu else ("bench", table(result))
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    readme = README.read_text()
    before, rest = readme.split(begin)
    after = rest.split(end)[1]
    README.write_text(f"{before}{begin}\n{text}\n{end}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
