"""Lease a slot to each worktree: a number, ports and a database name that no other worker uses.

Programs started by several workers can then run at the same time. The leases are in a small file in Podium's home
folder, which all stores and repositories share. A slot belongs to a worktree's folder for as long as the folder exists,
so a crash does not leak slots, and removing the worktree frees its slot.
"""

from __future__ import annotations

import re
import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from ...system.file_lock import hold_file_lock
from ...system.whole_file import replace_file
from ...values.errors import Mistake

FILE = "slots.json"
LOCK = ".slots.lock"
FIRST_PORT = 21_000
PORTS_A_SLOT = 5
MOST_SLOTS = 2_000
LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot of a worktree. `repository` is the name of the repository's folder."""

    number: int
    repository: str

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of the slot."""
        first = FIRST_PORT + (self.number - 1) * PORTS_A_SLOT
        return tuple(range(first, first + PORTS_A_SLOT))

    @property
    def database(self) -> str:
        """A database name that consists of lower-case letters, digits and underscores."""
        name = re.sub(r"[^a-z0-9]+", "_", self.repository.lower()).strip("_")[:LONGEST_NAME]
        return f"podium_{name or 'repo'}_{self.number}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that describe the slot to commands in the worktree."""
        ports = {f"PODIUM_PORT_{number}": str(port) for number, port in enumerate(self.ports, 1)}
        return {"PODIUM_SLOT": str(self.number), "PODIUM_DATABASE": self.database, **ports}


class _SlotFile(Struct, frozen=True, kw_only=True):
    version: int = 1
    slots: dict[str, int] = {}
    """The slot of each worktree, keyed by the worktree's path."""
    repositories: dict[str, str] = {}
    """Maps the path of each worktree that shares another worktree's slot to the name of the other one's repository."""


def lease_slot(home: Path, worktree: Path, repository: Path) -> Slot:
    """Return the slot of a worktree. If it has none, lease one. Raise Mistake if that fails.

    A new slot gets the lowest number that is not leased to an existing worktree and whose ports are free.
    """
    file = home / FILE
    with hold_file_lock(home / LOCK, protects=file):
        kept, names = list_slots(home), _read_leases(file).repositories
        if str(worktree) not in kept:
            kept[str(worktree)] = _find_free_number(set(kept.values()))
            _write_leases(file, kept, names)
        return Slot(kept[str(worktree)], names.get(str(worktree), repository.name))


def share_slot(home: Path, worktree: Path, owner: Path, repository: Path) -> Slot:
    """Give a worktree the slot of the worktree `owner`, which is in `repository`. Raise Mistake if that fails.

    The slot stays leased as long as at least one of the two folders exists. A worktree can be its own owner.
    """
    slot = lease_slot(home, owner, repository)
    if worktree == owner:
        return slot
    file = home / FILE
    with hold_file_lock(home / LOCK, protects=file):
        kept, names = list_slots(home), _read_leases(file).repositories
        if kept.get(str(worktree)) != slot.number or names.get(str(worktree)) != slot.repository:
            _write_leases(file, {**kept, str(worktree): slot.number}, {**names, str(worktree): slot.repository})
    return slot


def _write_leases(file: Path, slots: dict[str, int], names: dict[str, str]) -> None:
    names = {path: name for path, name in names.items() if path in slots}
    leases = msgspec.json.encode(_SlotFile(slots=slots, repositories=names))
    replace_file(file, msgspec.json.format(leases, indent=1) + b"\n")


def list_slots(home: Path) -> dict[str, int]:
    """Return the number of each leased slot, keyed by the worktree's path. Raise Mistake if they cannot be read."""
    return {path: number for path, number in _read_leases(home / FILE).slots.items() if Path(path).is_dir()}


def find_slot(home: Path, worktree: Path, repository: Path) -> Slot | None:
    """Return the slot of a worktree, or None if it has none. Raise Mistake if the leases cannot be read."""
    leases = _read_leases(home / FILE)
    number = leases.slots.get(str(worktree))
    return None if number is None else Slot(number, leases.repositories.get(str(worktree), repository.name))


def _read_leases(file: Path) -> _SlotFile:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_SlotFile)
    except FileNotFoundError:
        return _SlotFile()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Mistake(
            f"{file} cannot be read ({error}), so no ports can be leased; delete it if no worker is running"
        ) from error


def _find_free_number(taken: set[int]) -> int:
    for number in range(1, MOST_SLOTS + 1):
        if number not in taken and all(map(_is_free, Slot(number, "").ports)):
            return number
    raise Mistake(f"all {MOST_SLOTS} slots for worktrees are taken; remove worktrees with podium worktrees cleanup")


def _is_free(port: int) -> bool:
    """Return whether no program on this machine listens on a port."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
