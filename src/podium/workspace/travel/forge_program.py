"""Run a forge's command-line program, `gh` or `glab`, with limits on its time and output.

If `setpriv` is installed, the kernel kills the program when this process is killed. The program then cannot post a
comment or a request after another process has taken over.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ...system.checkouts import find_checkouts
from ...system.child_process import OutputBuffer, build_environment, run_process
from ...system.process_group import ProgramNotStarted
from ...system.unsandboxed_program import build_unsandboxed_environment
from ...values.errors import OutsideFailed
from ...values.plain_text import escape_unprintable, truncate_text
from ..git.repository import find_trusted_program
from .remote_git import PASSED_ON
from .remote_url import hide_credentials

FORGE_SECONDS = 120.0
LARGEST_REPLY = 1024 * 1024
PASSED_ON_PREFIXES = ("GH_", "GITHUB_", "GITLAB_", "GLAB_")
SESSION_VARIABLES = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
"""The variables that the programs use to find the keyring with their tokens."""
QUIET = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_PROMPT": "1", "NO_COLOR": "1"}


class ReplyTooLong(OutsideFailed):
    """The program printed more than the limit."""


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
