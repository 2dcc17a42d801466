"""Format the forecast of how workers' branches would merge."""

from __future__ import annotations

from collections.abc import Iterator

from ...values.plain_text import escape_unprintable, format_count, join_some
from ...workspace.merging.overlap_forecast import Forecast, Overlap

MOST_FILES = 5


def format_forecast(merge_forecast: Forecast) -> Iterator[str]:
    """Yield the forecast as lines, first for each branch, then for each pair of branches."""
    for one in merge_forecast.onto_target:
        change = merge_forecast.changes[one.first]
        files, commits = format_count(len(change.files), "file"), format_count(len(change.commits), "commit")
        how = (
            f"merges onto {merge_forecast.onto}"
            if one.merges
            else f"would conflict with {merge_forecast.onto}{_format_conflict(one)}"
        )
        how = f"already in {merge_forecast.onto}" if one.is_in else how
        yield f"{one.first}: {files}, +{change.added} -{change.removed}, {commits}; {how}"
    for one in merge_forecast.pairs:
        shared = f"both change {_format_file_list(one.files)}" if one.files else "have no files in common"
        how = "would merge" if one.merges else f"would conflict{_format_conflict(one)}"
        yield f"{one.first} and {one.second} {shared}; they {how}"


def _format_conflict(one: Overlap) -> str:
    where = f" in {_format_file_list(one.conflict_files)}" if one.conflict_files else ""
    return f"{where}, because of changes in {one.through}" if one.through else where


def _format_file_list(files: tuple[str, ...]) -> str:
    return join_some([escape_unprintable(file) for file in files], MOST_FILES)
