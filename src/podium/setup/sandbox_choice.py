"""Which sandbox a checkout gets: the one that holds here, none that a person gave up, or none and no commands."""

from __future__ import annotations

import sys
from pathlib import Path

from ..core.gate import Unfit
from ..tools.command_sandbox import Sandboxed
from ..values.errors import Mistake
from ..workspace.sandbox.bubblewrap import Sandbox

NONE = "Commands run without a sandbox: what rules or you allow can reach all that you can."


async def sandboxed(
    checkout: Path, home: Path, store: Path, *, is_wanted: bool = True, is_read_only: bool = False
) -> Sandboxed:
    """What bounds commands in a checkout. Where a sandbox is wanted and there is none, no command runs."""
    if not is_wanted or sys.platform != "linux":
        return Sandboxed(name="none", notice=NONE)
    try:
        found = await Sandbox.find(
            checkout, home=home, store=store, profile="read-only" if is_read_only else "workspace"
        )
    except Mistake as error:
        reason = str(error)

        def refuse(argv: list[str]) -> list[str]:
            raise Unfit(f"No command can be run: {reason}.")

        return Sandboxed(name="missing", wrap=refuse, notice=f"No command can be run: {reason}.")
    return Sandboxed(name=found.profile, wrap=found.wrap, seal=found.wrap, put_away=found.tidy)
