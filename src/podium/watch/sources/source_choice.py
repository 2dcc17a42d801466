"""Find the issue source that the user specifies: a folder, or a project on GitHub or GitLab."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from ...values.errors import DependencyMissing, Mistake
from ...values.located_yaml import quote_text
from ...workspace.git.repository import GitLocation, find_trusted_program
from ...workspace.travel.forge import PROGRAMS, ForgeKind, find_kind_by_host
from ...workspace.travel.remote_url import RemoteUrl, find_remote
from .forge_issues import ForgeProject, GithubIssues, GitlabIssues
from .issue_folder import IssueFolder
from .issue_source import IssueSource

USABLE = "use a folder, github:OWNER/REPOSITORY or gitlab:GROUP/PROJECT"
DEFAULT_HOSTS: dict[ForgeKind, str] = {"github": "github.com", "gitlab": "gitlab.com"}
ISSUES: dict[ForgeKind, type[GithubIssues] | type[GitlabIssues]] = {"github": GithubIssues, "gitlab": GitlabIssues}

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*\.)+[A-Za-z0-9-]+(?::\d{1,5})?|localhost(?::\d{1,5})?")
_PART = re.compile(r"[\w.][\w.-]*", re.ASCII)


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
        return open_forge_issues(chosen, server, project, outside=outside, home=home)
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
    return open_forge_issues(kind, server, path, outside=outside, home=home)


def open_forge_issues(kind: ForgeKind, host: str, path: str, *, outside: Path, home: Path) -> IssueSource:
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
