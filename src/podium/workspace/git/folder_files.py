"""Read the files in one folder from a commit or a tree, without a checkout."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ...values.errors import OutsideFailed
from .repository import GitLocation, call_git

FILE_MODES = (b"100644", b"100755")


async def list_folder_blobs(place: GitLocation, tree: str, folder: str) -> dict[str, str]:
    """Return the blob ids of the files directly in a folder, keyed by path. Links and subfolders are left out.

    Raise OutsideFailed if git fails.
    """
    listed = await call_git(place, "ls-tree", "-z", "--full-tree", "--end-of-options", tree, f"{folder}/")
    if listed.code != 0:
        raise OutsideFailed(f"git ls-tree failed: {listed.err}")
    found: dict[str, str] = {}
    for line in listed.out.split(b"\0"):
        facts, _, name = line.partition(b"\t")
        if facts.startswith(FILE_MODES):
            found[os.fsdecode(name)] = facts.split()[2].decode()
    return found


async def read_folder_files(place: GitLocation, tree: str, folder: str) -> dict[str, str]:
    """Return the contents of the files directly in a folder, keyed by path.

    The content of a file that is not valid UTF-8 is an empty string.
    """
    blobs = await list_folder_blobs(place, tree, folder)
    texts = await read_blobs(place, blobs.values())
    return {path: texts[blob] for path, blob in blobs.items()}


async def read_blobs(place: GitLocation, blobs: Iterable[str]) -> dict[str, str]:
    """Return the contents of these blobs, keyed by id.

    The content of a blob that is not valid UTF-8 is an empty string. Raise OutsideFailed if git fails or a blob is
    missing.
    """
    wanted = list(dict.fromkeys(blobs))
    if not wanted:
        return {}
    done = await call_git(place, "cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in wanted).encode())
    if done.code != 0:
        raise OutsideFailed(f"git cat-file failed: {done.err}")
    texts: dict[str, str] = {}
    at = 0
    for blob in wanted:
        start = done.out.index(b"\n", at) + 1
        facts = done.out[at : start - 1].split()
        if facts[-1] == b"missing":
            raise OutsideFailed(f"git has no object {blob}; run git fsck to see what is missing from the repository")
        at = start + int(facts[2])
        texts[blob] = _decode_text(done.out[start:at])
        at += 1  # the line break after each object
    return texts


def _decode_text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return ""
