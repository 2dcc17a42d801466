"""The sandbox: what bounds a command, whatever it was told to do.

Bubblewrap gives a command namespaces of its own (users, processes, network, mounts, host name, control
groups), no capability, a system that it can only read, and a checkout. A filter keeps it from system
calls that reach around that. When the command ends or we do, all that it started ends with it.
Whether a command may run at all is for the rules to say; time and output belong to who runs it.
"""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from ...policy.path_rules import is_protected
from ...system.child_process import Wrapped, environment
from ...values.errors import Mistake
from ..git.repository import trusted_program
from . import seccomp
from .mounts import Mount, arguments, git_folders, own_home, system, tools
from .placeholders import Placeholders
from .resource_limits import ControlGroup, Limits
from .sealed_files import Seals
from .secret_files import find_secrets
from .self_test import can_disable_users, failures

Profile = Literal["read-only", "workspace"]

SHELL = "/bin/sh"
FILTER = 9
"""The descriptor that bubblewrap reads the filter from; a shell can name no higher one."""

NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")
GUARDED = (
    *(".git", ".podium", ".claude", ".mcp.json", ".envrc", ".githooks", ".husky"),
    *(".bashrc", ".bash_profile", ".bash_login", ".profile", ".zprofile", ".zshrc", ".zshenv"),
)
"""What a command cannot make, either. What else is protected is guarded from changes where it exists."""

INSTALLERS = (
    ("apt-get", "sudo apt-get install bubblewrap"),
    ("dnf", "sudo dnf install bubblewrap"),
    ("pacman", "sudo pacman -S bubblewrap"),
    ("zypper", "sudo zypper install bubblewrap"),
    ("apk", "sudo apk add bubblewrap"),
)


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """A sandbox around the commands of one checkout. Get one with `find`, which proves that it holds.

    `home` is the Podium home; it is never seen from inside, nor is `store`.
    """

    program: str
    checkout: Path
    home: Path
    profile: Profile = "workspace"
    store: Path | None = None
    readable: tuple[Path, ...] = ()
    secrets: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    environ: Mapping[str, str] = field(default_factory=environment, hash=False)
    can_disable_users: bool = True

    @classmethod
    async def find(
        cls,
        checkout: Path,
        *,
        home: Path,
        profile: Profile = "workspace",
        store: Path | None = None,
        readable: Sequence[Path] = (),
        shown: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Sandbox:
        """The sandbox for a checkout. A mistake where there is none, or where its self-test finds a hole.

        `readable` are folders outside the checkout that commands may read, `shown` files inside that they
        may, although files of such names usually hold secrets.
        """
        checkout = _fit(checkout, profile)
        program = bubblewrap(outside=checkout)
        seccomp.program()
        found = cls(
            program=program,
            checkout=checkout,
            home=_made(home),
            profile=profile,
            store=store and _whole(store),
            readable=tuple(readable),
            secrets=tuple(path for path in await find_secrets(checkout) if path not in shown),
            limits=limits or Limits(),
            can_disable_users=await can_disable_users(program),
        )
        if failed := await found.self_test():
            raise Mistake(f"commands need a sandbox, and that of this machine does not hold: {'; '.join(failed)}")
        return found

    async def self_test(self) -> list[str]:
        """What a command could do here and should not; nothing, where the sandbox holds. Done once a process."""
        return await failures(self)

    def wrap(self, argv: list[str], sealed: Mapping[str, bytes] | None = None) -> list[str]:
        """The command line that runs `argv` in the sandbox, started in a folder that is seen from inside.

        `sealed` are files of the checkout with what they hold for the command, whatever happens to them.
        """
        copies = Seals(self.home / "sandbox").of(self.checkout, sealed or {})
        # The first process inside stays in the group that is killed with the command; only the command leaves it. With
        # bubblewrap's own --new-session both would, and a command that is ended while it begins would go on.
        inside = f'{self.limits.script()} && echo >&0 && read -r _ && exec setsid "$@" </dev/null'
        held = self._placeholders.hold() if self.profile == "workspace" else ()
        bwrap = [
            self.program,
            *self._always,
            # What is closed stays closed: of two mounts for one place the last one counts.
            *arguments((*copies.mounts, *self._seen(held)), size=self.limits.temporary),
            *("--remount-ro", "/dev", "--remount-ro", "/"),
            *("--", SHELL, "-c", inside, "sh", *argv),
        ]

        def put_away() -> None:
            copies.remove()
            self._put_away()

        return Wrapped([SHELL, "-c", self._entering(), "sh", *bwrap], put_away)

    def tidy(self) -> None:
        """Leave nothing of ours in the checkout; it happens by itself a moment after the last command, too."""
        if self.profile == "workspace":
            self._placeholders.remove()

    def _put_away(self) -> None:
        if self.profile == "workspace":
            self._placeholders.release()

    def _entering(self) -> str:
        """What a shell does outside: enter the control groups, open the filter, become bubblewrap."""
        enter = "".join(f"echo 0 >{shlex.quote(file)} && " for file in self._group.entrances)
        return f'{enter}exec "$@" {FILTER}</proc/{os.getpid()}/fd/{seccomp.program()}'

    @cached_property
    def _always(self) -> list[str]:
        """What is the same for every command."""
        own = own_home(self.environ, self.checkout)
        given = {**self.environ, "HOME": str(own), "TMPDIR": "/tmp"}
        told = [*NAMESPACES, "--unshare-cgroup-try", "--cap-drop", "ALL", "--die-with-parent"]
        told += ["--disable-userns"] if self.can_disable_users else []
        told += ["--hostname", "sandbox", "--seccomp", str(FILTER), "--clearenv"]
        for name, value in sorted(given.items()):
            told += ["--setenv", name, value]
        return told + system()

    @cached_property
    def _places(self) -> tuple[Mount, ...]:
        own = own_home(self.environ, self.checkout)
        person = Path(self.environ.get("HOME", own))
        return (
            *(Mount("private", place) for place in (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), own)),
            *tools(self.environ, home=person, checkout=self.checkout),
            *(Mount("read", folder) for folder in self.readable if folder.exists()),
            *git_folders(self.checkout),
            Mount("write" if self.profile == "workspace" else "read", self.checkout),
            *self._own_interpreter(),
        )

    def _seen(self, held: Sequence[str]) -> Iterator[Mount]:
        """All places. Of the Podium home nothing is shown but a checkout that lies in it."""
        guards = (*self._guards(held), Mount("empty", self.home))
        for mount in (*self._places, *self._anchors(guards), *guards[:-1]):
            is_checkout = mount.place.is_relative_to(self.checkout) and self.checkout.is_relative_to(self.home)
            if is_checkout or not mount.place.is_relative_to(self.home):
                yield mount
        yield Mount("empty", self.home)

    def _anchors(self, guards: Sequence[Mount]) -> Iterator[Mount]:
        """The folders between the checkout and what is closed in it: a mount of its own cannot be moved away."""
        if self.profile != "workspace":
            return
        closed = [mount.place for mount in (*guards, *self._own_interpreter())]
        closed = [place for place in closed if place.is_relative_to(self.checkout) and place != self.checkout]
        for place in closed:
            for folder in place.parents[: len(place.relative_to(self.checkout).parts) - 1]:
                # Inside what is closed as a whole, nothing is opened.
                if folder.is_dir() and not any(folder.is_relative_to(other) for other in closed):
                    yield Mount("write", folder)

    def _own_interpreter(self) -> Iterator[Mount]:
        """What we ourselves run with, where that lies in the checkout: a command must not change it."""
        prefix = Path(sys.prefix).resolve()
        if prefix.is_relative_to(self.checkout) and prefix != self.checkout:
            yield Mount("read", prefix)

    def _guards(self, held: Sequence[str]) -> Iterator[Mount]:
        """What is protected or secret in the checkout, as it is now. Links are left: they would lead a mount astray."""
        for name in self._guarded:
            place = self.checkout / name
            if name in held and place.is_dir():
                yield Mount("empty", place)
            elif place.exists() and not place.is_symlink():
                yield Mount("read", place)
        yield from self._around_store()
        for path in self.secrets:
            place = self.checkout / path
            if place.exists() and not place.is_symlink():
                yield Mount("empty" if place.is_dir() else "secret", place)

    def _around_store(self) -> Iterator[Mount]:
        """A store in the checkout is hidden with the files that come and go beside it; what else is there is shown."""
        if self.store is None:
            return
        folder = self.store.parent
        if not self.store.is_relative_to(self.checkout):
            shown = [mount.place for mount in self._places if mount.kind == "read"]
            if any(folder.is_relative_to(place) for place in shown):
                yield Mount("empty", folder)
            return
        if folder != self.checkout:
            yield Mount("empty", folder)
        for entry in os.scandir(folder) if folder.is_dir() else ():
            is_plain = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
            is_of_store = entry.name.startswith(self.store.name)
            if is_plain and folder == self.checkout and is_of_store:
                yield Mount("empty" if entry.is_dir() else "secret", Path(entry.path))
            elif is_plain and folder != self.checkout and not is_of_store:
                yield Mount("read", Path(entry.path))

    @cached_property
    def _guarded(self) -> tuple[str, ...]:
        existing = (entry.name for entry in os.scandir(self.checkout) if is_protected(entry.name))
        return tuple(dict.fromkeys((*GUARDED, *existing)))

    @cached_property
    def _placeholders(self) -> Placeholders:
        return Placeholders(self.checkout, GUARDED, home=self.home)

    @cached_property
    def _group(self) -> ControlGroup:
        return ControlGroup(self.limits)


def bubblewrap(*, outside: Path) -> str:
    """The absolute path of bubblewrap; a mistake, with what installs it, where it is not there."""
    if sys.platform != "linux":
        raise Mistake("commands need a sandbox, and there is none for this system; --no-sandbox runs them without")
    program = trusted_program("bwrap", outside=outside)
    if program is None:
        raise Mistake(f"commands need a sandbox, and bubblewrap is not installed; get it with: {_installer()}")
    return program


def _installer() -> str:
    fallback = "your system's package manager (the package is called bubblewrap)"
    return next((command for manager, command in INSTALLERS if shutil.which(manager)), fallback)


def _fit(checkout: Path, profile: Profile) -> Path:
    """The whole path of a checkout; a mistake where no sandbox could protect what it holds."""
    checkout = _whole(checkout)
    homes = [Path(os.environ.get("HOME", "/"))]
    with suppress(KeyError):  # a user without a name
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    if checkout in homes or homes[-1].is_relative_to(checkout):
        raise Mistake(f"{checkout} holds your home folder, which no command may see; run commands in a folder below it")
    if profile == "workspace" and (checkout / ".git").is_symlink():
        raise Mistake(f"{checkout / '.git'} is a link, which a command could replace; run commands in a worktree")
    return checkout


def _made(home: Path) -> Path:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _whole(home)


def _whole(path: Path) -> Path:
    return path.resolve()
