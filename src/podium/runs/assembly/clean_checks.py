"""Run the commands that must pass on a clean checkout of the work before the work counts as complete.

The work is a given commit, or the current working tree, including new files but not files that git ignores. The
commands run in a temporary checkout of the work, in the sandbox unless it is turned off, so they do not change the work
itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ...core.engine import ToolAnswer
from ...core.gate import InvalidCall, PreparedCall
from ...tools.command_sandbox import CommandSandbox
from ...tools.run_checks import CHECK_OUTPUT_TAIL, CHECK_TIMEOUT, describe_hidden_exit, make_check_command
from ...tools.shell import SHELL, CommandOutput, run_command_line
from ...values.action import Action
from ...values.errors import PodiumError
from ...values.event import ToolUse
from ...workspace.git.repository import read_git_output
from ...workspace.git.snapshot import take_snapshot, temporary_checkout

LOG_HALF = 512 * 1024
"""How much of the start and end of the output is kept as a log."""


class CleanChecks:
    """A tool that runs a team's check commands. The same rules and permission requests apply as for any command."""

    name = "bash"
    description = "On a clean checkout of the work, run the commands that must pass before the work counts as complete."
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {}}
    is_parallel = False
    timeout = CHECK_TIMEOUT + 60

    def __init__(
        self,
        directory: Path,
        commands: tuple[str, ...],
        *,
        commit: str = "",
        choose_sandbox: Callable[[Path], Awaitable[CommandSandbox]],
        sandbox: str,
    ) -> None:
        self._directory = directory
        self._command = " && ".join(commands)
        self._commit = commit
        self._choose_sandbox = choose_sandbox
        self._sandbox = sandbox

    async def prepare(self, call: ToolUse) -> PreparedCall:
        try:
            commit = self._commit or await take_snapshot(self._directory)
            tree = await read_git_output(self._directory, "rev-parse", "--verify", f"{commit}^{{tree}}")
        except PodiumError as error:
            raise InvalidCall(f"The work cannot be checked: {error}.") from error
        return PreparedCall(
            arguments={"command": self._command, "timeout": int(CHECK_TIMEOUT)},
            act=partial(self._run_checks, commit),
            # The tree identifies the content of every file, so an approval of the command applies only to that content.
            inputs={"the whole work": tree},
            sandbox=self._sandbox,
            is_repeatable=True,
        )

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None

    async def _run_checks(self, commit: str) -> ToolAnswer:
        output = CommandOutput(start=LOG_HALF, end=LOG_HALF)
        line = (SHELL, "-c", self._command)
        async with temporary_checkout(self._directory, commit) as checkout:
            sandbox = await self._choose_sandbox(checkout.path)
            try:
                ended = await run_command_line(
                    make_check_command(line), checkout.path, CHECK_TIMEOUT, output, sandbox.wrap
                )
            finally:
                sandbox.clean_up()
        passed = ended.code == 0 and not ended.has_timed_out
        how = f"stopped after {CHECK_TIMEOUT:g} s" if ended.has_timed_out else str(ended)
        hidden = f"; {found}" if passed and (found := describe_hidden_exit(line)) else ""
        tail, whole = output.format_tail(CHECK_OUTPUT_TAIL), str(output)
        text = f"{'PASS' if passed else 'FAIL'} {self._command} [{how}{hidden}]\n{tail}".rstrip()
        is_log_kept = not passed or tail != whole
        return ToolAnswer(text=text, is_error=not passed, log=whole if is_log_kept else "")
