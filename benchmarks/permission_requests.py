"""The requests of the permission row, each different from the others, and the rules that allow them."""

from __future__ import annotations

from podium.values.action import Action
from podium.values.event import PermissionAsked

WORKER = "w1"
RULES = """\
permissions:
  allow: ["Bash(git status *)", "Bash(ls *)", "Bash(grep *)", "Bash(pytest *)", "Edit(/src/**)", "Read"]
  ask: ["Bash(git push *)"]
  deny: ["Bash(rm *)", "Read(./.env)", "WebFetch"]
"""
"""The person's settings."""


def make_request(what: str, number: int) -> PermissionAsked:
    """Return the request with this number, for a `command` or an `edit`."""
    return PermissionAsked(
        id=f"request-{number}",
        action=_make_edit(number) if what == "edit" else _make_command(number),
        reason="no rule allows it",
        shown="- the sea\n+ the sea, again\n" * 20,
    )


def _make_command(number: int) -> Action:
    command = f"git status && ls -la src/{number} | grep {number}"
    return Action(run=WORKER, agent="worker", tool="bash", arguments={"command": command})


def _make_edit(number: int) -> Action:
    return Action(run=WORKER, agent="worker", tool="edit_file", arguments={"path": f"src/{number}.py", "edits": []})


def make_quantile_sample(taken: list[float], share: float, failed: int) -> dict[str, float]:
    """Return a sample with the time within which this share of them finished."""
    return {"wall": sorted(taken)[int(len(taken) * share)], "failed": failed}
