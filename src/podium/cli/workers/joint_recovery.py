"""Complete or undo multi-repository merges that were interrupted while the target branches were being moved."""

from __future__ import annotations

import anyio

from ...setup.settings import Settings
from ..terminal.text import print_to_stderr

FOLDER = "merges"
"""The folder in Podium's home that records unfinished moves. `joint_move` uses the same name."""


def print_finished_moves(settings: Settings) -> None:
    """Complete or undo merges that were interrupted while their target branches were moved, and print each result."""
    if not (settings.home / FOLDER).is_dir():
        return
    # Imported here to keep start-up fast: merges in several repositories are rare.
    from ...workspace.merging.joint_move import finish_joint_moves

    for sentence in anyio.run(finish_joint_moves, settings.home, settings.store):
        print_to_stderr(sentence)
