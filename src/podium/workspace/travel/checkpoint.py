"""Record the files in a checkout as a checkpoint, and restore a checkpoint on another machine.

A checkpoint is a commit of the files in the checkout that git does not ignore, including uncommitted changes. Its first
parent is the commit that was checked out, so that the branch can be restored too, and its second parent is the previous
checkpoint. The newest checkpoint therefore keeps all earlier checkpoints and their commits reachable. No branch ever
contains a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..git.repository import Checkout, call_git, read_git_output, split_nul_paths
from ..git.snapshot import SNAPSHOT_SECONDS, find_nested_repositories, take_snapshot, write_commit

MOST_IGNORED = 20
"""The maximum number of paths that `list_left_out` returns. Further paths are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint; `head` is the commit that was checked out."""

    commit: str
    head: str


async def take_checkpoint(checkout: Checkout, *, run: str, epoch: int, previous: str = "") -> Checkpoint:
    """Write a checkpoint of the checkout's current files, and return it.

    Return `previous`, the previous checkpoint, if neither the files nor the branch have changed since.
    """
    snapshot = await take_snapshot(checkout)
    tree, head = await _read_tree_and_parent(checkout, snapshot)
    if previous and (tree, head) == await _read_tree_and_parent(checkout, previous):
        return Checkpoint(commit=previous, head=head)
    message = f"Checkpoint of run {run}\n\nPodium-Run: {run}\nPodium-Epoch: {epoch}\n"
    parents = [head, previous] if previous else [head]
    return Checkpoint(commit=await write_commit(checkout, tree, parents, message), head=head)


async def _read_tree_and_parent(checkout: Checkout, commit: str) -> tuple[str, str]:
    """Return the tree and the first parent of a commit."""
    out = await read_git_output(checkout, "rev-parse", "--end-of-options", f"{commit}^{{tree}}", f"{commit}^1")
    tree, parent = out.splitlines()[-2:]
    return tree, parent


async def list_left_out(checkout: Checkout) -> tuple[str, ...]:
    """Return the paths that a checkpoint omits: files and folders that git ignores, and nested repositories.

    If there are more than MOST_IGNORED paths, the last item says how many were not listed.
    """
    asked = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    found = await call_git(checkout, *asked, timeout=SNAPSHOT_SECONDS)
    ignored = split_nul_paths(found.out.decode(errors="backslashreplace")) if found.code == 0 else []
    left = sorted({*ignored, *(f"{name}/" for name in await find_nested_repositories(checkout))})
    more = len(left) - MOST_IGNORED
    return tuple(left) if more <= 0 else (*left[:MOST_IGNORED], f"and {more} more")


async def restore_checkpoint(checkout: Checkout, commit: str) -> None:
    """Write a checkpoint's files to a checkout of its first parent. Uncommitted changes remain uncommitted."""
    writing = ("read-tree", "--reset", "-u", "--no-recurse-submodules", commit)
    await read_git_output(checkout, *writing, timeout=SNAPSHOT_SECONDS)
    await read_git_output(checkout, "read-tree", "HEAD")


def object_folder(checkout: Checkout) -> Path:
    """Return the object folder of a checkout's repository."""
    return checkout.common_dir / "objects"
