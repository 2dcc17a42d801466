"""`python -m benchmarks`: measure, print one table, and write the figures as JSON. A slow result is not a failure."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from .harness import ROOT, Bench
from .machine_info import describe_machine, raise_open_files, read_load_averages
from .peers.environment import PEERS, ensure_interpreter, read_pinned_versions
from .result_line import Line
from .result_table import format_table

LATEST = ROOT / "benchmarks" / "results" / "latest.json"


def main() -> int:
    """Return 0 unless something broke or a call failed; a time that misses its goal is only shown."""
    if sys.argv[1:2] == ["quality"]:
        from .quality.command import main as measure_quality

        return measure_quality(sys.argv[2:])
    if sys.argv[1:2] == ["compare"]:
        from .compare import main as compare_trees

        return compare_trees(sys.argv[2:])
    from .rows import ROWS  # imported here because the rows need psycopg, which the benchmarks above do not

    options = _parse_options(ROWS)
    if options.list:
        for name, row in ROWS.items():
            print(f"{name:16} {(row.__doc__ or '').splitlines()[0]}")
        return 0
    about: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "load before": read_load_averages()}
    # A termination signal must exit the blocks that own processes, or the processes would outlive us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    raise_open_files()
    peers = {name: ensure_interpreter(name) for name in PEERS} if _wants_peers(options) else {}
    with TemporaryDirectory() as folder:
        bench = Bench(
            is_quick=options.quick,
            folder=Path(folder),
            peers={name: python for name, python in peers.items() if python is not None},
            missing=[name for name, python in peers.items() if python is None],
        )
        lines, has_crashed = _measure_rows(bench, {name: ROWS[name] for name in options.only or ROWS})
    print(format_table(lines, list(peers)))
    about |= {
        "load after": read_load_averages(),
        "quick": options.quick,
        "peers": {name: read_pinned_versions(name) for name in peers},
    }
    _write_results(options.json, about | describe_machine(), lines)
    return 1 if has_crashed or any(line.has_failed for line in lines) else 0


def _measure_rows(bench: Bench, rows: Mapping[str, ModuleType]) -> tuple[list[Line], bool]:
    """Return the lines of these rows, and whether a row crashed. The other rows are still measured."""
    lines: list[Line] = []
    has_crashed = False
    for name, row in rows.items():
        begin = time.monotonic()
        try:
            for line in row.lines(bench):
                lines.append(line)
        except Exception:
            traceback.print_exc()
            has_crashed = True
        print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return lines, has_crashed


def _write_results(path: Path, about: dict[str, Any], lines: Sequence[Line]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = about | {"lines": [line.as_document() for line in lines]}
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    print(f"written to {path}", file=sys.stderr)


def _wants_peers(options: argparse.Namespace) -> bool:
    return bool(options.peers) if options.peers is not None else not options.quick


def _parse_options(rows: Iterable[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions and no peers: only whether it works")
    parser.add_argument("--only", action="append", choices=[*rows], metavar="ROW", help="this row; may be repeated")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, help="compare with other packages")
    parser.add_argument("--json", type=Path, default=LATEST, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--list", action="store_true", help="the rows that there are")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
