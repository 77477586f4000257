"""The shares of lines and branches that the tests run, as a table; fails below what they must be.

`./run coverage` makes the two files: gcovr --json-summary over cpp/core, coverage json over python/vkconv.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

LEAST = {"lines": 95.0, "branches": 90.0}  # percent
KEYS = {
    "cpp/core": {"lines": ("line_covered", "line_total"), "branches": ("branch_covered", "branch_total")},
    "python/vkconv": {
        "lines": ("covered_lines", "num_statements"),
        "branches": ("covered_branches", "num_branches"),
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cpp", type=Path, help="what gcovr --json-summary wrote")
    parser.add_argument("python", type=Path, help="what coverage json wrote")
    args = parser.parse_args()
    totals = {
        "cpp/core": json.loads(args.cpp.read_text()),
        "python/vkconv": json.loads(args.python.read_text())["totals"],
    }
    print("| | lines | branches |\n|---|--:|--:|")
    low = False
    for part, keys in KEYS.items():
        counts = {what: (totals[part][covered], totals[part][total]) for what, (covered, total) in keys.items()}
        shares = {what: 100 * covered / total for what, (covered, total) in counts.items()}
        low |= any(shares[what] < LEAST[what] for what in LEAST)
        cells = (f"{shares[what]:.1f} % of {total:,}" for what, (_, total) in counts.items())
        print(f"| `{part}` | {' | '.join(cells)} |")
    return int(low)


if __name__ == "__main__":
    sys.exit(main())
