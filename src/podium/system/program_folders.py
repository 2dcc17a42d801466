"""Find the folders in a checkout that hold programs which the user runs without looking at them.

These are the folders on the user's PATH, virtual environments, and `node_modules`. Git usually ignores them, so no diff
shows a program or a start-up file that was planted there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from ..values.plain_text import escape_unprintable

ENVIRONMENT_MARKS = frozenset(("pyvenv.cfg", "conda-meta"))
"""A folder that contains one of these is a virtual environment."""
PACKAGES = "node_modules"
USUAL_ENVIRONMENTS = (".venv", "venv", PACKAGES)
"""Where tools look for an environment at the top of a checkout without being told to."""
OWN_PARTS = (*sorted(ENVIRONMENT_MARKS), "bin", "lib", "lib64", "Scripts")
"""What an environment consists of."""
LINKED_PARTS = ("bin", "lib", "lib64", "Scripts")
INTERPRETERS = ("bin/python", "bin/python3", "python", "python3")
PACKAGE_CACHES = (".cache", ".vite", ".vite-temp")
"""Folders in `node_modules` in which programs keep data that they can create again."""
OWN_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")


def list_path_folders(checkout: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders on the PATH and the active environments that are in a checkout, relative to its real path.

    A relative entry counts from the checkout. The checkout itself is never returned.
    """
    top = checkout.resolve()
    entries = [*environ.get("PATH", "").split(os.pathsep), *(environ.get(name, "") for name in OWN_ENVIRONMENTS)]
    found: dict[str, None] = {}
    for entry in filter(None, entries):
        plain = Path(os.path.normpath(top / entry))
        for place in (plain, plain.resolve()):
            if place != top and place.is_relative_to(top):
                found[place.relative_to(top).as_posix()] = None
    return tuple(found)


def list_own_environment(checkout: Path) -> tuple[str, ...]:
    """Return the files and folders at the top of a checkout that is itself a virtual environment."""
    if not any(os.path.lexists(checkout / mark) for mark in ENVIRONMENT_MARKS):
        return ()
    return tuple(name for name in OWN_PARTS if os.path.lexists(checkout / name))


def list_targets(checkout: Path, folders: Iterable[str]) -> tuple[str, ...]:
    """Return where the links on the way to these paths, or in these environments, lead in the checkout.

    For a link to an interpreter, this is the folder of its installation.
    """
    top = checkout.resolve()
    found: dict[str, None] = {}
    for folder in (top / folder for folder in folders):
        real = folder.resolve()
        inside = [(folder / part).resolve() for part in LINKED_PARTS]
        programs = [(folder / program).resolve().parent for program in INTERPRETERS]
        installed = [one if one.parent == top else one.parent for one in programs if not one.is_relative_to(real)]
        for target in (real, *(one for one in inside if not one.is_relative_to(real)), *installed):
            if target not in (top, folder) and target.is_relative_to(top):
                found[target.relative_to(top).as_posix()] = None
    return tuple(found)


def list_links(checkout: Path, folders: Iterable[str]) -> tuple[str, ...]:
    """Return the links in a checkout through which these folders are reached. Replacing one replaces the folder."""
    found: dict[str, None] = {}
    pending = [one for folder in folders for one in _iter_folders(folder)]
    while pending:
        name = pending.pop()
        place = checkout / name
        if name in found or not place.is_symlink():
            continue
        found[name] = None
        target = Path(os.path.normpath(place.parent / place.readlink()))
        if target != checkout and target.is_relative_to(checkout):
            pending += _iter_folders(target.relative_to(checkout).as_posix())
    return tuple(found)


def find_program_folder(checkout: Path, path: str, environ: Mapping[str, str]) -> str:
    """Return the folder of programs that contains a path of a checkout, or would if it is created; otherwise "".

    The path is relative to the checkout and contains no links.
    """
    named = (*list_path_folders(checkout, environ), *list_own_environment(checkout))
    links = [name for name in USUAL_ENVIRONMENTS if (checkout / name).is_symlink()]
    on_path = {_fold(folder) for folder in (*named, *list_targets(checkout, (*named, *links)))}
    for folder in _iter_folders(path):
        name = folder.rpartition("/")[2]
        is_usual = folder in USUAL_ENVIRONMENTS and not os.path.lexists(checkout / folder)
        if _fold(name) == PACKAGES or _fold(folder) in on_path or is_usual:
            return folder
        if any(os.path.lexists(checkout / folder / mark) for mark in ENVIRONMENT_MARKS):
            return folder
    marks = [at for at, part in enumerate(PurePosixPath(path).parts) if _fold(part) in ENVIRONMENT_MARKS]
    return "/".join(PurePosixPath(path).parts[: marks[0]]) or "." if marks else ""


def select_programs(checkout: Path, paths: Collection[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return those of these files of a checkout, which need not exist, that are in a folder of programs.

    An environment can be among the files itself. Files that Python runs at its start count wherever they are.
    """
    marked = {path.rpartition("/")[0] for path in paths if path.rpartition("/")[2] in ENVIRONMENT_MARKS}
    return tuple(
        path
        for path in paths
        if path.endswith(START_FILES)
        or not marked.isdisjoint(_iter_folders(path))
        or find_program_folder(checkout, path, environ)
    )


ProgramStates = Mapping[str, tuple[int, int]]
"""The inode and the time of the last change of each program, keyed by its path in the checkout."""

START_FILES = (".pth", "sitecustomize.py", "usercustomize.py", "pyvenv.cfg")
PROGRAM_FOLDERS = frozenset(("bin", ".bin", "Scripts", "shims"))
MOST_NAMED = 20


def read_programs(checkout: Path, folders: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the state of every program in folders of a checkout: executable files, and files that Python runs."""
    found: dict[str, tuple[int, int]] = {}
    for folder in folders:
        for above, _, names in os.walk(checkout / folder):
            is_for_programs = os.path.basename(above) in PROGRAM_FOLDERS  # noqa: PTH119 - plain text
            for name in names:
                place = os.path.join(above, name)  # noqa: PTH118 - plain text
                with suppress(OSError):
                    status = os.lstat(place)
                    if is_for_programs or name.endswith(START_FILES) or status.st_mode & 0o111 == 0o111:
                        found[os.path.relpath(place, checkout)] = (status.st_ino, status.st_ctime_ns)
    return found


def list_changed_programs(before: ProgramStates, after: ProgramStates) -> tuple[str, ...]:
    """Return the programs that were added, changed or removed."""
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def describe_changed_programs(changed: Sequence[str]) -> str:
    """Name the changed programs in a sentence."""
    names = ", ".join(map(escape_unprintable, changed[:MOST_NAMED]))
    more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
    return f"programs changed: {names}{more}"


def _iter_folders(path: str) -> Iterator[str]:
    """Yield a path and the folders above it, the outermost first."""
    parts = PurePosixPath(path).parts
    for size in range(1, len(parts) + 1):
        yield "/".join(parts[:size])


def _fold(name: str) -> str:
    """Return a name in the spelling under which a file system that ignores case finds it, too."""
    return name.casefold()
