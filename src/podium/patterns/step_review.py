"""Review a step: run its commands, and have a person or a member that did not work on the step check each criterion."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from ..core.operation import Operation
from ..core.person_message import ask_question
from ..core.scope import Scope
from ..values.agent import Agent
from ..values.event import Checked, PlanStepReviewed, PlanStepSubmitted, QuestionAsked
from ..values.plain_text import cut_middle, truncate_text
from ..values.plan import Finding, PlanStep
from ..values.request import Note, Request, escape_headings, quote_lines
from .collaboration_team import CollaborationTeam
from .json_output import STEP_REVIEW_FORMAT, find_json
from .member_tasks import as_reader
from .team_prompts import render_prompt
from .verdict import neutralise
from .work_plan import WorkBoard

LONGEST_DIFF = 20_000
LONGEST_OUTPUT = 4_000
LONGEST_REASON = 500
MET, NOT_MET = "met", "not met"
NO_VERDICT = "the reviewer gave no verdict on this criterion"

_VERDICT = re.compile(
    r"^[\s>*_`#-]*(\d+)[\s*_`]*[:.)-][\s*_`]*(not[\s_-]+met|unmet|met)\b[\s*_`]*[:.,-]?\s*(.*)$", re.I
)


class StepReview:
    """The review of one attempt at a step."""

    def __init__(
        self,
        op: Operation,
        team: CollaborationTeam,
        board: WorkBoard,
        step: PlanStep,
        *,
        place: Scope,
        submitted: PlanStepSubmitted,
        answer: str,
        diff: str,
    ) -> None:
        self._op = op
        self._team = team
        self._board = board
        self._step = step
        self._place = place
        self._submitted = submitted
        self._answer = answer
        self._diff = diff
        self._checkout = ""
        """The folder with the step's files, if they are not in the run's own checkout."""

    async def run(self, authors: Sequence[str]) -> PlanStepReviewed:
        """Review the step, and record and return the review. A member that worked on the step cannot review it."""
        checks = await self._run_commands()
        is_person = self._team.own.review_by == "person"
        if is_person:
            reviewer, said = await self._ask_person(checks)
        else:
            async with self._open_work():
                reviewer, said = await self._ask_reviewers(authors, checks)
        findings = combine_findings(self._step, said, checks, reviewer)
        reviewed = PlanStepReviewed(
            step=self._step.id,
            reviewer=reviewer,
            attempt=self._submitted.attempt,
            passed=all(one.is_met for one in findings),
            findings=findings,
            is_person=is_person,
        )
        return self._place.record(reviewed)

    async def _run_commands(self) -> dict[int, Checked]:
        """Run the criteria's commands on a clean checkout of the work. Return the results, keyed by criterion."""
        results: dict[int, Checked] = {}
        for number, criterion in enumerate(self._step.acceptance, 1):
            if not criterion.command:
                continue
            place = self._place.child(f"check#{number}")
            name = f"{self._step.id}-{self._submitted.attempt}-check-{number}"
            results[number] = await self._op.run_checks(
                (criterion.command,), place, commit=self._submitted.commit, log_name=f"{name}.log"
            )
            self._board.store_artifact(place, "test-result", f"{name}.txt", results[number].output, step=self._step.id)
        return results

    # Members

    @asynccontextmanager
    async def _open_work(self) -> AsyncIterator[None]:
        """Check out the submitted commit for the reviewers, if it is on a branch and not in the run's own checkout."""
        is_recorded = self._place.has_child_outcome("plan_step_reviewed#1")
        if is_recorded or not self._submitted.branch or self._op.repository is None:
            yield
            return
        async with self._board.open_commit(self._submitted.commit) as self._checkout:
            yield

    async def _ask_reviewers(
        self, authors: Sequence[str], checks: Mapping[int, Checked]
    ) -> tuple[str, dict[int, Finding]]:
        """Ask one reviewer after another, until one gives a verdict. Return its name and its findings.

        Raise AgentFailed if no reviewer gives a verdict.
        """
        words, changes = self._render_prompt(checks), self._format_changes()
        failures = []
        for reviewer in self._team.find_reviewers(authors):
            said, why = await self._ask_reviewer(reviewer, words, changes)
            if said:
                return reviewer.name, said
            failures.append(f"{reviewer.name}: {why}")
        why = "; ".join(failures) or "every member has worked on this step"
        raise self._op.make_error("failed", f"no member reviewed the step: {why}")

    async def _ask_reviewer(self, reviewer: Agent, words: str, changes: str) -> tuple[dict[int, Finding], str]:
        """Ask a reviewer for its verdicts, and ask once more if some are missing.

        Return the reviewer's findings, keyed by criterion number, and an error message to use if there are no findings.
        """
        criteria = self._step.acceptance
        said: dict[int, Finding] = {}
        last: Operation | None = None
        for attempt in range(2):
            last = self._op.child(as_reader(reviewer), "member", at=self._place, after=last)
            last.checkout, last.reply_format = self._checkout, STEP_REVIEW_FORMAT
            # The diff is a note, because notes are not part of the digest, and git may print a diff differently later.
            notes = (Note(title="changes", text=changes),) if attempt == 0 else ()
            request = Request(text=words, origin=self._team.request.original, notes=notes)
            part = await last.run_as_part(request, timeout=self._team.own.worker_timeout)
            if part.failure is not None:
                return said, part.failure.describe_to(reviewer.name)
            said |= parse_findings(part.text, [one.text for one in criteria], by=reviewer.name)
            missing = [str(number) for number in range(1, len(criteria) + 1) if number not in said]
            if not missing:
                break
            numbers = f"{'criterion' if len(missing) == 1 else 'criteria'} {', '.join(missing)}"
            words = render_prompt(self._team.own.prompts, "review_step_again", missing=numbers)
        return said, "its reply has no verdict"

    def _render_prompt(self, checks: Mapping[int, Checked]) -> str:
        return render_prompt(
            self._team.own.prompts,
            "review_step",
            request=self._team.goal,
            constraints=self._team.format_constraints(),
            step=self._step.id,
            author=self._submitted.author,
            description=format_description(self._step),
            criteria=format_criteria(self._step),
            checks=_format_checks(checks),
            answer=quote_lines(neutralise(self._answer)).strip() or "nothing",
        )

    def _format_changes(self) -> str:
        return neutralise(cut_middle(self._diff, LONGEST_DIFF)) if self._diff.strip() else "no files were changed"

    # A person

    async def _ask_person(self, checks: Mapping[int, Checked]) -> tuple[str, dict[int, Finding]]:
        """Ask a person whether all criteria are met. Return who answered, and the findings, keyed by criterion number.

        Raise AgentFailed if nobody answers.
        """
        step, submitted = self._step, self._submitted
        question = QuestionAsked(
            id="",
            kind="review",
            text=f"Is {submitted.author}'s step {step.id} done?",
            choices=(MET, NOT_MET),
            shown="\n\n".join(
                (
                    f"Step {step.id}:{quote_lines(step.description)}",
                    f"Acceptance criteria:\n{format_criteria(step)}",
                    f"Commands:\n{_format_checks(checks)}",
                    f"Changes:{quote_lines(self._format_changes())}",
                    f"{submitted.author} says:{quote_lines(self._answer)}",
                )
            ),
        )
        answered = await ask_question(self._place, question, unattended=self._op.unattended)
        if answered is None:
            raise self._op.make_error("failed", "a person must review the step, but nobody is available")
        who, text = answered.by or "a person", answered.text.strip()
        is_met = text.casefold() == MET
        reason = "" if is_met or text.casefold() == NOT_MET else text
        return who, {
            number: Finding(criterion=one.text, is_met=is_met, reason=reason, by=who)
            for number, one in enumerate(step.acceptance, 1)
        }


def parse_findings(reply: str, criteria: Sequence[str], *, by: str) -> dict[int, Finding]:
    """Return a reviewer's verdicts, keyed by criterion number. If a criterion has two, `not met` takes precedence."""
    found: dict[int, Finding] = {}
    for line in (*_format_json_verdicts(reply), *reply.splitlines()):
        if (verdict := _VERDICT.match(line)) is None or not 1 <= (number := int(verdict[1])) <= len(criteria):
            continue
        is_met = verdict[2].casefold() == "met"
        if number in found and not found[number].is_met:
            continue
        reason = truncate_text(verdict[3].strip("*_` "), LONGEST_REASON)
        found[number] = Finding(criterion=criteria[number - 1], is_met=is_met, reason=reason, by=by)
    return found


def _format_json_verdicts(reply: str) -> list[str]:
    """Return the verdicts in a reply's JSON, as lines in the format of a text reply."""
    document = find_json(reply)
    verdicts = document.get("verdicts") if isinstance(document, dict) else None
    if not isinstance(verdicts, list):
        return []
    return [
        " ".join(f"{one.get('criterion')}: {one.get('verdict')}: {one.get('reason') or ''}".split())
        for one in verdicts
        if isinstance(one, dict)
    ]


def combine_findings(
    step: PlanStep, said: Mapping[int, Finding], checks: Mapping[int, Checked], reviewer: str
) -> tuple[Finding, ...]:
    """Return one finding for each criterion. The result of a command overrides the reviewer's verdict."""
    findings = []
    for number, criterion in enumerate(step.acceptance, 1):
        if (checked := checks.get(number)) is not None:
            reason = "" if checked.passed else f"{criterion.command} failed:\n{_tail_lines(checked.output)}"
            findings.append(Finding(criterion=criterion.text, is_met=checked.passed, reason=reason, by="check"))
        else:
            unsaid = Finding(criterion=criterion.text, is_met=False, reason=NO_VERDICT, by=reviewer)
            findings.append(said.get(number, unsaid))
    return tuple(findings)


def _tail_lines(output: str) -> str:
    """Return the end of a command's output."""
    return output[-LONGEST_REASON:]


def format_criteria(step: PlanStep) -> str:
    """Return the criteria of a step as a numbered list."""
    return "\n".join(
        f"{number}. {' '.join(one.text.split())}" + (f"\n   $ {' '.join(one.command.split())}" if one.command else "")
        for number, one in enumerate(step.acceptance, 1)
    )


def format_description(step: PlanStep) -> str:
    """Return the description of a step, with a backslash before each line that looks like a heading."""
    return escape_headings(step.description, "#{1,6} ")


def _format_checks(checks: Mapping[int, Checked]) -> str:
    """Format the results of the commands, each with the number of its criterion."""
    results = (
        f"{number}: {'passed' if one.passed else 'failed'}{quote_lines(neutralise(one.output[-LONGEST_OUTPUT:]))}"
        for number, one in checks.items()
    )
    return "\n".join(results) or "none"


def format_findings(findings: Iterable[Finding]) -> str:
    """Format the criteria that are not met, with the reasons."""
    return "\n".join(
        f"- {' '.join(one.criterion.split())}: {' '.join(one.reason.split()) or 'not met'}"
        for one in findings
        if not one.is_met
    )
