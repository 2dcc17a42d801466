"""Set up and tear down worktrees with configured commands, which run in the sandbox unless it is turned off."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from anyio import to_thread

from ...core.gate import InvalidCall
from ...tools.shell import CommandOutput, run_command_line
from ...values.errors import Mistake
from ...values.plain_text import escape_unprintable, truncate_text
from ...values.store_address import StoreAddress
from ...workspace.git.repository import Checkout
from ...workspace.worktrees.worktree_slots import lease_slot
from .sandbox_choice import choose_sandbox

LONGEST = 600.0
TAIL = 2 * 1024

WorktreeHook = Callable[[Checkout], Awaitable[None]]


def make_worktree_hook(
    argv: tuple[str, ...],
    *,
    what: str,
    home: Path,
    store: StoreAddress,
    is_sandboxed: bool = True,
    hosts: tuple[str, ...] = (),
    before: WorktreeHook | None = None,
) -> WorktreeHook | None:
    """Return a hook that runs a command in a worktree, or None if there is no command.

    The command gets the worktree's slot in its environment. The hook raises Mistake if the command fails. The hook
    `before`, if given, runs before the command.
    """
    if not argv:
        return None

    async def run_hook(checkout: Checkout) -> None:
        if before is not None:
            await before(checkout)
        slot = await to_thread.run_sync(lease_slot, home, checkout.path, checkout.common_dir.parent)
        environ = {**os.environ, **slot.variables}
        sandbox = await choose_sandbox(
            [checkout.path], home, store, is_wanted=is_sandboxed, hosts=hosts, environ=environ
        )
        output = CommandOutput(start=0, end=TAIL)
        try:
            ended = await run_command_line(list(argv), checkout.path, LONGEST, output, sandbox.wrap, environ=environ)
        except InvalidCall as error:
            raise Mistake(f"cannot run the {what} command in {checkout.path}: {error}") from error
        finally:
            sandbox.clean_up()
        if ended.code != 0 or ended.has_timed_out:
            told = truncate_text(escape_unprintable(str(output).strip()), 500)
            raise Mistake(f"the {what} command in {checkout.path} failed ({ended}): {told}")

    return run_hook
