"""List the files in a checkout: tracked and untracked files in a git repository, all files elsewhere.

Links are not followed. Files that git ignores and files that are hidden from searches are not listed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from anyio import to_thread

from ..values.errors import OutsideFailed
from ..workspace.git.repository import GitLocation, call_git
from .checkout_files import open_checkout

MOST = 200_000

Hidden = Callable[[str], bool]
"""A function that takes a path and returns whether the file is hidden from searches and from diffs of several files.

A tool call can still read a hidden file if it specifies the file's exact path and the rules allow it."""

SECRET_NAMES = (".env", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".git-credentials", "credentials.json")
SECRET_ENDS = (".pem", ".key", ".p12", ".pfx", ".keystore", ".jks", ".kdbx")
SECRET_FOLDERS = frozenset((".ssh", ".aws", ".gnupg", ".kube", ".docker"))
EXAMPLES = (".example", ".sample", ".template", ".dist")


def holds_secrets(path: str) -> bool:
    """Return whether files with this path usually contain secrets."""
    parts = PurePosixPath(path.casefold()).parts
    name = parts[-1] if parts else ""
    if name.endswith((*EXAMPLES, ".pub")):
        return False
    return (
        name in SECRET_NAMES
        or name.startswith((".env.", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa"))
        or name.endswith(SECRET_ENDS)
        or not SECRET_FOLDERS.isdisjoint(parts)
    )


async def list_files(directory: Path, under: str, *, place: GitLocation, hidden: Hidden) -> list[str]:
    """Return the paths of the files under a located directory, sorted and relative to the checkout.

    `place` is the checkout's location for git commands. Outside a git repository, at most `MOST` files are listed.
    """
    found = await _list_git_files(place, under)
    if found is None:
        found = await to_thread.run_sync(_list_by_walking, directory, under)
    return sorted(path for path in found if ".git" not in path.split("/") and not hidden(path))


async def _list_git_files(place: GitLocation, under: str) -> list[str] | None:
    """Return the files that git lists, or None if git is not installed or fails, as it does outside a repository."""
    literally = "." if under == "." else f":(literal){under}"
    try:
        done = await call_git(place, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", literally)
    except OutsideFailed:
        return None
    if done.code != 0:
        return None
    names = dict.fromkeys(done.out.decode(errors="replace").split("\0"))
    # A nested repository is one entry that ends with a slash.
    return [name for name in names if name and not name.endswith("/") and "\ufffd" not in name]


def _list_by_walking(directory: Path, under: str) -> list[str]:
    with open_checkout(directory) as checkout, checkout.open_directory(under) as fd:
        prefix = "" if under == "." else f"{under}/"
        found = []
        for path in _iterate_files(fd):
            found.append(f"{prefix}{path}")
            if len(found) >= MOST:
                break
        return found


def _iterate_files(fd: int) -> Iterator[str]:
    for folder, folders, files, _ in os.fwalk(".", dir_fd=fd, follow_symlinks=False):
        folders[:] = sorted(name for name in folders if name != ".git")
        above = folder.removeprefix(".").removeprefix("/")
        for name in sorted(files):
            path = f"{above}/{name}" if above else name
            if path.isprintable():
                yield path
