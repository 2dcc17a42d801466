"""Read issues from GitHub with `gh api` and from GitLab with `glab api`, and post comments there.

Pages are read one by one, oldest issues first, so that large projects and long issues need little memory. If the reply
for a page is too long, the page is read again in halves. Texts are passed on standard input, so that the program cannot
mistake them for options.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct

from ...values.errors import DependencyMissing, Mistake, OutsideFailed
from ...values.located_yaml import quote_text
from ...workspace.git.repository import GitLocation, find_trusted_program
from ...workspace.travel.forge import (
    FORGE_SECONDS,
    PROGRAMS,
    ForgeKind,
    ReplyTooLong,
    decode_reply,
    find_kind_by_host,
    run_forge_program,
)
from ...workspace.travel.remote_url import RemoteUrl, find_remote
from .issue_source import FindKnown, Issue, IssueFolder, IssuePage, IssueSource, make_issue

USABLE = "use a folder, github:OWNER/REPOSITORY or gitlab:GROUP/PROJECT"
DEFAULT_HOSTS: dict[ForgeKind, str] = {"github": "github.com", "gitlab": "gitlab.com"}
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*\.)+[A-Za-z0-9-]+(?::\d{1,5})?|localhost(?::\d{1,5})?")
_PART = re.compile(r"[\w.][\w.-]*", re.ASCII)


PAGE = 64
"""The number of issues per page. It is a power of two, because the page size is halved if a response is too long."""
LARGEST_PAGE = 16 * 1024 * 1024
MOST_ISSUES = 20_000
COMMENTS_PAGE = 100
MOST_COMMENT_PAGES = 20
DEVELOPER = 30
"""The access level of a developer on GitLab, which is the lowest level that can push."""
MEMBERS = frozenset(("OWNER", "MEMBER", "COLLABORATOR"))
"""GitHub's associations for people who belong to a repository or to its organisation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeProject:
    """A repository on a forge, and the program that calls the forge's API.

    The program runs in `folder`, which is outside any repository.
    """

    kind: ForgeKind
    host: str
    path: str
    program: str
    folder: Path
    seconds: float = FORGE_SECONDS

    @property
    def name(self) -> str:
        """The project as users write it, such as `github:owner/repository`."""
        usual = self.host == f"{self.kind}.com"
        return f"{self.kind}:{self.path}" if usual else f"{self.kind}:{self.host}/{self.path}"

    async def call(self, path: str, *options: str, query: Mapping[str, str] | None = None, stdin: str = "") -> str:
        """Call the forge's API with `program`, and return the program's output. Raise OutsideFailed if that fails."""
        where = f"{path}?{urlencode(query)}" if query else path
        return await run_forge_program(
            self.program,
            *("api", where, f"--hostname={self.host}", *options),
            what=f"{PROGRAMS[self.kind]} api {path}",
            folder=self.folder,
            stdin=stdin,
            seconds=self.seconds,
            largest=LARGEST_PAGE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedIssue:
    """An item in a forge's list of issues. `issue` is None if the item is something else, such as a pull request."""

    id: str
    issue: Issue | None
    changed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeIssues(ABC):
    """The issues of a project on a forge."""

    project: ForgeProject
    has_members: ClassVar[bool] = True
    posting_options: ClassVar[tuple[str, ...]] = ("--method=POST", "--input=-")

    @property
    def name(self) -> str:
        return self.project.name

    @property
    def key(self) -> str:
        return f"{self.project.kind}:{self.project.host}/{self.project.path}".lower()

    @property
    def doubt_seconds(self) -> float:
        return self.project.seconds

    async def list_pages(
        self, find_known: FindKnown, *, labels: Sequence[str] = (), since: str = ""
    ) -> AsyncGenerator[IssuePage, None]:
        """Yield the open issues that are not claimed, oldest first.

        If `since` is given, yield only issues that changed after that time.
        """
        size, page, seen = PAGE, 1, set[str]()
        while len(seen) < MOST_ISSUES:
            try:
                listed = await self.fetch_page(page, size, labels=labels, since=since)
            except ReplyTooLong:
                if size == 1:
                    raise
                size, page = size // 2, 2 * page - 1
                continue
            new = [one for one in listed if one.id not in seen]
            if not new:
                # The previous page was the last one, or the server returned the same page again.
                return
            seen.update(one.id for one in new)
            known = await find_known([one.id for one in new])
            found = [one.issue for one in new if one.issue is not None and one.id not in known]
            is_last = len(listed) < size
            yield IssuePage(issues=tuple(found), newest=max(one.changed for one in new), is_last=is_last)
            if is_last:
                return
            page += 1
        too_many = f"{self.name} has more than {MOST_ISSUES:,} open issues; only the oldest are considered"
        yield IssuePage(problems=(too_many,))

    @abstractmethod
    async def fetch_page(self, page: int, size: int, *, labels: Sequence[str], since: str) -> list[ListedIssue]:
        """Return one page of the open issues, oldest first."""

    @abstractmethod
    async def is_by_member(self, issue: Issue) -> bool:
        """Return whether the author of an issue belongs to the project."""

    @abstractmethod
    async def find_comment(self, issue: str, *, url: str, marker: str) -> str:
        """Return the address of the comment that contains `marker`, or an empty string if there is none."""

    @abstractmethod
    async def post_comment(self, issue: str, text: str, *, url: str, marker: str) -> str:
        """Post a comment that contains `marker`, and return its address."""


def _make_label_query(labels: Sequence[str]) -> dict[str, str]:
    """Return the query for issues with all of these labels. Labels that contain a comma are left out."""
    named = [label for label in labels if "," not in label]
    return {"labels": ",".join(named)} if named else {}


# GitHub
class _GithubUser(Struct):
    login: str = ""


class _GithubLabel(Struct):
    name: str = ""


class _GithubIssue(Struct):
    number: int
    title: str = ""
    body: str | None = None
    user: _GithubUser | None = None
    labels: list[_GithubLabel | str] = []
    html_url: str = ""
    author_association: str = ""
    updated_at: str = ""
    pull_request: dict[str, Any] | None = None


class _GithubComment(Struct):
    body: str | None = None
    html_url: str = ""


class GithubIssues(ForgeIssues):
    """The issues of a repository on GitHub."""

    async def fetch_page(self, page: int, size: int, *, labels: Sequence[str], since: str) -> list[ListedIssue]:
        """Return one page of the open issues and pull requests, oldest first."""
        query = {"state": "open", "sort": "created", "direction": "asc", "per_page": str(size), "page": str(page)}
        query |= _make_label_query(labels)
        query |= {"since": since} if since else {}
        reply = await self.project.call(f"repos/{self.project.path}/issues", query=query)
        return [_list_github_issue(one) for one in decode_reply(reply, list[_GithubIssue], self.project.program)]

    async def is_by_member(self, issue: Issue) -> bool:
        """Return whether GitHub says that the author belongs to the repository or its organisation."""
        return bool(issue.is_by_member)

    async def find_comment(self, issue: str, *, url: str, marker: str) -> str:
        """Return the address of the comment that contains `marker`, or an empty string if there is none."""
        for page in range(1, MOST_COMMENT_PAGES + 1):
            reply = await self.project.call(
                f"repos/{self.project.path}/issues/{issue}/comments",
                query={"per_page": str(COMMENTS_PAGE), "page": str(page)},
            )
            listed = decode_reply(reply, list[_GithubComment], self.project.program)
            for one in listed:
                if marker in (one.body or ""):
                    return one.html_url or url
            if len(listed) < COMMENTS_PAGE:
                return ""
        raise OutsideFailed(f"{self.name}: issue {issue} has too many comments to search for Podium's comment")

    async def post_comment(self, issue: str, text: str, *, url: str, marker: str) -> str:
        """Post a comment, and return its address."""
        reply = await self.project.call(
            f"repos/{self.project.path}/issues/{issue}/comments",
            *self.posting_options,
            stdin=msgspec.json.encode({"body": text}).decode(),
        )
        return decode_reply(reply, _GithubComment, self.project.program).html_url or url


def _list_github_issue(one: _GithubIssue) -> ListedIssue:
    issue = make_issue(
        id=str(one.number),
        title=one.title,
        body=one.body or "",
        author="" if one.user is None else one.user.login,
        labels=[label if isinstance(label, str) else label.name for label in one.labels],
        url=one.html_url,
        is_by_member=one.author_association in MEMBERS,
    )
    return ListedIssue(id=str(one.number), issue=issue if one.pull_request is None else None, changed=one.updated_at)


# GitLab
class _GitlabUser(Struct):
    id: int = 0
    username: str = ""


class _GitlabIssue(Struct):
    iid: int
    title: str = ""
    description: str | None = None
    author: _GitlabUser | None = None
    labels: list[str] = []
    web_url: str = ""
    updated_at: str = ""


class _GitlabMember(Struct):
    access_level: int = 0


class _GitlabNote(Struct):
    id: int = 0
    body: str | None = None


class GitlabIssues(ForgeIssues):
    """The issues of a project on GitLab."""

    @property
    def _place(self) -> str:
        return f"projects/{quote(self.project.path, safe='')}"

    async def fetch_page(self, page: int, size: int, *, labels: Sequence[str], since: str) -> list[ListedIssue]:
        """Return one page of the open issues, oldest first."""
        query = {"state": "opened", "order_by": "created_at", "sort": "asc", "per_page": str(size), "page": str(page)}
        query |= _make_label_query(labels)
        query |= {"updated_after": since} if since else {}
        reply = await self.project.call(f"{self._place}/issues", query=query)
        return [_list_gitlab_issue(one) for one in decode_reply(reply, list[_GitlabIssue], self.project.program)]

    async def is_by_member(self, issue: Issue) -> bool:
        """Return whether the author is a member of the project with at least developer access."""
        if not issue.author_id:
            return False
        try:
            reply = await self.project.call(f"{self._place}/members/all/{issue.author_id}")
        except OutsideFailed as error:
            if "404" in str(error):  # not a member
                return False
            raise
        return decode_reply(reply, _GitlabMember, self.project.program).access_level >= DEVELOPER

    async def find_comment(self, issue: str, *, url: str, marker: str) -> str:
        """Return the address of the comment that contains `marker`, or an empty string if there is none."""
        for page in range(1, MOST_COMMENT_PAGES + 1):
            query = {"order_by": "created_at", "sort": "desc", "per_page": str(COMMENTS_PAGE), "page": str(page)}
            reply = await self.project.call(f"{self._place}/issues/{issue}/notes", query=query)
            listed = decode_reply(reply, list[_GitlabNote], self.project.program)
            for one in listed:
                if marker in (one.body or ""):
                    return f"{url}#note_{one.id}"
            if len(listed) < COMMENTS_PAGE:
                return ""
        raise OutsideFailed(f"{self.name}: issue {issue} has too many comments to search for Podium's comment")

    async def post_comment(self, issue: str, text: str, *, url: str, marker: str) -> str:
        """Post a comment, and return its address."""
        reply = await self.project.call(
            f"{self._place}/issues/{issue}/notes",
            *self.posting_options,
            "--header=Content-Type: application/json",
            stdin=msgspec.json.encode({"body": text}).decode(),
        )
        return f"{url}#note_{decode_reply(reply, _GitlabNote, self.project.program).id}"


def _list_gitlab_issue(one: _GitlabIssue) -> ListedIssue:
    issue = make_issue(
        id=str(one.iid),
        title=one.title,
        body=one.description or "",
        author="" if one.author is None else one.author.username,
        author_id=0 if one.author is None else one.author.id,
        labels=one.labels,
        url=one.web_url,
    )
    return ListedIssue(id=str(one.iid), issue=issue, changed=one.updated_at)


ISSUES: dict[ForgeKind, type[GithubIssues] | type[GitlabIssues]] = {"github": GithubIssues, "gitlab": GitlabIssues}


def choose_source(given: str, *, folder: Path, outside: Path, home: Path, host: str) -> IssueSource:
    """Return the issue source with this name, which is the path of a folder or a project on a forge.

    A relative path is relative to `folder`. The forge's program runs in `home`, outside any repository. Programs in
    `outside` are ignored, because workers can write there. `host` is the id of this machine. Raise Mistake if there is
    no such source, and DependencyMissing if the forge's program is not installed.
    """
    kind, colon, rest = given.partition(":")
    if colon and kind in PROGRAMS:
        chosen: ForgeKind = "github" if kind == "github" else "gitlab"
        server, project = _split_project(rest, chosen, given)
        return _open_forge_issues(chosen, server, project, outside=outside, home=home)
    path_text = rest if colon and kind == "folder" else given
    path = folder / Path(path_text).expanduser()
    if not path_text.strip() or not path.is_dir():
        raise Mistake(f"{quote_text(given)} is not a folder, so it cannot be a source of issues; {USABLE}")
    return IssueFolder(path=path.resolve(), host=host)


async def find_own_source(
    repository: GitLocation, *, outside: Path, home: Path, setting: ForgeKind | None
) -> IssueSource:
    """Return the issue source for the project that a repository's remote belongs to.

    Raise Mistake if the repository has no remote, or if the remote does not belong to a project on a known forge.
    `setting` is the kind of forge; if it is None, it is derived from the host name of the remote.
    """
    remote = await find_remote(repository)
    if remote is None:
        raise Mistake(f"{outside} has no remote, so there are no issues to watch; {USABLE}")
    kind = setting or find_kind_by_host(remote.url)
    server, path = _split_remote(remote.url)
    if kind is None or not server:
        raise Mistake(f"cannot tell which forge the remote {remote.url.text} is on; {USABLE}")
    _split_project(path, kind, remote.url.text)
    return _open_forge_issues(kind, server, path, outside=outside, home=home)


def _open_forge_issues(kind: ForgeKind, host: str, path: str, *, outside: Path, home: Path) -> IssueSource:
    """Return the issue source for a project on a forge. Raise DependencyMissing if its program is not installed."""
    program = find_trusted_program(PROGRAMS[kind], outside=outside)
    if program is None:
        raise DependencyMissing(
            f"{PROGRAMS[kind]} is not installed but is needed for the issues in {kind}:{path}; install it, "
            f"then run {PROGRAMS[kind]} auth login"
        )
    # Before the first run, there may be no home folder yet.
    folder = home if home.is_dir() else Path(home.anchor)
    project = ForgeProject(kind=kind, host=host.lower(), path=path, program=program, folder=folder)
    return ISSUES[kind](project=project)


def _split_project(text: str, kind: ForgeKind, given: str) -> tuple[str, str]:
    """Return the host and the path of the project that `text` names. Raise Mistake if it does not name a project."""
    first, _, rest = text.partition("/")
    host, path = (first, rest) if "/" in rest and _HOST.fullmatch(first) else (DEFAULT_HOSTS[kind], text)
    parts = path.split("/")
    fits = len(parts) == 2 if kind == "github" else 2 <= len(parts) <= 20
    if not fits or not all(_PART.fullmatch(part) and part.strip(".") for part in parts):
        form = "github:OWNER/REPOSITORY" if kind == "github" else "gitlab:GROUP/PROJECT"
        raise Mistake(f"{quote_text(given)} does not name a project; use {form}, or {kind}:HOST/… for your own server")
    return host, path


def _split_remote(remote: RemoteUrl) -> tuple[str, str]:
    """Return the host and the path in the URL of a remote; both are empty for a remote in a local folder."""
    if remote.protocol == "file":
        return "", ""
    if "://" in remote.text:
        parts = urlsplit(remote.text)
        host, path = parts.hostname or "", parts.path
    else:
        before, _, path = remote.text.partition(":")
        host = before.rpartition("@")[2]
    return host, path.strip("/").removesuffix(".git")
