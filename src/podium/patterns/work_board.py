"""Record the progress, artifacts and snapshots of a collaborating team."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TypeVar

from ..core.artifact import store_artifact
from ..core.operation import Operation
from ..core.plan_state import WorkProgress
from ..core.scope import Scope
from ..values.errors import PodiumError
from ..values.event import ArtifactKind, Event, SnapshotTaken

E = TypeVar("E", bound=Event)


def make_result_branch(run: str) -> str:
    """Return the name of the branch for the merged result of a run's work."""
    return f"podium/{run}/result"


class WorkBoard:
    """Records the events of one team's work, and derives its progress from them."""

    def __init__(self, op: Operation) -> None:
        self._op = op
        self.progress = WorkProgress()

    def record(self, place: Scope, event: E) -> E:
        """Record an event in a scope, apply it and return it.

        If the event was already recorded before the run was resumed, apply and return the recorded event instead.
        """
        return self.apply(place.record(event))

    def apply(self, event: E) -> E:
        """Apply a recorded event. Raise InvalidTransition if the current state does not allow it."""
        self.progress = self.progress.apply(event)
        return event

    async def commit_checkout(self) -> str:
        """Commit the current state of the run's own checkout. Return the commit, or an empty string on failure."""
        with suppress(PodiumError):
            if self._op.repository is not None:
                return await self._op.repository.commit_checkout()
        return ""

    async def read_diff(self, base: str, commit: str) -> str:
        """Return the diff between two commits, or an empty string if they are equal or cannot be compared."""
        with suppress(PodiumError):
            if self._op.repository is not None and base and commit and base != commit:
                return await self._op.repository.read_diff(base, commit)
        return ""

    @asynccontextmanager
    async def open_commit(self, commit: str) -> AsyncIterator[str]:
        """Check out a commit for the duration of the block, and yield the folder of the checkout.

        Raise AgentFailed if the commit cannot be checked out.
        """
        assert self._op.repository is not None
        async with AsyncExitStack() as stack:
            try:
                folder = await stack.enter_async_context(self._op.repository.open_commit(commit))
            except PodiumError as error:
                raise self._op.make_error("failed", f"the work cannot be checked out for review: {error}") from error
            yield folder

    def store_artifact(
        self, place: Scope, kind: ArtifactKind, name: str, text: str, *, author: str = "", step: str = ""
    ) -> None:
        """Store `text` as an artifact and record the artifact. Blank text is not stored."""
        store_artifact(place, kind, name, text, author=author, step=step)

    async def take_snapshot(self, place: Scope, name: str, *, step: str = "") -> None:
        """Take a snapshot of the run's checkout and of the steps' branches. A resumed run does not take it again."""
        if self._op.repository is None:
            return
        branches = {one.branch: one.commit for one in self.progress.steps.values() if one.branch and one.commit}

        async def keep_commits() -> SnapshotTaken:
            own = await self.commit_checkout()
            commits = ({"": own} if own else {}) | branches
            await self._keep_commits(name, commits)
            return SnapshotTaken(name=name, commits=commits, step=step)

        await place.child("snapshot").step(keep_commits, SnapshotTaken)

    async def keep_commit(self, name: str, commit: str) -> None:
        """Protect a commit from git's garbage collection, even before a snapshot includes it."""
        await self._keep_commits(name, {"": commit} if commit else {})

    async def _keep_commits(self, name: str, commits: Mapping[str, str]) -> None:
        with suppress(PodiumError):
            if self._op.repository is not None and commits:
                await self._op.repository.keep_snapshot(name, commits)
