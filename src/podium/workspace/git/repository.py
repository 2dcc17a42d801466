"""Git, as this product calls it: one function, and nothing that a worker wrote is executed by it.

An absolute git that is not in the checkout, arguments as lists, an environment of its own, hooks and
file-system monitors off, no pager, no external diff, no text conversion, no content filter or merge
driver of the repository, no look into submodules, no remote. The person's own git configuration is
not read. A `Repository` or a `Checkout` is found once; from then on git is told where everything is
and discovers nothing, whatever stands in the checkout by then.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from anyio import BrokenResourceError, create_task_group, fail_after, open_process

from ...values.errors import JournalMismatch, Mistake, OutsideFailed

LARGEST_OUTPUT = 64 * 1024 * 1024
LONGEST_PATH = 8192
TRUSTED = ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/bin")

SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.quotePath": "false",
    "safe.bareRepository": "explicit",
    "protocol.ext.allow": "never",
    "submodule.recurse": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "log.showSignature": "false",
    "merge.verifySignatures": "false",
    # Looking into a submodule starts another git there, with settings that nobody has looked through.
    "diff.submodule": "short",
    "diff.ignoreSubmodules": "dirty",
    "status.submoduleSummary": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "GIT_EDITOR": ":",
    "GIT_SEQUENCE_EDITOR": ":",
    "GIT_LITERAL_PATHSPECS": "0",
    # A missing object is not fetched: the command that would fetch it is the repository's choice.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
COMPARING = frozenset(("diff", "diff-files", "diff-index", "diff-tree", "format-patch", "log", "show"))
LOOKING_INTO_SUBMODULES = COMPARING | {"status"}

SETTING_REPLACEMENTS = (
    (r"filter\..*\.(clean|smudge|process)", ""),
    (r"filter\..*\.required", "false"),
    # A driver that fails is a conflict, a comparison that fails is an error: neither goes unnoticed.
    (r"merge\..*\.driver", "false"),
    (r"diff\.external|diff\..*\.(command|textconv)", "false"),
    (r"gpg\.program|gpg\..*\.program|gpg\.ssh\.defaultkeycommand", "false"),
    (r"core\.(sshcommand|gitproxy|askpass|alternaterefscommand)", "false"),
    (r"credential\.helper|credential\..*\.helper", ""),
    (r"uploadpack\.packobjectshook|gc\.recentobjectshook", "false"),
    (r"remote\..*\.(uploadpack|receivepack)", "false"),
    (r"hook\..*\.command", ":"),
    (r"trailer\..*\.(command|cmd)|tar\..*\.command", "false"),
    (r"submodule\..*\.update", "none"),
)
"""Settings that name a command, and what is put in their place. Names of settings come in small letters."""

STARTING_NOTHING = frozenset(("check-ref-format", "for-each-ref", "merge-base", "rev-parse"))
"""Commands that look at refs and commits only: they start no program, whatever the repository's settings name."""

DRIVERS = f"^({'|'.join(pattern for pattern, _ in SETTING_REPLACEMENTS)})$"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitResult:
    """What git came back with."""

    code: int
    out: bytes
    err: str


def find_trusted_program(name: str, *, outside: Path) -> str | None:
    """The absolute path of a program that is not in the directory `outside`, where workers write."""
    kept_out = outside.resolve()
    for folder in (*TRUSTED, *os.environ.get("PATH", "").split(os.pathsep)):
        if not os.path.isabs(folder):  # noqa: PTH117 - an empty entry means the working directory
            continue
        found = shutil.which(name, path=folder)
        if found and not Path(found).resolve().is_relative_to(kept_out):
            return found
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository of the person's and the folder that they work in, found once.

    `git_dir` belongs to that folder, `common_dir` to all worktrees; they are one unless `root` is a
    worktree itself.
    """

    root: Path
    git_dir: Path
    common_dir: Path

    @classmethod
    def at(cls, path: Path) -> Repository:
        """The repository that a folder lies in. Read from files, nothing is started. Raises Mistake."""
        start = path.resolve()
        for folder in (start, *start.parents):
            if os.path.lexists(folder / ".git"):
                return _read_repository(folder)
        raise Mistake(f"{path} is not in a git repository; git init makes one")

    @property
    def main_folder(self) -> Path:
        """The folder of the repository itself, wherever in it the person works."""
        return self.common_dir.parent if self.common_dir.name == ".git" else self.root


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A worktree of ours, as it was when we made it. `branch` is empty for one that is on none.

    `base` is the id of the commit that it began with.
    """

    path: Path
    git_dir: Path
    common_dir: Path
    branch: str
    base: str


GitLocation = Path | Repository | Checkout
"""Where git works. In a mere path it looks for the repository itself, each time anew."""


async def call_git(
    place: GitLocation,
    *args: str,
    stdin: bytes | None = None,
    timeout: float = 60.0,
    index: Path | None = None,
    lock: int | None = None,
) -> GitResult:
    """Run git in a place. That git fails is told by what is returned; OutsideFailed, that it could not be run.

    `index` is a file to use in place of the checkout's own index. `lock` is a descriptor that git holds,
    too: where we are killed, what it locks stays locked until git has ended.
    """
    if not args or args[0].startswith("-"):
        raise JournalMismatch(f"git was called with {args[:1]}, which is no command of git's")
    directory = root_folder(place)
    program = find_trusted_program("git", outside=directory)
    if program is None:
        raise OutsideFailed("git is needed and is not installed; install it with your system's package manager")
    if not isinstance(place, Path):
        _must_match_common_dir(place)
    location = _location_variables(place, index)
    try:
        with fail_after(timeout):
            # Asked anew each time: a list that is kept could miss what an included file says by now.
            settings = dict(SETTINGS)
            if args[0] not in STARTING_NOTHING:
                listing = ("config", "--name-only", "-z", "--get-regexp", DRIVERS)
                drivers = await _run_process(
                    program, directory, _build_environment(program, SETTINGS, location), listing
                )
                named = (key for key in drivers.out.decode(errors="surrogateescape").split("\0") if key)
                settings |= {key: _find_replacement(key) for key in named}
            if index is not None:
                settings["core.splitIndex"] = "false"
            environment = _build_environment(program, settings, location)
            return await _run_process(program, directory, environment, _add_safe_options(args), stdin=stdin, lock=lock)
    except TimeoutError:
        raise OutsideFailed(f"git {args[0]} was stopped after {timeout:g} s", retryable=True) from None
    except OSError as error:
        raise OutsideFailed(f"git {args[0]} could not be started: {error}") from error


async def read_git_output(
    place: GitLocation,
    *args: str,
    stdin: bytes | None = None,
    timeout: float = 60.0,
    index: Path | None = None,
    lock: int | None = None,
) -> str:
    """What git says, without the line break at its end. Raises OutsideFailed where git fails."""
    done = await call_git(place, *args, stdin=stdin, timeout=timeout, index=index, lock=lock)
    if done.code != 0:
        raise OutsideFailed(f"git {args[0]} failed in {root_folder(place)}: {done.err or f'exit code {done.code}'}")
    return os.fsdecode(done.out).removesuffix("\n")


def locate_checkout(directory: Path) -> GitLocation:
    """A checkout as git is to see it from now on: its repository, found once; the path where it is none's root."""
    with suppress(Mistake):
        found = Repository.at(directory)
        if found.root == directory.resolve():
            return found
    return directory


def root_folder(place: GitLocation) -> Path:
    """The folder with the files."""
    match place:
        case Repository(root=folder) | Checkout(path=folder):
            return folder
    return place


def resolve_location(place: GitLocation) -> Repository | Checkout:
    """The place, found by now. Raises Mistake where a path is in no repository."""
    return Repository.at(place) if isinstance(place, Path) else place


def split_nul_paths(out: str) -> list[str]:
    """The paths of an output in which each ends with a zero byte."""
    return [name for name in out.split("\0") if name]


def _read_repository(root: Path) -> Repository:
    """The repository that the `.git` in a folder means, or a Mistake."""
    own = root / ".git"
    try:
        if own.is_symlink():
            raise Mistake(f"{own} is a link, which could lead anywhere; a folder or a worktree's file would do")
        _must_be_own_file(own)
        if own.is_dir():
            found = Repository(root=root, git_dir=own, common_dir=own)
        else:
            git_dir = _read_path_file(own, "gitdir: ")
            if git_dir.parent.name == "worktrees":
                common = git_dir.parent.parent
                if _read_path_file(git_dir / "gitdir") != own or _read_path_file(git_dir / "commondir") != common:
                    raise Mistake(f"{own} names {git_dir}, which is not its own; git worktree repair mends that")
                found = Repository(root=root, git_dir=git_dir, common_dir=common)
            elif any(git_dir.is_relative_to(above / ".git" / "modules") for above in root.parents):
                found = Repository(root=root, git_dir=git_dir, common_dir=git_dir)
            else:
                raise Mistake(f"{own} names {git_dir}, which is no worktree or submodule; work in an ordinary clone")
        _must_be_own_file(found.common_dir)
        if not (found.git_dir / "HEAD").is_file() or not (found.common_dir / "objects").is_dir():
            raise Mistake(f"{root} is not a git repository: {found.git_dir} is not one of git's; git init makes one")
    except (OSError, ValueError) as error:
        raise Mistake(f"{root} is not a git repository that can be read: {error}") from error
    return found


def _must_be_own_file(path: Path) -> None:
    """What another user made is not used: they could change it at any moment."""
    owners = {os.geteuid(), int(os.environ.get("SUDO_UID") or 0)} if os.geteuid() == 0 else {os.geteuid()}
    if (owner := path.lstat().st_uid) not in owners:
        raise Mistake(f"{path} belongs to another user (number {owner}); work in a clone of your own")


def _read_path_file(file: Path, start: str = "") -> Path:
    """The whole path that one of git's small files names."""
    if not stat.S_ISREG(file.lstat().st_mode) or file.stat().st_size > LONGEST_PATH:
        raise ValueError(f"{file} is not one of git's files")
    text = os.fsdecode(file.read_bytes()).removesuffix("\n")
    if not text.startswith(start) or "\n" in text or "\0" in text:
        raise ValueError(f"{file} does not name a folder")
    return Path(os.path.normpath(file.parent / text.removeprefix(start)))


def _must_match_common_dir(place: Repository | Checkout) -> None:
    """Whatever git is told, it looks for refs in the folder that this file names."""
    file = place.git_dir / "commondir"
    if not place.git_dir.is_dir():
        raise OutsideFailed(f"{place.git_dir} is gone, so that {root_folder(place)} is no checkout of git's any more")
    try:
        named = _read_path_file(file)
    except FileNotFoundError:
        named = place.git_dir
    except (OSError, ValueError) as error:
        raise OutsideFailed(f"{file} cannot be read, and nothing was done: {error}") from error
    if named != place.common_dir:
        raise OutsideFailed(
            f"{file} was changed and names {named}, which is not {place.common_dir}; nothing was done, mend that file"
        )


def _location_variables(place: GitLocation, index: Path | None) -> dict[str, str]:
    """Where everything is; git discovers nothing where it is told."""
    found = {} if index is None else {"GIT_INDEX_FILE": str(index)}
    if isinstance(place, Path):
        return found
    return found | {
        "GIT_DIR": str(place.git_dir),
        "GIT_COMMON_DIR": str(place.common_dir),
        "GIT_WORK_TREE": str(root_folder(place)),
    }


def _add_safe_options(args: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments; a command that compares does so itself, and stays out of submodules."""
    command, *rest = args
    own = ("--no-ext-diff", "--no-textconv") if command in COMPARING else ()
    # Said here, because a file in the checkout may say otherwise and is heard before the settings.
    around = ("--ignore-submodules=dirty",) if command in LOOKING_INTO_SUBMODULES else ()
    return (command, *own, *around, *rest)


def _find_replacement(key: str) -> str:
    """What a setting that names a command is set to instead."""
    return next(value for pattern, value in SETTING_REPLACEMENTS if re.fullmatch(pattern, key, re.DOTALL))


def _build_environment(program: str, settings: Mapping[str, str], location: Mapping[str, str]) -> dict[str, str]:
    """Settings go by environment, because a key may have any character in it."""
    kept = {name: value for name in ("HOME", "TMPDIR", "USER") if (value := os.environ.get(name))}
    kept["PATH"] = os.pathsep.join((*TRUSTED, str(Path(program).parent)))
    numbered = {
        f"GIT_CONFIG_{part}_{number}": value
        for number, (key, value) in enumerate(settings.items())
        for part, value in (("KEY", key), ("VALUE", value))
    }
    return kept | ENVIRONMENT | {"GIT_CONFIG_COUNT": str(len(settings))} | numbered | dict(location)


class _Stream(Protocol):
    def __aiter__(self) -> _Stream: ...

    async def __anext__(self) -> bytes: ...


async def _run_process(
    program: str,
    directory: Path,
    environment: Mapping[str, str],
    args: tuple[str, ...],
    *,
    stdin: bytes | None = None,
    lock: int | None = None,
) -> GitResult:
    out, err = bytearray(), bytearray()
    async with await open_process(
        [program, "--no-pager", *args],
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        cwd=directory,
        env=environment,
        start_new_session=True,
        pass_fds=() if lock is None else (lock,),
    ) as process:

        async def collect_output(stream: _Stream, into: bytearray) -> None:
            async for chunk in stream:
                into += chunk
                if len(into) > LARGEST_OUTPUT:
                    raise OutsideFailed(
                        f"git {args[0]} gave more than {LARGEST_OUTPUT >> 20} MiB; ask for less at once"
                    )

        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with create_task_group() as group:
                group.start_soon(collect_output, process.stdout, out)
                group.start_soon(collect_output, process.stderr, err)
                if process.stdin is not None:
                    with suppress(BrokenResourceError):  # git ended without hearing all of it, and says why
                        await process.stdin.send(stdin or b"")
                    await process.stdin.aclose()
                await process.wait()
        except* OutsideFailed as errors:
            raise errors.exceptions[0] from None
    return GitResult(code=process.returncode or 0, out=bytes(out), err=err.decode(errors="replace").strip())
