"""What settings say about worktrees: the commands that are run in them, where they are, and how much they take."""

from __future__ import annotations

from msgspec import Struct, structs


class WorktreeSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the worktrees of workers are kept; empty is not said.

    `setup` is run in a worktree when it is made, `teardown` before it goes. `folder` is the pattern of where
    it is made, `quota` how many bytes all of a store may take.
    """

    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()
    folder: str = ""
    quota: int | None = None

    def explicit_fields(self) -> dict[str, tuple[str, ...] | str | int]:
        """What is said, by its key."""
        return {key: value for key, value in structs.asdict(self).items() if value}
