"""Move the targets in several repositories together or not at all.

Git moves each branch atomically, but not the branches of two repositories at once. So the moves are recorded in a file
before the first one. Each branch moves only from the commit that was approved. If a move is refused, the earlier ones
are undone. If the process is killed, `finish_joint_moves` completes the moves, or undoes them if that is not possible.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from anyio import CancelScope
from msgspec import Struct

from ...store.fault_injection import Fault, parse_fault
from ...store.store_lock import hold_lock
from ...system.whole_file import replace_file
from ...values.actor import Actor
from ...values.errors import Mistake, PodiumError
from ...values.store_address import StoreAddress
from ..git.repository import Repository
from ..git.revision import SHORT, branch_tip, contains_commit
from .fast_forward import fast_forward, move_back, must_allow_fast_forward

FOLDER = "merges"


class TargetMove(Struct, frozen=True, kw_only=True):
    """The move of one repository's target from the commit `old` to `new`, whose tree is `tree`."""

    root: str
    target: str
    old: str
    new: str
    tree: str

    @property
    def repository(self) -> Repository:
        return Repository.at(Path(self.root))

    def __str__(self) -> str:
        return f"{self.target} in {self.root}"


class _RecordedMoves(Struct, frozen=True, kw_only=True):
    version: int = 1
    moves: tuple[TargetMove, ...]
    by: Actor | None = None
    """Who approved the moves. Earlier releases did not record it."""


async def move_together(
    home: Path, store: StoreAddress, moves: Sequence[TargetMove], *, by: Actor | None = None
) -> None:
    """Move all targets, or none. Raise Mistake if that is not possible; the message says what was undone.

    `by` approved the moves.
    """
    strike = parse_fault(os.environ) or _do_nothing
    async with hold_lock(store, FOLDER, doing="moving the targets of a merge"):
        for move in moves:
            try:
                await must_allow_fast_forward(move.repository, move.target, **_conditions(move))
            except Mistake as error:
                raise Mistake(f"no target was moved: in {move.root}, {error}") from error
        file = home / FOLDER / f"{secrets.token_hex(6)}.json"
        # From here on, a cancelled caller must not leave some targets moved and others not.
        with CancelScope(shield=True):
            replace_file(
                file, msgspec.json.format(msgspec.json.encode(_RecordedMoves(moves=tuple(moves), by=by))) + b"\n"
            )
            strike()
            try:
                await _move_all(moves, by, strike)
            except PodiumError as error:
                if torn := await _move_all_back(moves):
                    raise Mistake(f"{error}; {torn}; the next podium merge tries to complete this merge") from error
                file.unlink(missing_ok=True)
                raise Mistake(f"the merge was undone in all repositories: {error}") from error
            file.unlink(missing_ok=True)


async def finish_joint_moves(home: Path, store: StoreAddress) -> list[str]:
    """Complete the moves that a killed process left unfinished, or undo them. Return a sentence about each."""
    if not any((home / FOLDER).glob("*.json")):
        return []
    async with hold_lock(store, FOLDER, doing="moving the targets of a merge"):
        found: list[str] = []
        for file in sorted((home / FOLDER).glob("*.json")):
            try:
                recorded = msgspec.json.decode(file.read_bytes(), type=_RecordedMoves)
            except (OSError, msgspec.MsgspecError) as error:
                found.append(
                    f"{file} cannot be read ({error}); check the targets of your last merge, then delete this file"
                )
                continue
            with CancelScope(shield=True):
                said, is_settled = await _finish_moves(recorded.moves, recorded.by)
                if is_settled:
                    file.unlink(missing_ok=True)
            found.append(said)
        return found


async def _finish_moves(moves: Sequence[TargetMove], by: Actor | None) -> tuple[str, bool]:
    """Complete these moves or, if that fails, undo them.

    Return a sentence about the result, and whether the moves were either completed or undone.
    """
    targets = " and ".join(map(str, moves))
    try:
        for move in moves:
            if not await _is_moved(move):
                await must_allow_fast_forward(move.repository, move.target, **_conditions(move))
        await _move_all([move for move in moves if not await _is_moved(move)], by, _do_nothing)
    except PodiumError as error:
        if torn := await _move_all_back(moves):
            return f"an interrupted merge into {targets} could be neither completed ({error}) nor undone: {torn}", False
        return f"an interrupted merge was undone, because it could not be completed: {error}; merge again", True
    return f"an interrupted merge into {targets} was completed", True


async def _move_all(moves: Sequence[TargetMove], by: Actor | None, strike: Fault) -> None:
    for move in moves:
        await fast_forward(move.repository, move.target, **_conditions(move), by=by)
        strike()


async def _move_all_back(moves: Sequence[TargetMove]) -> str:
    """Undo the moves that were made. Return which moves could not be undone and why, or an empty string."""
    torn: list[str] = []
    for move in reversed(moves):
        with suppress(PodiumError):
            if move.old == move.new or not await _is_touched(move):
                continue
        try:
            await move_back(move.repository, move.target, commit=move.new, old=move.old)
        except PodiumError as error:
            torn.append(f"{move} has moved to {move.new[:SHORT]} and could not be moved back ({error})")
    return "; ".join(torn)


async def _is_touched(move: TargetMove) -> bool:
    """Return whether a move may have to be undone.

    Either the target contains the new commit, or it is at the old commit but its files may already have been updated.
    """
    return await branch_tip(move.repository, move.target) == move.old or await _is_moved(move)


async def _is_moved(move: TargetMove) -> bool:
    """Return whether the target contains the new commit, even if other commits have been added after it."""
    repository = move.repository
    return await contains_commit(repository, await branch_tip(repository, move.target), move.new)


def _conditions(move: TargetMove) -> dict[str, str]:
    return {"commit": move.new, "expected_tree": move.tree, "expected_old": move.old}


def _do_nothing() -> None:
    """Do nothing. This is used when no fault is to be injected."""
