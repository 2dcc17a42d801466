"""Record a snapshot of a working tree as a commit, and check out a commit temporarily.

A snapshot does not change the index, the files or any ref. A temporary checkout is outside the repository and is
removed after use. Temporary checkouts left behind by a killed process are removed when the next one is created.

For the snapshot NAME of the run RUN, the refs are `refs/podium/snapshots/RUN/NAME/0`, `/1` and so on.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from anyio import CancelScope, move_on_after, to_thread

from ...system.child_process import OutputBuffer, build_environment, run_process
from ...system.file_lock import lock_descriptor, try_lock_descriptor
from ...system.owned_files import is_own_name, remove_folder, remove_if_stale
from ...system.whole_file import flush_paths
from ...values.errors import Mistake, OutsideFailed
from .repository import (
    Checkout,
    GitLocation,
    Repository,
    call_git,
    find_trusted_program,
    read_git_output,
    resolve_location,
    root_folder,
    split_nul_paths,
)
from .tracked_files import list_new_files

SWITCH_SECONDS = 600.0


SNAPSHOT_REFS = "refs/podium/snapshots"

SNAPSHOT_SECONDS = 600.0
CLEANUP_SECONDS = 30.0
PREFIX = "podium-check-"
AUTHOR = "Podium <podium@localhost>"
NOT_IN_A_NAME = {ord(one): " " for one in "<>\n\r\0"}
"""Replacements for characters that would end a name or an address in a commit."""
LARGEST_IDENTITY = 64 * 1024
IDENTITY_SECONDS = 10.0


async def take_snapshot(
    place: GitLocation,
    *,
    message: str = "Snapshot of the working tree",
    skip: Callable[[str], bool] = lambda path: False,
) -> str:
    """Write a commit on top of HEAD with all current files that git does not ignore, and return its id.

    Changes to paths that `skip` returns True for, untracked files that tools generate, untracked nested repositories,
    the files in submodules and Podium's own temporary files are not included; temporary files of processes that have
    exited are removed. Raise Mistake if there is no commit yet.
    """
    at = resolve_location(place)
    head, tree = await write_snapshot_tree(at, skip=skip)
    return await write_commit(at, tree, [head], message)


async def write_snapshot_tree(
    place: GitLocation, *, skip: Callable[[str], bool] = lambda path: False
) -> tuple[str, str]:
    """Write the tree of a snapshot without a commit, and return the commit at HEAD and the id of the tree."""
    at = resolve_location(place)
    head = await call_git(at, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head.code != 0:
        raise Mistake(
            f"{root_folder(at)} has no commits yet, but a snapshot needs a commit to start from; commit first"
        )
    with _lock_new_folder() as (folder, _):
        index = folder / "index"
        own = at.git_dir / "index"
        if own.is_file():
            # A copy of the index shows which files are unchanged, so git need not read them. The copy keeps the
            # timestamp of the original, because git reads a file again if it changed when the index was written.
            await to_thread.run_sync(shutil.copy2, own, index)
        else:
            await read_git_output(at, "read-tree", "HEAD", index=index)
        gone, kept = await _list_changes(at, index)
        await _update_index(at, index, "--force-remove", gone)
        await _update_index(at, index, "--replace", [path for path in kept if not skip(path)])
        tree = await read_git_output(at, "write-tree", index=index)
    return head.out.decode().strip(), tree


async def write_commit(
    place: GitLocation,
    tree: str,
    parents: list[str],
    message: str,
    *,
    author: str = AUTHOR,
    seconds: int | None = None,
    lock: int | None = None,
) -> str:
    """Write a commit and return its id, without creating a ref. `seconds` is its Unix time; the default is now.

    `lock` is the descriptor of a lock that git inherits.
    """
    who = f"{author} {int(time.time()) if seconds is None else seconds} +0000"
    lines = [f"tree {tree}", *(f"parent {one}" for one in parents), f"author {who}", f"committer {who}", "", message]
    text = "\n".join((*lines, "")).encode()
    return await read_git_output(place, "hash-object", "-t", "commit", "-w", "--stdin", stdin=text, lock=lock)


async def commit_files(place: GitLocation, commit: str, files: Mapping[str, str], *, message: str) -> str:
    """Write a commit on top of `commit` that adds or replaces files, and return the new commit's id.

    `files` maps each path to the text of the file. No ref, index or checkout is changed.
    """
    at = resolve_location(place)
    tree = await write_changed_tree(at, commit, files)
    return await write_commit(at, tree, [commit], message, author=await read_person(at))


async def write_changed_tree(place: GitLocation, tree: str, files: Mapping[str, str | None]) -> str:
    """Write a copy of a tree in which files are added, replaced or removed, and return the copy's id.

    `files` maps each path to the new text of the file, or to None to remove the file. No ref, index or checkout is
    changed.
    """
    at = resolve_location(place)
    entries: dict[bytes, TreeEntry | None] = {}
    for path, text in files.items():
        blob = None if text is None else await write_blob(at, text.encode())
        entries[os.fsencode(path)] = None if blob is None else TreeEntry(mode="100644", object=blob)
    return await write_tree_entries(at, tree, entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """An entry in a tree: its mode, such as `100644`, and the id of its object."""

    mode: str
    object: str


async def write_blob(place: GitLocation, content: bytes) -> str:
    """Store the content of a file unchanged, and return the id of the blob."""
    return await read_git_output(place, "hash-object", "-w", "--stdin", stdin=content)


async def write_tree_entries(place: GitLocation, tree: str, entries: Mapping[bytes, TreeEntry | None]) -> str:
    """Write a copy of a tree in which entries are added, replaced or removed, and return the copy's id.

    `entries` maps each path to the new entry, or to None to remove the entry. An entry also replaces a folder at its
    path, and a file at the path of one of its parent folders. No ref, index or checkout is changed.
    """
    at = resolve_location(place)
    # The removals come first, so that the folder of a removed file can become a file.
    ordered = sorted(entries.items(), key=lambda item: item[1] is not None)
    nothing = TreeEntry(mode="0", object="0" * len(tree))
    lines = [(one or nothing, path) for path, one in ordered]
    with _lock_new_folder() as (folder, _):
        index = folder / "index"
        await read_git_output(at, "read-tree", tree, index=index)
        fed = b"".join(f"{one.mode} {one.object}\t".encode() + path + b"\0" for one, path in lines)
        await read_git_output(at, "update-index", "-z", "--index-info", stdin=fed, index=index)
        return await read_git_output(at, "write-tree", index=index)


async def read_person(place: GitLocation) -> str:
    """Return the user's name and address from git's settings, or Podium's name and address if they are not set.

    Unlike every other git call, this call reads the user's own settings. That is safe, because `git config` starts no
    other program.
    """
    at = resolve_location(place)
    git, output = find_trusted_program("git", outside=root_folder(at)), OutputBuffer(LARGEST_IDENTITY)
    if git is None:
        return AUTHOR
    argv = [git, f"--git-dir={at.git_dir}", "config", "--null", "--get-regexp", r"^user\.(name|email)$"]
    await run_process(argv, env=build_environment(), directory="/", timeout=IDENTITY_SECONDS, take=output.append)
    items = (one.partition("\n") for one in bytes(output).decode(errors="replace").split("\0"))
    found = {key: value.translate(NOT_IN_A_NAME).strip() for key, _, value in items}
    name, address = found.get("user.name"), found.get("user.email")
    return f"{name} <{address}>" if name and address else AUTHOR


async def find_nested_repositories(place: GitLocation) -> list[str]:
    """Return nested repositories that git does not track. Snapshots do not include them."""
    return [name.rstrip("/") for name in await list_new_files(place) if name.endswith("/")]


async def _list_changes(place: Repository | Checkout, index: Path) -> tuple[list[str], list[str]]:
    """Return the paths to remove from the index, and the paths to add to it, so that it matches the working tree."""
    listing = ("diff-files", "--name-status", "-z", "--no-renames")
    told = split_nul_paths(await read_git_output(place, *listing, index=index, timeout=SNAPSHOT_SECONDS))
    new = await list_new_files(place, index=index)
    changed = dict(zip(told[1::2], told[::2], strict=True))
    root = root_folder(place)

    def sort_changes() -> tuple[list[str], list[str]]:
        gone = [path for path, state in changed.items() if state == "D" or not _is_storable(root / path)]
        kept = [path for path in changed if path not in set(gone)]
        ours = [path for path in new if is_own_name(path.rpartition("/")[2])]
        for path in ours:
            remove_if_stale(root / path)
        # A path that ends with a slash is a nested repository.
        added = [path for path in new if path not in ours and not path.endswith("/") and _is_storable(root / path)]
        return gone, kept + added

    return await to_thread.run_sync(sort_changes)


def _is_storable(path: Path) -> bool:
    """Return whether git can store the entry at a path: a regular file, a link, or a folder (as a submodule)."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)


async def _update_index(place: GitLocation, index: Path, how: str, paths: list[str]) -> None:
    if paths:
        fed = b"".join(os.fsencode(path) + b"\0" for path in paths)
        told = ("update-index", "--add", "--remove", how, "-z", "--stdin")
        await read_git_output(place, *told, stdin=fed, index=index, timeout=SNAPSHOT_SECONDS)


@asynccontextmanager
async def temporary_checkout(place: GitLocation, commit: str) -> AsyncIterator[Checkout]:
    """Check out a commit in a temporary folder with a detached HEAD, and remove the folder when the block ends."""
    repository = resolve_location(place)
    base = await resolve_commit(repository, commit)
    await _remove_stale_checkouts(repository)
    with _lock_new_folder() as (folder, lock):
        path = folder / folder.name
        try:
            yield await _add_worktree(repository, path, base, lock)
        finally:
            with move_on_after(CLEANUP_SECONDS, shield=True):
                await _remove_worktree(repository, path)


async def resolve_commit(place: GitLocation, name: str) -> str:
    """Return the id of the commit that a name refers to. Raise Mistake if there is no such commit."""
    found = await call_git(place, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found.code != 0:
        raise Mistake(f"commit {name!r} not found in {root_folder(place)}; give a branch, a tag or a commit id")
    return found.out.decode().strip()


async def find_registered_worktree(place: Repository | Checkout, path: Path, *, branch: str, base: str) -> Checkout:
    """Return the worktree at a path, with its git directory. Raise OutsideFailed if git does not list the worktree."""

    def find_git_dir() -> Path | None:
        for own in sorted((place.common_dir / "worktrees").iterdir()):
            with suppress(OSError):
                if os.fsdecode((own / "gitdir").read_bytes()).removesuffix("\n") == str(path / ".git"):
                    return own
        return None

    own = await to_thread.run_sync(find_git_dir)
    if own is None:
        raise OutsideFailed(f"git created the worktree {path} but does not list it; git worktree repair may fix that")
    return Checkout(path=path, git_dir=own, common_dir=place.common_dir, branch=branch, base=base)


async def flush_worktree(checkout: Checkout) -> None:
    """Flush what makes a folder a worktree, and its index. Git flushes the index and the branch, but nothing else.

    The files in the worktree are not flushed, as that could take long.
    """
    own = checkout.git_dir
    names = [own / name for name in ("HEAD", "commondir", "gitdir", "index")]
    folders = [own, own.parent, checkout.path, checkout.path.parent]
    if checkout.branch:
        folders.append((checkout.common_dir / "refs" / "heads" / checkout.branch).parent)
    await to_thread.run_sync(flush_paths, [*names, checkout.path / ".git", *folders])


async def write_worktree_files(checkout: Checkout, *, lock: int) -> None:
    """Write the files of a worktree that was added without files.

    Git could write the files when it adds the worktree. But it would then use settings that apply only to the new
    worktree, and these settings can be checked only after the worktree has been added.
    """
    told = ("reset", "--hard", "--no-recurse-submodules", "--quiet")
    await read_git_output(checkout, *told, timeout=SNAPSHOT_SECONDS, lock=lock)


async def _add_worktree(place: Repository | Checkout, path: Path, base: str, lock: int) -> Checkout:
    told = ("worktree", "add", "--quiet", "--detach", "--no-checkout", "--", str(path), base)
    # A cancellation must not leave behind a worktree that git has recorded but not created.
    with CancelScope(shield=True):
        await read_git_output(place, *told, lock=lock)
        checkout = await find_registered_worktree(place, path, branch="", base=base)
    await write_worktree_files(checkout, lock=lock)
    return checkout


async def _remove_worktree(place: Repository | Checkout, path: Path) -> None:
    if await to_thread.run_sync(os.path.lexists, path):
        await to_thread.run_sync(remove_folder, path, abandon_on_cancel=True)
    await call_git(place, "worktree", "remove", "--force", "--force", "--", str(path))


@contextmanager
def _lock_new_folder() -> Iterator[tuple[Path, int]]:
    """Create a temporary folder and hold its lock until the block ends. A child process can inherit the lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        lock_descriptor(lock)
        # Another process may have removed the folder as stale before it was locked.
        if (folder / "lock").exists():
            break
        os.close(lock)
    try:
        yield folder, lock
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


async def _remove_stale_checkouts(place: Repository | Checkout) -> None:
    """Remove temporary checkouts left behind by killed processes."""

    def remove_stale_folders() -> list[Path]:
        for folder in Path(tempfile.gettempdir()).resolve().glob(f"{PREFIX}*"):
            _remove_if_unlocked(folder)
        return [path for path in _list_temporary_worktrees(place.common_dir) if not path.parent.exists()]

    for path in await to_thread.run_sync(remove_stale_folders):
        await call_git(place, "worktree", "remove", "--force", "--force", "--", str(path))


def _remove_if_unlocked(folder: Path) -> None:
    """Remove this user's temporary folder if no process has locked it."""
    with suppress(OSError):
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        lock = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if try_lock_descriptor(lock):
                remove_folder(folder)
        finally:
            os.close(lock)


def _list_temporary_worktrees(common: Path) -> list[Path]:
    """Return the temporary worktrees that git lists for a repository."""
    found = []
    for own in (common / "worktrees").glob(f"{PREFIX}*"):
        with suppress(OSError):
            found.append(Path(os.fsdecode((own / "gitdir").read_bytes()).removesuffix("\n")).parent)
    return found


async def keep_snapshot(place: GitLocation, run: str, name: str, commits: Mapping[str, str]) -> None:
    """Create refs to the commits of a snapshot. A second call with the same commits changes nothing.

    `commits` maps branches to commits. Raise OutsideFailed if a commit does not exist.
    """
    prefix = f"{SNAPSHOT_REFS}/{as_ref_name(run)}/{as_ref_name(name)}"
    unique = dict.fromkeys(commits.values())
    lines = [f"update {prefix}/{number} {commit}\n" for number, commit in enumerate(unique)]
    await read_git_output(place, "update-ref", "--stdin", stdin="".join(lines).encode())


def as_ref_name(text: str) -> str:
    """Return `text` as one component of a ref name. Characters that git does not allow in a ref are escaped."""
    return quote(text, safe="").replace(".", "%2E").replace("~", "%7E")


async def switch_tree(place: GitLocation, commit: str) -> None:
    """Write a commit's files to a checkout, and remove the files that the commit does not have.

    Files that git ignores are kept. Raise OutsideFailed, with nothing changed, if a file changes in the meantime.
    """
    at = resolve_location(place)
    current = await take_snapshot(at)
    with TemporaryDirectory(prefix="podium-switch-") as folder:
        index = Path(folder) / "index"
        await read_git_output(at, "read-tree", current, index=index)
        # The index must know which files are unchanged; this command fails if any file differs, which is checked below.
        await call_git(at, "update-index", "-q", "--refresh", index=index, timeout=SWITCH_SECONDS)
        await read_git_output(at, "read-tree", "-m", "-u", current, commit, index=index, timeout=SWITCH_SECONDS)
