"""List the new files in a working tree, without those that git ignores and those that common tools generate.

A file that git tracks is not new, and a repository's own `.gitignore` can name a file with `!`, so that it counts.
"""

from __future__ import annotations

import os
from pathlib import Path

from anyio import to_thread

from .repository import GitLocation, read_git_output, root_folder, split_nul_paths

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
