"""The command line of a check: a pipe fails with its first failing command, and what hides a failure is named."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from .shell import SHELL


def make_check_command(argv: Sequence[str]) -> list[str]:
    """Return the command line to run for a check.

    In a check that is a line for the shell, a pipe such as `pytest | tail` fails if any command in it fails.
    """
    if _is_shell_line(argv):
        return [SHELL, "-o", "pipefail", *argv[1:]]
    return list(argv)


def describe_hidden_exit(argv: Sequence[str]) -> str:
    """Return how a check may hide that one of its commands failed, or an empty string."""
    if not _is_shell_line(argv):
        return ""
    # Imported here to keep start-up fast: the parser is needed only after a check has passed.
    from ..policy.hidden_exits import find_hidden_exits

    how = find_hidden_exits(argv[2])
    return f"it may pass although a command in it fails (because of {', '.join(how)})" if how else ""


def _is_shell_line(argv: Sequence[str]) -> bool:
    return (
        len(argv) == 3
        and re.fullmatch(r"-[a-z]*c", argv[1]) is not None
        and posixpath.basename(argv[0]) in ("sh", "bash", "dash")
    )
