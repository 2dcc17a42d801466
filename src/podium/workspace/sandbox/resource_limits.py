"""Limit the processes, memory, files and disk space that a command in the sandbox can use.

Two mechanisms limit processes and memory, because each of them has gaps. Process limits work for every user, but they
do not limit how many processes root has, and they limit the memory of each process separately. A control group limits
all processes of a sandbox together, but only root can create a control group without the system's service manager.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from weakref import finalize

KIB = 1024
MIB = 1024 * KIB


def _default_memory_limit() -> int:
    """Return 8 GiB, or three quarters of the machine's memory if that is less."""
    return min(8192 * MIB, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """The maximum resources that a command can use; sizes are in bytes.

    `memory` limits the memory that a process can write to. Memory that is only reserved does not count, because some
    interpreters reserve far more memory than any machine has. `temporary` is the size of each private folder.
    `free_space` is the space that must remain free on the checkout's disk.
    """

    processes: int = 512
    memory: int = field(default_factory=_default_memory_limit)
    file_size: int = 4096 * MIB
    open_files: int = 4096
    temporary: int = 2048 * MIB
    free_space: int = 1024 * MIB

    def ulimit_script(self) -> str:
        """Return a shell script that sets the limits for a command. The script fails if a limit cannot be set."""
        processes = _cap_to_hard_limit(self.processes, resource.RLIMIT_NPROC)
        limits = (
            "ulimit -c 0",
            f"ulimit -f {_cap_to_hard_limit(self.file_size, resource.RLIMIT_FSIZE) // 512}",
            f"ulimit -d {_cap_to_hard_limit(self.memory, resource.RLIMIT_DATA) // KIB}",
            f"ulimit -n {_cap_to_hard_limit(self.open_files, resource.RLIMIT_NOFILE)}",
            # The first form is for bash, the second for dash and busybox.
            f"{{ ulimit -u {processes} 2>/dev/null || ulimit -p {processes}; }}",
        )
        # When the machine runs out of memory, processes in a sandbox are killed first.
        return "{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null; " + " && ".join(limits)


def _cap_to_hard_limit(wanted: int, kind: int) -> int:
    """Return the requested limit, or this process's hard limit if that is lower."""
    _, hard = resource.getrlimit(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


class DiskSpace:
    """Watches the free disk space while a command runs.

    If less than the minimum is free when the command starts, the command can use half of the free space.
    """

    def __init__(self, folder: Path, limits: SandboxLimits) -> None:
        self._folder = folder
        space, files = self._read_free()
        self._space = limits.free_space if space > limits.free_space else space // 2
        self._files = LEAST_FILES if files > LEAST_FILES else files // 2

    def find_breach(self) -> str:
        """Return why a command must be stopped, as a sentence, or an empty string if enough space is left."""
        space, files = self._read_free()
        if space >= self._space and files >= self._files:
            return ""
        left = f"{space // MIB} MiB is left" if space < self._space else f"{files} more files can be created"
        return f"the command was stopped because the disk is almost full: only {left}"

    def _read_free(self) -> tuple[int, int]:
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return 0, 0
        # Some file systems do not limit the number of files, and report 0.
        return found.f_bavail * found.f_frsize, found.f_favail if found.f_files else LEAST_FILES


LEAST_FILES = 10_000
"""The minimum number of free inodes on the disk. If fewer are left, the command is stopped."""


class ControlGroup:
    """The control groups (version 1 or 2) of one sandbox. They are removed with the sandbox.

    If no control group can be created, only the process limits apply.
    """

    def __init__(self, limits: SandboxLimits) -> None:
        name = f"{_group_prefix()}{os.getpid()}-{next(_numbers)}"
        self.entrances: list[str] = []
        """The files for joining the control groups. A process joins a group by writing 0 to the group's file."""
        for parents, controller in _find_parent_groups() if os.geteuid() == 0 else ():
            for parent in parents:
                _remove_stale_groups(parent)
                made = parent / name
                if _try_make_group(made, controller, limits):
                    self.entrances.append(str(made / ENTRANCES.get(controller, "tasks")))
                    finalize(self, _remove_group, made)
                    break


def _group_prefix() -> str:
    """Return the prefix of group names. It contains the id of the PID namespace.

    A group's name also contains the pid of its creator, which is unique only within a PID namespace.
    """
    return f"podium-{Path('/proc/self/ns/pid').stat().st_ino}-"


_numbers = count()
UNIFIED = "unified"
ENTRANCES = {UNIFIED: "cgroup.procs"}
"""The file that adds a process to a control group of version 2. For version 1, `tasks` is used instead, because adding
a single thread is faster: the kernel does not wait for other processors."""
FILES = {
    "pids": {"pids.max": "processes"},
    "memory": {"memory.limit_in_bytes": "memory"},
    UNIFIED: {"pids.max": "processes", "memory.max": "memory"},
}


def _find_parent_groups() -> Iterator[tuple[tuple[Path, ...], str]]:
    """Yield the possible parents of a new control group, and the controller, for each controller with limits.

    The parents are this process's own group and the group above it. They are to be tried in this order.
    """
    with suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(",") if controllers else (UNIFIED,):
                if controller in FILES and (top := _find_mount(mounts, controller)):
                    own = top / path.lstrip("/")
                    yield ((own, own.parent) if own != top else (own,)), controller


def _find_mount(mounts: str, controller: str) -> Path | None:
    wanted = r" - cgroup2 " if controller == UNIFIED else rf" - cgroup \S+ \S*\b{controller}\b"
    found = re.search(rf"^\S+ \S+ \S+ \S+ (\S+) .*{wanted}", mounts, re.MULTILINE)
    return Path(found[1]) if found else None


def _try_make_group(group: Path, controller: str, limits: SandboxLimits) -> bool:
    """Create a group with its limits, and return whether that succeeded."""
    with suppress(OSError):
        if controller == UNIFIED:
            (group.parent / "cgroup.subtree_control").write_text("+pids +memory")
    try:
        group.mkdir()
        for file, limit in FILES[controller].items():
            (group / file).write_text(str(getattr(limits, limit)))
    except OSError:
        _remove_group(group)
        return False
    return True


def _remove_group(group: Path) -> None:
    with suppress(OSError):  # a process in the group is still exiting; the next sandbox removes the group
        group.rmdir()


def _remove_stale_groups(parent: Path) -> None:
    """Remove control groups whose creating process has exited. The kernel does not remove a group in use."""
    prefix = _group_prefix()
    for group in parent.glob(f"{prefix}*"):
        owner = group.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            _remove_group(group)
