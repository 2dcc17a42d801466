"""Define which commands and options work with `--server`, and which token scope each command needs.

A command or an option that is not in the table does not work with `--server`. Options that loosen the permissions of a
run, or that need the terminal or the files of the server's machine, are left out on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ..values.errors import Mistake

Scope = Literal["read", "act", "approve"]


class RemoteAccess(NamedTuple):
    """The scope that a command needs, and its options that work with `--server`.

    `approve_options` are those of them that need the scope `approve`.
    """

    scope: Scope
    options: tuple[str, ...] = ()
    approve_options: tuple[str, ...] = ()


OUTPUT_OPTIONS = ("--json", "--jsonl", "--plain", "--quiet", "--strict")
_START = (*OUTPUT_OPTIONS, "--no-input", "--park", "--budget")
_MERGE = ("--all", "--onto", "--check", "--only", "--resolve", "--resolver", "--yes", "--tree", "--repo", "--json")

REMOTE_COMMANDS: dict[str, RemoteAccess] = {
    # Look
    "status": RemoteAccess("read", ("--json",)),
    "ps": RemoteAccess("read", ("--all", "--flat", "--json")),
    "show": RemoteAccess("read", ("--json",)),
    "follow": RemoteAccess("read", OUTPUT_OPTIONS),
    "results": RemoteAccess("read", ("--workers", "--repo", "--json", "--markdown")),
    "cost": RemoteAccess("read", ("--json",)),
    "decisions": RemoteAccess("read", ("--in-force", "--repo", "--json")),
    "decisions show": RemoteAccess("read", ("--json",)),
    "logs": RemoteAccess(
        "read", ("--follow", "--jsonl", "--after", "--agent", "--step", "--kind", "--since", "--last")
    ),
    "plan": RemoteAccess("read", ("--full", "--json")),
    "artifacts": RemoteAccess("read", ("--json",)),
    "verify": RemoteAccess("read", ("--json",)),
    "audit": RemoteAccess("read", ("--json",)),
    "approvals": RemoteAccess("read", ("--json",)),
    "workers": RemoteAccess("read", ("--all", "--repo", "--json")),
    "workers status": RemoteAccess("read", ("--json",)),
    "workers wait": RemoteAccess("read", ("--timeout", "--json")),
    "workers logs": RemoteAccess("read", ("--follow", "--jsonl")),
    "workers output": RemoteAccess("read"),
    "workers diff": RemoteAccess("read", ("--stat",)),
    "worktrees": RemoteAccess("read", ("--repo", "--json")),
    "group": RemoteAccess("read"),
    "group list": RemoteAccess("read", ("--all", "--json")),
    "agents": RemoteAccess("read", ("--repo", "--json")),
    "agents show": RemoteAccess("read", ("--tokens", "--repo", "--json")),
    "teams": RemoteAccess("read", ("--repo", "--json")),
    "team": RemoteAccess("read"),
    "team show": RemoteAccess("read", ("--repo", "--json")),
    "graph": RemoteAccess("read", ("--repo", "--mermaid", "--svg", "--json")),
    # Work and steer
    "run": RemoteAccess(
        "act",
        (
            *(*_START, "--repo", "--model", "--provider", "--force-model", "--dry-run", "--mode", "--constraint"),
            *("--reflect", "--max", "--detach"),
        ),
    ),
    "resume": RemoteAccess("act", (*OUTPUT_OPTIONS, "--no-input", "--park", "--all")),
    "fork": RemoteAccess("act", (*_START, "--at", "--request", "--decide"), ("--decide",)),
    "retry": RemoteAccess("act", (*_START, "--from")),
    "delegate": RemoteAccess(
        "act",
        (
            *("--agent", "--model", "--provider", "--engine", "--role", "--after", "--base", "--timeout"),
            *("--max-turns", "--budget", "--max-restarts", "--read-only", "--no-input", "--repo", "--json"),
            *("--times", "--choose", "--label", "--priority"),
        ),
    ),
    "workers cancel": RemoteAccess("act"),
    "workers resume": RemoteAccess("act", ("--json",)),
    "send": RemoteAccess("act"),
    "pause": RemoteAccess("act"),
    "budget": RemoteAccess("act", ("--json",)),
    "stop": RemoteAccess("act"),
    "snapshot": RemoteAccess("act", ("--name",)),
    # Approve
    "approve": RemoteAccess("approve", ("--run", "--always", "--everywhere")),
    "deny": RemoteAccess("approve", ("--why", "--pause", "--stop")),
    "answer": RemoteAccess("approve"),
    "merge": RemoteAccess("approve", _MERGE),
    "workers merge": RemoteAccess("approve", _MERGE),
}


def find_access(command: str) -> RemoteAccess:
    """Return the scope and options of a command such as `workers cancel`.

    Raise Mistake if the command does not work with --server.
    """
    if command not in REMOTE_COMMANDS:
        raise Mistake(f"podium {command} does not work with --server; run it on the server's machine")
    return REMOTE_COMMANDS[command]


def is_changing(arguments: Sequence[str]) -> bool:
    """Return whether a command changes anything and therefore must not run twice."""
    access = REMOTE_COMMANDS.get(" ".join(arguments[:2])) or REMOTE_COMMANDS.get("".join(arguments[:1]))
    return access is not None and access.scope != "read"
