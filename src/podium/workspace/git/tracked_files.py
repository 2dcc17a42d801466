"""Read the tracked files and the submodules in a folder from git's index, and list the new files beside them.

Files that git ignores and those that common tools generate are not listed. A file that git tracks is not new, and a
repository's own `.gitignore` can name a file with `!`, so that it counts.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from ...values.errors import Mistake, OutsideFailed
from .repository import GitLocation, Repository, call_git, read_git_output, root_folder, split_nul_paths

LISTING_SECONDS = 600.0
PATTERNS = Path(__file__).with_suffix(".gitignore")
"""The names of generated files and folders. A repository's own patterns take precedence."""
MARKERS = ("CACHEDIR.TAG", "pyvenv.cfg")
"""Files that a tool writes into a folder of which it generates all contents: a cache or a virtual environment."""
MANIFESTS = {
    "target": ("Cargo.toml", "pom.xml"),
    "build": ("build.gradle", "build.gradle.kts"),
    "obj": ("project.assets.json",),
}
"""The folders in which a build writes its output if one of these files is next to the folder, or in it for `obj`."""


SUBMODULE_MODE = b"160000"
DEEPEST = 8
"""The maximum nesting depth of the submodules that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedFiles:
    """The tracked paths below a folder, sorted and relative to the folder. `submodules` includes nested submodules."""

    paths: Sequence[str] = ()
    submodules: tuple[str, ...] = ()

    def __contains__(self, path: str) -> bool:
        place = bisect_left(self.paths, path)
        return place < len(self.paths) and self.paths[place] == path

    def has_any_below(self, folder: str) -> bool:
        """Return whether git tracks any file below a folder."""
        place = bisect_left(self.paths, f"{folder}/")
        return place < len(self.paths) and self.paths[place].startswith(f"{folder}/")


async def read_tracked_files(folder: Path) -> TrackedFiles:
    """Return the tracked files below a folder. The result is empty if the folder is not in a readable repository."""
    return await _read_index(folder, DEEPEST)


async def list_ignored_folders(folder: Path, paths: Sequence[str]) -> set[str]:
    """Return those folders in `paths` that git ignores, or an empty set if git fails.

    `paths` are relative to `folder`.
    """
    with suppress(Mistake, OutsideFailed):
        repository = Repository.at(folder)
        prefix = _prefix_below(repository, folder)
        fed = b"".join(os.fsencode(f"{prefix}{path}/") + b"\0" for path in paths)
        done = await call_git(repository, "check-ignore", "-z", "--stdin", stdin=fed)
        found = os.fsdecode(done.out).split("\0") if done.code == 0 else []
        return {path.removeprefix(prefix).rstrip("/") for path in found if path}
    return set()


async def _read_index(folder: Path, depth: int) -> TrackedFiles:
    try:
        repository = await to_thread.run_sync(Repository.at, folder)
        prefix = _prefix_below(repository, folder)
        listed = await call_git(repository, "ls-files", "-z", "--stage", "--", f":(literal){prefix or '.'}")
    except (Mistake, OutsideFailed):
        return TrackedFiles()
    if listed.code != 0:
        return TrackedFiles()
    found = await to_thread.run_sync(_parse_index, listed.out, prefix)
    nested: list[str] = []
    for name in found.submodules if depth else ():
        if await to_thread.run_sync(os.path.lexists, folder / name / ".git"):
            inside = await _read_index(folder / name, depth - 1)
            nested += [f"{name}/{path}" for path in inside.submodules]
    return TrackedFiles(paths=found.paths, submodules=(*found.submodules, *nested))


def _prefix_below(repository: Repository, folder: Path) -> str:
    """Return a folder's path relative to its repository, with a trailing slash. It is empty for the root."""
    relative = folder.resolve().relative_to(repository.root).as_posix()
    return "" if relative == "." else f"{relative}/"


def _parse_index(listing: bytes, prefix: str) -> TrackedFiles:
    paths: list[str] = []
    submodules: list[str] = []
    for line in listing.split(b"\0"):
        facts, _, name = line.partition(b"\t")
        if name:
            path = os.fsdecode(name).removeprefix(prefix)
            paths.append(path)
            if facts.startswith(SUBMODULE_MODE):
                submodules.append(path)
    paths.sort()
    return TrackedFiles(paths=paths, submodules=tuple(dict.fromkeys(submodules)))


async def list_new_files(place: GitLocation, *, index: Path | None = None, groups: bool = False) -> list[str]:
    """Return the paths of the files that git does not track, except those that are ignored or generated.

    A path that ends with a slash is a nested repository. With `groups`, it can also be a folder with only new files.
    """
    options = ("--directory", "--no-empty-directory") if groups else ()
    listing = ("ls-files", "-z", "--others", "--exclude-standard", f"--exclude-from={PATTERNS}", *options)
    found = split_nul_paths(await read_git_output(place, *listing, index=index, timeout=LISTING_SECONDS))
    return await to_thread.run_sync(_without_output, root_folder(place), found)


def _without_output(root: Path, paths: list[str]) -> list[str]:
    """Leave out the files in folders of which a tool generates all contents."""
    known: dict[str, bool] = {"": False}

    def is_output(folder: str) -> bool:
        if folder not in known:
            above, _, name = folder.rpartition("/")
            known[folder] = is_output(above) or _is_output_folder(root / above, name)
        return known[folder]

    return [path for path in paths if not is_output(path.rpartition("/")[0])]


def _is_output_folder(above: Path, name: str) -> bool:
    folder = above / name
    if any(os.path.lexists(folder / marker) for marker in MARKERS):
        return True
    return any(os.path.lexists((folder if name == "obj" else above) / one) for one in MANIFESTS.get(name, ()))
