"""Run git without letting it execute anything that a worker wrote.

Git is called by an absolute path outside the checkout, with a list of arguments and a separate environment. Hooks,
file-system monitors, the pager, external diffs, text conversion, the repository's content filters and merge drivers,
submodules and remotes are all disabled. The user's own git configuration is not read. A `Repository` or a `Checkout`
is located once. After that, git gets all paths explicitly and does not search for a repository, even if the contents
of the checkout change.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import fail_after, to_thread

from ...system.child_process import OutputBuffer, run_process
from ...system.whole_file import flush_paths
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
    # Reading a submodule would start another git process in it, with settings that were not checked.
    "diff.submodule": "short",
    "diff.ignoreSubmodules": "dirty",
    "status.submoduleSummary": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    # Without these, a power failure leaves empty objects and refs long after git has reported success.
    "core.fsync": "committed,loose-object,reference",
    "core.fsyncMethod": "batch",
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
    # Missing objects are not fetched, because the repository's settings choose the command that would fetch them.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
COMPARING = frozenset(("diff", "diff-files", "diff-index", "diff-tree", "format-patch", "log", "show"))
LOOKING_INTO_SUBMODULES = COMPARING | {"status"}

SETTING_REPLACEMENTS = (
    (r"filter\..*\.(clean|smudge|process)", ""),
    (r"filter\..*\.required", "false"),
    # A failing merge driver counts as a conflict and a failing comparison as an error, so neither goes unnoticed.
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
"""Patterns for settings that can make git run a command, and replacement values. The patterns are in lower case, like
the names that git lists."""

STARTING_NOTHING = frozenset(("check-ref-format", "for-each-ref", "merge-base", "rev-parse"))
"""Git commands that never start another program, whatever the repository's settings are. They read nothing but refs and
commits."""

DRIVERS = f"^({'|'.join(pattern for pattern, _ in SETTING_REPLACEMENTS)})$"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitResult:
    """The exit code and output of a git command."""

    code: int
    out: bytes
    err: str


def find_trusted_program(name: str, *, outside: Path) -> str | None:
    """Return the absolute path of a program, or None if the program is not found.

    Programs in the checkout `outside`, and in the one that this process works in, are ignored, because agents' commands
    can write there.
    """
    kept_out = outside.resolve()
    for folder in TRUSTED:
        found = shutil.which(name, path=folder)
        if found and not Path(found).resolve().is_relative_to(kept_out):
            return found
    # Imported here to keep start-up fast: most programs are in the system's folders.
    from ...system.locations import find_home_folder
    from ...system.unsandboxed_program import find_current_checkouts, find_unsandboxed_program

    try:
        checkouts = find_current_checkouts(find_home_folder(os.environ), outside)
        return find_unsandboxed_program(name, os.environ.get("PATH", ""), checkouts)
    except Mistake:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository, with the folder that the user works in: the main worktree or another worktree.

    `root` is that folder, `git_dir` is its git directory, and `common_dir` is the git directory that all worktrees
    share. In the main worktree, `git_dir` and `common_dir` are the same.
    """

    root: Path
    git_dir: Path
    common_dir: Path

    @classmethod
    def at(cls, path: Path) -> Repository:
        """Return the repository that contains a folder, without starting a process. Raise Mistake if there is none."""
        start = path.resolve()
        for folder in (start, *start.parents):
            if os.path.lexists(folder / ".git"):
                return _read_repository(folder)
        raise Mistake(f"{path} is not in a git repository; create one with git init")

    @property
    def main_folder(self) -> Path:
        """The folder of the main worktree, or `root` if the shared git directory is not a `.git` folder."""
        return self.common_dir.parent if self.common_dir.name == ".git" else self.root


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A worktree that Podium created. `branch` is empty if it was created with a detached HEAD.

    `base` is the id of the worktree's starting commit.
    """

    path: Path
    git_dir: Path
    common_dir: Path
    branch: str
    base: str


GitLocation = Path | Repository | Checkout
"""The location where git runs. For a plain path, git searches for the repository on every call."""


async def call_git(
    place: GitLocation,
    *args: str,
    stdin: bytes | None = None,
    timeout: float = 60.0,
    index: Path | None = None,
    lock: int | None = None,
    source: Path | None = None,
) -> GitResult:
    """Run a git command and return its result, even if git fails.

    Raise OutsideFailed if git cannot be run, times out or prints too much, or if the repository's `commondir` file was
    changed, so that git would look up refs in another folder.

    `index` is an index file to use instead of the checkout's index. `lock` is the descriptor of a lock that git
    inherits: if this process is killed, the lock is held until git has exited. `source` is one of Podium's
    own local repositories that git can fetch from.
    """
    if not args or args[0].startswith("-"):
        raise JournalMismatch(f"git was called with {args[:1]}, which is not a git command")
    directory = root_folder(place)
    program = find_trusted_program("git", outside=directory)
    if program is None:
        raise OutsideFailed("git is not installed; install it with your system's package manager")
    if not isinstance(place, Path):
        _must_match_common_dir(place)
    location = _location_variables(place, index)
    try:
        with fail_after(timeout):
            # Read on every call: a cached list could lack settings from an included file that has changed since.
            settings = dict(SETTINGS)
            if args[0] not in STARTING_NOTHING:
                listing = ("config", "--name-only", "-z", "--get-regexp", DRIVERS)
                drivers = await run_git(program, directory, _build_environment(program, SETTINGS, location), listing)
                named = (key for key in drivers.out.decode(errors="surrogateescape").split("\0") if key)
                settings |= {key: _find_replacement(key) for key in named}
            if index is not None:
                settings["core.splitIndex"] = "false"
            else:
                settings["core.fsync"] += ",index"  # any other index is temporary
            environment = _build_environment(program, settings, location)
            if source is not None:
                environment["GIT_ALLOW_PROTOCOL"] = "file"
            done = await run_git(program, directory, environment, _add_safe_options(args), stdin=stdin, lock=lock)
            if args[0] == "update-ref" and done.code == 0 and not isinstance(place, Path):
                await to_thread.run_sync(flush_paths, _list_ref_folders(place.common_dir, args, stdin))
            return done
    except TimeoutError:
        raise OutsideFailed(f"git {args[0]} timed out after {timeout:g} s", retryable=True) from None
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
    """Return git's output without its final line break. Raise OutsideFailed if git fails."""
    done = await call_git(place, *args, stdin=stdin, timeout=timeout, index=index, lock=lock)
    if done.code != 0:
        raise OutsideFailed(f"git {args[0]} failed in {root_folder(place)}: {done.err or f'exit code {done.code}'}")
    return os.fsdecode(done.out).removesuffix("\n")


def locate_checkout(directory: Path) -> GitLocation:
    """Return the Repository at `directory`. If `directory` is not the root of a repository, return the path itself."""
    with suppress(Mistake):
        found = Repository.at(directory)
        if found.root == directory.resolve():
            return found
    return directory


def root_folder(place: GitLocation) -> Path:
    """Return the folder that contains the files of a repository or checkout."""
    match place:
        case Repository(root=folder) | Checkout(path=folder):
            return folder
    return place


def resolve_location(place: GitLocation) -> Repository | Checkout:
    """Return the repository or checkout at a location. Raise Mistake for a path that is not in a repository."""
    return Repository.at(place) if isinstance(place, Path) else place


def split_nul_paths(out: str) -> list[str]:
    """Split output that consists of NUL-terminated paths."""
    return [name for name in out.split("\0") if name]


def _read_repository(root: Path) -> Repository:
    """Return the repository that the `.git` in a folder refers to. Raise Mistake if the repository cannot be used."""
    own = root / ".git"
    try:
        if own.is_symlink():
            raise Mistake(
                f"{own} is a symbolic link, which could point anywhere; it must be a folder or a worktree's .git file"
            )
        _must_be_own_file(own)
        if own.is_dir():
            found = Repository(root=root, git_dir=own, common_dir=own)
        else:
            git_dir = _read_path_file(own, "gitdir: ")
            if git_dir.parent.name == "worktrees":
                common = git_dir.parent.parent
                if _read_path_file(git_dir / "gitdir") != own or _read_path_file(git_dir / "commondir") != common:
                    raise Mistake(
                        f"{own} points to {git_dir}, which belongs to a worktree in another folder; "
                        "run git worktree repair"
                    )
                found = Repository(root=root, git_dir=git_dir, common_dir=common)
            elif _is_submodule(git_dir, root):
                found = Repository(root=root, git_dir=git_dir, common_dir=git_dir)
            else:
                raise Mistake(f"{own} points to {git_dir}, not to a worktree or submodule; use an ordinary clone")
        _must_be_own_file(found.common_dir)
        if not (found.git_dir / "HEAD").is_file() or not (found.common_dir / "objects").is_dir():
            raise Mistake(
                f"{root} is not a git repository, because {found.git_dir} is incomplete; "
                "run git init to create a repository"
            )
    except (OSError, ValueError) as error:
        raise Mistake(f"cannot read the git repository {root}: {error}") from error
    return found


def _is_submodule(git_dir: Path, root: Path) -> bool:
    """Return whether a folder is a submodule: its git directory is in a repository above it and points back to it."""
    if not any(git_dir.is_relative_to(above / ".git" / "modules") for above in root.parents):
        return False
    config = os.fsdecode((git_dir / "config").read_bytes())
    named = re.search(r'^\s*worktree\s*=\s*(?:"(.*)"|(.*?))\s*$', config, re.MULTILINE)
    if named is None:
        return False
    path = re.sub(r"\\(.)", r"\1", named[1] or named[2] or "")
    return Path(os.path.normpath(git_dir / path)) == root


def _must_be_own_file(path: Path) -> None:
    """Raise Mistake if another user owns the path, because that user could change it at any time.

    If Podium runs as root through sudo, the path may also belong to the user who called sudo.
    """
    owners = {os.geteuid(), int(os.environ.get("SUDO_UID") or 0)} if os.geteuid() == 0 else {os.geteuid()}
    if (owner := path.lstat().st_uid) not in owners:
        raise Mistake(f"{path} belongs to another user (uid {owner}); use your own clone")


def _read_path_file(file: Path, start: str = "") -> Path:
    """Return the absolute path that one of git's own files contains."""
    if not stat.S_ISREG(file.lstat().st_mode) or file.stat().st_size > LONGEST_PATH:
        raise ValueError(f"{file} must be a regular file of at most {LONGEST_PATH} bytes")
    text = os.fsdecode(file.read_bytes()).removesuffix("\n")
    if not text.startswith(start) or "\n" in text or "\0" in text:
        raise ValueError(f"{file} does not contain a path")
    return Path(os.path.normpath(file.parent / text.removeprefix(start)))


def _must_match_common_dir(place: Repository | Checkout) -> None:
    """Raise OutsideFailed if the path in the file `commondir` was changed.

    Git looks up refs in the folder at that path, even if GIT_COMMON_DIR is set to another folder.
    """
    file = place.git_dir / "commondir"
    if not place.git_dir.is_dir():
        raise OutsideFailed(f"{place.git_dir} no longer exists, so {root_folder(place)} is not a git checkout any more")
    try:
        named = _read_path_file(file)
    except FileNotFoundError:
        named = place.git_dir
    except (OSError, ValueError) as error:
        raise OutsideFailed(f"cannot run git, because {file} cannot be read: {error}") from error
    if named != place.common_dir:
        raise OutsideFailed(
            f"cannot run git, because {file} points to {named} instead of {place.common_dir}; restore the original "
            "content of that file"
        )


def _location_variables(place: GitLocation, index: Path | None) -> dict[str, str]:
    """Return environment variables with the paths of the index, if given, and of the repository, if already located."""
    found = {} if index is None else {"GIT_INDEX_FILE": str(index)}
    if isinstance(place, Path):
        return found
    return found | {
        "GIT_DIR": str(place.git_dir),
        "GIT_COMMON_DIR": str(place.common_dir),
        "GIT_WORK_TREE": str(root_folder(place)),
    }


def _add_safe_options(args: tuple[str, ...]) -> tuple[str, ...]:
    """Add options that prevent diff commands from starting programs or entering submodules."""
    command, *rest = args
    own = ("--no-ext-diff", "--no-textconv") if command in COMPARING else ()
    # Given as an option, because a file in the checkout overrides the setting.
    around = ("--ignore-submodules=dirty",) if command in LOOKING_INTO_SUBMODULES else ()
    return (command, *own, *around, *rest)


def _list_ref_folders(common: Path, args: tuple[str, ...], stdin: bytes | None) -> list[Path]:
    """Return the folders of the refs that `git update-ref` has written. Git flushes refs, but not their new names."""
    words = [*args, *os.fsdecode(stdin or b"").split()]
    return sorted({(common / word).parent for word in words if word.startswith("refs/") and ".." not in word})


def _find_replacement(key: str) -> str:
    """Return the replacement value for a setting that can make git run a command."""
    return next(value for pattern, value in SETTING_REPLACEMENTS if re.fullmatch(pattern, key, re.DOTALL))


def _build_environment(program: str, settings: Mapping[str, str], location: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for a git command.

    They include the git configuration in `settings`, because git's `-c` option does not accept every key.
    """
    kept = {name: value for name in ("HOME", "TMPDIR", "USER") if (value := os.environ.get(name))}
    kept["PATH"] = os.pathsep.join((*TRUSTED, str(Path(program).parent)))
    numbered = {
        f"GIT_CONFIG_{part}_{number}": value
        for number, (key, value) in enumerate(settings.items())
        for part, value in (("KEY", key), ("VALUE", value))
    }
    return kept | ENVIRONMENT | {"GIT_CONFIG_COUNT": str(len(settings))} | numbered | dict(location)


async def run_git(
    program: str,
    directory: Path,
    environment: Mapping[str, str],
    args: tuple[str, ...],
    *,
    stdin: bytes | None = None,
    lock: int | None = None,
    prefix: tuple[str, ...] = (),
) -> GitResult:
    """Run git with exactly this environment. Raise OutsideFailed if it prints too much.

    `prefix` is a command line that starts git.
    """
    out, err = OutputBuffer(LARGEST_OUTPUT), OutputBuffer(LARGEST_OUTPUT)
    ended = await run_process(
        [*prefix, program, "--no-pager", *args],
        env=environment,
        directory=directory,
        take=out.append,
        take_stderr=err.append,
        stdin=stdin or b"",
        inherited=() if lock is None else (lock,),
    )
    if out.is_cut or err.is_cut:
        raise OutsideFailed(f"git {args[0]} printed more than {LARGEST_OUTPUT >> 20} MiB; request less output")
    return GitResult(code=ended.code, out=bytes(out), err=bytes(err).decode(errors="replace").strip())
