"""Make a plan: a planner drafts it, the other members review it, the planner revises it, and it is committed.

A lead's reply is a plan, a direct answer, or the claim that nothing is missing. A plan can contain rules that allow
more than the settings do. A machine that continues a run of another machine does not believe that machine's word that a
person approved them: it looks for the person's answer, and for the question that the person saw.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from ..core.journal_rows import compute_digest
from ..core.operation import Operation
from ..core.person_message import ask_question
from ..core.scope import Scope
from ..values.agent import Agent
from ..values.errors import AgentFailed
from ..values.event import (
    PermissionAnswered,
    PermissionAsked,
    PlanCommitted,
    PlanDrafted,
    PlanRefused,
    PlanReviewed,
    QuestionAnswered,
    QuestionAsked,
)
from ..values.json import Json, JsonObject
from ..values.plain_text import format_count, truncate_text
from ..values.plan import PlanStep, WorkPlan
from ..values.request import Part, Request, quote_lines
from ..views.plan_text import format_plan
from .collaboration_team import CollaborationTeam
from .dispatch import MARKER, Plan, parse_plan
from .json_output import REVIEW_FORMAT, find_json, make_work_plan_format
from .member_tasks import as_reader, run_members
from .team_prompts import render_prompt
from .verdict import claims_completion, neutralise
from .work_plan import InvalidPlan, check_plan, parse_work_plan

WORKER = "worker"
"""The key for the worker in the format that leads are asked for. Under another key, only a member's name is a plan."""
MOST_LEVELS = 6
MOST_ITEMS = 200
_NAME_KEYS = (WORKER, "agent", "member", "owner", "assignee", "name")
_TASK_KEYS = ("task", "tasks", "description", "instruction", "instructions", "work")
_CUT_PLAN = re.compile(
    r"\s*(?:```\w*\s*)?[\[{][^A-Za-z]*(?:\"assignments\"[^A-Za-z]*)?\"worker\"\s*:\s*\"", re.IGNORECASE
)
"""The start of a plan whose JSON is incomplete."""
NO_ASSIGNMENT = "its list of assignments is empty"


class PlanReply(NamedTuple):
    """A lead's parsed reply. `answer` is the answer in its JSON object, or the whole text if it has no such object."""

    plan: Plan
    answer: str
    claims_completion: bool
    problem: str = ""
    """The reason why a reply without assignments cannot be used as an answer, or "" if it can be used."""

    @property
    def assigns_tasks(self) -> bool:
        """Whether the reply is a plan, even if none of its tasks can be assigned."""
        has_unknown_names = bool(self.plan.skipped) and MARKER.search(self.answer) is not None
        is_empty_plan = bool(self.problem) and self.answer.strip() in ("", "[]")
        return bool(self.plan.assignments) or has_unknown_names or is_empty_plan


Asked = PermissionAsked | QuestionAsked
Answered = PermissionAnswered | QuestionAnswered

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
            reviewed = place.record(_read_plan_review(part, name, self._version))
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


def _read_plan_review(part: Part, reviewer: str, version: int) -> PlanReviewed:
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


def find_approved_rules(
    committed: PlanCommitted, step: str, asked: Mapping[str, Asked], answers: Mapping[str, Answered]
) -> tuple[str, ...]:
    """Return the allow rules of a plan's step that a person has approved, given a run's questions and answers."""
    if not committed.is_approved_by_person:
        return ()
    approved = {
        rule
        for id, answered in answers.items()
        for one in _list_approved_steps(asked.get(id), answered)
        if one.id == step
        for rule in one.policy.allow
    }
    return tuple(
        rule for one in committed.plan.steps if one.id == step for rule in one.policy.allow if rule in approved
    )


def _list_approved_steps(question: Asked | None, answered: Answered) -> tuple[PlanStep, ...]:
    """Return the steps of the plan that an answer approves, or nothing if the question did not show that plan."""
    if not isinstance(question, QuestionAsked) or not isinstance(answered, QuestionAnswered) or question.plan is None:
        return ()
    is_shown = question.shown.startswith(format_plan_question(question.plan, ()))
    if not is_shown or answered.digest != compute_digest(question.shown):
        return ()
    if question.kind != "plan" or answered.text.strip().casefold() != APPROVE:
        return ()
    return (answered.plan or question.plan).steps


def read_plan_reply(text: str, workers: Iterable[str], *, aliases: Mapping[str, str]) -> PlanReply:
    """Return the plan in a reply. A JSON object can hold the assignments, an answer and a claim of completion."""
    if (found := _find_plan_object(text)) is None:
        plan = parse_plan(text, workers, aliases=aliases)
        problem = NO_ASSIGNMENT if find_json(text) == [] else ""
        return PlanReply(plan, text, claims_completion(text), problem)
    plan = parse_plan(msgspec.json.encode(found["assignments"]).decode(), workers, aliases=aliases)
    answer = written.strip() if isinstance(written := found.get("answer"), str) else ""
    is_complete = found.get("complete") is True and not plan.assignments
    problem = "" if answer or is_complete else NO_ASSIGNMENT
    return PlanReply(plan, answer, is_complete or claims_completion(text), problem)


def is_plan(text: str, workers: Iterable[str], *, aliases: Mapping[str, str]) -> bool:
    """Return whether a reply assigns tasks to workers, in the format that was asked for or in one like it.

    For example, the tasks may have other keys or be the arguments of a call, or the JSON may be incomplete.
    """
    names = list(workers)
    if read_plan_reply(text, names, aliases=aliases).assigns_tasks:
        return True
    found = find_json(text)
    if found is None:
        return _CUT_PLAN.match(text) is not None
    return any(
        key == WORKER or parse_plan(_encode_item(name), names, aliases=aliases).assignments
        for key, name in islice(_iter_names(found), MOST_ITEMS)
    )


def _iter_names(value: Json, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the key and the name of everybody who gets a task in a JSON value."""
    if depth > MOST_LEVELS:
        return
    if isinstance(value, dict):
        keys = {str(key).casefold(): one for key, one in value.items()}
        if any(isinstance(keys.get(task), str) for task in _TASK_KEYS):
            yield from ((key, keys[key]) for key in _NAME_KEYS if isinstance(keys.get(key), str))
        if isinstance(keys.get("assignments"), dict):
            yield from ((WORKER, str(name)) for name in keys["assignments"])
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _iter_names(one, depth + 1)


def _encode_item(name: str) -> str:
    return msgspec.json.encode([{"worker": name, "task": "any"}]).decode()


def _find_plan_object(text: str) -> JsonObject | None:
    found = find_json(text)
    return found if isinstance(found, dict) and isinstance(found.get("assignments"), list) else None
