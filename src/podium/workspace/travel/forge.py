"""Open pull requests with a forge's command-line program: `gh` for GitHub, `glab` for GitLab.

Requests are recorded only on the forge, so an interrupted call can simply be repeated: a branch that has an open
request does not get a second one. Titles and descriptions contain text from agents. They are passed as the value of an
option or on standard input, so that the program cannot mistake them for options.

The program's time and output are limited. If `setpriv` is installed, the kernel kills the program when this process is
killed. The program then cannot post a comment or a request after another process has taken over.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from ...system.checkouts import find_checkouts
from ...system.child_process import OutputBuffer, build_environment, run_process
from ...system.process_group import ProgramNotStarted
from ...system.unsandboxed_program import build_unsandboxed_environment
from ...values.errors import Mistake, OutsideFailed
from ...values.plain_text import escape_unprintable, truncate_text
from ..git.repository import find_trusted_program
from .remote_git import PASSED_ON
from .remote_url import RemoteUrl, hide_credentials

FORGE_SECONDS = 120.0
LARGEST_REPLY = 1024 * 1024
PASSED_ON_PREFIXES = ("GH_", "GITHUB_", "GITLAB_", "GLAB_")
SESSION_VARIABLES = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
"""The variables that the programs use to find the keyring with their tokens."""
QUIET = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_PROMPT": "1", "NO_COLOR": "1"}


class ReplyTooLong(OutsideFailed):
    """The program printed more than the limit."""


T = TypeVar("T")
ForgeKind = Literal["github", "gitlab"]
PROGRAMS: dict[ForgeKind, str] = {"github": "gh", "gitlab": "glab"}
LONGEST_DESCRIPTION = 60_000
"""The maximum number of characters in a description. GitHub accepts 65,536."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A request to merge a branch into a target branch, with a title and a description."""

    branch: str
    target: str
    title: str
    description: str


class OpenedRequest(Struct, frozen=True, kw_only=True):
    """The URL of the open request for a branch. `is_new` is false if the request already existed."""

    branch: str
    url: str
    is_new: bool = field(name="new")


class _GithubRequest(Struct, rename="camel"):
    url: str
    is_cross_repository: bool = False


class _GitlabRequest(Struct):
    web_url: str
    source_project_id: int = 0
    target_project_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forge:
    """A repository on a forge, and the forge's command-line program.

    The program runs in `folder`, which is outside any repository.
    """

    kind: ForgeKind
    program: str
    remote: RemoteUrl
    folder: Path

    async def open_request(self, request: PullRequest) -> OpenedRequest:
        """Create a request, unless the branch has an open one, and return its URL. Raise OutsideFailed if that fails.

        An existing request keeps its title and description, which a person may have changed.
        """
        if url := await self._find_request(request):
            return OpenedRequest(branch=request.branch, url=url, is_new=False)
        try:
            url = await self._create_request(request)
        except OutsideFailed:
            # Another process may have created it in the meantime.
            if not (url := await self._find_request(request)):
                raise
            return OpenedRequest(branch=request.branch, url=url, is_new=False)
        return OpenedRequest(branch=request.branch, url=url, is_new=True)

    async def _find_request(self, request: PullRequest) -> str:
        """Return the URL of the open request for a branch, or an empty string. Requests from forks are ignored."""
        if self.kind == "github":
            asked = ("pr", "list", f"--head={request.branch}", f"--base={request.target}", "--state=open")
            reply = await self._call(*asked, "--json=url,isCrossRepository")
            listed = decode_reply(reply, list[_GithubRequest], self.program)
            own = [one.url for one in listed if not one.is_cross_repository]
        else:
            where = (f"--source-branch={request.branch}", f"--target-branch={request.target}")
            reply = await self._call("mr", "list", *where, "--output=json")
            found = decode_reply(reply, list[_GitlabRequest], self.program)
            own = [one.web_url for one in found if one.source_project_id == one.target_project_id]
        return own[0] if own else ""

    async def _create_request(self, request: PullRequest) -> str:
        description = truncate_text(request.description, LONGEST_DESCRIPTION)
        if self.kind == "github":
            where = (f"--head={request.branch}", f"--base={request.target}")
            text = (f"--title={request.title}", "--body-file=-")
            printed = await self._call("pr", "create", *where, *text, stdin=description)
        else:
            where = (f"--source-branch={request.branch}", f"--target-branch={request.target}")
            text = (f"--title={request.title}", f"--description={description}")
            printed = await self._call("mr", "create", *where, *text, "--yes")
        urls = re.findall(r"https?://[!-~]+", printed)
        if not urls:
            raise OutsideFailed(f"{PROGRAMS[self.kind]} printed no URL for the pull request from {request.branch}")
        return cast(str, urls[-1])

    async def _call(self, *args: str, stdin: str = "") -> str:
        """Run the forge's program and return its output. Raise OutsideFailed if the program fails."""
        what = f"{PROGRAMS[self.kind]} {args[0]} {args[1]}"
        command = (*args, f"--repo={self.remote.text}")
        return await run_forge_program(self.program, *command, what=what, folder=self.folder, stdin=stdin)


def choose_forge(remote: RemoteUrl, *, setting: ForgeKind | None, outside: Path, folder: Path) -> Forge:
    """Choose the forge for a remote.

    `setting` takes precedence, then the remote's host name. If neither determines the forge, but the program of only
    one forge is installed, choose that forge. Programs in `outside` are ignored, because workers can write there. Raise
    Mistake if no forge can be chosen or its program is not installed.
    """
    found = {kind: find_trusted_program(name, outside=outside) for kind, name in PROGRAMS.items()}
    installed = [kind for kind, program in found.items() if program is not None]
    kind = setting or find_kind_by_host(remote)
    if kind is None:
        if len(installed) != 1:
            which = "both gh and glab are installed" if installed else "neither gh nor glab is installed"
            raise Mistake(
                f"cannot tell from the host name which forge {remote.text} is on, and {which}; "
                + ("set forge: github or forge: gitlab in the settings" if installed else "install one of them")
            )
        kind = installed[0]
    program = found[kind]
    if program is None:
        raise Mistake(f"{PROGRAMS[kind]} is not installed but is needed for pull requests on {remote.text}; install it")
    return Forge(kind=kind, program=program, remote=remote, folder=folder)


def find_kind_by_host(remote: RemoteUrl) -> ForgeKind | None:
    """Return the forge whose name is part of a remote's host name, such as gitlab.example.org, or None."""
    host = ""
    if remote.protocol != "file":
        text = remote.text
        host = (urlsplit(text).hostname or "") if "://" in text else text.partition(":")[0].rpartition("@")[2]
    named: tuple[ForgeKind, ...] = ("github", "gitlab")
    return next((kind for kind in named if kind in host.lower().split(".")), None)


def decode_reply(reply: str, kind: type[T], program: str) -> T:
    """Decode the JSON that a forge's program printed. Raise OutsideFailed if it is invalid."""
    try:
        return msgspec.json.decode(reply or "[]", type=kind)
    except msgspec.MsgspecError as error:
        raise OutsideFailed(f"{Path(program).name} printed a reply that cannot be read ({error})") from error


async def run_forge_program(
    program: str,
    *args: str,
    what: str,
    folder: Path,
    stdin: str = "",
    seconds: float = FORGE_SECONDS,
    largest: int = LARGEST_REPLY,
) -> str:
    """Run a forge's program in `folder` and return what it printed. `what` names the call in messages.

    Raise ReplyTooLong if it prints more than `largest` bytes, and OutsideFailed if it fails or takes too long.
    """
    output, errors = OutputBuffer(largest), OutputBuffer(LARGEST_REPLY)
    try:
        ended = await run_process(
            [*_find_prefix(folder), program, *args],
            env=_build_environment(folder),
            directory=folder,
            take=output.append,
            take_stderr=errors.append,
            timeout=seconds,
            stdin=stdin.encode(errors="replace"),
        )
    except ProgramNotStarted as error:
        raise OutsideFailed(f"{what} could not be started: {error}") from error
    if ended.has_timed_out:
        raise OutsideFailed(f"{what} did not finish within {seconds:g} s", retryable=True)
    if output.is_cut:
        raise ReplyTooLong(f"{what} printed more than {largest:,} bytes")
    if ended.code != 0:
        said = " ".join(bytes(errors).decode(errors="replace").split()) or str(ended)
        raise OutsideFailed(truncate_text(f"{what} failed: {escape_unprintable(hide_credentials(said))}", 400))
    return bytes(output).decode(errors="replace")


def _find_prefix(folder: Path) -> tuple[str, ...]:
    """Return a command prefix that kills a program when this process dies, or none if `setpriv` is not available."""
    program = find_trusted_program("setpriv", outside=folder) if sys.platform == "linux" else None
    return () if program is None else (program, "--pdeathsig", "KILL", "--")


def _build_environment(folder: Path) -> dict[str, str]:
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name in SESSION_VARIABLES or name.startswith(PASSED_ON_PREFIXES)
    }
    return build_unsandboxed_environment(build_environment() | passed, find_checkouts(folder)) | QUIET
