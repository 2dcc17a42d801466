"""Start the runs for an issue, and post the outcome of the work as a comment.

One run chooses an agent, and one works on the issue. The ids of both are derived from the claim. A run that exists is
not started again.

An attempt to post a comment is recorded before it starts and after it succeeds. If a process is killed in between, the
next process looks for the comment's marker before it posts the comment. Text from agents is put in code blocks, so that
the forge neither notifies people named in the text nor closes issues mentioned in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from anyio import to_thread

from ..files.discovery import Roster
from ..files.settings import Settings
from ..runs.runs import Runs
from ..store.issue_rows import IssueClaim, IssueClaims
from ..values.actor import Actor
from ..values.agent import Agent
from ..values.errors import Mistake, OutsideFailed
from ..values.plain_text import cut_middle, escape_for_terminal, fence_output, format_count
from ..views.worker_state import WorkerState
from ..workers.delegation import BackgroundRun, NewWorker, delegate, enqueue_background_run
from ..workspace.git.repository import Repository
from .issue_triage import build_triage_request, build_work_request, can_change_files, make_triage_team
from .sources.issue_source import IssueSource

MOST_TRIES = 5
LONGEST_ANSWER = 8000
OUTCOMES = {"succeeded": "has finished", "failed": "failed", "stopped": "was stopped"}


class CommentPosting:
    """Posts comments on the issues in a source."""

    def __init__(self, claims: IssueClaims, source: IssueSource, now: Callable[[], float]) -> None:
        self._claims = claims
        self._source = source
        self._now = now

    def is_due(self, claim: IssueClaim) -> bool:
        """Return whether a comment on an issue has yet to be posted and can be posted now.

        If the outcome of the last attempt is unknown, the next attempt must wait for the source's `doubt_seconds`.
        """
        if claim.is_active or claim.comment not in ("wanted", "posting"):
            return False
        return claim.comment == "wanted" or self._now() - claim.comment_at >= self._source.doubt_seconds

    async def post(self, claim: IssueClaim, text: str) -> IssueClaim | None:
        """Post a comment unless it exists, and return the claim with the comment's address.

        Return None if another process is posting it. Raise OutsideFailed if it could not be posted; the
        caller can try again later, until the maximum number of attempts is reached.
        """
        is_in_doubt = claim.comment == "posting"
        posting = replace(claim, comment="posting", comment_at=self._now(), comment_tries=claim.comment_tries + 1)
        record: dict[str, str | float] = {
            "comment": "posting",
            "comment_at": posting.comment_at,
            "comment_tries": posting.comment_tries,
        }
        if not await self._update(claim, **record):
            return None
        marker, url = _make_marker(claim), ""
        try:
            if is_in_doubt:
                url = await self._source.find_comment(claim.issue, url=claim.url, marker=marker)
            if not url:
                url = await self._source.post_comment(claim.issue, text, url=claim.url, marker=marker)
        except OutsideFailed:
            if posting.comment_tries >= MOST_TRIES:
                await self._update(posting, comment="failed")
            raise
        await self._update(posting, comment="posted", comment_url=url)
        return replace(posting, comment="posted", comment_url=url)

    async def _update(self, claim: IssueClaim, **changes: str | float) -> bool:
        return await to_thread.run_sync(partial(self._claims.update, claim, **changes))


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
            is_delegated = can_change_files(team) and _is_git_repository(self._place)
        return _make_branch_name(claim) if is_delegated else ""

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


def _make_branch_name(claim: IssueClaim) -> str:
    """Return the name of the branch for an issue.

    The name contains the issue's number and words from its title, or its file name, and part of the claim's token. Text
    from the issue is untrusted, so it is reduced to lowercase letters, digits and hyphens.
    """
    words = f"{claim.issue.removesuffix('.md')} {claim.title if claim.issue.isdecimal() else ''}".lower()
    slug = re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:LONGEST_SLUG].strip("-")
    return f"issue/{slug or 'untitled'}-{claim.token[:4]}"


def _is_git_repository(place: Path) -> bool:
    """Return whether a folder is in a git repository."""
    try:
        Repository.at(place)
    except Mistake:
        return False
    return True


def format_comment(claim: IssueClaim, worker: WorkerState | None) -> str:
    """Return the comment that Podium posts on an issue.

    The comment says either that a person must look at the issue first, or how the work on the issue ended. Details of
    the work are taken from `worker`, if it is given.
    """
    return "\n\n".join([f"<!-- {_make_marker(claim)} -->", *_iter_blocks(claim, worker)]) + "\n"


def _make_marker(claim: IssueClaim) -> str:
    """Return the text that identifies the comment on an issue. Nobody else can know it before the comment is posted."""
    return f"podium-issue-{claim.token}"


def _iter_blocks(claim: IssueClaim, worker: WorkerState | None) -> Iterator[str]:
    if claim.state == "person":
        yield "Podium did not start work on this issue: a person has to look at it first."
        yield _quote(claim.note)
        return
    yield f"Podium's work on this issue {OUTCOMES.get(claim.state, 'has ended')}."
    facts = [f"- agent: `{claim.agent}`", f"- run: `{claim.run}` (`podium show {claim.run}`)"]
    if claim.branch and worker is not None and worker.commits:
        changes = f"{format_count(len(worker.commits), 'commit')}, {format_count(len(worker.files), 'file')}"
        facts.append(f"- branch: `{claim.branch}` ({changes}, +{worker.added} -{worker.removed})")
        facts.append(f"- merge it with `podium merge {claim.branch}`, or add `--pull-request` for a pull request")
    yield "\n".join(facts)
    if worker is not None and (text := worker.answer or worker.why):
        yield _quote(text)


def _quote(text: str) -> str:
    return fence_output(cut_middle(escape_for_terminal(text.strip()), LONGEST_ANSWER))
