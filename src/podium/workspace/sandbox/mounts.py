"""What a command in the sandbox sees of the machine: places, each of them shown, hidden or its own.

There is nothing but what is listed here. A place that lies in another one wins over it, in whatever
order they were listed; so a hidden folder stays hidden inside one that is shown.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MountKind = Literal["read", "write", "private", "empty", "secret"]
"""Readable; writable; an empty folder of its own; an empty folder; a file that cannot be opened."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys/devices/system/cpu")
CONFIGURATION = (
    *("passwd", "group", "nsswitch.conf", "hosts", "localtime", "ld.so.cache", "alternatives"),
    # Not all of /etc/ssl, which holds private keys.
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates/extracted", "pki/tls/certs", "pki/ca-trust", "crypto-policies"),
)
KERNEL_SETTINGS = tuple(
    f"/proc/{name}" for name in ("sys", "sysrq-trigger", "fs", "acpi", "asound", "scsi", "driver", "mtrr")
)
OWN_FOLDERS = ("VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME", "GOROOT", "RUSTUP_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables that commands are given and that name something they have to read."""
TOOLS_AT_HOME = (
    *(".rustup", ".local/share/uv/python", ".local/share/uv/tools", ".local/share/pipx", ".local/pipx"),
    *(".local/share/mise/installs", ".asdf", ".sdkman/candidates"),
    # What was downloaded before, because there is no network.
    *("go/pkg/mod", ".cargo/registry", ".m2/repository"),
)
PROGRAMS = ("bin", "sbin", "shims")
SPARE_HOME = Path("/tmp/home")


@dataclass(frozen=True, slots=True)
class Mount:
    """A place, and what a command finds there; `source` where that is something else than the place itself."""

    kind: MountKind
    place: Path
    source: Path | None = None

    def bwrap_arguments(self, *, size: int) -> Iterator[str]:
        """What bubblewrap is told."""
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
                # A device on a mount without devices: nobody can open it, not even its owner.
                yield from ("--ro-bind", os.devnull, place)


def build_mount_arguments(mounts: Iterable[Mount], *, size: int) -> list[str]:
    """All of them, in an order in which what lies deeper comes later. Of two for one place, the last one counts."""
    by_place = {mount.place: mount for mount in mounts}
    return [part for place in sorted(by_place) for part in by_place[place].bwrap_arguments(size=size)]


def build_system_arguments() -> list[str]:
    """The system's own files, the processes of the sandbox, and a few devices."""
    told: list[str] = []
    for path in (*map(Path, SYSTEM), *(Path("/etc", name) for name in CONFIGURATION)):
        # Each mount takes a tenth of a millisecond, a link next to nothing.
        if path.is_symlink() and path.resolve().is_relative_to("/usr"):
            told += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            told += ["--ro-bind", str(path), str(path)]
    told += ["--proc", "/proc", "--dev", "/dev"]
    # Here the kernel asks who the owner is and not for capabilities, and what root writes holds for the machine.
    for name in KERNEL_SETTINGS if os.geteuid() == 0 else KERNEL_SETTINGS[:1]:
        told += ["--ro-bind", name, name] if Path(name).exists() else []
    return told


def choose_sandbox_home(environ: Mapping[str, str], checkout: Path) -> Path:
    """Where a command finds its home, which is empty: the place where the person's is, if that can be."""
    home = Path(environ.get("HOME", ""))
    if not home.is_absolute() or home == Path("/") or home.is_relative_to(checkout) or _is_system_path(home):
        return SPARE_HOME
    return home


def find_tool_mounts(environ: Mapping[str, str], *, home: Path, checkout: Path) -> Iterator[Mount]:
    """The folders that programs on the PATH, interpreters and virtual environments consist of.

    Never the home, nor a folder that holds it.
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
    """An entry of the PATH, or the whole of what its programs belong to, where they need that."""
    above = folder.parent
    # ~/.local holds much else beside programs, keys among it.
    is_part = folder.name in PROGRAMS and above not in (home, home / ".local")
    return above if is_part and any(_can_read(above / name) for name in ("lib", "libexec")) else folder


def _find_python_installation(environment: Path) -> Path | None:
    """The installation that a virtual environment's interpreter is a part of.

    Commands may have written what leads there. So it has to be an installation of Python, and nothing else will do.
    """
    program = environment / "bin" / "python"
    if not _can_read(program) or not program.is_symlink():
        return None
    folder = program.resolve().parent.parent
    return folder if any(folder.glob("lib/python3*/os.py")) else None


def _can_read(path: Path) -> bool:
    """Whether it is there, for us: a PATH may well lead into folders of others."""
    return os.access(path, os.R_OK)


def _is_system_path(path: Path) -> bool:
    return any(path.is_relative_to(name) for name in (*SYSTEM, "/etc", "/proc", "/dev", "/sys"))


def find_git_mounts(checkout: Path) -> Iterator[Mount]:
    """Where git keeps what it knows about a checkout, outside of it: readable, so that git works."""
    own = checkout / ".git"
    try:
        if stat.S_ISREG(own.lstat().st_mode):
            own = _read_path_file(own, "gitdir: ")
        common = _read_path_file(own / "commondir") if (own / "commondir").is_file() else own
        if not (own / "HEAD").is_file() or not (common / "objects").is_dir():
            return
        borrowed = common / "objects" / "info" / "alternates"
        lines = borrowed.read_text(encoding="utf-8").splitlines() if borrowed.is_file() else []
    except (OSError, ValueError):
        return
    objects = [Path(line) for line in lines if line.startswith("/") and Path(line).name == "objects"]
    for folder in (common, own, *objects):
        if not folder.is_relative_to(checkout) and not checkout.is_relative_to(folder) and folder.is_dir():
            yield Mount("read", folder)


def _read_path_file(file: Path, start: str = "") -> Path:
    """The folder that one of git's small files names."""
    text = file.read_text(encoding="utf-8").removesuffix("\n")
    if not text.startswith(start):
        raise ValueError(f"{file} does not start with {start}")
    return Path(os.path.normpath(file.parent / text.removeprefix(start)))
