"""How much a command in the sandbox may use: processes, memory, files.

Two means, because neither reaches everywhere. Limits of a process hold for everyone, but the number of
processes is not counted for root, and memory is counted for each process alone. A control group holds for
all that run in one checkout together; only root may make one without the system's service manager.
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
    """8 GiB, or three quarters of what the machine has."""
    return min(8192 * MIB, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """What a command may use at most; sizes in bytes.

    `memory` is what a process may write to. What is only reserved does not count, because some interpreters
    reserve far more than any machine has. `temporary` is the size of each of its private folders.
    """

    processes: int = 512
    memory: int = field(default_factory=_default_memory_limit)
    file_size: int = 4096 * MIB
    open_files: int = 4096
    temporary: int = 2048 * MIB

    def ulimit_script(self) -> str:
        """What `/bin/sh` does inside the sandbox before it becomes the command. It fails where a limit does."""
        processes = _cap_to_hard_limit(self.processes, resource.RLIMIT_NPROC)
        limits = (
            "ulimit -c 0",
            f"ulimit -f {_cap_to_hard_limit(self.file_size, resource.RLIMIT_FSIZE) // 512}",
            f"ulimit -d {_cap_to_hard_limit(self.memory, resource.RLIMIT_DATA) // KIB}",
            f"ulimit -n {_cap_to_hard_limit(self.open_files, resource.RLIMIT_NOFILE)}",
            # One is what bash understands, the other what dash and busybox do.
            f"{{ ulimit -u {processes} 2>/dev/null || ulimit -p {processes}; }}",
        )
        # When the machine runs short of memory, what is in a sandbox is ended before anything else.
        return "{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null; " + " && ".join(limits)


def _cap_to_hard_limit(wanted: int, kind: int) -> int:
    """What is wanted, or the less that we have ourselves."""
    _, hard = resource.getrlimit(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


class ControlGroup:
    """Control groups of one sandbox, of either version; none where they cannot be made. They go when this does."""

    def __init__(self, limits: SandboxLimits) -> None:
        name = f"{_group_prefix()}{os.getpid()}-{next(_numbers)}"
        self.entrances: list[str] = []
        """Files that a process writes 0 to, meaning itself, in order to enter."""
        for parents, controller in _find_parent_groups() if os.geteuid() == 0 else ():
            for parent in parents:
                _remove_stale_groups(parent)
                made = parent / name
                if _try_make_group(made, controller, limits):
                    self.entrances.append(str(made / ENTRANCES.get(controller, "tasks")))
                    finalize(self, _remove_group, made)
                    break


def _group_prefix() -> str:
    """How the groups of this space of process ids are called: elsewhere their owners' ids mean nothing."""
    return f"podium-{Path('/proc/self/ns/pid').stat().st_ino}-"


_numbers = count()
UNIFIED = "unified"
ENTRANCES = {UNIFIED: "cgroup.procs"}
"""Elsewhere it is `tasks`: a single thread that moves itself waits for no other processor, which takes milliseconds."""
FILES = {
    "pids": {"pids.max": "processes"},
    "memory": {"memory.limit_in_bytes": "memory"},
    UNIFIED: {"pids.max": "processes", "memory.max": "memory"},
}


def _find_parent_groups() -> Iterator[tuple[tuple[Path, ...], str]]:
    """Where groups may be made for each controller that limits something: below our own group, or beside it."""
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
    """Whether there is such a group now, with its limits."""
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
    with suppress(OSError):  # a process that is still ending keeps it; the next sandbox sweeps it up
        group.rmdir()


def _remove_stale_groups(parent: Path) -> None:
    """Remove the groups of processes that are gone. The kernel refuses where anything is still in one."""
    prefix = _group_prefix()
    for group in parent.glob(f"{prefix}*"):
        owner = group.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            _remove_group(group)
