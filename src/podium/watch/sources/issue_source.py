"""Define issues and the sources that they come from.

The text of an issue is not trusted. `make_issue` escapes control and invisible characters and shortens long texts, so
that no other module has to do so.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...values.plain_text import cut_middle, escape_for_terminal, escape_unprintable, truncate_text

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
