"""Fail work that was to change files and changed none, if its agent or team has `expects: changes`.

Without a repository, only the files that tools changed are known; in a repository, the checkout is compared with its
state at the start, so that the changes of commands count too.
"""

from __future__ import annotations

from ..core.operation import Operation
from ..values.agent import Agent
from ..values.errors import PodiumError
from ..values.event import ChangesExpected, WorkerReturned
from ..values.request import Answer

NOTHING_CHANGED = "nothing changed: it was to change files (expects: changes), and no file was changed"


def expects_changes(agent: Agent) -> bool:
    """Return whether an agent, or the team that it leads, must change files."""
    return agent.expects == "changes" or (agent.team is not None and agent.team.options.get("expects") == "changes")


async def record_start(op: Operation) -> None:
    """Record the state of the checkout in which the operation starts."""
    place = op.scope.child("expects")
    if place.find_outcome(ChangesExpected) is None:
        place.record_outcome(ChangesExpected(commit=await _commit_checkout(op)))


async def must_have_changed(op: Operation, answer: Answer) -> None:
    """Raise AgentFailed, with the answer as its partial answer, if the operation has changed nothing."""
    if not await _has_changed(op):
        raise op.make_error("failed", NOTHING_CHANGED, so_far=answer.text)


async def _has_changed(op: Operation) -> bool:
    """Return whether the operation changed files, in its own checkout or through workers on branches of their own."""
    timeline, path = op.scope.timeline, op.scope.path
    start = op.scope.child("expects").find_outcome(ChangesExpected)
    now = await _commit_checkout(op)
    if start is None or not start.commit or not now or op.repository is None:
        return bool(timeline.files_changed_below(path))
    if any(returned.files for returned in timeline.find_events_below(path, WorkerReturned)):
        return True
    # A tool call that was to change a file may have changed nothing, so the checkout decides.
    return bool(await op.repository.read_diff(start.commit, now))


async def _commit_checkout(op: Operation) -> str:
    """Return a commit of the checkout's current state; empty if it is not in a repository."""
    if op.repository is None:
        return ""
    try:
        return await op.repository.commit_checkout()
    except PodiumError:
        return ""
