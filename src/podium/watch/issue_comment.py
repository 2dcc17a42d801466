"""Write the comment that reports the outcome of the work on an issue, and post it at most once.

An attempt to post a comment is recorded before it starts and after it succeeds. If a process is killed in between, the
next process looks for the comment's marker before it posts the comment. Text from agents is put in code blocks, so that
the forge neither notifies people named in the text nor closes issues mentioned in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from anyio import to_thread

from ..store.issue_rows import IssueClaim, IssueClaims
from ..values.errors import OutsideFailed
from ..values.plain_text import cut_middle, escape_for_terminal, fence_output, format_count
from ..views.worker_state import WorkerState
from .sources.issue_source import IssueSource

MOST_TRIES = 5
LONGEST_ANSWER = 8000

OUTCOMES = {"succeeded": "has finished", "failed": "failed", "stopped": "was stopped"}


def format_comment(claim: IssueClaim, worker: WorkerState | None) -> str:
    """Return the comment that Podium posts on an issue.

    The comment says either that a person must look at the issue first, or how the work on the issue ended. Details of
    the work are taken from `worker`, if it is given.
    """
    return "\n\n".join([f"<!-- {make_marker(claim)} -->", *_iter_blocks(claim, worker)]) + "\n"


def make_marker(claim: IssueClaim) -> str:
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
        record = {"comment": "posting", "comment_at": posting.comment_at, "comment_tries": posting.comment_tries}
        if not await self._update(claim, **record):
            return None
        marker, url = make_marker(claim), ""
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

    async def _update(self, claim: IssueClaim, **changes: object) -> bool:
        return await to_thread.run_sync(partial(self._claims.update, claim, **changes))
