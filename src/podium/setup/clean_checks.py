"""Evidence: commands that must pass on a clean checkout of the work before it counts as done.

The work is the working tree as it is, new files included, without what git ignores. The commands
run in a temporary checkout of it, in the sandbox, and change nothing of the work itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ..core.engine import ToolAnswer
from ..core.gate import Deed, Unfit
from ..tools.command_sandbox import Sandboxed
from ..tools.run_checks import LONGEST, TAIL
from ..tools.shell import SHELL, Output, ran
from ..values.action import Action
from ..values.errors import PodiumError
from ..values.event import ToolUse
from ..workspace.git.repository import git_output
from ..workspace.git.snapshot import detached, snapshot


class Evidence:
    """The commands of one team as one, judged and asked about like any other command."""

    name = "bash"
    description = "Run the commands that the work is measured by, on a clean checkout of it."
    parameters: ClassVar[dict[str, Any]] = {"type": "object", "properties": {}}
    is_parallel = False
    timeout = LONGEST + 60

    def __init__(
        self,
        directory: Path,
        commands: tuple[str, ...],
        *,
        bounds: Callable[[Path], Awaitable[Sandboxed]],
        sandbox: str,
    ) -> None:
        self._directory = directory
        self._command = " && ".join(commands)
        self._bounds = bounds
        self._sandbox = sandbox

    async def prepare(self, call: ToolUse) -> Deed:
        try:
            commit = await snapshot(self._directory)
            tree = await git_output(self._directory, "rev-parse", "--verify", f"{commit}^{{tree}}")
        except PodiumError as error:
            raise Unfit(f"The work cannot be checked: {error}.") from error
        return Deed(
            arguments={"command": self._command, "timeout": int(LONGEST)},
            act=partial(self._checked, commit),
            # The tree stands for every file of the work: whoever approves the command approves it on that.
            inputs={"the whole work": tree},
            sandbox=self._sandbox,
            is_repeatable=True,
        )

    async def recover(self, began: Action) -> ToolAnswer | None:
        return None

    async def _checked(self, commit: str) -> ToolAnswer:
        output = Output(start=0, end=TAIL)
        async with detached(self._directory, commit) as checkout:
            bounds = await self._bounds(checkout.path)
            try:
                ended = await ran([SHELL, "-c", self._command], checkout.path, LONGEST, output, bounds.wrap)
            finally:
                bounds.put_away()
        passed = ended.code == 0 and not ended.is_late
        how = f"stopped after {LONGEST:g} s" if ended.is_late else str(ended)
        text = f"{'PASS' if passed else 'FAIL'} {self._command} [{how}]\n{output}".rstrip()
        return ToolAnswer(text=text, is_error=not passed)
