"""Look for new issues in a source, and decide which of them to work on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from anyio import to_thread

from ..store.issue_rows import IssueClaims
from .sources.issue_source import Issue, IssueSource


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of a watcher: which issues it works on, and how.

    If `agents` contains one agent, it works on every issue; otherwise triage chooses an agent. If `authors` is set,
    only issues by these authors are worked on; otherwise, issues by people who are not members of the project are
    skipped unless `is_any_author` is set. Work is started on at most `limit` issues in a round, and at most
    `most_active` issues are worked on at once. `is_delegated` says whether the work is done in worktrees; if it is
    None, worktrees are used if the agent can change files and there is a git repository. If `comments` is set, the
    outcome is posted as a comment on the issue.
    """

    agents: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()
    is_any_author: bool = False
    limit: int = 5
    most_active: int = 5
    is_delegated: bool | None = None
    comments: bool = False


@dataclass(slots=True, kw_only=True)
class NewIssues:
    """The new issues in a source.

    `found` contains the issues to work on now. `waiting` is the number of issues that must wait for a later round; if
    `is_waiting_exact` is false, there may be more. `by_strangers` contains the issues by people who are not members of
    the project, which are skipped.
    """

    found: list[Issue] = field(default_factory=list)
    waiting: int = 0
    is_waiting_exact: bool = True
    by_strangers: list[Issue] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class IssueScout:
    """Looks for new issues in a source, and decides which of them to work on."""

    def __init__(self, source: IssueSource, options: WatchOptions, claims: IssueClaims) -> None:
        self._source = source
        self._options = options
        self._claims = claims
        self._members: dict[str, bool] = {}
        self.newest = ""
        """The newest change that the source reported."""

    async def find_new(self, most: int, *, since: str = "") -> NewIssues:
        """Find new issues, and select at most `most` of them to work on now.

        After a page with an issue that must wait for a later round, no further pages are read.
        """
        new, seen = NewIssues(), set[str]()
        pages = self._source.list_pages(self._find_known, labels=self._options.labels, since=since)
        async with aclosing(pages) as reading:
            async for page in reading:
                self.newest = max(self.newest, page.newest)
                new.problems += page.problems
                for issue in page.issues:
                    if issue.id in seen:
                        continue
                    seen.add(issue.id)
                    await self._sort_issue(issue, new, most)
                if new.waiting:
                    new.is_waiting_exact = page.is_last
                    break
        return new

    async def _sort_issue(self, issue: Issue, new: NewIssues, most: int) -> None:
        labels = {label.casefold() for label in issue.labels}
        if not all(label.casefold() in labels for label in self._options.labels):
            return
        if self._options.authors and issue.author.lower() not in {one.lower() for one in self._options.authors}:
            return
        # Do not query the forge about the author of an issue that has to wait; a later round does that.
        is_asking = len(new.found) < most or issue.is_by_member is not None
        if is_asking and not await self._may_start_work(issue):
            new.by_strangers.append(issue)
        elif len(new.found) < most:
            new.found.append(issue)
        else:
            new.waiting += 1

    async def _may_start_work(self, issue: Issue) -> bool:
        if self._options.authors or self._options.is_any_author or not self._source.has_members:
            return True
        if issue.is_by_member is not None:
            return issue.is_by_member
        if issue.author not in self._members:
            self._members[issue.author] = await self._source.is_by_member(issue)
        return self._members[issue.author]

    async def _find_known(self, ids: Sequence[str]) -> set[str]:
        return await to_thread.run_sync(self._claims.find_known, self._source.key, ids)
