"""Decide whether commands in a checkout can change its programs without asking."""

from __future__ import annotations

from pathlib import Path

from ...files.settings import Settings
from ...files.settings_document import InstallSettings
from ...values.errors import Mistake
from ...workspace.worktrees.worktree_slots import list_slots


def find_install_settings(settings: Settings, checkout: Path) -> InstallSettings | None:
    """Return the settings for installations in a checkout, or None if it is a worktree that Podium made.

    Commands can change the programs in such a worktree, because the user does not work there.
    """
    try:
        made = list_slots(settings.home)
    except Mistake:
        return settings.installs
    return None if made.keys() & {str(checkout), str(checkout.resolve())} else settings.installs


def must_ask_for_installs(settings: Settings, checkout: Path) -> bool:
    """Return whether only a person can allow a change of the programs in a checkout."""
    installs = find_install_settings(settings, checkout)
    return installs is not None and installs.ask is not False
