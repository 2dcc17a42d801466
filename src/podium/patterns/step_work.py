"""Work on one step of a plan: its owner works, hands over or raises blockers, and others review the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from anyio import CapacityLimiter
from msgspec import structs

from ..core.budget import Allowance, TimeLimit
from ..core.journal_rows import compute_digest
from ..core.operation import Operation
from ..core.placement import WorkerOptions
from ..core.scope import Scope
from ..values.errors import AgentFailed
from ..values.event import (
    BlockerRaised,
    DecisionProposed,
    HandoverAsked,
    MessagesDelivered,
    PlanStepBlocked,
    PlanStepCompleted,
    PlanStepFailed,
    PlanStepHandedOver,
    PlanStepReopened,
    PlanStepReviewed,
    PlanStepStarted,
    PlanStepSubmitted,
    PlanStepUnblocked,
)
from ..values.operation_path import parse_agent_name
from ..values.plain_text import truncate_text
from ..values.plan import PlanStep
from ..values.request import Note, Part, Request, quote_lines
from ..views.conversation_summary import SUMMARISED, summarise_conversation
from .collaboration_team import CollaborationTeam
from .decisions.decision import list_weights, run_decision
from .member_tasks import as_worker
from .step_changes import describe_shared_changes
from .step_review import StepReview, format_criteria, format_description, format_findings
from .step_tools import make_step_agent, make_step_budget
from .team_prompts import SHARED, render_prompt
from .verdict import neutralise
from .work_plan import WorkBoard
from .worker_run import find_worker_result, runs_in_worker

MOST_SIGNALS = 5
"""Maximum number of handovers and blockers in one attempt at a step."""
LONGEST_SUMMARY = 4_000
MOST_TURNS = 4
"""Maximum number of earlier turns on a step that are summarised for a new owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """The starting point for the step's next owner: the commit, the branch, and notes about earlier turns."""

    base: str = ""
    """The commit that the first owner of the step started from."""
    commit: str = ""
    branch: str = ""
    notes: tuple[str, ...] = ()
    """Descriptions of the events before those in `news`, for an owner that is new to the step."""
    news: tuple[str, ...] = ()
    """Descriptions of the events since the owner's last turn."""

    def add(self, text: str) -> Workplace:
        """Return a copy with `text` added to `news`, the events since the owner's last turn."""
        return replace(self, news=(*self.news, text))


@dataclass
class StepWork:
    """The work on one step, in one version of the plan."""

    op: Operation
    team: CollaborationTeam
    board: WorkBoard
    step: PlanStep
    place: Scope
    """The parent scope of all events of this step."""
    approved: tuple[str, ...] = ()
    """Rules that a person has approved for this step."""
    after: tuple[str, ...] = ()
    """The branches of the steps that this one depends on."""
    limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))
    """Limits how many steps are worked on at once."""
    _owner: str = ""
    _base: str = ""
    """The commit of the run's checkout when the step first started."""
    _locked_out: tuple[str, ...] = ()
    _last: Operation | None = None
    """The last operation of the current owner."""
    _turns: list[Operation] = field(default_factory=list)
    """The operations of all owners so far, in order."""
    _workplace: Workplace = field(default_factory=Workplace)

    async def run(self) -> None:
        """Work on the step until it is done or has failed."""
        self._owner = self.step.owner
        try:
            for attempt in range(1, self.team.own.max_attempts + 1):
                if await self._make_attempt(attempt):
                    await self.board.take_snapshot(self.place, self.step.id, step=self.step.id)
                    return
        except AgentFailed as error:
            reason = error.failure.describe_to(self.op.agent.name)
            self.board.record(self.place, PlanStepFailed(step=self.step.id, reason=truncate_text(reason, 1000)))

    async def _make_attempt(self, attempt: int) -> bool:
        """Work on the step once and have it reviewed. Return whether it is done. Raise AgentFailed if it failed."""
        board, step = self.board, self.step
        started = await self._record_start(attempt)
        self._base = self._base or started.base
        part = await self._work_until_submitted(attempt)
        submitted = await self._record_submission(attempt)
        text = truncate_text(part.text, LONGEST_SUMMARY)
        diff = await self._read_diff(submitted)
        self._store_artifacts(attempt, diff, part.text)
        authors = board.progress.steps[step.id].authors
        place = self.place.child(f"review#{attempt}")
        review = StepReview(self.op, self.team, board, step, place=place, submitted=submitted, answer=text, diff=diff)
        reviewed = board.apply(await review.run(authors))
        if reviewed.passed:
            board.record(self.place, PlanStepCompleted(step=step.id, owner=self._owner, attempt=attempt))
            return True
        missing = format_findings(reviewed.findings)
        if attempt == self.team.own.max_attempts:
            raise self.op.make_error("failed", f"not accepted after {attempt} attempts:\n{missing}")
        self._reopen(attempt, reviewed, missing)
        return False

    async def _record_start(self, attempt: int) -> PlanStepStarted:
        async def start() -> PlanStepStarted:
            base = await self.board.commit_checkout()
            return PlanStepStarted(step=self.step.id, owner=self._owner, attempt=attempt, base=base)

        return self.board.apply(await self.place.child(f"start#{attempt}").step(start, PlanStepStarted))

    async def _record_submission(self, attempt: int) -> PlanStepSubmitted:
        """Record the finished work: the commit of the owner's branch, or of the run's own checkout."""
        there = self._workplace

        async def submit() -> PlanStepSubmitted:
            commit = there.commit or await self.board.commit_checkout()
            await self.board.keep_commit(f"{self.step.id}-{attempt}", commit)
            return PlanStepSubmitted(
                step=self.step.id,
                author=self._owner,
                attempt=attempt,
                branch=there.branch,
                base=there.base or self._base,
                commit=commit,
            )

        return self.board.apply(await self.place.child(f"submission#{attempt}").step(submit, PlanStepSubmitted))

    async def _read_diff(self, submitted: PlanStepSubmitted) -> str:
        """Return the step's diff. If other steps used the checkout at the same time, the first line says so."""
        diff = await self.board.read_diff(submitted.base, submitted.commit)
        if submitted.branch or not diff:
            return diff
        members, steps = self.team.members, self.board.progress.steps
        others = [id for id, one in steps.items() if members[one.owner].isolation == "shared"]
        shared = describe_shared_changes(self.op, self.step.id, others)
        return f"{shared}\n{diff}" if shared else diff

    def _store_artifacts(self, attempt: int, diff: str, answer: str) -> None:
        name, author, step = f"{self.step.id}-{attempt}", self._owner, self.step.id
        self.board.store_artifact(self.place, "diff", f"{name}.diff", diff, author=author, step=step)
        self.board.store_artifact(self.place, "document", f"{name}.md", answer, author=author, step=step)

    def _reopen(self, attempt: int, reviewed: PlanStepReviewed, missing: str) -> None:
        """Reopen the step for another attempt.

        If the team's `lockout` option is set, a member that has not worked on the step becomes its owner. If every
        member has worked on it, the owner stays the same.
        """
        author, team = self._owner, self.team
        authors = self.board.progress.steps[self.step.id].authors
        chosen = team.find_replacement(authors, author) if team.own.lockout else author
        locked_out = author if chosen != author else ""
        self._locked_out += (locked_out,) if locked_out else ()
        reason = truncate_text(missing, 2000)
        reopened = PlanStepReopened(step=self.step.id, attempt=attempt, reason=reason, locked_out=locked_out)
        self.board.record(self.place, reopened)
        self._workplace = self._workplace.add(
            f"The work of {author} on this step was reviewed by {reviewed.reviewer} and is not accepted yet. "
            f"What is missing:{quote_lines(neutralise(missing))}"
        )
        self._change_owner(chosen)

    @cached_property
    def _allowance(self) -> Allowance:
        """The step's allowance, which all its owners share."""
        budget = make_step_budget(self.step.policy)
        return self.op.allowance.for_operation(self.place.path, budget, of=f"step {self.step.id}")

    def _change_owner(self, owner: str) -> None:
        if owner != self._owner:
            self._owner, self._last = owner, None

    # The owner's turns

    async def _work_until_submitted(self, attempt: int) -> Part:
        """Run the owner until it submits its work; act on handovers and blockers. Raise AgentFailed on failure."""
        for number in range(MOST_SIGNALS + 1):
            part, signal = await self._run_owner()
            if part.failure is not None:
                raise AgentFailed(part.failure)
            if signal is None:
                return part
            if number == MOST_SIGNALS:
                break
            place = self.place.child(f"signal#{attempt}.{number + 1}")
            if isinstance(signal, HandoverAsked):
                self._hand_over(place, signal)
            else:
                await self._resolve_blocker(place, signal)
        limit = f"{MOST_SIGNALS} handovers and blockers"
        raise self.op.make_error("failed", f"{self._owner} still has not finished the step after {limit}")

    async def _run_owner(self) -> tuple[Part, HandoverAsked | BlockerRaised | None]:
        """Run the owner once. Return its answer, and the handover or blocker that ended its turn, if any."""
        time_limit = self._find_time_limit()
        member = as_worker(self.team.members[self._owner])
        if self._workplace.commit and member.isolation == "shared":
            # The earlier work is on a branch, so the next owner must work on a branch too.
            member = structs.replace(member, isolation="process")
        agent = make_step_agent(member, self.step)
        child = self.op.child(agent, "member", at=self.place, after=self._last, within=self._allowance)
        child.grant_rules(self.approved)
        child.time_limit = time_limit
        is_worker = runs_in_worker(child)
        child.worker_options = WorkerOptions(
            base=self._workplace.commit,
            after=() if self._workplace.commit else self.after,
            approved=self.approved,
        )
        is_continued = self._last is not None and not is_worker
        part = await child.run_as_part(self._make_request(is_continued), timeout=self.team.own.worker_timeout)
        there = self._workplace
        self._workplace = replace(there, notes=(*there.notes, *there.news), news=())
        self._last = child
        self._turns.append(child)
        return part, self._read_result(child)

    def _find_time_limit(self) -> TimeLimit | None:
        """Return how much of the step's time is left, or None if it is not limited. Raise AgentFailed if none is left.

        Only the owners' turns count, excluding the time spent waiting for a person.
        """
        limit = self.step.policy.seconds
        if limit is None:
            return None
        left = limit - sum(turn.active_seconds for turn in self._turns)
        message = f"step {self.step.id}'s budget of {limit:g} s is used up"
        if left <= 0:
            raise self.op.make_error("budget", message)
        return TimeLimit(seconds=left, message=message)

    def _read_result(self, child: Operation) -> HandoverAsked | BlockerRaised | None:
        """Keep a worker's commit for the next owner. Return the last handover or blocker in this turn, or None."""
        if (worker := find_worker_result(child)) is not None:
            sent, returned = worker
            there = self._workplace
            self._workplace = replace(
                there,
                base=there.base or returned.base,
                commit=returned.commit or there.commit,
                branch=sent.branch if returned.commit else there.branch,
            )
            return returned.signal
        path = child.scope.path
        signals: list[HandoverAsked | BlockerRaised] = list(
            child.scope.timeline.find_events_below(path, HandoverAsked, BlockerRaised, operation=path)
        )
        return signals[-1] if signals else None

    def _make_request(self, is_continued: bool) -> Request:
        """Build the owner's request, which describes the whole step.

        For an owner that continues its conversation, it describes only the events since the owner's last turn.
        """
        team, step, there = self.team, self.step, self._workplace
        if is_continued:
            words = render_prompt(team.own.prompts, "step_again", step=step.id, news="\n\n".join(there.news))
            return Request(text=words, origin=team.request.original)
        before = "\n\n".join((*there.notes, *there.news))
        words = render_prompt(
            team.own.prompts,
            "plan_step",
            request=team.goal,
            constraints=team.format_constraints(),
            shared=f"\n{SHARED.format(shared=team.own.shared_context)}" if team.own.shared_context else "",
            before=f"\n## What happened before\n{before}\n" if before else "",
            step=step.id,
            description=format_description(step),
            criteria=format_criteria(step),
            names=", ".join(name for name in team.members if name != self._owner),
        )
        notes = (*self._list_turns(), *self._list_messages(), *self._list_decisions())
        return Request(text=words, origin=team.request.original, notes=notes)

    def _list_turns(self) -> Iterator[Note]:
        """Yield summaries of the last turns on the step as notes, so that its next owner can build on them."""
        for child in self._turns[-MOST_TURNS:]:
            if (worker := find_worker_result(child)) is not None:
                summary = worker[1].summary
            else:
                entries = child.scope.timeline.find_entries_below(child.scope.path, *SUMMARISED)
                summary = summarise_conversation(entries, child.scope.path)
            if summary:
                yield Note(title=f"earlier work by {child.agent.name} on this step", text=neutralise(summary))

    def _list_messages(self) -> tuple[Note, ...]:
        """Return the earlier messages to the owner as a note, because the owner starts a new conversation."""
        scope = self.op.scope
        delivered = scope.timeline.find_entries_below(scope.path, MessagesDelivered)
        told = [
            entry.event.text
            for entry in delivered
            if isinstance(entry.event, MessagesDelivered) and parse_agent_name(entry.operation) == self._owner
        ]
        text = truncate_text("\n".join(dict.fromkeys(told)), LONGEST_SUMMARY)
        return (Note(title=f"earlier messages to {self._owner}", text=text),) if told else ()

    def _list_decisions(self) -> tuple[Note, ...]:
        """Return the team's decisions as a note.

        Notes are not part of a request's digest, so decisions from other steps do not change it.
        """
        decided = self.team.list_decisions(self.op)
        return (Note(title="team decisions", text="\n".join(decided)),) if decided else ()

    # Handovers and blockers

    def _hand_over(self, place: Scope, asked: HandoverAsked) -> None:
        """Hand the step over to another member, or tell the owner why the handover is refused."""
        sender, refused = self._owner, self._explain_refusal(asked.to)
        receiver = self.team.find_member(asked.to) or asked.to
        over = PlanStepHandedOver(
            step=self.step.id, sender=sender, receiver=receiver, reason=asked.reason, refused=refused
        )
        self.board.record(place, over)
        if refused:
            self._workplace = self._workplace.add(f"Your handover was refused: {refused}. Finish the step yourself.")
            return
        told = [f"{sender} worked on this step and handed it over to you:{quote_lines(neutralise(asked.reason))}"]
        if asked.context.strip():
            told.append(f"What {sender} says about the work so far:{quote_lines(neutralise(asked.context))}")
        self._workplace = self._workplace.add("\n".join(told))
        self._change_owner(receiver)

    def _explain_refusal(self, name: str) -> str:
        found = self.team.find_member(name)
        if found is None:
            return f"{truncate_text(name)!r} is not a member of the team; members: {', '.join(self.team.members)}"
        if found in self._locked_out:
            return f"{found} is locked out, because its work on this step was not accepted"
        return f"{found} already owns the step" if found == self._owner else ""

    async def _resolve_blocker(self, place: Scope, raised: BlockerRaised) -> None:
        """Have the team decide the question that the owner raised, while other steps continue."""
        op, own, step = self.op, self.team.own, self.step
        proposal = DecisionProposed(
            id=compute_digest(op.scope.timeline.run, place.path)[:8],
            topic=raised.topic,
            options=raised.options,
            evidence=raised.evidence,
            eligible=tuple(self.team.members),
            weights=list_weights(op, self.team.members),
            rule=own.vote,
            decide_by=own.decide_by,
            window=own.vote_window,
            by=self._owner,
            step=step.id,
        )
        blocked = PlanStepBlocked(step=step.id, reason=raised.topic, decision=proposal.id)
        # In a fork, the run id differs from that of the original run, so use the decision id that is recorded.
        proposal = structs.replace(proposal, id=self.board.record(place, blocked).decision)
        # While this step waits, another step can run in its place.
        self.limiter.total_tokens += 1
        try:
            made = await run_decision(op, proposal, self.team.members, at=place, lead=self.team.lead)
        finally:
            self.limiter.total_tokens -= 1
        self.board.record(place, PlanStepUnblocked(step=step.id, decision=proposal.id))
        why = f" Reason:{quote_lines(neutralise(made.rationale))}" if made.rationale.strip() else ""
        self._workplace = self._workplace.add(
            f"You asked for a decision:{quote_lines(neutralise(raised.topic))}\n"
            f"The team decided ({made.how}):{quote_lines(neutralise(made.option))}\n{why}".rstrip()
        )
