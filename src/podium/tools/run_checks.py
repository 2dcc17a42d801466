"""Provide the tool `run_checks`, which runs a repository's configured checks, such as its tests and linter.

In the command line of a check, a pipe fails with its first failing command, and what hides a failure is named.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.engine import ToolAnswer
from ..core.gate import InvalidCall, PreparedCall
from ..core.tool_call import Arguments, build_schema, parse_arguments
from ..values.action import Action
from ..values.event import ToolUse
from .command_sandbox import CommandSandbox
from .shell import SHELL, CommandOutput, run_command_line

CHECK_TIMEOUT = 600.0
CHECK_OUTPUT_TAIL = 4 * 1024
Checks = Mapping[str, tuple[str, ...]]
"""The checks' command lines, keyed by check name."""


class CheckArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of run_checks."""

    name: str | None = None


class RunChecks:
    """`run_checks`: runs checks, and returns, for each of them, whether it passed and the end of its output."""

    name = "run_checks"
    parameters = build_schema(CheckArguments)
    is_parallel = False

    def __init__(self, directory: Path, checks: Checks, *, sandbox: CommandSandbox | None = None) -> None:
        self._directory = directory
        self._checks = checks
        self._sandbox = sandbox or CommandSandbox(name="none")
        self.timeout = (CHECK_TIMEOUT + 10) * max(len(checks), 1)
        self.description = f"Run all checks, or one of them. Available: {', '.join(checks) or 'none'}."

    async def prepare(self, call: ToolUse) -> PreparedCall:
        asked = parse_arguments(call, CheckArguments)
        if not self._checks:
            raise InvalidCall(
                "This repository has no configured checks; if you are allowed to run commands, run its tests yourself."
            )
        if asked.name is not None and asked.name not in self._checks:
            raise InvalidCall(f"Check {asked.name!r} not found; available: {', '.join(self._checks)}.")
        chosen = dict(self._checks) if asked.name is None else {asked.name: self._checks[asked.name]}

        async def run_chosen_checks() -> ToolAnswer:
            parts = {name: await self._run_check(name, argv) for name, argv in chosen.items()}
            texts = [part.text for part in parts.values()]
            if len(parts) > 1:
                # The summary comes first, so that a check's output cannot imitate it.
                texts.insert(
                    0, ", ".join(f"{'FAIL' if part.is_error else 'PASS'} {name}" for name, part in parts.items())
                )
            return ToolAnswer(text="\n\n".join(texts), is_error=any(part.is_error for part in parts.values()))

        command = " && ".join(shlex.join(argv) for argv in chosen.values())
        return PreparedCall(
            arguments={"name": asked.name or ", ".join(chosen), "command": command},
            act=run_chosen_checks,
            sandbox=self._sandbox.name,
        )

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None

    async def _run_check(self, name: str, argv: tuple[str, ...]) -> ToolAnswer:
        output = CommandOutput(start=0, end=CHECK_OUTPUT_TAIL)
        try:
            command = make_check_command(argv)
            ended = await run_command_line(command, self._directory, CHECK_TIMEOUT, output, self._sandbox.wrap)
        except InvalidCall as error:
            return ToolAnswer(text=f"FAIL {name}: {error}", is_error=True)
        passed = ended.code == 0 and not ended.has_timed_out
        how = f"stopped after {CHECK_TIMEOUT:g} s" if ended.has_timed_out else str(ended)
        hidden = f"; {found}" if passed and (found := describe_hidden_exit(argv)) else ""
        text = f"{'PASS' if passed else 'FAIL'} {name} [{how}{hidden}]\n{output}".rstrip()
        return ToolAnswer(text=text, is_error=not passed)


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
    from ..policy.hidden_failures import find_hidden_exits

    how = find_hidden_exits(argv[2])
    return f"it may pass although a command in it fails (because of {', '.join(how)})" if how else ""


def _is_shell_line(argv: Sequence[str]) -> bool:
    return (
        len(argv) == 3
        and re.fullmatch(r"-[a-z]*c", argv[1]) is not None
        and posixpath.basename(argv[0]) in ("sh", "bash", "dash")
    )
