"""Define issues and the sources that they come from.

The text of an issue is not trusted. `make_issue` escapes control and invisible characters and shortens long texts, so
that no other module has to do so.

In a folder of issues, each file `NAME.md` is an issue. Its frontmatter can have `title`, `author`, `labels` and
`state`; without a title, the first heading or the file's name is the title. Links are not followed, because the folder
may belong to a repository that others can write to.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from anyio import to_thread

from ...system.locations import escape_file_name
from ...system.whole_file import UnreadableFile, read_text_file
from ...values.errors import OutsideFailed
from ...values.located_yaml import MalformedText, to_plain_value
from ...values.plain_text import cut_middle, escape_for_terminal, escape_unprintable, truncate_text

PAGE = 100
MOST_FILES = 100_000
COMMENTS = "comments"
NOT_ISSUES = frozenset(("readme.md", "index.md"))
OPEN_STATES = frozenset(("open", "opened", "new", "todo"))
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueFolder:
    """A folder of issues on the machine `host`."""

    path: Path
    host: str

    @property
    def name(self) -> str:
        return f"folder:{escape_file_name(str(self.path))}"

    @property
    def key(self) -> str:
        return f"folder:{self.host}:{escape_file_name(str(self.path))}"

    @property
    def has_members(self) -> bool:
        return False

    @property
    def doubt_seconds(self) -> float:
        return 0.0

    async def list_pages(
        self, find_known: FindKnown, *, labels: Sequence[str] = (), since: str = ""
    ) -> AsyncGenerator[IssuePage, None]:
        """Yield the open issues that are not claimed, sorted by name. `since` has no effect."""
        names, is_cut = await to_thread.run_sync(self._list_names)
        for place in range(0, len(names), PAGE):
            page = names[place : place + PAGE]
            known = await find_known(page)
            unknown = [name for name in page if name not in known]
            if unknown:
                found = await to_thread.run_sync(self._read_page, unknown)
                yield replace(found, is_last=place + PAGE >= len(names))
        if is_cut:
            problem = f"{self.name} has more than {MOST_FILES:,} files; only the first {MOST_FILES:,} are considered"
            yield IssuePage(problems=(problem,))

    async def is_by_member(self, issue: Issue) -> bool:
        """Return True: everybody who can write to the folder belongs to the project."""
        return True

    async def find_comment(self, issue: str, *, url: str, marker: str) -> str:
        """Return the path of the comment with this marker, or an empty string if there is none."""
        path = self.path / COMMENTS / _comment_name(issue, marker)
        return str(path) if await to_thread.run_sync(os.path.lexists, path) else ""

    async def post_comment(self, issue: str, text: str, *, url: str, marker: str) -> str:
        """Write a comment to its own file, unless the file exists, and return the path of the file."""
        name = _comment_name(issue, marker)
        try:
            await to_thread.run_sync(_write_new_file, self.path, name, text.encode(errors="replace"))
        except OSError as error:
            why = error.strerror or str(error)
            raise OutsideFailed(f"the comment cannot be written to {self.path / COMMENTS}: {why}") from error
        return str(self.path / COMMENTS / name)

    def _list_names(self) -> tuple[list[str], bool]:
        """Return the names of the issue files, sorted, and whether there are more than the limit."""
        names: list[str] = []
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if _is_issue_name(entry.name) and entry.is_file(follow_symlinks=False):
                        names.append(entry.name)
                        if len(names) > MOST_FILES:
                            break
        except OSError as error:
            raise OutsideFailed(f"{self.name} cannot be listed: {error.strerror or error}") from error
        return sorted(names[:MOST_FILES], key=_natural_key), len(names) > MOST_FILES

    def _read_page(self, names: Sequence[str]) -> IssuePage:
        issues: list[Issue] = []
        problems: list[str] = []
        for name in names:
            try:
                issue = _parse_issue(name, read_text_file(self.path / name, root=self.path), self.path)
            except UnreadableFile as error:
                problems.append(f"{name} {error}")
            except MalformedText as error:
                problems.append(f"{name} cannot be read: {error}")
            else:
                issues += [] if issue is None else [issue]
        return IssuePage(issues=tuple(issues), problems=tuple(problems))


LONGEST_TITLE = 200
LONGEST_BODY = 60_000
"""The maximum number of bytes in an issue's text. The middle of a longer text is left out."""
LONGEST_NAME = 200
FindKnown = Callable[[Sequence[str]], Awaitable[set[str]]]
"""A function that takes issue ids and returns those that have already been claimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """The current state of an issue. `id` is unique within its source: it is a number or the name of a file."""

    id: str
    title: str
    body: str
    author: str = ""
    author_id: int = 0
    labels: tuple[str, ...] = ()
    url: str = ""
    is_by_member: bool | None = None
    """Whether the issue's author belongs to the project. If it is None, call `IssueSource.is_by_member` to find out."""

    @property
    def name(self) -> str:
        """The issue's name in messages: `#12`, or the name of a file."""
        return format_issue_name(self.id)


def format_issue_name(id: str) -> str:
    """Return an issue's display name for messages."""
    return f"#{id}" if id.isdecimal() else id


def make_issue(
    *,
    id: str,
    title: str,
    body: str,
    author: str = "",
    author_id: int = 0,
    labels: Sequence[str] = (),
    url: str = "",
    is_by_member: bool | None = None,
) -> Issue:
    """Return an issue with its texts escaped and shortened to the maximum lengths."""
    lines = body.replace("\r\n", "\n").replace("\r", "\n").strip()
    return Issue(
        id=id,
        title=truncate_text(" ".join(escape_unprintable(title).split()), LONGEST_TITLE) or "(no title)",
        body=escape_for_terminal(cut_middle(lines, LONGEST_BODY)),
        author=truncate_text(escape_unprintable(author), LONGEST_NAME),
        author_id=author_id,
        labels=tuple(truncate_text(escape_unprintable(one), LONGEST_NAME) for one in labels),
        url=truncate_text(escape_unprintable(url), 1000),
        is_by_member=is_by_member,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuePage:
    """A page of a source's open issues that are not claimed.

    `problems` contains messages about issues that were left out, for example because a file cannot be read. `newest` is
    the time of the newest change that the source reported, in the source's own format.
    """

    issues: tuple[Issue, ...] = ()
    problems: tuple[str, ...] = ()
    newest: str = ""
    is_last: bool = False


class IssueSource(Protocol):
    """A source of issues: a folder of files, or a project on a forge."""

    @property
    def name(self) -> str:
        """The source as users write it, such as `github:owner/repository`."""
        ...

    @property
    def key(self) -> str:
        """The identity of the source in the store."""
        ...

    @property
    def has_members(self) -> bool:
        """Whether the source distinguishes members of the project from other people who can open issues.

        If so, the author of each issue has to be checked.
        """
        ...

    @property
    def doubt_seconds(self) -> float:
        """How many seconds to wait before posting a comment again after an attempt was interrupted.

        The interrupted attempt may still succeed within this time.
        """
        ...

    def list_pages(
        self, find_known: FindKnown, *, labels: Sequence[str] = (), since: str = ""
    ) -> AsyncGenerator[IssuePage, None]:
        """Yield the open issues that are not claimed, oldest first.

        If `since` is given, yield only issues that changed after that time. Raise OutsideFailed if the source
        cannot be read.
        """
        ...

    async def is_by_member(self, issue: Issue) -> bool:
        """Return whether the author of an issue belongs to the project."""
        ...

    async def find_comment(self, issue: str, *, url: str, marker: str) -> str:
        """Return the address of the comment that contains `marker`, or an empty string if there is none."""
        ...

    async def post_comment(self, issue: str, text: str, *, url: str, marker: str) -> str:
        """Post a comment that contains `marker`, and return its address. Raise OutsideFailed if that fails."""
        ...


def _is_issue_name(name: str) -> bool:
    # A name that is not valid Unicode cannot be stored.
    is_text = name.isprintable() and escape_file_name(name) == name
    return is_text and name.endswith(".md") and not name.startswith(".") and name.lower() not in NOT_ISSUES


def _natural_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that compares the numbers in names by value: 2.md comes before 10.md."""
    parts = re.split(r"(\d{1,18})", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts if part]


def _parse_issue(name: str, text: str, folder: Path) -> Issue | None:
    """Return the issue in a file, or None if it is closed or empty. Raise MalformedText for invalid frontmatter."""
    keys, body = _split_frontmatter(text)
    state = str(keys.get("state") or keys.get("status") or "open").strip().lower()
    if not body.strip() and not keys.get("title"):
        return None
    if state not in OPEN_STATES:
        return None
    labels = keys.get("labels") or ()
    heading = _HEADING.search(body)
    title = keys.get("title") or (heading[1] if heading else name.removesuffix(".md"))
    return make_issue(
        id=name,
        title=str(title),
        body=body,
        author=str(keys.get("author") or ""),
        labels=[str(one) for one in (labels if isinstance(labels, list) else str(labels).split(",")) if one],
        url=str(folder / name),
        is_by_member=True,
    )


def _split_frontmatter(text: str) -> tuple[dict[str, Any], str]:
    """Return the frontmatter of a file and the text below it. Raise MalformedText if the frontmatter cannot be read."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return {}, text
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        # Without a second line of dashes, the first one is a horizontal rule and not the start of frontmatter.
        return {}, text
    from ...values.yaml_parser import parse_yaml_mapping  # imported here for start-up time: importing PyYAML is slow

    keys = to_plain_value(parse_yaml_mapping("\n".join(lines[1:end]), first_line=2))
    return keys, "\n".join(lines[end + 1 :])


def _comment_name(issue: str, marker: str) -> str:
    digest = re.sub(r"\W", "", marker, flags=re.ASCII)[-12:]
    return f"{issue.removesuffix('.md')[:180]}.{digest}.md"


def _write_new_file(folder: Path, name: str, data: bytes) -> None:
    """Write a file to the comments subfolder atomically. Do nothing if the file already exists.

    Symbolic links are not followed, so that a repository cannot redirect the comment to another folder.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with suppress(FileExistsError):
        (folder / COMMENTS).mkdir()
    place = os.open(folder / COMMENTS, flags | os.O_NOFOLLOW)
    try:
        temporary = f".{name[:200]}.{os.getpid()}"
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=place)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=place)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(temporary, name, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
        finally:
            os.unlink(temporary, dir_fd=place)
    finally:
        os.close(place)
