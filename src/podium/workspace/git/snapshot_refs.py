"""Create refs to the commits of a run's snapshots, so that git does not delete the commits.

For the snapshot NAME of the run RUN, the refs are `refs/podium/snapshots/RUN/NAME/0`, `/1` and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from .repository import GitLocation, read_git_output

SNAPSHOT_REFS = "refs/podium/snapshots"


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
