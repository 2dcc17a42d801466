"""Choose a part of a branch's changes for a merge: changes in the diff that the user saw, or files by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...values.errors import Mistake
from ...values.plain_text import escape_unprintable
from ...views.worker_state import WorkerState
from ...workspace.git.repository import GitLocation, call_git
from ...workspace.git.revision import branch_tip
from ...workspace.merging.fast_forward import format_paths
from ...workspace.merging.partial_commit import BranchFile, ChosenFile, commit_part, list_changed_files
from ..queries.worker_diff import read_worker_diff, require_own_branch
from ..queries.worker_lookup import RepoContext
from .merge_candidates import BranchPart, MergeCandidate, find_merge_candidates, require_single_repository


async def choose_shown_changes(
    context: RepoContext, worker: WorkerState, target: str, chosen: Sequence[ChosenFile], *, shown: str
) -> MergeCandidate:
    """Return a merge candidate that contains only the chosen changes of a worker's branch.

    `shown` is the digest of the diff from which the changes were chosen. Raise Mistake if the branch's diff has a
    different digest now, or if the worker has no branch of its own.
    """
    require_own_branch(worker)
    diff = await read_worker_diff(context, worker, in_checkout=False)
    if diff.digest != shown:
        if not worker.is_over:
            raise Mistake(
                f"{worker.name} has not ended ({worker.state}), and its branch does not match the diff that was shown; "
                "wait until it has ended, then choose the changes again"
            )
        raise Mistake(f"{worker.name} has changed since its diff was shown; look at its changes again and choose again")
    branch = worker.worker_task.branch
    part = await commit_part(context.repository, diff.base, diff.commit, chosen, branch=branch)
    return _set_part(await _find_candidate(context, branch, target), diff.commit, part)


async def choose_files(context: RepoContext, branch: str, target: str, names: Sequence[str]) -> MergeCandidate:
    """Return a merge candidate that contains only a branch's changes in these files and folders.

    Raise Mistake if the branch has no changes in one of them.
    """
    candidate = await _find_candidate(context, branch, target)
    tip = await branch_tip(context.repository, candidate.branch)
    base = await _find_merge_base(context.repository, candidate, tip)
    changed = await list_changed_files(context.repository, base, tip)
    chosen = dict.fromkeys(path for name in names for path in _match_name(changed, name, candidate.branch))
    part = await commit_part(
        context.repository, base, tip, [ChosenFile(path=path) for path in chosen], branch=candidate.branch
    )
    return _set_part(candidate, tip, part)


async def _find_candidate(context: RepoContext, branch: str, target: str) -> MergeCandidate:
    [candidate] = await find_merge_candidates(context, [branch], target, notice=str)
    require_single_repository([candidate], "merging only a part of a branch")
    return candidate


def _set_part(candidate: MergeCandidate, source: str, part: str) -> MergeCandidate:
    # If everything was chosen, the branch itself is merged, so that it counts as merged.
    return candidate if part == source else replace(candidate, part=BranchPart(source=source, commit=part))


async def _find_merge_base(place: GitLocation, candidate: MergeCandidate, tip: str) -> str:
    found = await call_git(place, "merge-base", candidate.base, tip)
    if found.code != 0:
        raise Mistake(
            f"{escape_unprintable(candidate.branch)} has no commit in common with its base, so no part of it can "
            "be merged; merge it as a whole"
        )
    return found.out.decode().split()[0]


def _match_name(changed: dict[str, BranchFile], name: str, branch: str) -> list[str]:
    """Return the changed files that have or had this name, or are in this folder. Raise Mistake if there are none."""
    folder = f"{name.rstrip('/')}/"
    old = {path: file.was.decode(errors="replace") for path, file in changed.items() if file.was is not None}
    found = [path for path in changed if name in (path, old.get(path)) or path.startswith(folder)]
    if not found:
        raise Mistake(
            f"{escape_unprintable(branch)} has no changes in {escape_unprintable(name)!r}; "
            f"changed: {format_paths(list(changed))}"
        )
    return found
