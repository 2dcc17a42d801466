"""Choose the best result when several members have done the same task, and merge the chosen work.

Each member works in its own checkout. Work that does not pass the checks is eliminated. From the rest, a judge or a
person chooses one, or the first is taken. The branches of the other members stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.operation import Operation
from ..core.person_message import ask_question
from ..core.run_repository import WorkBranch
from ..values.agent import Agent
from ..values.errors import Mistake, OutsideFailed
from ..values.event import CandidateChosen, CandidateResult, QuestionAsked, WorkerReturned, WorkRestored
from ..values.plain_text import cut_middle, format_count, join_words
from ..values.request import Answer, Part, Request
from ..values.team_modes import BroadcastOptions
from .json_output import SCORE_FORMAT
from .member_tasks import as_writer, format_answers
from .team_prompts import render_prompt
from .verdict import Score, neutralise, parse_score
from .worker_run import find_worker_result

LARGEST_DIFF = 40 * 1024
"""The maximum size, in bytes, of a candidate's diff in a judge's prompt."""


class Attempt(NamedTuple):
    """A member that succeeded, with the branch and commit of its work if it had its own checkout."""

    name: str
    part: Part
    branch: str = ""
    returned: WorkerReturned | None = None

    @property
    def commit(self) -> str:
        return "" if self.returned is None else self.returned.commit


async def choose_best(
    op: Operation, own: BroadcastOptions, request: Request, members: Sequence[Operation], parts: Sequence[Part]
) -> Answer:
    """Return the answer of the best member, after merging its work. At least one member must have succeeded.

    Raise AgentFailed if no work passes the checks, or if the chosen work cannot be merged.
    """
    candidates = [
        _make_candidate(member, part) for member, part in zip(members, parts, strict=True) if part.failure is None
    ]
    place = op.scope.child("choice")
    chosen = place.find_outcome(CandidateChosen)
    if chosen is None:
        chosen = place.record_outcome(await _choose_candidate(op, own, request, candidates, parts))
    winner = next(one for one in candidates if one.name == chosen.winner)
    note = await _deliver(op, winner)
    reason = f": {chosen.reason}" if chosen.reason else ""
    count = format_count(len(parts), "candidate")
    text = f"{winner.part.text}\n\n[{winner.name} was chosen from {count} by {chosen.by}{reason}{note}]"
    return Answer(text=text, parts=tuple(parts))


def _make_candidate(member: Operation, part: Part) -> Attempt:
    found = find_worker_result(member)
    if found is None:
        return Attempt(member.agent.name, part)
    sent, returned = found
    return Attempt(member.agent.name, part, sent.branch, returned)


async def _choose_candidate(
    op: Operation, own: BroadcastOptions, request: Request, candidates: list[Attempt], parts: Sequence[Part]
) -> CandidateChosen:
    passing, results = await _check_candidates(op, own, candidates)
    if not passing:
        raise op.make_error("failed", "no member's work passes the checks", so_far=format_answers(parts))
    if own.choose == "person" and len(passing) > 1:
        question = _make_question(op, passing)
        answered = await ask_question(op.scope.child("choose"), question, unattended=op.unattended)
        if answered is not None and answered.text in {one.name for one in passing}:
            return CandidateChosen(winner=answered.text, by=answered.by or "a person", candidates=tuple(results))
    if own.choose == "checks" or len(passing) == 1:
        why = f"the first of {len(passing)} candidates that passed" if len(passing) > 1 else "the only candidate left"
        return CandidateChosen(winner=passing[0].name, by="the checks", reason=why, candidates=tuple(results))
    return await _judge_candidates(op, own, request, passing, results)


async def _check_candidates(
    op: Operation, own: BroadcastOptions, candidates: Sequence[Attempt]
) -> tuple[list[Attempt], list[CandidateResult]]:
    """Run the checks on each candidate's work. Return the candidates that pass, and the results of all candidates.

    A candidate that changed no files does not pass if another candidate changed files.
    """
    passing: list[Attempt] = []
    results: list[CandidateResult] = []
    has_changes = any(one.returned is not None and one.returned.files for one in candidates)
    for one in candidates:
        passed = None
        if has_changes and (one.returned is None or not one.returned.files):
            passed = False  # other candidates changed files, but this one did not
        elif own.checks and one.commit:
            checked = await op.run_checks(own.checks, op.scope.child(f"candidate:{one.name}"), commit=one.commit)
            passed = checked.passed
        if passed is not False:
            passing.append(one)
        results.append(CandidateResult(name=one.name, branch=one.branch, commit=one.commit, passed=passed))
    return passing, results


async def _judge_candidates(
    op: Operation,
    own: BroadcastOptions,
    request: Request,
    passing: Sequence[Attempt],
    results: Sequence[CandidateResult],
) -> CandidateChosen:
    """Have the evaluator, or the lead if there is none, score each candidate. Choose the one with the best score."""
    judge = op.agent if own.evaluator is None else op.agents[own.evaluator]
    scores = {one.name: await _score_candidate(op, own, request, judge, one) for one in passing}
    winner = max(passing, key=lambda one: scores[one.name].score)
    scored = tuple(
        CandidateResult(
            name=one.name,
            branch=one.branch,
            commit=one.commit,
            passed=one.passed,
            score=scores[one.name].score if one.name in scores else None,
        )
        for one in results
    )
    best = scores[winner.name]
    return CandidateChosen(
        winner=winner.name, by=judge.name, reason=f"score {best.score:.2g}: {best.rationale}", candidates=scored
    )


async def _score_candidate(
    op: Operation, own: BroadcastOptions, request: Request, judge: Agent, candidate: Attempt
) -> Score:
    diff = ""
    if candidate.returned is not None and op.repository is not None:
        diff = await op.repository.read_diff(candidate.returned.base, candidate.commit)
    work = f"{candidate.part.text}\n\n{cut_middle(diff, LARGEST_DIFF)}" if diff else candidate.part.text
    words = render_prompt(own.prompts, "score", request=request.original, work=neutralise(work))
    child = op.child(as_writer(judge), "member", at=op.scope.child(f"judge:{candidate.name}"))
    child.reply_format = SCORE_FORMAT
    part = await child.run_as_part(Request(text=words, origin=request.original), timeout=own.worker_timeout)
    if part.failure is None and parse_score(part.text).is_clamped:
        # The scale of such a score is unknown, so it cannot be compared with the others.
        again = op.child(as_writer(judge), "member", at=op.scope.child(f"judge_again:{candidate.name}"), after=child)
        again.reply_format, again.is_correction = SCORE_FORMAT, True
        words = render_prompt(own.prompts, "score_again")
        part = await again.run_as_part(Request(text=words, origin=request.original), timeout=own.worker_timeout)
    # Work that could not be judged gets the lowest score.
    if part.failure is not None:
        return Score(0.0, f"not judged: {part.failure.message}")
    score = parse_score(part.text)
    return Score(0.0, f"not judged: its score is not between 0 and 1: {score.rationale}") if score.is_clamped else score


def _make_question(op: Operation, passing: Sequence[Attempt]) -> QuestionAsked:
    shown = "\n\n".join(
        f"## {one.name}{f' on {one.branch} at {one.commit[:12]}' if one.commit else ''}\n\n{one.part.text}"
        for one in passing
    )
    names = join_words([one.name for one in passing], last="or")
    text = f"Whose work should {op.agent.name}'s team keep: {names}?"
    return QuestionAsked(id="", text=text, choices=tuple(one.name for one in passing), shown=shown)


async def _deliver(op: Operation, winner: Attempt) -> str:
    """Merge the chosen work into a branch, and return a note with the name of that branch.

    If this process is a worker, write the files to the worker's checkout instead, and return an empty string.
    """
    repository, placement = op.repository, op.placement
    if not winner.commit or repository is None or placement is None:
        return ""
    place = op.scope.child("deliver")

    async def deliver() -> WorkRestored:
        if placement.is_worker:
            await repository.restore_checkout(winner.commit)
            return WorkRestored(commit=winner.commit)
        name = f"podium/{op.scope.timeline.run}/best"
        await repository.keep_snapshot("best", {winner.branch: winner.commit})
        work = WorkBranch(branch=winner.branch, commit=winner.commit)
        merged = await repository.merge_branches([work], name=name, records=None)
        if not merged.branch:
            raise OutsideFailed(merged.left_out.get(winner.branch, "it has no changes"))
        return WorkRestored(commit=merged.commit, branch=merged.branch)

    try:
        delivered = await place.step(deliver, WorkRestored)
    except (Mistake, OutsideFailed) as error:
        raise op.make_error(
            "failed", f"the work of {winner.name} on {winner.branch} could not be merged: {error}"
        ) from error
    return f"; merged on branch {delivered.branch}" if delivered.branch else ""
