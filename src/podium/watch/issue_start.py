"""Start the runs for an issue: the one that chooses an agent, and the one that works on the issue.

The ids of both runs are derived from the claim. A run that exists is not started again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..files.discovery import Roster
from ..files.settings import Settings
from ..runs.runs import Runs
from ..store.issue_rows import IssueClaim
from ..values.actor import Actor
from ..values.agent import Agent
from ..values.errors import Mistake
from ..workers.background_run import BackgroundRun, enqueue_background_run
from ..workers.delegation import NewWorker, delegate
from ..workspace.git.repository import Repository
from .issue_triage import build_triage_request, build_work_request, can_change_files, make_triage_team

LONGEST_SLUG = 40


class IssueStart:
    """Starts the runs for a source's issues, in the folder `place` and with the agents in `roster`.

    `is_delegated` says whether the work is done in worktrees; if it is None, worktrees are used if the agent can change
    files and `place` is in a git repository.
    """

    def __init__(
        self,
        runs: Runs,
        settings: Settings,
        roster: Roster,
        candidates: Sequence[Agent],
        *,
        place: Path,
        source: str,
        by: Actor,
        is_delegated: bool | None,
    ) -> None:
        self.candidates = candidates
        self._runs = runs
        self._settings = settings
        self._roster = roster
        self._place = place
        self._source = source
        self._by = by
        self._is_delegated = is_delegated

    async def start_triage(self, claim: IssueClaim) -> None:
        """Start the run that chooses the agent for an issue."""
        triage, *others = make_triage_team(self.candidates)
        request = build_triage_request(claim, self._source)
        new = BackgroundRun(agent=triage, request=request, place=self._place, options={"agents": others})
        await enqueue_background_run(self._runs, self._settings, new, by=self._by, run=claim.triage_run)

    def choose_branch(self, claim: IssueClaim) -> str:
        """Return the branch for the work on an issue, or an empty string if the work is not done in a worktree.

        Raise BadAgent if the issue's agent cannot be used.
        """
        team = self._roster.resolve_team(claim.agent)
        is_delegated = self._is_delegated
        if is_delegated is None:
            is_delegated = can_change_files(team) and is_git_repository(self._place)
        return make_branch_name(claim) if is_delegated else ""

    async def start_work(self, claim: IssueClaim, branch: str) -> None:
        """Start the run that works on an issue, on `branch` if there is one. Raise Mistake if it cannot start."""
        request = build_work_request(claim, self._source)
        if not branch:
            new = BackgroundRun(agent=claim.agent, request=request, place=self._place)
            await enqueue_background_run(self._runs, self._settings, new, by=self._by, run=claim.run)
            return
        team = self._roster.resolve_team(claim.agent)
        worker = NewWorker(at=self._place, branch=branch, task=request, agent=team)
        await delegate(self._runs, self._settings, worker, by=self._by, run=claim.run)


def make_branch_name(claim: IssueClaim) -> str:
    """Return the name of the branch for an issue.

    The name contains the issue's number and words from its title, or its file name, and part of the claim's token. Text
    from the issue is untrusted, so it is reduced to lowercase letters, digits and hyphens.
    """
    words = f"{claim.issue.removesuffix('.md')} {claim.title if claim.issue.isdecimal() else ''}".lower()
    slug = re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:LONGEST_SLUG].strip("-")
    return f"issue/{slug or 'untitled'}-{claim.token[:4]}"


def is_git_repository(place: Path) -> bool:
    """Return whether a folder is in a git repository."""
    try:
        Repository.at(place)
    except Mistake:
        return False
    return True
