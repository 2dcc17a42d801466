"""Find the paths in a checkout that a sandbox has to hide or write-protect.

Untracked files count as secret if their names suggest it. Tracked files are not secret to anyone who can read the
repository, and tests need some of them, such as certificates. Paths that affect which programs run later are
write-protected. Protected names at the top of the checkout are not included, because the sandbox looks for them itself.

Hooks and files that git's configuration includes can make git run programs, so commands must not change them, whatever
their names are.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from anyio import to_thread

from ...policy.path_rules import changes_what_runs, is_sensitive
from ...system.program_folders import (
    ENVIRONMENT_MARKS,
    PACKAGES,
    USUAL_ENVIRONMENTS,
    list_own_environment,
    list_path_folders,
    list_targets,
)
from ...values.errors import Mistake, OutsideFailed
from ..git.repository import Repository, call_git
from ..git.tracked_files import TrackedFiles, list_ignored_folders, read_tracked_files
from .nested_repositories import OTHER_REPOSITORIES, FolderState, Identity, identify, is_git_shaped, read_folder_state

KEYS = r"^(core\.hookspath|include\.path|includeif\..*\.path)$"
MARKS = (b"hookspath", b"include")


MOST = 20_000
"""The number of files and folders after which only folders are examined. Folders near the root come first."""
MOST_FOLDERS = 20_000
"""The maximum number of folders that are examined. Each of them is looked at again after every command."""
MOST_LISTED = 300_000
"""The number of files and folders after which no more folders are examined."""
MOST_PROTECTED = 200
"""The maximum number of protected paths in subfolders. Each protected path delays the start of every command."""
MOST_PROGRAM_FOLDERS = 1_000
CACHES = frozenset(("__pycache__", ".mypy_cache", ".ruff_cache"))
LEFT_OUT = CACHES | {PACKAGES}
"""Folders in which no secrets are looked for if git ignores them and tracks no files in them."""
PYTHON_PACKAGES = "lib/python3*/site-packages"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutSurvey:
    """The paths in a checkout that a sandbox has to hide or write-protect. A folder includes everything in it.

    `secrets` must be hidden, and `protected` must not be changed. `submodules` contains the path of each submodule's
    `.git`, even if that does not exist. `environments` contains virtual environments and folders of packages, from
    which the user runs programs. `folders` contains the folders that were examined, and `unexamined` the paths
    that were skipped. Paths in `folders` and `unexamined` are absolute; all others are relative to the checkout.
    """

    secrets: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    folders: Mapping[str, FolderState] = field(default_factory=dict)
    unexamined: Mapping[str, Identity] = field(default_factory=dict)


async def survey_checkout(checkout: Path) -> CheckoutSurvey:
    """Find the paths in a checkout that a sandbox has to hide or write-protect."""
    tracked = await read_tracked_files(checkout)
    walk = _Walk(checkout, tracked)
    await to_thread.run_sync(walk.examine, (checkout,))
    if walk.undecided:
        ignored = await list_ignored_folders(checkout, walk.undecided)
        to_examine = [path for path in walk.undecided if path not in ignored or tracked.has_any_below(path)]
        await to_thread.run_sync(walk.examine_all, [checkout / path for path in to_examine])
        # The user can enter a repository in a cache through a link, so the folders in it must be known.
        caches = [path for path in ignored.difference(to_examine) if path.rpartition("/")[2] in CACHES]
        await to_thread.run_sync(walk.examine_caches, [checkout / path for path in sorted(caches)])
    configured = await _find_configured_files(checkout)
    secrets = await to_thread.run_sync(_select_secrets, checkout, walk.sensitive, tracked)
    return CheckoutSurvey(
        secrets=tuple(secrets),
        protected=tuple(dict.fromkeys((*configured, *walk.repositories, *walk.protected[:MOST_PROTECTED]))),
        submodules=tuple(f"{path}/.git" for path in tracked.submodules),
        environments=tuple(_list_outermost(walk.environments)),
        folders=walk.folders,
        unexamined={place: found for place in walk.unexamined if (found := identify(place))},
    )


def list_program_folders(survey: CheckoutSurvey, checkout: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders of a checkout that hold programs, and those that would if they were created.

    Raise Mistake if there are too many to protect.
    """
    usual = [name for name in USUAL_ENVIRONMENTS if not (checkout / name).exists() or (checkout / name).is_symlink()]
    named = (*list_path_folders(checkout, environ), *list_own_environment(checkout), *usual, *survey.environments)
    found = _list_outermost(dict.fromkeys((*named, *list_targets(checkout, named))))
    if len(found) > MOST_PROGRAM_FOLDERS:
        raise Mistake(
            f"{checkout} has {len(found)} virtual environments and folders of packages, and at most "
            f"{MOST_PROGRAM_FOLDERS} can be protected; remove some, or allow commands to change them with installs.ask"
        )
    return tuple(found)


class _Walk:
    """Examines the files in a checkout, and collects sensitive paths, protected paths and repositories."""

    def __init__(self, checkout: Path, tracked: TrackedFiles) -> None:
        self._checkout = str(checkout)
        self._tracked = tracked
        self._seen = 0
        self._examines_all = False
        self._examines_caches = False
        self.sensitive: list[str] = []
        self.protected: list[str] = []
        self.repositories: list[str] = []
        self.environments: list[str] = []
        self.undecided: list[str] = []
        self.folders: dict[str, FolderState] = {}
        self.unexamined: set[str] = set()

    def examine_all(self, folders: Iterable[Path]) -> None:
        """Examine folders that were skipped earlier, without skipping any folder in them."""
        self._examines_all = True
        self.unexamined.difference_update(map(str, folders))
        self.examine(folders)

    def examine_caches(self, folders: Iterable[Path]) -> None:
        """Examine only the folders and repositories in these folders."""
        self._examines_caches = True
        self.examine_all(folders)

    def examine(self, folders: Iterable[Path]) -> None:
        """Examine folders and everything below them, breadth first."""
        queue = deque(map(str, folders))
        while queue:
            folder = queue.popleft()
            if self._is_too_much(folder):
                self.unexamined.add(folder)
                self._note_environment(folder)
                continue
            # Read the state before the entries, so that any later change is noticed.
            state = read_folder_state(folder)
            try:
                entries = list(os.scandir(folder))
            except OSError:
                self.unexamined.add(folder)
                continue
            is_brief = self._seen >= MOST or self._examines_caches
            is_top = folder == self._checkout
            # Files in caches are not searched for secrets, and must not keep others from being searched.
            self._seen += 0 if self._examines_caches else len(entries)
            if not is_top and is_git_shaped(entry.name for entry in entries):
                self.repositories.append(self._path_of(folder))
                self.unexamined.add(folder)
            else:
                self.folders[folder] = state
            queue.extend(
                entry.path for entry in entries if self._examine_entry(entry, is_top=is_top, is_brief=is_brief)
            )

    def _examine_entry(self, entry: os.DirEntry[str], *, is_top: bool, is_brief: bool) -> bool:
        """Record an entry, and return whether it is a folder whose content must be examined.

        If `is_brief` is true, only folders and repositories are recorded.
        """
        is_git = entry.name == ".git"
        if is_git or entry.name.lower() in OTHER_REPOSITORIES:
            self.unexamined.add(entry.path)
        elif entry.name in ENVIRONMENT_MARKS and not is_top:
            self.environments.append(self._path_of(os.path.dirname(entry.path)))  # noqa: PTH120 - plain text
        elif entry.name == PACKAGES or (entry.name in USUAL_ENVIRONMENTS and entry.is_symlink()):
            self.environments.append(self._path_of(entry.path))
        if entry.is_symlink() or (is_brief and not is_git and not entry.is_dir(follow_symlinks=False)):
            return False
        path = self._path_of(entry.path)
        if not is_top and changes_what_runs(path):
            (self.repositories if is_git else self.protected).append(path)
        if is_git or not entry.is_dir(follow_symlinks=False):
            self.sensitive += [] if is_git or not is_sensitive(path) else [path]
            return False
        if is_sensitive(path):
            self.sensitive.append(path)
        elif not self._examines_all and self._may_be_left_out(path, entry):
            self.undecided.append(path)
            self.unexamined.add(entry.path)
            return False
        return True

    def _is_too_much(self, folder: str) -> bool:
        """Return whether a folder is not examined because so many others were.

        There is more room for folders with tracked files, because a command can add any number of others.
        """
        count = max(self._seen / MOST_LISTED, len(self.folders) / MOST_FOLDERS)
        return count >= 1 and (count >= 2 or not self._tracked.has_any_below(self._path_of(folder)))

    def _note_environment(self, folder: str) -> None:
        """Record a folder that is not examined, if it is an environment or contains the usual ones."""
        for name in USUAL_ENVIRONMENTS:
            if os.path.lexists(f"{folder}/{name}"):
                self.environments.append(self._path_of(f"{folder}/{name}"))
        if any(os.path.lexists(f"{folder}/{mark}") for mark in ENVIRONMENT_MARKS):
            self.environments.append(self._path_of(folder))

    def _may_be_left_out(self, path: str, entry: os.DirEntry[str]) -> bool:
        if entry.name in LEFT_OUT:
            return True
        parts = path.rsplit("/", 3)
        # Skip only the packages of a virtual environment, not all of it: a pyvenv.cfg makes any folder look like one.
        return (
            entry.name == "site-packages"
            and len(parts) == 4
            and fnmatchcase("/".join(parts[1:]), PYTHON_PACKAGES)
            and Path(self._checkout, parts[0], "pyvenv.cfg").is_file()
        )

    def _path_of(self, place: str) -> str:
        return place[len(self._checkout) + 1 :]


def _select_secrets(checkout: Path, sensitive: Iterable[str], tracked: TrackedFiles) -> list[str]:
    """Return the sensitive untracked paths. For a folder with some tracked files, return only its untracked content."""
    found: list[str] = []
    pending = deque(_list_outermost(sensitive))
    while pending:
        path = pending.popleft()
        if path in tracked:
            continue
        if not tracked.has_any_below(path):
            found.append(path)
            continue
        with suppress(OSError):
            pending.extend(f"{path}/{entry.name}" for entry in os.scandir(checkout / path) if not entry.is_symlink())
    return sorted(found)


def _list_outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that are not below another of these paths."""
    found: set[str] = set()
    for path in sorted(paths, key=lambda one: one.count("/")):
        parts = path.split("/")
        if not any("/".join(parts[:size]) in found for size in range(1, len(parts))):
            found.add(path)
    return sorted(found)


async def _find_configured_files(checkout: Path) -> list[str]:
    """Return the files and folders in a checkout that the configuration of its repository refers to.

    The paths are relative to the checkout. The list is empty if the configuration cannot be read.
    """
    try:
        repository = Repository.at(checkout)
        # Most configurations refer to no such file, and starting git takes longer than reading the configuration.
        written = (repository.common_dir / "config").read_bytes().lower()
        if not any(mark in written for mark in MARKS):
            return []
        listed = await call_git(repository, "config", "--local", "--type=path", "-z", "--get-regexp", KEYS)
    except (Mistake, OutsideFailed, OSError):
        return []
    return _select_inside(checkout, repository, os.fsdecode(listed.out).split("\0"))


def _select_inside(checkout: Path, repository: Repository, entries: list[str]) -> list[str]:
    """Return the paths inside a checkout that configuration entries refer to, relative to the checkout."""
    found: list[str] = []
    for entry in entries:
        key, _, value = entry.partition("\n")
        base = repository.root if key == "core.hookspath" else repository.common_dir
        place = Path(os.path.normpath(base / value))
        if value and place.is_relative_to(checkout) and place != checkout:
            found.append(place.relative_to(checkout).as_posix())
    return found
