"""Run a team in collaborate mode: it plans the work, completes and reviews the steps, and delivers one result.

The pattern goes through the states of the work in order: it forms the team, has a plan drafted, reviewed and
committed, runs the steps that are ready, replans once if steps fail, merges the result and reports what was done and
what was not. Each step's events are recorded below its own scope, so steps can run in parallel and a resumed run
finds the events regardless of their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from anyio import CapacityLimiter, Event, create_task_group

from ..core.decision_state import DECISION_EVENTS
from ..core.operation import Operation
from ..core.plan_state import StepProgress, list_dependants
from ..core.run_repository import MergedWork, Records, WorkBranch
from ..core.scope import Scope
from ..values.errors import AgentFailed, PodiumError
from ..values.event import Noticed, PlanCommitted, PlanStepBlocked, WorkEnded, WorkStateChanged
from ..values.operation_path import PLAN_STEP
from ..values.plan import PlanStep, UndoneStep, WorkState
from ..values.request import Answer, Part, Request, quote_lines
from ..views.decision_record import ADR_FOLDER, collect_decisions, render_adr_files
from .collaboration_team import CollaborationTeam
from .plan_drafting import PlanDrafting, find_approved_rules
from .step_work import StepWork
from .team_prompts import render_prompt
from .verdict import neutralise
from .work_plan import WorkBoard, make_result_branch

DEFAULT_CONCURRENT = 4


async def run_collaborate(op: Operation, request: Request) -> Answer:
    """Run a collaborating team and return its report. Raise AgentFailed if part of the work was not done."""
    return await Collaboration(op, request).run()


class Collaboration:
    """A team's work on one request, from forming the team to delivering the result."""

    def __init__(self, op: Operation, request: Request) -> None:
        self._op = op
        self._team = CollaborationTeam.from_operation(op, request)
        self._board = WorkBoard(op)
        self._limiter = CapacityLimiter(self._team.own.max_concurrent or DEFAULT_CONCURRENT)
        self._replaced: tuple[UndoneStep, ...] = ()
        """The unfinished steps of the first plan, after a second plan has replaced them."""

    async def run(self) -> Answer:
        """Run all phases of the work, and return the report."""
        op, board = self._op, self._board
        await self._require_branch()
        formed = board.record(op.scope, self._team.describe_formation())
        if formed.missing:
            op.scope.record(Noticed(text=f"The team {op.agent.name} has no member for: {', '.join(formed.missing)}"))
        try:
            committed = await self._make_plan(1)
            await self._execute(committed)
            if board.progress.list_undone() and (second := await self._replan()) is not None:
                await self._execute(second)
            return await self._deliver()
        except AgentFailed:
            self._change_state("error")
            raise

    async def _require_branch(self) -> None:
        """Raise AgentFailed if members work on branches and the run's checkout has no branch to merge them into.

        A resumed run is not checked again.
        """
        op = self._op
        if op.repository is None or not self._team.uses_branches or op.scope.has_child_outcome("team_formed#1"):
            return
        try:
            await op.repository.require_branch()
        except PodiumError as error:
            raise op.make_error(
                "failed", f"its members work on separate branches, which is not possible here: {error}"
            ) from error

    def _change_state(self, state: WorkState) -> None:
        self._board.record(self._op.scope, WorkStateChanged(state=state))

    # Planning

    async def _make_plan(self, version: int, *, done: str = "") -> PlanCommitted:
        self._change_state("planning")
        place = self._op.scope.child(f"plan#{version}")
        drafting = PlanDrafting(self._op, self._team, place=place, version=version)
        finished = [id for id, one in self._board.progress.steps.items() if one.state == "done"]
        committed = self._board.apply(await drafting.make_plan(done=done, done_steps=finished))
        await self._board.take_snapshot(place, "plan" if version == 1 else f"plan-{version}")
        self._change_state("executing")
        return committed

    async def _replan(self) -> PlanCommitted | None:
        """Have the planner plan the remaining work. Return None if no second plan is committed."""
        op, progress = self._op, self._board.progress
        lines = [
            f"- {id} ({one.owner}): {'done' if one.state == 'done' else one.reason or one.state}"
            for id, one in progress.steps.items()
        ]
        done = (
            "\n## Work so far\nAn earlier plan was carried out in part:\n"
            f"{quote_lines(neutralise(chr(10).join(lines))).strip()}\n"
            "Plan only what is still missing, with new ids; steps can depend on "
            "steps that are done. Find another way to do what failed.\n"
        )
        try:
            undone = progress.list_undone()
            second = await self._make_plan(2, done=done)
            self._replaced = tuple(one for one in undone if one.step not in self._board.progress.steps)
            return second
        except AgentFailed as error:
            op.scope.record(Noticed(text=f"The remaining work could not be planned again: {error.failure.message}"))
            self._change_state("executing")
            return None

    # Execution

    async def _execute(self, committed: PlanCommitted) -> None:
        """Run each step of a plan as soon as it is ready. Then block the steps that depend on a failed one."""
        started: set[str] = set()
        ended = Event()

        async def run_step(work: StepWork) -> None:
            nonlocal ended
            async with self._limiter:
                await work.run()
            ended.set()

        async with create_task_group() as group:
            while True:
                ready = [step for step in self._list_ready(committed) if step.id not in started]
                for step in ready:
                    started.add(step.id)
                    group.start_soon(run_step, self._make_step_work(step, committed))
                if all(self._board.progress.steps[id].state in ("done", "failed") for id in started):
                    break
                await ended.wait()
                ended = Event()
        self._block_dependants(committed)

    def _list_ready(self, committed: PlanCommitted) -> list[PlanStep]:
        steps = self._board.progress.steps
        return [step for step in committed.plan.steps if steps[step.id].state == "ready"]

    def _make_step_work(self, step: PlanStep, committed: PlanCommitted) -> StepWork:
        steps, requests = self._board.progress.steps, self._op.scope.timeline.index.requests
        branches = (steps[id].branch for id in step.depends_on)
        return StepWork(
            op=self._op,
            team=self._team,
            board=self._board,
            step=step,
            place=self._step_place(step.id, committed.version),
            approved=find_approved_rules(committed, step.id, requests.asked, requests.answers),
            after=tuple(dict.fromkeys(branch for branch in branches if branch)),
            limiter=self._limiter,
        )

    def _step_place(self, id: str, version: int) -> Scope:
        """Return the scope of a step. Each plan has separate scopes, because a second plan can reuse step ids."""
        return self._op.scope.child(f"{PLAN_STEP}{id}" if version == 1 else f"{PLAN_STEP}{id}~{version}")

    def _block_dependants(self, committed: PlanCommitted) -> None:
        """Record every step that depends on a failed step as blocked."""
        steps = self._board.progress.steps
        for failed in [id for id, one in steps.items() if one.state == "failed"]:
            for id in list_dependants(committed.plan.steps, failed):
                if self._board.progress.steps[id].state == "planned":
                    place = self._step_place(id, committed.version)
                    reason = f"it depends on {failed}, which failed"
                    self._board.record(place, PlanStepBlocked(step=id, reason=reason))

    # The result

    async def _deliver(self) -> Answer:
        """Deliver the work and the report on it. Raise AgentFailed if part of the work was not done."""
        self._change_state("reviewing")
        ended = self._op.scope.child("work_ended#1").find_outcome(WorkEnded) or await self._finish_work()
        self._board.record(self._op.scope, ended)
        text = await self._write_report(ended)
        if ended.undone:
            names = "; ".join(f"{one.step}: {one.reason}" for one in ended.undone)
            raise self._op.make_error("failed", f"part of the work was not done ({names})", so_far=text)
        self._change_state("completed")
        return Answer(text=text, parts=self._list_parts())

    async def _finish_work(self) -> WorkEnded:
        """Merge the work, run the team's checks on it, and return how the work ended."""
        op, board = self._op, self._board
        merged = await self._merge_steps()
        undone = board.progress.list_undone() + tuple(
            UndoneStep(step=self._find_step_of(branch), reason=f"its branch could not be merged: {why}")
            for branch, why in merged.left_out.items()
        )
        if self._team.own.checks and not undone:
            checked = await op.run_checks(self._team.own.checks, op.scope.child("checks#1"), commit=merged.commit)
            if not checked.passed:
                undone = (UndoneStep(step="checks", reason=f"the team's checks did not pass:\n{checked.output}"),)
        return WorkEnded(
            done=tuple(
                id
                for id, one in board.progress.steps.items()
                if one.state == "done" and id not in {left.step for left in undone}
            ),
            undone=undone,
            replaced=self._replaced,
            decisions=tuple(self._team.list_decision_ids(op)),
            branch=merged.branch,
            commit=merged.commit,
        )

    async def _merge_steps(self) -> MergedWork:
        """Merge the branches of the finished steps into one branch. With `adr`, add records of the team's decisions."""
        op, steps = self._op, self._board.progress.steps
        branches = [
            WorkBranch(branch=one.branch, commit=one.commit, after=_list_branches(one, steps))
            for one in steps.values()
            if one.state == "done" and one.branch
        ]
        if op.repository is None:
            return MergedWork(left_out={})
        records = self._make_records() if self._team.own.adr else None
        if not branches:
            if records is not None:
                async with op.scope.timeline.work.effect:
                    await op.repository.write_records(records)
            return MergedWork(left_out={})
        name = make_result_branch(op.scope.timeline.run)
        try:
            async with op.scope.timeline.work.effect:
                return await op.repository.merge_branches(branches, name=name, records=records)
        except PodiumError as error:
            return MergedWork(left_out={one.branch: str(error) for one in branches})

    def _make_records(self) -> Records:
        """Return the records of the decisions that the team made during this work."""
        op = self._op
        decisions = collect_decisions(op.scope.timeline.find_entries_below(op.scope.path, *DECISION_EVENTS))
        return Records(folder=ADR_FOLDER, render=partial(render_adr_files, decisions))

    def _find_step_of(self, branch: str) -> str:
        return next((id for id, one in self._board.progress.steps.items() if one.branch == branch), branch)

    def _list_parts(self) -> tuple[Part, ...]:
        return tuple(
            Part(agent=one.owner, outcome="succeeded", text=f"{id}: {one.step.description}")
            for id, one in self._board.progress.steps.items()
            if one.state == "done"
        )

    async def _write_report(self, ended: WorkEnded) -> str:
        """Return the lead's report, followed by the unfinished steps, the replaced steps, and the result's branch."""
        facts = self._format_facts(ended)
        words = render_prompt(
            self._team.own.prompts,
            "wrap_up",
            request=self._team.goal,
            steps=self._format_steps(),
            decisions="\n".join(self._team.list_decisions(self._op)) or "none",
            result=f"\n## Result\n{facts}" if facts else "",
        )
        try:
            text = (await self._op.session().ask(words)).text
        except AgentFailed as error:
            text = f"[{self._op.agent.name} wrote no report: {error.failure.message}]\n\n{self._format_steps()}"
        return f"{text}\n\n{facts}" if facts else text

    def _format_steps(self) -> str:
        lines = []
        for id, one in self._board.progress.steps.items():
            state = one.state if one.state == "done" else f"{one.state}: {one.reason}"
            lines.append(f"- {id} ({one.owner}), {neutralise(state)}{quote_lines(neutralise(one.step.description))}")
        return "\n".join(lines)

    def _format_facts(self, ended: WorkEnded) -> str:
        lines = [f"Not done: {one.step}: {one.reason}" for one in ended.undone]
        lines += [f"Replaced by the second plan: {one.step}: {one.reason}" for one in ended.replaced]
        if ended.branch:
            lines.append(f"The result is on branch {ended.branch}; merge it with: podium merge {ended.branch}")
        return "\n".join(lines)


def _list_branches(one: StepProgress, steps: Mapping[str, StepProgress]) -> tuple[str, ...]:
    """Return the branches of the steps that a step depends on."""
    return tuple(dict.fromkeys(steps[id].branch for id in one.step.depends_on if id in steps and steps[id].branch))
