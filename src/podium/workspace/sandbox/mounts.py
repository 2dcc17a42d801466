"""Define the mounts of the sandbox: the paths that a command sees, each readable, writable, private or hidden.

A command sees only mounted paths. If one mounted path is inside another, the inner one takes precedence, regardless of
the order of the mounts. So a hidden folder inside a readable folder stays hidden.

A sandbox can only write-protect existing paths, so a missing protected path gets a placeholder, an empty folder, while
commands run. Git
ignores empty folders, even if a crash leaves them behind. The names of the placeholders are recorded in the Podium
home. If several processes run commands in the checkout, the last one to finish removes the placeholders.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from threading import Lock, Timer
from typing import Literal

from ...system.owned_files import make_private_folder
from ...values.errors import Mistake
from ..git.repository import Repository

RECORD_FOLDER = "sandbox"
IDLE = 0.2
"""How many seconds after the last command the placeholders are removed."""


class Placeholders:
    """The placeholders of one checkout, for one sandbox.

    They are removed in a thread shortly after the last command has ended, because removing folders takes longer than
    most commands, and the next command often follows at once. They are also removed when the process exits.
    """

    def __init__(self, checkout: Path, names: Iterable[str], *, home: Path) -> None:
        self._checkout = checkout
        self._places = tuple((name, str(checkout / name)) for name in names)
        self._record = home / RECORD_FOLDER / sha256(os.fsencode(checkout)).hexdigest()[:32]
        self._descriptor: int | None = None
        self._holders = 0
        self._lock = Lock()
        self._timer: Timer | None = None

    def acquire(self) -> tuple[str, ...]:
        """Create missing placeholders and keep them at least until `release`. Return the names of all placeholders."""
        with self._lock:
            self._cancel_timer()
            if self._descriptor is None:
                self._descriptor = self._open_record()
                # Processes that run commands here share the lock; removing placeholders needs it exclusively.
                fcntl.flock(self._descriptor, fcntl.LOCK_SH)
                atexit.register(self.remove)
            self._holders += 1
            for name, place in self._places:
                if not os.path.lexists(place):
                    self._make_placeholder(name, self._descriptor)
            return self._read_record(self._descriptor)

    def release(self) -> None:
        """Record that a command has ended. Shortly after the last command, the placeholders are removed."""
        with self._lock:
            self._holders -= 1
            self._cancel_timer()
            if not self._holders:
                self._timer = Timer(IDLE, self.remove)
                self._timer.daemon = True
                self._timer.start()

    def remove(self) -> None:
        """Remove the placeholders, unless this or another process is still running commands in the checkout.

        In that case, the last of these processes to finish removes them.
        """
        with self._lock:
            if self._holders or self._descriptor is None:
                return
            self._cancel_timer()
            with suppress(OSError):  # another process runs commands, or the disk is full: a later call removes them
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # In reverse order, so that the contents of a folder are removed before the folder.
                for name in reversed(self._read_record(self._descriptor)):
                    with suppress(OSError):  # no longer an empty folder, so not a placeholder any more
                        (self._checkout / name).rmdir()
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
            atexit.unregister(self.remove)

    def remove_stale(self) -> None:
        """Remove the placeholders that a killed process left behind, unless a command is running."""
        with self._lock:
            if self._descriptor is None and self._record.exists():
                self._descriptor = self._open_record()
        self.remove()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _open_record(self) -> int:
        make_private_folder(self._record.parent)
        return os.open(self._record, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def _make_placeholder(self, name: str, record: int) -> None:
        """Create an empty folder and its missing parents, unless one of the parents is a link."""
        if "\n" in name:  # the record has one name per line
            return
        *above, _ = PurePosixPath(name).parents
        for folder in (*map(str, reversed(above)), name):
            place = self._checkout / folder
            if place.is_symlink():
                return
            if not place.exists():
                # Recorded first: a folder that is not in the record would never be removed.
                os.write(record, f"{folder}\n".encode(errors="surrogateescape"))
                with suppress(OSError):  # the path was created in the meantime, or the checkout is not writable
                    place.mkdir(mode=0o755)

    def _read_record(self, record: int) -> tuple[str, ...]:
        """Return the recorded placeholders of all processes, sorted."""
        held = os.pread(record, os.fstat(record).st_size, 0).decode(errors="surrogateescape")
        return tuple(sorted({name for name in held.split("\n") if name}))


MountKind = Literal["read", "write", "private", "empty", "secret"]
"""The kinds of mounts, named for what a command finds at the path.

`read`: read-only content. `write`: writable content. `private`: an empty writable folder. `empty`: an empty read-only
folder. `secret`: a file that nobody can open.
"""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys/devices/system/cpu")
CONFIGURATION = (
    *("passwd", "group", "nsswitch.conf", "hosts", "localtime", "ld.so.cache", "alternatives"),
    # Only these parts of /etc/ssl, because it also contains private keys.
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates/extracted", "pki/tls/certs", "pki/ca-trust", "crypto-policies"),
)
KERNEL_SETTINGS = tuple(
    f"/proc/{name}" for name in ("sys", "sysrq-trigger", "fs", "acpi", "asound", "scsi", "driver", "mtrr")
)
OWN_FOLDERS = ("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOROOT", "RUSTUP_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables whose values are paths that commands have to read."""
TOOLS_AT_HOME = (
    *(".rustup", ".local/share/uv/python", ".local/share/uv/tools", ".local/share/pipx", ".local/pipx"),
    *(".local/share/mise/installs", ".asdf", ".sdkman/candidates"),
    # Commands need the packages in these caches, because the sandbox can download only from granted hosts.
    *("go/pkg/mod", ".cargo/registry", ".m2/repository"),
)
PROGRAMS = ("bin", "sbin", "shims")
SPARE_HOME = Path("/tmp/home")
AGENT_HOME = Path("/home/agent")
"""The home directory of an agent in the sandbox. It is not in /tmp, where some agents refuse to keep their state."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A path in the sandbox. If its content comes from another path, that path is `source`."""

    kind: MountKind
    place: Path
    source: Path | None = None

    def bwrap_arguments(self, *, size: int) -> Iterator[str]:
        """Yield the arguments for bubblewrap."""
        place, source = str(self.place), str(self.source or self.place)
        match self.kind:
            case "read":
                yield from ("--ro-bind", source, place)
            case "write":
                yield from ("--bind", source, place)
            case "private":
                yield from ("--perms", "0700", "--size", str(size), "--tmpfs", place)
            case "empty":
                yield from ("--perms", "0555", "--size", "4096", "--tmpfs", place)
            case "secret":
                # Bubblewrap mounts this device file with `nodev`, so nobody can open it, not even its owner.
                yield from ("--ro-bind", os.devnull, place)


class GuardedPath:
    """A path in a checkout that is protected or hidden if it exists, with the mounts that can protect or hide it.

    Commands have an empty folder of their own in place of a private one.
    """

    def __init__(self, checkout: Path, name: str, *, is_secret: bool = False, is_private: bool = False) -> None:
        self.name = name
        self.is_secret = is_secret
        self.is_private = is_private
        place = checkout / name
        self.private = Mount("private", place)
        self.read, self.empty, self.secret = Mount("read", place), Mount("empty", place), Mount("secret", place)
        self._place = str(place)
        self._above = str(place.parent)

    def read_kind(self, is_plain: dict[str, bool]) -> Literal["folder", "file"] | None:
        """Return "folder" or "file", or None if the path does not exist or contains a link.

        `is_plain` caches, for each folder, whether its path contains no links.
        """
        try:
            mode = os.lstat(self._place).st_mode
        except OSError:
            return None
        if self._above not in is_plain:
            is_plain[self._above] = os.path.realpath(self._above) == self._above
        if stat.S_ISLNK(mode) or not is_plain[self._above]:
            return None
        return "folder" if stat.S_ISDIR(mode) else "file"


def build_mount_arguments(mounts: Iterable[Mount], *, size: int) -> list[str]:
    """Return the arguments for all mounts, outer paths first. Of two mounts for the same path, the last is used."""
    by_place = {mount.place: mount for mount in mounts}
    return [part for place in sorted(by_place) for part in by_place[place].bwrap_arguments(size=size)]


def build_system_arguments() -> list[str]:
    """Return the bubblewrap arguments that mount or link system files, and create `/proc` and `/dev`."""
    told: list[str] = []
    for path in (*map(Path, SYSTEM), *(Path("/etc", name) for name in CONFIGURATION)):
        # Create a link where possible: it takes almost no time, whereas a mount takes a tenth of a millisecond.
        if path.is_symlink() and path.resolve().is_relative_to("/usr"):
            told += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            told += ["--ro-bind", str(path), str(path)]
    told += ["--proc", "/proc", "--dev", "/dev"]
    # For these files, the kernel checks the owner and not capabilities, and root's changes affect the whole machine.
    for name in KERNEL_SETTINGS if os.geteuid() == 0 else KERNEL_SETTINGS[:1]:
        told += ["--ro-bind", name, name] if Path(name).exists() else []
    return told


def build_environment_arguments(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the arguments that set these environment variables."""
    for name, value in sorted(environ.items()):
        yield from ("--setenv", name, value)


def choose_sandbox_home(environ: Mapping[str, str], checkout: Path) -> Path:
    """Return the path of the empty home directory for commands. It is the user's home path, if possible."""
    home = Path(environ.get("HOME", ""))
    if not home.is_absolute() or home == Path("/") or home.is_relative_to(checkout) or _is_system_path(home):
        return SPARE_HOME
    return home


def find_tool_mounts(environ: Mapping[str, str], *, home: Path, checkout: Path) -> Iterator[Mount]:
    """Yield mounts for the folders that programs on the PATH, interpreters and virtual environments need.

    Neither the home directory nor a folder that contains it is included.
    """
    found = [Path(sys.prefix), Path(sys.base_prefix)]
    found += [Path(environ[name]) for name in OWN_FOLDERS if environ.get(name)]
    found += [_find_installation(Path(entry), home) for entry in environ.get("PATH", "").split(os.pathsep)]
    found += [home / name for name in TOOLS_AT_HOME]
    found += [folder for folder in (_find_python_installation(one) for one in (*found, checkout / ".venv")) if folder]
    shown: set[Path] = set()
    for folder in sorted(found):
        is_ours = folder.is_absolute() and not home.is_relative_to(folder) and not folder.is_relative_to(checkout)
        if (
            is_ours
            and not _is_system_path(folder)
            and shown.isdisjoint((folder, *folder.parents))
            and _can_read(folder)
        ):
            shown.add(folder)
            yield Mount("read", folder)


def _find_installation(folder: Path, home: Path) -> Path:
    """Return the folder to mount for a folder on the PATH.

    This is the parent of the folder if the parent contains libraries, and otherwise the folder itself.
    """
    above = folder.parent
    # The home directory and ~/.local are never mounted as a whole, because they also contain keys and other files.
    is_part = folder.name in PROGRAMS and above not in (home, home / ".local")
    return above if is_part and any(_can_read(above / name) for name in ("lib", "libexec")) else folder


def _find_python_installation(environment: Path) -> Path | None:
    """Return the Python installation that a virtual environment's interpreter links to, or None.

    A command may have created this link, so the target is accepted only if it is in a real Python installation.
    """
    program = environment / "bin" / "python"
    if not _can_read(program) or not program.is_symlink():
        return None
    folder = program.resolve().parent.parent
    return folder if any(folder.glob("lib/python3*/os.py")) else None


def _can_read(path: Path) -> bool:
    """Return whether this process can read a path. A folder on the PATH, for example, may belong to another user."""
    return os.access(path, os.R_OK)


def _is_system_path(path: Path) -> bool:
    return any(path.is_relative_to(name) for name in (*SYSTEM, "/etc", "/proc", "/dev", "/sys"))


def find_git_mounts(checkout: Path) -> Iterator[Mount]:
    """Yield read-only mounts for a checkout's git data, if that is outside the checkout, so that git works.

    Only data that points back to the checkout is included, because the files of an unpacked archive could point to any
    repository. For the same reason, objects that are borrowed from another repository are not included.
    """
    try:
        found = Repository.at(checkout)
    except Mistake:
        return
    for folder in (found.common_dir, found.git_dir):
        if found.root == checkout and not folder.is_relative_to(checkout) and not checkout.is_relative_to(folder):
            yield Mount("read", folder)
