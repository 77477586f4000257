"""Tables and progress: rich on a terminal where it is installed, plain text otherwise."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

Row = Sequence[str]


def table(title: str, columns: Sequence[str], rows: Sequence[Row], right: Sequence[str] = ()) -> None:
    """Prints rows under their columns; the columns named in `right` are aligned to the right."""
    if sys.stdout.isatty() and _rich_table(title, columns, rows, right):
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    print(f"\n{title}")
    for row in (columns, *rows):
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        ]
        print("  " + "  ".join(cells).rstrip())


def _rich_table(title: str, columns: Sequence[str], rows: Sequence[Row], right: Sequence[str]) -> bool:
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return False
    view = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in columns:
        view.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        view.add_row(*row)
    Console(highlight=False).print(view)
    return True


class Progress:
    """`with Progress(total) as p: p.step("what is being done")` shows a bar, or one changing line without rich, on a
    terminal and nothing elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._shown = sys.stderr.isatty()
        self._bar = _rich_bar() if self._shown else None
        self._task = self._bar.add_task("", total=total) if self._bar else None

    def step(self, label: str) -> None:
        """Names the step that begins."""
        self._done += 1
        if self._bar:
            self._bar.update(self._task, completed=self._done - 1, description=label)
        elif self._shown:
            width = shutil.get_terminal_size().columns - 1
            text = f"[{self._done}/{self._total}] {label}"
            print(f"\r{text[:width]:<{width}}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        elif self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _rich_bar() -> Any:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        return None
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    return Progress(*columns, console=Console(stderr=True), transient=True)


def as_json(value: Any) -> str:
    """JSON text; infinities and NaN, which JSON lacks, are null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(v) for key, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(value), indent=2)


def milliseconds(seconds: float) -> str:
    """Three significant digits."""
    ms = seconds * 1e3
    return f"{ms:.3f}" if ms < 1 else f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"


def size(count: float) -> str:
    """Bytes in a unit that fits."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
