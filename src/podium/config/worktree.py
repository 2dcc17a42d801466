"""What settings say about worktrees: the commands that are run in them."""

from __future__ import annotations

from msgspec import Struct, structs


class WorktreeSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the worktrees of workers are kept; empty is not said.

    `setup` is run in a worktree when it is made, `teardown` before it goes.
    """

    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()

    def said(self) -> dict[str, tuple[str, ...]]:
        """What is said, by its key."""
        return {key: value for key, value in structs.asdict(self).items() if value}
