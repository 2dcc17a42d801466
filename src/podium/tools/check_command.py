"""The command line of a check: a pipe fails with its first failing command, and what hides a failure is named."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from .shell import SHELL

_HIDING = (
    (re.compile(r"\|\|\s*(?:true|:|exit\s+0|echo|printf)(?![\w./-])"), "||"),
    (re.compile(r"[;\n]\s*(?:true|:|exit\s+0|echo\b[^;&|\n]*)\s*[)}]?\s*;?\s*\Z"), "its last command"),
    (re.compile(r"(?<![\w./-])trap(?![\w./-])"), "a trap"),
    (re.compile(r"(?<![\w./-])set\s+\+(?:\w*e|o\s+pipefail)"), "set +"),
    (re.compile(r"(?<![&>])&\s*[)}]?\s*\Z"), "& at its end"),
)


def make_check_command(argv: Sequence[str]) -> list[str]:
    """Return the command line to run for a check.

    In a check that is a line for the shell, a pipe such as `pytest | tail` fails if any command in it fails.
    """
    if _is_shell_line(argv):
        return [SHELL, "-o", "pipefail", "-c", argv[2]]
    return list(argv)


def describe_hidden_exit(argv: Sequence[str]) -> str:
    """Return how a check may hide that one of its commands failed, or an empty string."""
    if not _is_shell_line(argv):
        return ""
    how = [what for pattern, what in _HIDING if pattern.search(argv[2])]
    return f"it may pass although a command in it fails (because of {', '.join(how)})" if how else ""


def _is_shell_line(argv: Sequence[str]) -> bool:
    return len(argv) == 3 and argv[1] == "-c" and posixpath.basename(argv[0]) in ("sh", "bash")
