"""`python -m benchmarks compare TREE`: measure this tree and another one in turn, and print how they differ."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from .harness import LIMIT, OURS, ROOT
from .result_line import PER_SECOND
from .rows import ROWS


class Measured(NamedTuple):
    """One of Podium's figures in one round, and the baseline's figure if the line has one."""

    unit: str
    ours: float
    limit: float | None


Key = tuple[str, str]
"""The row and the text of a line."""


def main(arguments: Sequence[str]) -> int:
    """Measure the trees in turn, print the table, and return 0. A slower tree is not a failure."""
    options = _parse_options(arguments)
    python = options.other / ".venv" / "bin" / "python"
    if not python.is_file():
        print(f"no environment in {options.other} (looked for {python}); run make test there first", file=sys.stderr)
        return 2
    # The interpreter of each tree has that tree's Podium installed.
    trees = [(options.other.resolve(), python), (ROOT, Path(sys.executable))]
    words = [word for row in options.only or ROWS for word in ("--only", row)] + ["--quick"] * options.quick
    taken: tuple[dict[Key, list[Measured]], ...] = (defaultdict(list), defaultdict(list))
    for turn in range(options.rounds):
        # The order changes each round, so that a machine that slows down favours neither tree.
        for index in (0, 1) if turn % 2 == 0 else (1, 0):
            root, interpreter = trees[index]
            for key, measured in _measure(root, interpreter.absolute(), words).items():
                taken[index][key].append(measured)
    if not all(taken):
        return 1
    print(format_comparison(*taken))
    return 0


def _measure(root: Path, python: Path, words: Sequence[str]) -> dict[Key, Measured]:
    """Run the benchmarks of a tree in their own process, and return its figures."""
    with TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [str(python), "-m", "benchmarks", "--no-peers", *words, "--json", str(result)]
        subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, check=False)
        if not result.exists():
            print(f"the benchmarks of {root} wrote no result", file=sys.stderr)
            return {}
        lines = json.loads(result.read_text())["lines"]
    return {
        (line["row"], line["what"]): Measured(
            line["unit"],
            line["figures"][OURS]["median"],
            line["figures"][LIMIT]["median"] if LIMIT in line["figures"] else None,
        )
        for line in lines
    }


def format_comparison(other: dict[Key, list[Measured]], ours: dict[Key, list[Measured]]) -> str:
    """Format a row for each line that both trees have: medians of the rounds, and this tree's as a ratio of times.

    If there is a baseline, the last column compares the ratios to it, which change less with the machine's speed.
    """
    rows = [("row", "what", "other tree", "this tree", "this/other", "relative to the limit")]
    for key in (key for key in other if key in ours):
        unit = ours[key][0].unit
        before, after = (median(measured.ours for measured in tree[key]) for tree in (other, ours))
        figures = (f"{before:.4g} {unit}", f"{after:.4g} {unit}", _format_ratio(before, after, unit))
        rows.append((*key, *figures, _compare_with_limit(other[key], ours[key], unit)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _compare_with_limit(other: Sequence[Measured], ours: Sequence[Measured], unit: str) -> str:
    before, after = (
        [measured.ours / measured.limit for measured in tree if measured.limit is not None] for tree in (other, ours)
    )
    return _format_ratio(median(before), median(after), unit) if before and after else ""


def _format_ratio(before: float, after: float, unit: str) -> str:
    return f"{before / after if unit == PER_SECOND.name else after / before:.2f}×"


def _parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=__doc__)
    parser.add_argument("other", type=Path, metavar="TREE", help="a checkout of another version, set up by make test")
    parser.add_argument("--only", action="append", choices=ROWS, metavar="ROW", help="this row; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="few repetitions: only whether it works")
    return parser.parse_args(arguments)
