"""Fast-forward the target branch to exactly the approved commit, or not at all.

An approval applies to one tree and one commit of the target. If the target is checked out, its files are updated too,
but only if none of the user's work can be lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from anyio import CancelScope, to_thread

from ...system.whole_file import flush_paths, write_out_files
from ...values.actor import Actor
from ...values.errors import Mistake, OutsideFailed, PodiumError
from ...values.plain_text import escape_unprintable, join_some, truncate_text
from ..git.repository import Checkout, GitLocation, Repository, call_git, read_git_output, split_nul_paths
from ..git.revision import HEADS, SHORT, branch_tip, contains_commit, decode_path, resolve_location, resolve_tree
from ..git.snapshot import resolve_commit
from ..git.stale_locks import remove_stale_branch_lock, remove_stale_locks
from .move_note import describe_author, lock_moves, remove_note, reset_half_written, switch_files, write_note

LONGEST = 600.0
NAMES_SHOWN = 5

UNDER_WAY = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
}
REWRITING = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")


async def fast_forward(
    repo: GitLocation,
    target: str,
    *,
    commit: str,
    expected_tree: str,
    expected_old: str,
    by: Actor | None = None,
) -> None:
    """Move the branch `target` from `expected_old` to `commit`, whose tree must be `expected_tree`.

    Do nothing if `target` is already at `commit`. Raise Mistake if these conditions are not met, or if the branch or
    its checkout cannot be updated safely. The branch's reflog names `by`, who approved the move.
    """
    place = resolve_location(repo)
    async with lock_moves(place) as lock:
        if (new := await _find_new_commit(place, target, commit, expected_tree, expected_old)) is None:
            return
        checkout, changed = await _find_safe_checkout(place, target, expected_old, new)
        await _move(
            place, checkout, target, expected_old, new, changed, lock, describe_author("podium: fast-forward", by)
        )


async def must_allow_fast_forward(
    repo: GitLocation, target: str, *, commit: str, expected_tree: str, expected_old: str
) -> None:
    """Raise Mistake if `fast_forward` with these arguments would be refused now."""
    place = resolve_location(repo)
    async with lock_moves(place):
        if (new := await _find_new_commit(place, target, commit, expected_tree, expected_old)) is not None:
            await _find_safe_checkout(place, target, expected_old, new)


async def move_back(repo: GitLocation, target: str, *, commit: str, old: str) -> None:
    """Undo a fast-forward of `target` from `old` to `commit`, which may have been interrupted.

    Raise Mistake if the branch is at another commit, or if the branch or its checkout cannot be updated safely.
    """
    place = resolve_location(repo)
    async with lock_moves(place) as lock:
        await _move_back(place, target, commit, old, lock)


async def _move_back(place: Repository | Checkout, target: str, commit: str, old: str, lock: int) -> None:
    now = await branch_tip(place, target)
    if now == old:
        checkout = await _find_branch_checkout(place, target)
        if checkout is not None and old != commit and await _has_files_of_commit(checkout, commit):
            await _update_checkout_files(checkout, target, commit, old, lock)
        return
    if now != commit:
        raise Mistake(
            f"{escape_unprintable(target)} is at {now[:SHORT]} and no longer at {commit[:SHORT]}, so it was not moved "
            f"back to {old[:SHORT]}"
        )
    checkout, changed = await _find_safe_checkout(place, target, commit, old)
    await _move(place, checkout, target, commit, old, changed, lock, "podium: fast-forward")


async def _find_new_commit(
    place: Repository | Checkout, target: str, commit: str, expected_tree: str, expected_old: str
) -> str | None:
    """Return the commit to move the target to, or None if the target is already at that commit.

    Raise Mistake if the target must not be moved.
    """
    new = await resolve_commit(place, commit)
    if (tree := await resolve_tree(place, new)) != expected_tree:
        raise Mistake(
            f"{new[:SHORT]} has the tree {tree[:SHORT]}, but {expected_tree[:SHORT]} was approved; "
            "review it again and approve the current tree"
        )
    old = await branch_tip(place, target)
    if old == new:
        return None
    if old != expected_old:
        raise Mistake(
            f"{escape_unprintable(target)} was at {expected_old[:SHORT]} when the merge began, "
            f"but is now at {old[:SHORT]}; merge again"
        )
    if not await contains_commit(place, new, old):
        raise Mistake(f"{new[:SHORT]} is not based on {escape_unprintable(target)} at {old[:SHORT]}; merge again")
    return new


async def _find_safe_checkout(
    place: Repository | Checkout, target: str, old: str, new: str
) -> tuple[Repository | None, list[str]]:
    """Return the target's checkout, if there is one, and the paths in it that differ.

    Raise Mistake if the target cannot be moved safely.
    """
    await to_thread.run_sync(_must_not_be_rebasing, place.common_dir, target)
    checkout = await _find_branch_checkout(place, target)
    # Git processes of Podium that move a branch hold the lock of moves, so these locks are not theirs.
    await to_thread.run_sync(remove_stale_branch_lock, place, target)
    if checkout is None:
        return None, []
    await to_thread.run_sync(remove_stale_locks, checkout, target)
    added, others = await _diff_paths(checkout, old, new)
    await _must_be_safe_to_update(checkout, target, new, added, others)
    return checkout, [*added, *others]


async def _move(
    place: Repository | Checkout,
    checkout: Repository | None,
    target: str,
    old: str,
    new: str,
    changed: list[str],
    lock: int,
    reason: str,
) -> None:
    """Move the branch, and update the paths in `changed` in its checkout. `reason` is for the reflog."""
    if checkout is None:
        await _move_branch(place, target, old, new, lock, reason)
        return
    # Once files have changed, the branch must move or the files must be restored, even if the caller is cancelled.
    with CancelScope(shield=True):
        write_note(checkout, target, old, new)
        await _update_checkout_files(checkout, target, old, new, lock)
        # If the branch has them after a power failure, they must not be empty. Moving the branch flushes the disk.
        await to_thread.run_sync(_write_out, checkout, changed)
        try:
            await _move_branch(checkout, target, old, new, lock, reason)
        except PodiumError:
            # If something else has moved the branch, its files are what belongs into the checkout, not those of `old`.
            # If its files cannot be written, the note stays, and the next move writes them.
            if (now := await branch_tip(checkout, target)) == new or await switch_files(checkout, new, now, lock):
                remove_note(checkout)
            raise
        remove_note(checkout)


def _write_out(checkout: Repository, changed: list[str]) -> None:
    write_out_files(checkout.root / path for path in changed)
    if checkout.root.stat().st_dev != checkout.common_dir.stat().st_dev:
        flush_paths([checkout.root])


async def _move_branch(place: Repository | Checkout, target: str, old: str, new: str, lock: int, reason: str) -> None:
    """Move the branch, but change no files. Git moves it only if it is still at `old`, so no new commits are lost."""
    done = await call_git(place, "update-ref", "-m", reason, HEADS + target, new, old, lock=lock)
    # Git may have failed only after it had moved the branch.
    if done.code != 0 and await branch_tip(place, target) != new:
        raise Mistake(
            f"{escape_unprintable(target)} could not be moved to {new[:SHORT]}: "
            f"{escape_unprintable(truncate_text(done.err, 300))}; merge again"
        )


async def _find_branch_checkout(place: Repository | Checkout, target: str) -> Repository | None:
    """Return the checkout of a branch, or None if it is not checked out. Raise Mistake if the checkout is unusable."""
    listed = await read_git_output(place, "worktree", "list", "--porcelain", "-z")
    having = [
        Path(record[0].removeprefix("worktree "))
        for record in (part.split("\0") for part in listed.split("\0\0"))
        if f"branch {HEADS}{target}" in record
    ]
    if not having:
        return None
    if len(having) > 1:
        where = " and ".join(str(path) for path in having)
        raise Mistake(
            f"{escape_unprintable(target)} is checked out in several worktrees ({where}); "
            "switch all but one of them to another branch"
        )
    path = having[0]
    if not await to_thread.run_sync(path.exists):
        raise Mistake(
            f"{escape_unprintable(target)} is checked out in {path}, which does not exist; restore "
            "it, or run git worktree prune"
        )
    found = await to_thread.run_sync(Repository.at, path)
    if found.common_dir != place.common_dir or found.root != path.resolve():
        raise Mistake(f"{path} is no longer a worktree of {place.common_dir}; run git worktree repair")
    return found


def _must_not_be_rebasing(common: Path, target: str) -> None:
    """Raise Mistake if the branch is being rebased or bisected: HEAD is detached, but git will return to the branch."""
    for own in (common, *common.glob("worktrees/*")):
        for name in REWRITING:
            try:
                named = os.fsdecode((own / name).read_bytes()).strip()
            except OSError:
                continue
            if named.removeprefix(HEADS) == target:
                what = "bisection" if name == "BISECT_START" else "rebase"
                raise Mistake(
                    f"a {what} of {escape_unprintable(target)} is in progress; finish or abort it, then try again"
                )


async def _must_be_safe_to_update(
    checkout: Repository, target: str, new: str, added: list[str], others: list[str]
) -> None:
    """Raise Mistake if a git operation is unfinished, if changes could be lost, or if git filters apply to files."""
    for name, what in UNDER_WAY.items():
        if (checkout.git_dir / name).exists():
            raise Mistake(f"{what} is in progress in {checkout.root}; finish or abort it, then try again")
    # Refresh the index first: files that were touched but not changed do not count as changes.
    await call_git(checkout, "update-index", "-q", "--refresh", timeout=LONGEST)
    if await _has_files_of_commit(checkout, new):
        return
    status = await read_git_output(
        checkout, "status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", timeout=LONGEST
    )
    if changed := [entry[3:] for entry in split_nul_paths(status)]:
        raise Mistake(
            f"{escape_unprintable(target)} is checked out in {checkout.root}, which has uncommitted "
            f"changes ({format_paths(changed)}); "
            "commit or stash them, then try again"
        )
    if blocking := await to_thread.run_sync(lambda: list(_find_blocking_paths(checkout.root, added, others))):
        raise Mistake(
            f"the merge adds {format_paths(blocking)}, but untracked or ignored files are in the way "
            f"in {checkout.root}; "
            "move them elsewhere, then try again"
        )
    if filtered := await _find_filter_paths(checkout, new, [*added, *others]):
        raise Mistake(
            f"git filters apply to {format_paths(filtered)}, and Podium does not run filters; "
            f"update {escape_unprintable(target)} yourself: git merge --ff-only {new[:SHORT]}"
        )


async def _update_checkout_files(checkout: Repository, target: str, old: str, new: str, lock: int) -> None:
    """Update the checkout's files from the commit `old` to the commit `new`: all of them, or none."""
    if await _has_files_of_commit(checkout, new):
        return
    done = await call_git(checkout, "read-tree", "-m", "-u", old, new, timeout=LONGEST, lock=lock)
    if done.code != 0:
        if await reset_half_written(checkout, old, new, lock):
            remove_note(checkout)
        raise Mistake(
            f"{escape_unprintable(target)} is checked out in {checkout.root}, where its files could "
            "not be updated: "
            f"{escape_unprintable(truncate_text(done.err, 300))}; fix that and try again"
        )


async def _has_files_of_commit(checkout: Repository, new: str) -> bool:
    """Return whether the checkout's files and index already match the commit.

    They do if an earlier move was interrupted after it had updated the files.
    """
    done = await call_git(checkout, "diff-index", "--quiet", new, timeout=LONGEST)
    staged = await call_git(checkout, "diff-index", "--quiet", "--cached", new, timeout=LONGEST)
    if done.code not in (0, 1):
        raise OutsideFailed(f"git diff-index failed: {escape_unprintable(truncate_text(done.err, 300))}")
    return done.code == staged.code == 0


async def _diff_paths(checkout: Repository, old: str, new: str) -> tuple[list[str], list[str]]:
    """Return the paths that the new commit adds, and the other paths that differ."""
    told = split_nul_paths(
        await read_git_output(checkout, "diff-tree", "-r", "-z", "--name-status", "--no-renames", old, new)
    )
    by_path = dict(zip(told[1::2], told[::2], strict=True))
    added = [path for path, state in by_path.items() if state == "A"]
    return added, [path for path, state in by_path.items() if state != "A"]


def _find_blocking_paths(root: Path, added: list[str], others: list[str]) -> Iterator[str]:
    """Yield the paths that cannot be added, because an untracked or ignored file is in the way.

    `others` lists the other paths that the merge changes; all of them are tracked by git. Git itself would overwrite
    ignored files, but not untracked files; Podium overwrites neither.
    """
    kept = frozenset(others)
    for path in added:
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            here = "/".join(parts[:depth])
            if not os.path.lexists(root / here):
                break
            is_folder = (root / here).is_dir() and not (root / here).is_symlink()
            if depth < len(parts) and is_folder:
                continue
            if here not in kept and not (is_folder and _holds_only_tracked(root, root / here, kept)):
                yield path
            break


def _holds_only_tracked(root: Path, folder: Path, kept: frozenset[str]) -> bool:
    """Return whether every file in a folder is in `kept`, a set of tracked files. If so, the folder can be replaced."""
    return all(
        os.path.relpath(os.path.join(where, file), root) in kept  # noqa: PTH118 - there can be thousands
        for where, _, files in os.walk(folder)
        for file in files
    )


async def _find_filter_paths(checkout: Repository, new: str, paths: list[str]) -> list[str]:
    """Return the paths that a git filter may apply to, such as the paths of files stored with Git LFS.

    Podium does not read the user's filter settings. It therefore returns every path with a filter attribute, and every
    `.gitattributes` file that sets such an attribute.
    """
    if not paths:
        return []
    fed = b"".join(os.fsencode(path) + b"\0" for path in paths)
    told = (await read_git_output(checkout, "check-attr", "-z", "--stdin", "filter", stdin=fed)).split("\0")
    found = [path for path, value in zip(told[::3], told[2::3], strict=False) if value not in ("unspecified", "unset")]
    for path in paths:
        if path.rsplit("/", 1)[-1] == ".gitattributes":
            rules = await call_git(checkout, "cat-file", "blob", f"{new}:{path}")
            if rules.code == 0 and b"filter=" in rules.out:
                found.append(path)
    return found


def format_paths(paths: list[str]) -> str:
    """Return the first few paths and the number of other paths, for a message."""
    return join_some([escape_unprintable(decode_path(os.fsencode(path))) for path in paths], NAMES_SHOWN)
