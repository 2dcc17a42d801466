"""Run commands in a sandbox that limits what they can access.

Bubblewrap runs a command in its own namespaces (users, processes, network, IPC, mounts, host name, control groups)
and without capabilities. The command can access a checkout, and can read the operating system's files but not change
them. A filter denies system calls that bypass these limits. When the command or this process ends, all processes that
the command started are killed. The policy decides whether a command may run; the caller handles timeouts and output.
"""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Literal

from anyio import to_thread

from ...policy.path_rules import PROTECTED, is_protected
from ...system.child_process import SandboxedCommand, build_environment
from ...system.owned_files import make_private_folder, remove_stale_files
from ...system.program_folders import PACKAGE_CACHES, PACKAGES, list_links
from ...system.trace_parent import trace_variables
from ...values.errors import Mistake
from ..relay.host_grant import HostGrant
from ..relay.sandbox_relay import FORWARDER, RelayConfiguration, SandboxRelay
from . import seccomp
from .bubblewrap_program import find_bubblewrap
from .checkout_survey import list_program_folders, survey_checkout
from .mounts import (
    AGENT_HOME,
    GuardedPath,
    Mount,
    Placeholders,
    build_environment_arguments,
    build_mount_arguments,
    build_system_arguments,
    choose_sandbox_home,
    find_git_mounts,
    find_tool_mounts,
)
from .nested_repositories import NestedRepositories, is_bare_repository, list_existing
from .resource_limits import ControlGroup, DiskSpace, SandboxLimits
from .sealed_files import SealedFiles
from .self_test import can_disable_users, find_failures

Profile = Literal["read-only", "workspace"]

SHELL = "/bin/sh"
FILTER_DESCRIPTOR = 9
"""The descriptor that bubblewrap reads the filter from.

It is a single digit, because some shells cannot redirect descriptors above 9.
"""

# `setsid` moves only the command out of the process group that Podium kills; the sandbox's first process stays in it.
# With --new-session, both would leave the group, and a command that is killed while it starts would keep running.
RUN = 'echo >&0 && read -r _ && exec setsid "$@"'
"""The script that waits for a line from Podium on stdin and then runs the command, which gets the rest of stdin."""
RUN_WITHOUT_INPUT = f"{RUN} </dev/null"
RELAY = 'exec "$@"'
"""The script that runs the forwarder, which waits for Podium on the relay's descriptor and then runs the command."""

NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")
PROTECTED_NAMES = (
    *(".git", ".githooks", ".husky", "lefthook-local.yml", ".envrc", ".podium", "podium.yaml", ".mcp.json", ".claude"),
    *(".codex", ".gemini", ".cursor", ".windsurf", ".kiro", ".roo", ".opencode", "opencode.json", ".aider.conf.yml"),
    *(".vscode", ".idea", ".zed", ".devcontainer", ".jj", ".hg", ".sl", ".cargo", ".exrc"),
    *(".bashrc", ".bash_profile", ".bash_login", ".profile", ".zprofile", ".zshrc", ".zshenv"),
)
"""Paths that a command can neither change nor create. Other protected paths are read-only if they exist.

If a command creates one of the others at the top of the checkout, it is moved aside when the command ends: for many of
them, programs fail if there is a folder in place of the missing file.
"""
MOVED_NAMES = tuple(name for name in PROTECTED if "*" not in name and name not in PROTECTED_NAMES)
LEFTHOOK_NAMES = tuple(f"{dot}lefthook-local.{kind}" for dot in ("", ".") for kind in ("yml", "yaml", "toml", "json"))
"""Lefthook's local configuration files. They are protected like the paths above if Lefthook's main file exists."""

SYSTEM_FOLDERS = frozenset(
    Path("/", name)
    for name in ("bin", "boot", "dev", "etc", "lib", "lib64", "opt", "proc", "run", "sbin", "srv", "sys", "usr", "var")
)
"""Folders that no checkout can be: programs of the system use what is in them."""


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """A sandbox for the commands in one checkout. Use `find` to create and test a sandbox.

    `home` is the Podium home; neither `home` nor `store` is visible from inside. `secrets` lists paths in the checkout
    that are hidden. `protected` lists paths that commands can only read, in addition to the protected names at the top
    of the checkout. `submodules` lists the paths of the submodules' `.git`, which commands can neither change nor
    create. `programs` lists the folders of programs that commands can neither change nor create. `creatable` lists
    protected names that a command can create, because some programs fail if there is a placeholder. `hosts` lists the
    hosts that commands can reach, through a proxy. `agent_home` is the home directory of an agent whose whole process
    runs in the sandbox. `report` is called with a sentence about each nested repository that a command created and each
    refused host. `others` contains the sandboxes of additional checkouts that commands can use in the same way; of
    these sandboxes, only the checkouts and the protected paths are used.
    """

    program: str
    checkout: Path
    home: Path
    profile: Profile = "workspace"
    store: Path | None = None
    readable: tuple[Path, ...] = ()
    secrets: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    creatable: tuple[str, ...] = ()
    hosts: tuple[HostGrant, ...] = ()
    agent_home: Path | None = None
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    environ: Mapping[str, str] = field(default_factory=build_environment, hash=False)
    can_disable_users: bool = True
    others: tuple[Sandbox, ...] = ()
    nested: NestedRepositories | None = field(default=None, compare=False)
    report: Callable[[str], object] = field(default=lambda text: None, compare=False)

    @classmethod
    async def find(
        cls,
        *checkouts: Path,
        home: Path,
        profile: Profile = "workspace",
        store: Path | None = None,
        readable: Sequence[Path] = (),
        shown: Sequence[str] = (),
        creatable: Sequence[str] = (),
        hosts: Sequence[HostGrant] = (),
        limits: SandboxLimits | None = None,
        environ: Mapping[str, str] | None = None,
        protects_programs: bool = True,
        report: Callable[[str], object] = lambda text: None,
    ) -> Sandbox:
        """Return the sandbox for checkouts. Raise Mistake if no sandbox is available or its self-test fails.

        Commands run in the first checkout and can use all of them. `readable` lists folders outside the checkouts that
        commands can read. `shown` lists files in the first checkout that commands can read even if their names suggest
        secrets. `environ` is used instead of this process's environment. If `protects_programs` is true, commands
        cannot change the folders on the PATH, the virtual environments and the packages in the checkouts.
        """
        given = os.environ if environ is None else environ
        path = given if protects_programs else None
        find_part = partial(cls._survey, home=home, profile=profile, store=store, search_environ=path)
        first, *others = checkouts
        parts = [await find_part(one) for one in others]
        found = replace(
            await find_part(first, shown=shown),
            readable=tuple(readable),
            creatable=tuple(creatable),
            hosts=tuple(hosts),
            limits=limits or SandboxLimits(),
            environ=build_environment(environ),
            others=tuple(parts),
            report=report,
        )
        failed = await found.self_test()
        # Otherwise, a file tool would find a folder in place of a missing file for a moment.
        found.remove_placeholders()
        if failed:
            raise Mistake(f"commands need a sandbox, and the sandbox failed its self-test: {'; '.join(failed)}")
        return found

    @classmethod
    async def _survey(
        cls,
        checkout: Path,
        *,
        home: Path,
        profile: Profile,
        store: Path | None,
        search_environ: Mapping[str, str] | None,
        shown: Sequence[str] = (),
    ) -> Sandbox:
        """Survey a checkout and return an untested sandbox for it. Raise Mistake if no sandbox is available."""
        checkout = _resolve_checkout(checkout, profile)
        program = find_bubblewrap(outside=checkout)
        seccomp.compile_filter()
        home = _make_home(home)
        await to_thread.run_sync(remove_stale_files, home, checkout)
        survey = await survey_checkout(checkout)
        programs = () if search_environ is None else list_program_folders(survey, checkout, search_environ)
        nested = NestedRepositories(
            checkout, aside=home / "sandbox" / "set-aside", folders=survey.folders, unexamined=survey.unexamined
        )
        return cls(
            program=program,
            checkout=checkout,
            home=home,
            profile=profile,
            store=store and _resolve_path(store),
            secrets=tuple(path for path in survey.secrets if path not in shown),
            protected=survey.protected,
            submodules=survey.submodules,
            programs=programs,
            can_disable_users=await can_disable_users(program),
            nested=nested if profile == "workspace" else None,
        )

    @property
    def parts(self) -> tuple[Sandbox, ...]:
        """The sandboxes of all checkouts, the one in which commands run first."""
        return (self, *self.others)

    async def self_test(self) -> list[str]:
        """Test the sandbox, and return the failures, if any. Identical sandboxes are tested only once."""
        return await find_failures(self)

    def wrap(
        self,
        argv: list[str],
        sealed: Mapping[str, bytes] | None = None,
        *,
        reads_input: bool = False,
        relay: SandboxRelay | None = None,
    ) -> SandboxedCommand:
        """Return the command that runs `argv` in the sandbox. Run it in a folder that is visible in the sandbox.

        `sealed` maps files in the checkout to the content that the command sees, even if the files change. With
        `reads_input` or a relay, the command can read the input that `run_process` is given. `relay` is the command's
        only network connection. Without a relay, the command can reach only the hosts in the sandbox's `hosts`.
        """
        if relay is None and self.hosts:
            relay = SandboxRelay(RelayConfiguration(hosts=self.hosts, report=self.report))
        copies = SealedFiles(self.home / "sandbox").make_copies(self.checkout, sealed or {})
        start = RELAY if relay is not None else RUN if reads_input else RUN_WITHOUT_INPUT
        parts = self.parts
        held = [one._placeholders.acquire() if self.profile == "workspace" else () for one in parts]
        absent = [one._list_absent() for one in parts]
        links = [one._read_links() for one in parts]
        guards = (
            *(mount for one, names in zip(parts, held, strict=True) for mount in one._guard_mounts(names)),
            *(mount for one in parts for mount in one._store_mounts()),
            *_relay_mounts(relay),
        )
        bwrap = [
            self.program,
            *self._base_arguments,
            *build_environment_arguments({**(relay.environment if relay else {}), **trace_variables()}),
            *self._build_mount_arguments(copies.mounts, guards),
            *("--remount-ro", "/dev", "--remount-ro", "/"),
            *("--", SHELL, "-c", f"{self.limits.ulimit_script()} && {start}", "sh"),
            *(relay.command if relay else ()),
            *argv,
        ]

        def clean_up() -> None:
            copies.remove()
            if relay is not None:
                relay.close()
            for one, names, targets in zip(parts, absent, links, strict=True):
                nested = one.nested
                undone = (*nested.restore_links(targets), *nested.move_created(names)) if nested else ()
                for note in (*undone, *(nested.move_aside() if nested else ())):
                    command.notes.append(note)
                    self.report(note)
                one._release_placeholders()

        find_breach = DiskSpace(self.checkout, self.limits).find_breach
        command = SandboxedCommand([SHELL, "-c", self._entry_script(), "sh", *bwrap], clean_up, find_breach, relay)
        return command

    def open_programs(self, *, hosts: Sequence[HostGrant]) -> Sandbox:
        """Return the sandbox for a command that can change the programs in the checkouts, and can reach these hosts."""
        return replace(
            self, programs=(), hosts=tuple(hosts), others=tuple(replace(one, programs=()) for one in self.others)
        )

    def remove_placeholders(self) -> None:
        """Remove the placeholders from the checkout now. Otherwise they are removed shortly after the last command."""
        for one in self.parts:
            if one.profile == "workspace":
                one._placeholders.remove()

    def _list_absent(self) -> list[str]:
        """Return the protected names that do not exist and have no placeholder."""
        there = list_existing(self.checkout, self._moved_names)
        return [name for name in self._moved_names if name not in there]

    @cached_property
    def _moved_names(self) -> tuple[str, ...]:
        held = {*self._names_to_hold, *self.creatable}
        return tuple(name for name in MOVED_NAMES if name not in held)

    def _read_links(self) -> dict[str, str]:
        """Return the links that lead to folders of programs, with their targets."""
        places = ((name, self.checkout / name) for name in self._program_links)
        return {name: str(place.readlink()) for name, place in places if place.is_symlink()}

    @cached_property
    def _program_links(self) -> tuple[str, ...]:
        return list_links(self.checkout, self.programs)

    def _release_placeholders(self) -> None:
        if self.profile == "workspace":
            self._placeholders.release()

    def _entry_script(self) -> str:
        """Return the shell script that enters the control groups, opens the filter and executes bubblewrap."""
        enter = "".join(f"echo 0 >{shlex.quote(file)} && " for file in self._control_group.entrances)
        return f'{enter}exec "$@" {FILTER_DESCRIPTOR}</proc/{os.getpid()}/fd/{seccomp.compile_filter()}'

    @cached_property
    def _base_arguments(self) -> list[str]:
        """The arguments that are the same for every command."""
        own = choose_sandbox_home(self.environ, self.checkout)
        given = {**self.environ, "HOME": str(AGENT_HOME if self.agent_home else own), "TMPDIR": "/tmp"}
        told = [*NAMESPACES, "--unshare-cgroup-try", "--cap-drop", "ALL", "--die-with-parent"]
        told += ["--disable-userns"] if self.can_disable_users else []
        told += ["--hostname", "sandbox", "--seccomp", str(FILTER_DESCRIPTOR), "--clearenv"]
        return [*told, *build_environment_arguments(given), *build_system_arguments()]

    @cached_property
    def _base_mounts(self) -> tuple[Mount, ...]:
        own = choose_sandbox_home(self.environ, self.checkout)
        person = Path(self.environ.get("HOME", own))
        return (
            *(Mount("private", place) for place in (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), own)),
            *((Mount("write", AGENT_HOME, self.agent_home),) if self.agent_home else ()),
            *find_tool_mounts(self.environ, home=person, checkout=self.checkout),
            *(Mount("read", folder) for folder in self.readable if folder.exists()),
            # The first checkout comes last, so that its mounts apply if paths are the same.
            *(mount for one in (*self.others, self) for mount in one._checkout_mounts()),
        )

    def _checkout_mounts(self) -> Iterator[Mount]:
        """Yield mounts for the checkout and its git data."""
        yield from find_git_mounts(self.checkout)
        yield Mount("write" if self.profile == "workspace" else "read", self.checkout)
        yield from self._interpreter_mounts()

    @cached_property
    def _build_mount_arguments(self) -> Callable[[tuple[Mount, ...], tuple[Mount, ...]], list[str]]:
        """Return a function that builds the arguments for all mounts, and that reuses its last result if possible."""

        @lru_cache(maxsize=1)
        def build(copies: tuple[Mount, ...], guards: tuple[Mount, ...]) -> list[str]:
            # The guards come last: if two mounts have the same path, the last one applies.
            return build_mount_arguments((*copies, *self._visible_mounts(guards)), size=self.limits.temporary)

        return build

    def _visible_mounts(self, guards: Sequence[Mount]) -> Iterator[Mount]:
        """Yield all mounts of the sandbox.

        In the Podium home, only the folders in `readable`, the checkouts and their git data are visible.
        """
        closed = (*guards, Mount("empty", self.home))
        shown = [
            place
            for checkout in (one.checkout for one in self.parts if one.checkout.is_relative_to(self.home))
            for place in (checkout, *(mount.place for mount in find_git_mounts(checkout)))
        ]
        anchors = (mount for one in self.parts for mount in one._anchor_mounts(closed))
        for mount in (*self._base_mounts, *anchors, *guards):
            is_shown = mount.place in self.readable or any(mount.place.is_relative_to(folder) for folder in shown)
            if is_shown or not mount.place.is_relative_to(self.home):
                yield mount
        yield Mount("empty", self.home)

    def _anchor_mounts(self, guards: Sequence[Mount]) -> Iterator[Mount]:
        """Yield mounts for the parent folders of protected and hidden paths in the checkout.

        A mount point cannot be renamed, so a command cannot move such a path by renaming a folder above it.
        """
        if self.profile != "workspace":
            return
        closed = [mount.place for mount in (*guards, *self._interpreter_mounts())]
        closed = [place for place in closed if place.is_relative_to(self.checkout) and place != self.checkout]
        closed_as_a_whole = set(closed)
        above = {
            folder: None
            for place in closed
            for folder in place.parents[: len(place.relative_to(self.checkout).parts) - 1]
        }
        for folder in above:
            # Do not make a folder writable if it, or a folder above it, is protected or hidden.
            if closed_as_a_whole.isdisjoint((folder, *folder.parents)) and folder.is_dir():
                yield Mount("write", folder)

    def _interpreter_mounts(self) -> Iterator[Mount]:
        """Yield a read-only mount for Podium's own Python environment if it is in the checkout."""
        prefix = Path(sys.prefix).resolve()
        if prefix.is_relative_to(self.checkout) and prefix != self.checkout:
            yield Mount("read", prefix)

    def _guard_mounts(self, held: Collection[str]) -> Iterator[Mount]:
        """Yield mounts for existing protected and secret paths. Links are skipped, because mounts follow them."""
        is_plain = {str(self.checkout): True}
        for one in self._guarded_paths:
            if (kind := one.read_kind(is_plain)) is None:
                continue
            if one.is_secret:
                yield one.empty if kind == "folder" else one.secret
            elif one.is_private:
                yield one.private
            else:
                yield one.empty if kind == "folder" and one.name in held else one.read

    @cached_property
    def _guarded_paths(self) -> tuple[GuardedPath, ...]:
        existing = (entry.name for entry in os.scandir(self.checkout) if is_protected(entry.name))
        protected = dict.fromkeys((*self._names_to_hold, *existing, *self.protected))
        return (
            *(GuardedPath(self.checkout, name) for name in protected),
            *(GuardedPath(self.checkout, name, is_private=True) for name in self._private_caches),
            *(GuardedPath(self.checkout, name, is_secret=True) for name in self.secrets),
        )

    def _store_mounts(self) -> Iterator[Mount]:
        """Yield mounts that hide the store and SQLite's files beside it. Other files in the checkout stay visible."""
        if self.store is None:
            return
        folder = self.store.parent
        if not self.store.is_relative_to(self.checkout):
            shown = [mount.place for mount in self._base_mounts if mount.kind == "read"]
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
    def _placeholders(self) -> Placeholders:
        caches = [name for name in self._private_caches if name.startswith(f"{PACKAGES}/")]
        present = caches if (self.checkout / PACKAGES).is_dir() else ()
        return Placeholders(self.checkout, (*self._names_to_hold, *present), home=self.home)

    @cached_property
    def _names_to_hold(self) -> tuple[str, ...]:
        """The paths that a command must not create. If such a path does not exist, a placeholder blocks it."""
        has_lefthook = any(entry.name.startswith(("lefthook.", ".lefthook.")) for entry in os.scandir(self.checkout))
        protected = (*PROTECTED_NAMES, *(LEFTHOOK_NAMES if has_lefthook else ()), *self.submodules, *self.programs)
        return tuple(name for name in dict.fromkeys(protected) if name not in self.creatable)

    @cached_property
    def _private_caches(self) -> tuple[str, ...]:
        """The caches in folders of packages. A command gets empty ones, because programs run what is in them."""
        packages = [name for name in self.programs if name.rpartition("/")[2] == PACKAGES]
        return tuple(f"{name}/{cache}" for name in packages for cache in PACKAGE_CACHES)

    @cached_property
    def _control_group(self) -> ControlGroup:
        return ControlGroup(self.limits)


def _relay_mounts(relay: SandboxRelay | None) -> tuple[Mount, ...]:
    return () if relay is None else (Mount("read", FORWARDER),)


def _resolve_checkout(checkout: Path, profile: Profile) -> Path:
    """Return the absolute path of a checkout. Raise Mistake if a sandbox could not protect the user's files in it."""
    checkout = _resolve_path(checkout)
    homes = [Path(os.environ.get("HOME", "/"))]
    with suppress(KeyError):  # the user has no entry in the password database
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    if checkout in homes or homes[-1].is_relative_to(checkout):
        raise Mistake(
            f"{checkout} is or contains your home folder, which commands must not see; run them in a subfolder"
        )
    if checkout in SYSTEM_FOLDERS:
        raise Mistake(f"{checkout} is a folder of the system, which commands must not change; run them in a subfolder")
    if profile == "workspace" and (checkout / ".git").is_symlink():
        raise Mistake(f"{checkout / '.git'} is a link, which a command could replace; run commands in a worktree")
    if profile == "workspace" and is_bare_repository(checkout):
        raise Mistake(
            f"{checkout} is a bare git repository, so a command could change its configuration; "
            "run commands in a worktree, or move its HEAD away if it should be an ordinary folder"
        )
    return checkout


def _make_home(home: Path) -> Path:
    make_private_folder(home)
    return _resolve_path(home)


def _resolve_path(path: Path) -> Path:
    return path.resolve()
