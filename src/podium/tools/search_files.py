"""Provide the tools `glob`, which finds files by path, and `grep`, which finds lines by content."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import translate
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from msgspec import Meta

from ..core.engine import ToolAnswer
from ..core.gate import InvalidCall, PreparedCall
from ..core.tool_call import Arguments, build_schema, canonical_arguments, parse_arguments
from ..system.child_process import Wrap
from ..values.action import Action
from ..values.event import ToolUse
from ..values.plain_text import join_some
from ..workspace.git.repository import find_trusted_program, locate_checkout
from . import line_search
from .checkout_files import LocatedPath, open_checkout
from .file_listing import Hidden, holds_secrets, list_files
from .line_search import GrepQuery
from .read_write_files import encode_utf8

SHOWN_FILES = 500
LONGEST_LINE = 500
LARGEST_ANSWER = 64 * 1024
MOST_HIDDEN = 5
"""The maximum number of files named in a search result because agents must not read them."""

Under = str
"""Where to search, relative to the checkout."""


async def _locate_existing(directory: Path, path: str) -> LocatedPath:
    def locate_path() -> LocatedPath:
        with open_checkout(directory) as checkout:
            found = checkout.locate(path)
        if found.kind == "absent":
            raise InvalidCall(f"{found.path} does not exist; leave `path` out to search everywhere.")
        return found

    return await to_thread.run_sync(locate_path)


# By name


class GlobArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of glob."""

    pattern: Annotated[str, Meta(description="E.g. *.py or src/**/*.{ts,tsx}")] = "*"
    path: Under = "."


class Glob:
    """`glob`: lists the files whose paths match a pattern, newest first."""

    name = "glob"
    description = "List files that match a pattern, newest first."
    parameters = build_schema(GlobArguments)
    is_parallel = True
    timeout = 90.0

    def __init__(self, directory: Path, *, hidden: Hidden = holds_secrets) -> None:
        self._directory = directory
        self._place = locate_checkout(directory)
        self._hidden = hidden

    async def prepare(self, call: ToolUse) -> PreparedCall:
        asked = parse_arguments(call, GlobArguments)
        matches = compile_glob(asked.pattern)
        found = await _locate_existing(self._directory, asked.path)
        if found.kind != "directory":
            raise InvalidCall(f"{found.path} is a file; give a directory as `path`.")

        async def list_matches() -> ToolAnswer:
            prefix = "" if found.path == "." else f"{found.path}/"
            paths = await list_files(self._directory, found.path, place=self._place, hidden=self._hidden)
            matching = [path for path in paths if matches(path.removeprefix(prefix))]
            return self._format_paths(await to_thread.run_sync(self._sort_newest_first, matching), asked.pattern)

        return PreparedCall(arguments=canonical_arguments(asked, path=found.path), act=list_matches, is_read_only=True)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None

    def _sort_newest_first(self, paths: list[str]) -> list[str]:
        """Return the paths that are files or links, newest first. Links are not followed."""
        times: dict[str, int] = {}
        with open_checkout(self._directory) as checkout:
            for path in paths:
                try:
                    there = os.stat(path, dir_fd=checkout.fd, follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode):
                    times[path] = there.st_mtime_ns
        return sorted(times, key=lambda path: (-times[path], path))

    def _format_paths(self, paths: list[str], pattern: str) -> ToolAnswer:
        if not paths:
            return ToolAnswer(text=f"No file matches {pattern}.")
        left = len(paths) - SHOWN_FILES
        more = [f"[{left} more files match; narrow the pattern or the path]"] if left > 0 else []
        return ToolAnswer(text="\n".join([*paths[:SHOWN_FILES], *more]))


# By content


LONGEST_PATTERN = 10_000


class GrepArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of grep."""

    pattern: str
    path: Under = "."
    glob: Annotated[str | None, Meta(description="E.g. *.py")] = None
    ignore_case: bool = False
    context: Annotated[int, Meta(ge=0, le=20, description="Lines around a match")] = 0
    max: Annotated[int, Meta(ge=1, le=2000, description="Most matches")] = 200


class Grep:
    """`grep`: returns the matching lines as `path:line:text`, and context lines as `path-line-text`.

    `ripgrep` controls whether ripgrep is used to search directories; by default, it is used if it is installed.
    """

    name = "grep"
    description = "Search files for lines that match a regular expression."
    parameters = build_schema(GrepArguments)
    is_parallel = True
    timeout = line_search.TIMEOUT + 90.0

    def __init__(
        self,
        directory: Path,
        *,
        hidden: Hidden = holds_secrets,
        wrap: Wrap | None = None,
        ripgrep: bool | None = None,
    ) -> None:
        self._directory = directory
        self._place = locate_checkout(directory)
        self._hidden = hidden
        self._wrap = wrap
        self._ripgrep = find_trusted_program("rg", outside=directory) if ripgrep is not False else None
        if ripgrep and self._ripgrep is None:
            raise ValueError("ripgrep was requested, but is not installed")

    async def prepare(self, call: ToolUse) -> PreparedCall:
        asked = parse_arguments(call, GrepArguments)
        encode_utf8(asked.pattern, "pattern")
        if len(asked.pattern) > LONGEST_PATTERN:
            raise InvalidCall(f"`pattern` has {len(asked.pattern)} characters; the maximum is {LONGEST_PATTERN}.")
        if not asked.pattern or "\n" in asked.pattern or "\0" in asked.pattern:
            raise InvalidCall(
                "`pattern` is empty, spans lines or contains a NUL; give an expression that matches within one line."
            )
        if self._ripgrep is None:
            _require_valid_pattern(asked)
        found = await _locate_existing(self._directory, asked.path)
        query = GrepQuery(
            pattern=asked.pattern, ignore_case=asked.ignore_case, context=asked.context, max_matches=asked.max
        )
        matches = compile_glob(asked.glob or "*")

        async def search_lines() -> ToolAnswer:
            hits = await self._search(found, query, matches)
            others = 0
            if not (hits.lines or hits.error or hits.has_timed_out or query.ignore_case):
                ignoring_case = replace(query, ignore_case=True, context=0)
                others = len((await self._search(found, ignoring_case, matches)).lines)
            hidden = [] if found.kind == "file" else sorted(path for path in hits.unread if self._hidden(path))
            return _format_hits(asked, hits, hidden, with_ignore_case=others)

        return PreparedCall(arguments=canonical_arguments(asked, path=found.path), act=search_lines, is_read_only=True)

    async def _search(self, found: LocatedPath, query: GrepQuery, matches: Callable[[str], bool]) -> line_search.Hits:
        """Return the hits in a file, or in the files below a directory that match."""
        if found.kind == "file":
            return await line_search.search_files(self._directory, [found.path], query)
        prefix = "" if found.path == "." else f"{found.path}/"

        def is_searched(path: str) -> bool:
            return not self._hidden(path) and matches(path.removeprefix(prefix))

        if self._ripgrep is not None:
            return await line_search.search_with_ripgrep(
                self._ripgrep, self._directory, found.path, query, is_searched, self._wrap
            )
        paths = await list_files(
            self._directory, found.path, place=self._place, hidden=lambda path: not is_searched(path)
        )
        return await line_search.search_files(self._directory, paths, query)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None


def _require_valid_pattern(asked: GrepArguments) -> None:
    try:
        re.compile(asked.pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidCall(
            f"`pattern` is not a valid regular expression: {error}; escape literal characters."
        ) from error


def _format_hits(
    asked: GrepArguments, hits: line_search.Hits, hidden: Sequence[str] = (), *, with_ignore_case: int = 0
) -> ToolAnswer:
    """Return the hits as text. `with_ignore_case` is how many lines match if the case is ignored, if none does else."""
    if hits.error:
        return ToolAnswer(text=f"grep could not search: {hits.error}", is_error=True)
    shown: list[str] = []
    size, is_cut = 0, hits.is_cut
    last = ("", 0)
    for hit in hits.lines:
        if asked.context and shown and (hit.path, hit.line) != (last[0], last[1] + 1):
            shown.append("--")
        text = hit.text if len(hit.text) <= LONGEST_LINE else f"{hit.text[:LONGEST_LINE]} [cut]"
        mark = ":" if hit.is_match else "-"
        shown.append(f"{hit.path}{mark}{hit.line}{mark}{text}")
        last = (hit.path, hit.line)
        size += len(shown[-1])
        if size > LARGEST_ANSWER:
            is_cut = True
            break
    if hits.has_timed_out:
        shown.append(f"[stopped after {line_search.TIMEOUT:g} s; search in fewer files or with a simpler expression]")
    elif is_cut:
        shown.append("[there are more matches; narrow the expression, the glob or the path]")
    if not hits.lines and not hits.has_timed_out:
        also = f" (0 lines; {with_ignore_case} with ignore_case)" if with_ignore_case else ""
        shown.append(f"No line matches {asked.pattern}{also}.")
    if hidden:
        shown.append(f"[not searched, because agents must not read it: {join_some(hidden, MOST_HIDDEN)}]")
    return ToolAnswer(text="\n".join(shown), is_error=hits.has_timed_out)


ALTERNATIVES = 100
DEEPEST = 50


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """Return a function that checks whether a relative path matches the pattern.

    A pattern without a slash matches names at any depth. Raise InvalidCall if the pattern has too many segments or
    alternatives. Matching takes time at most proportional to the pattern's length times the path's.
    """
    ways = [_compile_parts(one) for one in _expand_braces(pattern)]

    def matches_path(path: str) -> bool:
        names = path.split("/")
        return any(_matches_parts(way, names) for way in ways)

    return matches_path


def _compile_parts(pattern: str) -> list[re.Pattern[str] | None]:
    """Return a pattern's segments as regular expressions, with None for each `**`, which matches any number of names.

    A pattern without a slash is preceded by `**`, and one that ends with a slash is followed by `**`.
    """
    names = [name for name in pattern.removeprefix("./").split("/") if name != "."]
    if names and names[-1] == "":
        names[-1] = "**"
    if len(names) == 1:
        names.insert(0, "**")
    if len(names) > DEEPEST:
        raise InvalidCall(f"The pattern has more than {DEEPEST} segments between slashes; give a shorter one.")
    return [None if name == "**" else re.compile(translate(name)) for name in names if name]


def _matches_parts(parts: list[re.Pattern[str] | None], names: list[str]) -> bool:
    reached = {0}
    """The indexes of the parts that may match the next name."""
    for name in names:
        reached = _skip_stars(parts, reached)
        reached = {
            at if part is None else at + 1
            for at in reached
            if at < len(parts) and ((part := parts[at]) is None or part.match(name))
        }
    return len(parts) in _skip_stars(parts, reached)


def _skip_stars(parts: list[re.Pattern[str] | None], reached: set[int]) -> set[int]:
    found = set(reached)
    for at in reached:
        while at < len(parts) and parts[at] is None:
            at += 1
            found.add(at)
    return found


def _expand_braces(pattern: str) -> list[str]:
    """Expand the braces in a pattern, and return the resulting patterns."""
    found, open_ones = [], [pattern]
    while open_ones:
        one = open_ones.pop()
        braces = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if braces is None:
            found.append(one)
        else:
            open_ones += [one[: braces.start()] + word + one[braces.end() :] for word in braces[1].split(",")]
        if len(found) + len(open_ones) > ALTERNATIVES:
            raise InvalidCall(f"The pattern expands to more than {ALTERNATIVES} patterns; use fewer braces.")
    return found
