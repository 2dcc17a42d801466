"""The settings files of a person and a repository: where they are, and what they say together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from .document import Document, layered
from .finding import Finding

if TYPE_CHECKING:
    from .reading import Reading

USER_FILE = "config.yaml"
REPO_FILE = "podium.yaml"
MCP_FILE = ".mcp.json"


class Files(Struct, frozen=True, kw_only=True):
    """What was read.

    `repo` is what a repository decides, `proposed` what it would do if it were trusted. The lines are
    the places of keys, such as `~/.podium/config.yaml:3`.
    """

    user: Document = Document()
    repo: Document = Document()
    proposed: Document = Document()
    paths: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    user_lines: dict[str, str] = {}
    repo_lines: dict[str, str] = {}

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Why they cannot be used."""
        return tuple(finding for finding in self.findings if finding.severity == "error")


def read_files(home: Path, repo: Path | None = None) -> Files:
    """The files of the person whose Podium home is `home`, and those of a repository. Nothing is raised."""
    user_file = home / USER_FILE
    repo_files = () if repo is None else (repo / REPO_FILE, repo / MCP_FILE)
    if not any(map(os.path.lexists, (user_file, *repo_files))):
        return Files()
    # Only those who have such a file pay for what reads YAML.
    from .reading import read

    user = read(user_file, path_shown=shown(user_file), side="user")
    if repo is None:
        return Files(user=user.document, paths=user.paths, findings=user.findings, user_lines=user.lines)
    own = read(repo / REPO_FILE, path_shown=REPO_FILE, side="repo", root=repo)
    foreign = read(repo / MCP_FILE, path_shown=MCP_FILE, side="repo", root=repo)
    proposed = layered(foreign.document, own.document.proposed())
    lines = foreign.lines | own.lines
    return Files(
        user=user.document,
        repo=own.document.decided(),
        proposed=proposed,
        paths=(*own.paths, *foreign.paths, *user.paths),
        findings=(*user.findings, *own.findings, *foreign.findings, *_ignored(own), *_ignored(foreign)),
        user_lines=user.lines,
        repo_lines=lines,
    )


def shown(path: Path) -> str:
    """`path` as people read it: from `~` where it is there."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace").replace("\n", "\\n")
    try:
        own = f"{Path.home()}{os.sep}"
    except RuntimeError:  # a user without a home folder
        return text
    return f"~{os.sep}{text.removeprefix(own)}" if text.startswith(own) else text


def _ignored(reading: Reading) -> list[Finding]:
    """A notice for each thing that a repository would do and may not."""
    return [
        Finding(
            severity="notice",
            path=reading.path,
            line=reading.numbers.get(key),
            key=key,
            message="is only proposed by the repository, and ignored until you trust it",
        )
        for key in reading.document.proposed().said_keys()
    ]
