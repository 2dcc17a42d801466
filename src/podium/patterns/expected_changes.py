"""Fail an operation that changed no files even though its agent or team sets `expects: changes`.

In a repository, the checkout is compared with its state at the start, so that changes made by commands also count.
Without a repository, only the changes that tools have recorded are known.
"""

from __future__ import annotations

from ..core.operation import Operation
from ..values.agent import Agent
from ..values.errors import PodiumError
from ..values.event import ChangesExpected, WorkerReturned
from ..values.request import Answer

MEMORY_FOLDER = ".podium/memory"
"""The folder for the agents' own notes. Changes in it do not count as work."""
NOTHING_CHANGED = "it changed no files, but it must change files (expects: changes)"


def expects_changes(agent: Agent) -> bool:
    """Return whether an agent, or the team that it leads, must change files."""
    return agent.expects == "changes" or (agent.team is not None and agent.team.options.get("expects") == "changes")


async def record_start(op: Operation) -> None:
    """Record the current state of the operation's checkout as the starting state, unless one is already recorded."""
    place = op.scope.child("expects")
    if place.find_outcome(ChangesExpected) is None:
        place.record_outcome(ChangesExpected(commit=await _commit_checkout(op)))


async def must_have_changed(op: Operation, answer: Answer) -> None:
    """Raise AgentFailed, with the answer as its partial answer, if the operation has changed nothing."""
    if not await _has_changed(op):
        raise op.make_error("failed", NOTHING_CHANGED, so_far=answer.text)


async def _has_changed(op: Operation) -> bool:
    """Return whether the operation changed files, in its checkout or through workers on their own branches."""
    timeline, path = op.scope.timeline, op.scope.path
    start = op.scope.child("expects").find_outcome(ChangesExpected)
    now = await _commit_checkout(op)
    if start is None or not start.commit or not now or op.repository is None:
        return bool(timeline.files_changed_below(path))
    if any(returned.files for returned in timeline.find_events_below(path, WorkerReturned)):
        return True
    # A tool that changes files may have changed nothing, so the checkout is compared with its state at the start.
    return bool(await op.repository.read_diff(start.commit, now, without=MEMORY_FOLDER))


async def _commit_checkout(op: Operation) -> str:
    """Commit the checkout's current state. Return the commit, or "" if there is no repository or the commit fails."""
    if op.repository is None:
        return ""
    try:
        return await op.repository.commit_checkout()
    except PodiumError:
        return ""
