"""Run git commands that talk to a remote repository.

Unlike all other git calls, these calls read the user's own git settings and use the user's ssh agent and credential
helpers, because these provide the credentials for a remote. The calls run in a mirror that Podium created, so they
never read the settings of a repository that a worker or a remote could write to. Hooks, submodules, prompts and all
protocols that the URL does not need are disabled.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from anyio import fail_after

from ...system.child_process import build_environment
from ...system.locations import find_home_folder
from ...system.unsandboxed_program import build_unsandboxed_environment, find_current_checkouts
from ...values.errors import OutsideFailed
from ...values.plain_text import escape_unprintable, truncate_text
from ..git.repository import TRUSTED, GitResult, find_trusted_program, run_git
from .remote_url import Protocol, RemoteUrl, hide_credentials

TRANSFER_SECONDS = 600.0
"""The timeout for one command, such as the first fetch of a large repository."""

PASSED_ON = (
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_SSH", "GIT_SSH_COMMAND"),
    *("GIT_SSL_CAINFO", "http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
)
"""The environment variables that configure a user's access to remotes, in addition to those that every command gets."""

PROTOCOLS: dict[Protocol, str] = {"file": "file", "ssh": "ssh:https", "https": "ssh:https", "http": "http"}
"""The protocols that are allowed for a URL. A user's settings may replace https with ssh or vice versa."""

SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.alternateRefsCommand": "false",
    "safe.bareRepository": "explicit",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "push.gpgSign": "false",
    "push.followTags": "false",
    "remote.pushDefault": "",
    "transfer.bundleURI": "false",
    # Every fetch adds one pack, so that the repositories of runs can link to the packs.
    "transfer.unpackLimit": "1",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "http.lowSpeedLimit": "1",
    "http.lowSpeedTime": "60",
    "credential.interactive": "false",
}
ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_NO_LAZY_FETCH": "1",
}


async def call_remote_git(
    mirror: Path,
    remote: RemoteUrl,
    *args: str,
    objects: Path | None = None,
    timeout: float = TRANSFER_SECONDS,
) -> GitResult:
    """Run a git command in a mirror, and return its result, even if git fails.

    `objects` is the object folder of another repository whose commits git needs, for example to push them. Raise
    OutsideFailed if git cannot be run or times out.
    """
    program = find_trusted_program("git", outside=mirror)
    if program is None:
        raise OutsideFailed("git is not installed; install it with your system's package manager")
    environment = _build_environment(mirror, remote, objects)
    try:
        with fail_after(timeout):
            return await run_git(program, mirror, environment, args, prefix=_find_prefix(mirror))
    except TimeoutError:
        why = f"git {args[0]} with {remote.text} did not finish within {timeout:g} s"
        raise OutsideFailed(why, retryable=True) from None
    except OSError as error:
        raise OutsideFailed(f"git {args[0]} could not be started: {error}") from error


def _find_prefix(mirror: Path) -> tuple[str, ...]:
    """Return a command prefix that makes git die with this process, or an empty one if `setpriv` is not available."""
    program = find_trusted_program("setpriv", outside=mirror) if sys.platform == "linux" else None
    return () if program is None else (program, "--pdeathsig", "KILL", "--")


def describe_remote_failure(remote: RemoteUrl, done: GitResult) -> str:
    """Return git's own explanation of a failure on one line, without credentials."""
    lines = [line.strip() for line in done.err.splitlines()]
    # Lines that start with none of these words are progress messages or hints.
    told = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "ssh:", "!"))] or lines[-1:]
    said = [line for line in told if line != "remote:" and not line.startswith("error: failed to push some refs")]
    text = "; ".join(dict.fromkeys(said)) or f"exit code {done.code}"
    return truncate_text(f"{remote.text}: {escape_unprintable(hide_credentials(text))}", 400)


def _build_environment(mirror: Path, remote: RemoteUrl, objects: Path | None) -> dict[str, str]:
    passed = build_environment() | {name: value for name in PASSED_ON if (value := os.environ.get(name))}
    # Git runs credential helpers and ssh, which it looks up on the PATH.
    checkouts = find_current_checkouts(find_home_folder(), None if objects is None else objects.parent.parent)
    kept = build_unsandboxed_environment(passed, checkouts)
    kept["PATH"] = os.pathsep.join((*TRUSTED, kept["PATH"]))
    numbered = {
        f"GIT_CONFIG_{part}_{number}": value
        for number, (key, value) in enumerate(SETTINGS.items())
        for part, value in (("KEY", key), ("VALUE", value))
    }
    where = {"GIT_DIR": str(mirror), "GIT_ALLOW_PROTOCOL": PROTOCOLS[remote.protocol]}
    if objects is not None:
        quoted = str(objects).replace("\\", "\\\\").replace('"', '\\"')
        where["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f'"{quoted}"'
    return kept | ENVIRONMENT | {"GIT_CONFIG_COUNT": str(len(SETTINGS))} | numbered | where
