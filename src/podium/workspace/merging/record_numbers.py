"""Give the decision records on a branch numbers that are free on the target, and link records to each other.

Branches that are developed in parallel can use the same number for different records, so the records on a branch get
their final numbers when the branch is merged.
"""

from __future__ import annotations

from ...views.adr_files import ADR_FOLDER, link_adr_files, renumber_adr_files
from ..git.folder_files import list_folder_blobs, read_blobs
from ..git.repository import GitLocation, call_git
from ..git.snapshot import write_changed_tree, write_commit
from .trial_merge import MergeSide


async def renumber_records(place: GitLocation, ours: str, theirs: MergeSide) -> str:
    """Return the commit to merge: `theirs`, or a commit on top of it that renumbers records.

    Records on the branch are renumbered if `ours` already uses their numbers.
    """
    arriving = await list_folder_blobs(place, theirs.commit, ADR_FOLDER)
    there = await list_folder_blobs(place, ours, ADR_FOLDER) if arriving else {}
    if not there or arriving.items() <= there.items():
        return theirs.commit
    found = await call_git(place, "merge-base", ours, theirs.commit)
    bases = found.out.decode().split() if found.code == 0 else []
    before = await list_folder_blobs(place, bases[0], ADR_FOLDER) if bases else {}
    texts = await read_blobs(place, (*arriving.values(), *there.values(), *before.values()))
    sides = ({path: texts[blob] for path, blob in side.items()} for side in (arriving, there, before))
    changes = renumber_adr_files(*sides)
    if not changes:
        return theirs.commit
    tree = await write_changed_tree(place, theirs.commit, changes)
    return await write_commit(place, tree, [theirs.commit], f"Renumber the decision records of {theirs.name}")


async def link_records(place: GitLocation, ours: str, tree: str) -> str:
    """Return the tree of a merge onto `ours`, with links between new records and the records that they replace."""
    merged = await list_folder_blobs(place, tree, ADR_FOLDER)
    if not merged or merged == await list_folder_blobs(place, ours, ADR_FOLDER):
        return tree
    texts = await read_blobs(place, merged.values())
    changes = link_adr_files({path: texts[blob] for path, blob in merged.items()})
    return await write_changed_tree(place, tree, changes) if changes else tree
