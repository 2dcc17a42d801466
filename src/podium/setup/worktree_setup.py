"""Preparing a worktree, and clearing it up: commands that the person has set up for that, in the sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from ..core.gate import InvalidCall
from ..tools.shell import CommandOutput, run_command_line
from ..values.errors import Mistake
from ..values.plain_text import escape_unprintable, truncate_text
from ..workspace.git.repository import Checkout
from .sandbox_choice import choose_sandbox

LONGEST = 600.0
TAIL = 2 * 1024

WorktreeHook = Callable[[Checkout], Awaitable[None]]


def make_worktree_hook(
    argv: tuple[str, ...], *, what: str, home: Path, store: Path, is_sandboxed: bool = True
) -> WorktreeHook | None:
    """What is done with a worktree; None where nothing is set up. It raises Mistake where the command fails."""
    if not argv:
        return None

    async def run_hook(checkout: Checkout) -> None:
        sandbox = await choose_sandbox(checkout.path, home, store, is_wanted=is_sandboxed)
        output = CommandOutput(start=0, end=TAIL)
        try:
            ended = await run_command_line(list(argv), checkout.path, LONGEST, output, sandbox.wrap)
        except InvalidCall as error:
            raise Mistake(f"the {what} of {checkout.path} cannot be run: {error}") from error
        finally:
            sandbox.clean_up()
        if ended.code != 0 or ended.has_timed_out:
            told = truncate_text(escape_unprintable(str(output).strip()), 500)
            raise Mistake(f"the {what} of {checkout.path} failed ({ended}): {told}")

    return run_hook
