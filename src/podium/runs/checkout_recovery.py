"""Recover the files that a run works on when another process takes over the run.

A process that was killed can leave temporary files behind. If the machine has restarted since, perhaps after a power
failure, files that were written shortly before can be missing or cut off. Podium writes the ones again that git has.
Files that commands wrote are in no repository before the next commit, so the agents are told about these commands.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from anyio import to_thread

from ..core.journal_rows import JournalRow
from ..system.identity import read_machine_boot
from ..system.owned_files import remove_stale_in
from ..values.errors import PodiumError
from ..values.event import (
    KINDS,
    ActionBegan,
    Entry,
    MessageReceived,
    OperationEnded,
    OperationStarted,
    RunResumed,
    RunStarted,
    ToolAnswered,
    WorkCommitted,
    decode_entry,
)
from ..values.operation_path import parse_agent_name
from ..values.plain_text import escape_unprintable, truncate_text
from ..workspace.git.lost_files import restore_lost_files
from ..workspace.git.repository import Repository

FILE_TOOLS = ("write_file", "edit_file", "update_memory")
"""Tools that flush the files that they write."""
_READ_KINDS = frozenset(
    KINDS[one]
    for one in (ActionBegan, OperationEnded, OperationStarted, RunResumed, RunStarted, ToolAnswered, WorkCommitted)
)
SHOWN = 20
LONGEST_SHOWN = 200


async def recover_files(rows: Iterable[JournalRow], started: RunStarted, epoch: int) -> list[MessageReceived]:
    """Recover the files of a run, and return the messages that tell its agents what may be missing.

    `epoch` is the epoch of the run's new owner.
    """
    entries = [decode_entry(row.line) for row in rows if row.kind in _READ_KINDS]
    await to_thread.run_sync(_remove_left_files, entries, started)
    if not _has_restarted(entries):
        return []
    text = describe_restart(entries, await _restore_files(started))
    agents = _list_working_agents(entries, started.agent) if text else []
    return [MessageReceived(id=f"restart-{epoch}-{agent}", to=agent, text=text, by="Podium") for agent in agents]


def _remove_left_files(entries: Iterable[Entry], started: RunStarted) -> None:
    """Remove temporary files that killed processes left next to the files that the run has changed."""
    changed = {path for entry in entries if isinstance(entry.event, ActionBegan) for path in entry.event.action.outputs}
    remove_stale_in({(Path(one.path) / path).parent for one in started.checkouts for path in changed})


def _has_restarted(entries: Iterable[Entry]) -> bool:
    """Return whether this machine has restarted since a process last worked on a run. It may be unknown."""
    host, boot = _find_last_boot(entries)
    return host == socket.gethostname() and bool(boot and read_machine_boot()) and boot != read_machine_boot()


async def _restore_files(started: RunStarted) -> list[str]:
    """Write the files in a worker's checkouts again that a restart of the machine has lost, and return their paths."""
    task = started.errand
    lost: list[str] = []
    for checkout in task.checkouts if task is not None and task.has_checkout else ():
        with suppress(PodiumError, OSError):  # what is wrong with the checkout is said when it is used
            lost += await restore_lost_files(Repository.at(Path(checkout.path)))
    return lost


def describe_restart(entries: Sequence[Entry], lost: Sequence[str]) -> str:
    """Return what the agents of a run are told after a restart of the machine, or an empty string if it is nothing.

    `lost` lists the files that were written again.
    """
    commands = _list_commands_at_risk(entries)
    parts: list[str] = []
    if commands:
        more = len(commands) - SHOWN
        lines = [*([f"- (and {more} earlier ones)"] if more > 0 else []), *commands[-SHOWN:]]
        parts.append(
            "Files that commands wrote may be missing or cut off. These commands ended since the last commit; check "
            "their results before you rely on them:\n" + "\n".join(lines)
        )
    if lost:
        names = ", ".join(escape_unprintable(path) for path in lost[:SHOWN])
        names += f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
        parts.append(f"These files had lost their content and were written again as last committed: {names}")
    begin = "This machine was restarted while you were working, perhaps by a power failure."
    return "\n".join((begin, *parts)) if parts else ""


def _list_working_agents(entries: Sequence[Entry], first: str) -> list[str]:
    """Return the agents whose operations have not ended, or the run's first agent if there is none."""
    opened: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry.event, OperationStarted):
            opened[entry.operation] = entry.event.agent
        elif isinstance(entry.event, OperationEnded):
            for path in [path for path in opened if path == entry.operation or path.startswith(f"{entry.operation}/")]:
                del opened[path]
    return list(dict.fromkeys(opened.values())) or [first]


def _find_last_boot(entries: Iterable[Entry]) -> tuple[str, str]:
    """Return the machine on which a process last worked on a run, and the id of its boot."""
    host = boot = ""
    for entry in entries:
        # A run that is only marked as resumed has no boot: no process works on it yet.
        if isinstance(entry.event, RunStarted | RunResumed) and entry.event.boot:
            host, boot = entry.event.host, entry.event.boot
    return host, boot


def _list_commands_at_risk(entries: Sequence[Entry]) -> list[str]:
    """Return the commands that ended during the last known boot of the machine and since the last commit."""
    last = _find_last_boot(entries)
    is_last = False
    running: dict[str, str] = {}
    found: list[str] = []
    copied = entries[0].started.shared  # these entries are about the checkout of another run
    for entry in entries:
        if 1 < entry.seq <= 1 + copied:
            continue
        match entry.event:
            case RunStarted(host=host, boot=boot) | RunResumed(host=host, boot=boot) if boot:
                is_last = (host, boot) == last
            case WorkCommitted():
                found.clear()
            case ActionBegan(action=action) if action.tool not in FILE_TOOLS:
                text = str(action.arguments.get("command") or action.tool)
                shown = truncate_text(escape_unprintable(" ".join(text.split())), LONGEST_SHOWN)
                running[entry.scope] = f"- {parse_agent_name(entry.operation)}: {shown}"
            case ToolAnswered() if entry.scope in running:
                command = running.pop(entry.scope)
                found += [command] if is_last else []
    return found
