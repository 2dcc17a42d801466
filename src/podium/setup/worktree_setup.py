"""Preparing a worktree, and clearing it up: commands that the person has set up for that, in the sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from ..core.gate import Unfit
from ..tools.shell import Output, ran
from ..values.errors import Mistake
from ..values.plain_text import cut, plain
from ..workspace.git.repository import Checkout
from .sandbox_choice import sandboxed

LONGEST = 600.0
TAIL = 2 * 1024

Hook = Callable[[Checkout], Awaitable[None]]


def hook(argv: tuple[str, ...], *, what: str, home: Path, store: Path, is_sandboxed: bool = True) -> Hook | None:
    """What is done with a worktree; None where nothing is set up. It raises Mistake where the command fails."""
    if not argv:
        return None

    async def act(checkout: Checkout) -> None:
        bounds = await sandboxed(checkout.path, home, store, is_wanted=is_sandboxed)
        output = Output(start=0, end=TAIL)
        try:
            ended = await ran(list(argv), checkout.path, LONGEST, output, bounds.wrap)
        except Unfit as error:
            raise Mistake(f"the {what} of {checkout.path} cannot be run: {error}") from error
        finally:
            bounds.put_away()
        if ended.code != 0 or ended.is_late:
            told = cut(plain(str(output).strip()), 500)
            raise Mistake(f"the {what} of {checkout.path} failed ({ended}): {told}")

    return act
