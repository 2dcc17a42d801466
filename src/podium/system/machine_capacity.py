"""Measure the free space on a disk and the memory of this machine."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCapacity:
    """Sizes in bytes: the free space on one disk, the memory that processes can use, and how much of it is free."""

    free_disk: int
    memory: int
    free_memory: int


def measure_capacity(folder: Path) -> MachineCapacity:
    """Measure the disk that contains a folder, which need not exist yet, and the memory that this process can use."""
    above = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    memory, free = _read_memory()
    limit = _read_number(CGROUP / "memory.max")
    if limit is not None and limit < memory:
        used = _read_number(CGROUP / "memory.current") or 0
        memory, free = limit, min(free, max(limit - used, 0))
    return MachineCapacity(free_disk=shutil.disk_usage(above).free, memory=memory, free_memory=free)


def _read_memory() -> tuple[int, int]:
    """Return the machine's total memory and its free memory, in bytes."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return sizes["MemTotal"], sizes["MemAvailable"]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return memory, memory  # other systems have no common way to ask how much is free


def _read_number(path: Path) -> int | None:
    """Return the number in a file, or None if the file cannot be read or contains something else, such as `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
