"""Copy the ignored files that `.worktreeinclude` lists from a repository into a new worktree.

The file has the syntax of `.gitignore`. Only regular files are copied, links are not followed on either side, and
existing files in the worktree are not replaced.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath

from anyio import to_thread

from ...values.errors import Mistake
from ..git.repository import Checkout, Repository, read_git_output, split_nul_paths

NAME = ".worktreeinclude"
LARGEST = 256 * 1024
LISTING_SECONDS = 300.0


async def copy_included_files(repository: Repository, checkout: Checkout) -> list[str]:
    """Copy the files that `.worktreeinclude` matches into a worktree, and return their paths."""
    wanted = await to_thread.run_sync(_read_patterns, repository.root)
    if not wanted:
        return []
    listing = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard")
    ignored = split_nul_paths(await read_git_output(repository, *listing, timeout=LISTING_SECONDS))

    def copy_matching() -> list[str]:
        # Imported here for start-up time: only repositories with a .worktreeinclude need it.
        from pathspec import GitIgnoreSpec

        matching = GitIgnoreSpec.from_lines(wanted)
        return [
            path for path in ignored if matching.match_file(path) and _copy_file(repository.root, checkout.path, path)
        ]

    return await to_thread.run_sync(copy_matching)


def _read_patterns(root: Path) -> list[str]:
    """Return the lines of `.worktreeinclude`, or none if it does not exist. Raise Mistake if it cannot be read."""
    try:
        file = os.open(root / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Mistake(f"cannot read {root / NAME}: {error.strerror}; it must be a readable file") from error
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Mistake(f"{root / NAME} is not a regular file; use a file with one pattern per line")
        return opened.read(LARGEST).decode("utf-8", "replace").splitlines()


def _copy_file(source: Path, target: Path, path: str) -> bool:
    """Copy a regular file and return True.

    Return False if the file cannot be copied, if its path contains a symbolic link, or if the target already exists.
    """
    *folders, name = PurePosixPath(path).parts
    if ".." in folders or ".git" in {part.casefold() for part in (*folders, name)}:
        return False
    with ExitStack() as stack, suppress(OSError):
        read_from = _open_folder(stack, source, folders, is_made=False)
        plain = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=read_from)
        reading = stack.enter_context(os.fdopen(plain, "rb"))
        found = os.fstat(plain)
        if not stat.S_ISREG(found.st_mode):
            return False
        write_to = _open_folder(stack, target, folders, is_made=True)
        made = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        copy = os.open(name, made, found.st_mode & 0o777, dir_fd=write_to)
        with os.fdopen(copy, "wb") as writing:
            shutil.copyfileobj(reading, writing)
        return True
    return False


def _open_folder(stack: ExitStack, root: Path, folders: list[str], *, is_made: bool) -> int:
    """Open a folder below `root` without following links. If `is_made` is True, create missing folders."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, at)
    for folder in folders:
        if is_made:
            with suppress(FileExistsError):
                os.mkdir(folder, dir_fd=at)
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        stack.callback(os.close, at)
    return at
