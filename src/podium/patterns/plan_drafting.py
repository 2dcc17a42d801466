"""Make a plan: a planner drafts it, the other members review it, the planner revises it, and it is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ..core.operation import Operation
from ..core.person_question import ask_question
from ..core.scope import Scope
from ..values.agent import Agent
from ..values.errors import AgentFailed
from ..values.event import PlanCommitted, PlanDrafted, PlanRefused, PlanReviewed, QuestionAsked
from ..values.plain_text import format_count, truncate_text
from ..values.plan import WorkPlan
from ..values.request import Part, Request, quote_lines
from ..views.plan_text import format_plan
from .collaboration_team import CollaborationTeam
from .json_output import find_json
from .member_tasks import as_reader, run_members
from .reply_formats import REVIEW_FORMAT, make_work_plan_format
from .team_prompts import render_prompt
from .verdict import neutralise
from .work_plan import InvalidPlan, check_plan, parse_work_plan

MOST_DRAFTS = 3
"""Maximum number of times that a planner can try to draft a valid plan."""
MOST_REVISIONS = 2
MOST_QUESTIONS = 5
"""Maximum number of times that a person can send a plan back."""
APPROVE, CHANGE = "approve", "change"
LONGEST_REASON = 2_000


class PlanDrafting:
    """Drafts and commits one version of the plan. All its events are recorded below the scope `place`."""

    def __init__(self, op: Operation, team: CollaborationTeam, *, place: Scope, version: int) -> None:
        self._op = op
        self._team = team
        self._place = place
        self._version = version
        self._planner: Operation | None = None
        """The planner's last operation. The next one continues its conversation."""

    async def make_plan(self, *, done: str = "", done_steps: Sequence[str] = ()) -> PlanCommitted:
        """Draft, review, revise and commit a plan. Raise AgentFailed if the planner writes no valid plan.

        `done` describes the finished steps of an earlier plan, and why its other steps failed.
        """
        team = self._team
        words = render_prompt(
            team.own.prompts,
            "draft_plan",
            request=team.request.prompt(),
            constraints=team.format_constraints(),
            members=team.describe_members(),
            routing=f"\n## Who does what\n{team.own.routing}\n" if team.own.routing else "",
            done=done,
        )
        plan = await self._draft(words, done_steps)
        objections: tuple[str, ...] = ()
        for revision in range(MOST_REVISIONS + 1):
            objections = await self._review(plan, revision)
            if not objections or revision == MOST_REVISIONS:
                break
            plan = await self._draft(self._render_revision(objections), done_steps)
        if team.own.approve_plan == "person":
            return await self._get_approval(plan, objections, done_steps)
        return self._commit(plan, by=self._op.agent.name, objections=objections)

    def _commit(
        self, plan: WorkPlan, *, by: str, objections: tuple[str, ...] = (), is_approved_by_person: bool = False
    ) -> PlanCommitted:
        return self._place.record(
            PlanCommitted(
                version=self._version,
                plan=plan,
                by=by,
                is_approved_by_person=is_approved_by_person,
                objections=objections,
            )
        )

    def _render_revision(self, objections: Sequence[str]) -> str:
        listed = "".join(quote_lines(neutralise(one)) for one in objections).strip()
        return render_prompt(self._team.own.prompts, "revise_plan", objections=listed)

    # Drafting

    async def _draft(self, words: str, done_steps: Sequence[str]) -> WorkPlan:
        """Return a valid plan from the planner. If a plan is invalid, give the planner the reasons and ask again."""
        team = self._team
        may_allow = team.own.approve_plan == "person"
        for attempt in range(MOST_DRAFTS):
            reply = await self._ask_planner(words, is_correction=attempt > 0)
            try:
                parsed = parse_work_plan(reply, team.goal)
                plan = check_plan(
                    parsed, team.members, done=done_steps, may_allow=may_allow, can_check=self._op.can_check
                )
            except InvalidPlan as error:
                self._place.record(PlanRefused(by=team.planner.name, problems=error.problems))
                if attempt == MOST_DRAFTS - 1:
                    raise self._op.make_error("failed", f"its planner did not write a valid plan: {error}") from None
                problems = "\n".join(f"- {one}" for one in error.problems)
                names = ", ".join(team.members)
                name = "draft_once_more" if attempt else "draft_again"
                words = render_prompt(team.own.prompts, name, problems=problems, names=names)
            else:
                self._place.record(PlanDrafted(version=self._version, plan=plan, by=team.planner.name))
                return plan
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _check(self, plan: WorkPlan, done_steps: Sequence[str], *, may_allow: bool) -> WorkPlan:
        return check_plan(plan, self._team.members, done=done_steps, may_allow=may_allow, can_check=self._op.can_check)

    async def _ask_planner(self, words: str, *, is_correction: bool) -> str:
        team = self._team
        self._planner = self._op.child(as_reader(team.planner), "member", at=self._place, after=self._planner)
        self._planner.is_correction = is_correction
        self._planner.reply_format = make_work_plan_format(team.members)
        request = Request(text=words, origin=team.request.original)
        part = await self._planner.run_as_part(request, timeout=team.own.worker_timeout)
        if part.failure is not None:
            raise AgentFailed(part.failure)
        return part.text

    # Reviews

    async def _review(self, plan: WorkPlan, revision: int) -> tuple[str, ...]:
        """Have the other members review a draft in parallel, and return the changes that they ask for."""
        team = self._team
        reviewers = {name: agent for name, agent in team.members.items() if name != team.planner.name}
        words = render_prompt(
            team.own.prompts,
            "review_plan",
            planner=team.planner.name,
            request=team.goal,
            constraints=team.format_constraints(),
            plan=neutralise(format_plan(plan)),
        )
        place = self._place.child(f"review#{revision + 1}")
        parts = await self._ask_reviewers(reviewers, Request(text=words, origin=team.request.original), place)
        objections = []
        for name, part in zip(reviewers, parts, strict=True):
            reviewed = place.record(read_plan_review(part, name, self._version))
            if reviewed.verdict == "change":
                objections.append(f"{name}: {reviewed.reason}")
        return tuple(objections)

    async def _ask_reviewers(self, reviewers: Mapping[str, Agent], request: Request, place: Scope) -> list[Part]:
        children = [self._op.child(as_reader(agent), "member", at=place) for agent in reviewers.values()]
        for child in children:
            child.reply_format = REVIEW_FORMAT
        own = self._team.own
        return await run_members(
            children,
            [request] * len(children),
            max_concurrent=own.max_concurrent,
            timeout=own.worker_timeout,
        )

    # A person's approval

    async def _get_approval(
        self, plan: WorkPlan, objections: tuple[str, ...], done_steps: Sequence[str]
    ) -> PlanCommitted:
        """Ask the user to approve the plan. The user can also edit it or send it back with a comment."""
        op, team = self._op, self._team
        for number in range(1, MOST_QUESTIONS + 1):
            question = QuestionAsked(
                id="",
                kind="plan",
                text=f"Approve {team.planner.name}'s plan ({format_count(len(plan.steps), 'step')})?",
                choices=(APPROVE, CHANGE),
                shown=format_plan_question(plan, objections),
                plan=plan,
            )
            place = self._place.child(f"approval#{number}")
            answered = await ask_question(place, question, unattended=op.unattended)
            if answered is None:
                raise op.make_error("failed", "its plan needs a person's approval, but nobody is available")
            try:
                edited = check_plan(
                    answered.plan or plan, team.members, done=done_steps, may_allow=True, can_check=op.can_check
                )
            except InvalidPlan as error:
                place.record(PlanRefused(by=answered.by or "a person", problems=error.problems))
                continue
            if answered.text.strip().casefold() == APPROVE:
                by = answered.by or "a person"
                return self._commit(edited, by=by, objections=objections, is_approved_by_person=True)
            wanted = answered.text.strip()
            objections = (f"{answered.by or 'a person'}: {'' if wanted.casefold() == CHANGE else wanted}",)
            plan = await self._draft(self._render_revision(objections), done_steps)
        raise op.make_error("failed", f"its plan was sent back {MOST_QUESTIONS} times")


def read_plan_review(part: Part, reviewer: str, version: int) -> PlanReviewed:
    """Return a member's review from its reply. If the reviewer failed, the plan counts as accepted."""
    verdict, reason = _parse_review(part.text)
    if part.failure is not None:
        verdict, reason = "accept", f"no review: {part.failure.describe_to(reviewer)}"
    return PlanReviewed(
        version=version, reviewer=reviewer, verdict=verdict, reason=truncate_text(reason, LONGEST_REASON)
    )


def _parse_review(text: str) -> tuple[Literal["accept", "change"], str]:
    """Return the verdict and the reason in a reply. A reply without a verdict counts as a request for changes."""
    if isinstance(found := find_json(text), dict) and isinstance(found.get("verdict"), str):
        reason = found["reason"] if isinstance(found.get("reason"), str) else ""
        text = f"{found['verdict']}: {reason}"
    lines = text.splitlines()
    for number, line in enumerate(lines):
        word, _, rest = line.strip().strip("*_`#> ").partition(":")
        match word.strip("*_` .").casefold():
            case "change" | "changes":
                reason = " ".join(" ".join([rest.strip("*_` "), *lines[number + 1 :]]).split())
                return "change", reason or "no reason given"
            case "accept" | "accepted":
                return "accept", rest.strip("*_` ")
    return "change", f"the reply has neither ACCEPT nor CHANGE: {' '.join(text.split())}"


def format_plan_question(plan: WorkPlan, objections: Sequence[str]) -> str:
    """Return the text shown to the person who has to approve the plan."""
    parts = [f"Goal:{quote_lines(plan.goal)}", format_plan(plan)]
    if objections:
        parts.append("Requested changes that are not in the plan:" + "".join(map(quote_lines, objections)))
    return "\n\n".join(parts)
