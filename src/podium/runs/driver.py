"""Drive a run: this process works on it until it ends, pauses or is interrupted.

The driver runs the first agent, handles messages from the run's mailbox, and records how the run ended. All requests
from people, for example to pause the run, arrive as messages in the mailbox.
"""

from __future__ import annotations

import time
from asyncio import Event as Flag
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import Any

from anyio import move_on_after
from msgspec import structs

from ..core.budget import BUDGET_UNCHANGED
from ..core.engine import CUT_OFF_MARK
from ..core.operation import RunContext, find_lost_members
from ..store.follower import Follower
from ..store.mailbox import MailboxMessage
from ..store.run_store import RunLease, RunStore
from ..values.agent import Agent, Budget, collect_agent_names
from ..values.errors import (
    AgentFailed,
    Failure,
    Mistake,
    PodiumError,
    explain_full_disk,
    find_first_error,
    format_failures,
)
from ..values.event import (
    KINDS,
    AlsoPlaced,
    BudgetChanged,
    Entry,
    Event,
    MemberChanged,
    Noticed,
    OperationEnded,
    PauseAsked,
    PermissionAnswered,
    RunEnded,
    RunPaused,
    StopAsked,
    WorkerPlaced,
    decode_entry,
)
from ..values.plain_text import join_words
from ..values.request import Answer, Outcome, Part, Result
from ..values.worker_task import WorkerTask
from ..views.run_state.tree import RunView
from .assembly.preflight import require_prices, validate_budget

RELEASE_SECONDS = 5.0
EndStep = Callable[[bool], Awaitable[str | None]]
"""A step before a run ends. Its argument says whether the run succeeded. It returns an error message, if any."""


class RunDriver:
    """Executes a run whose lease this process holds, or only records events on the run's timeline.

    `before_end` contains the steps before the run ends, in order and keyed by what they do.
    """

    def __init__(
        self,
        store: RunStore,
        lease: RunLease,
        *,
        first: Entry,
        context: RunContext,
        tools: AbstractAsyncContextManager[object],
        before_end: Mapping[str, EndStep],
    ) -> None:
        self.id = lease.run
        self.store = store
        self.lease = lease
        self.timeline = context.timeline
        self.context = context
        self._tools = tools
        self._before_end = before_end
        started = first.started
        self.agent = started.agent
        self._root = context.root_operation(self.agent)
        self._team = started.agents
        self._request = started.request
        self.worker_task = started.errand
        """The worker task with the paths on this machine, if this is a worker's run."""
        self._started_at = first.at
        self._timeout = self.timeline.work.timeouts.whole
        self._followers: list[Follower] = []
        self.result: Result | None = None
        self._finished = Flag()
        self.has_recorded_end = False
        """Whether the run's end or pause has been recorded. Readers may see that entry before `is_over` is true."""
        self.error: BaseException | None = None
        lease.deliver = self._deliver_message

    @property
    def is_over(self) -> bool:
        """Whether this process has stopped working on the run."""
        return self._finished.is_set()

    def follow_entries(self, after: int) -> Follower:
        """Return a follower that reads the entries after the entry number `after`.

        The follower ends when this process stops working on the run, at the latest.
        """
        follower = Follower(self.store.path, self.id, after)
        if self.is_over:
            follower.finish()
        self._followers.append(follower)
        return follower

    async def wait_result(self) -> Result:
        """Wait until this process stops working on the run, and return the result."""
        await self._finished.wait()
        assert self.result is not None
        return self.result

    def explain_refusal(self, change: MemberChanged) -> str:
        """Return why an agent cannot be changed in this way, or an empty string if it can.

        Only the run's owner can check this, because only the owner knows which models are available.
        """
        try:
            self.require_agent(change.member)
            if change.model:
                agent = self.context.agents.get(change.member) or Agent(name=change.member)
                self.context.engine_for(structs.replace(agent, model=change.model))
        except Mistake as error:
            return str(error)
        return ""

    def require_agent(self, agent: str) -> None:
        names = collect_agent_names(self._team)
        if agent not in names:
            raise Mistake(f"run {self.id} has no agent {agent!r}; available: {', '.join(names)}")

    def check_budget(self, budget: Budget) -> None:
        """Raise Mistake if the limits are invalid, or if this run cannot enforce them."""
        validate_budget(budget)
        if budget.usd is not None:
            require_prices(self.context.agents.values(), self.context.engine_for)

    def record_checkouts(self, task: WorkerTask, *, host: str = "") -> None:
        """Record a worker's checkouts, unless they are already recorded.

        `task` contains the commits at which the branch starts. `host` is the id of this machine if the run can move to
        another one.
        """
        key = f"/{KINDS[WorkerPlaced]}#1"
        if task.has_checkout and not self.timeline.has_outcome(key):
            first, *others = task.checkouts
            also = tuple(AlsoPlaced(root=one.root, path=one.path, base=one.base) for one in others)
            placed = WorkerPlaced(path=first.path, branch=task.branch, base=first.base, host=host, also=also)
            self.timeline.append(placed, scope="", key=key)

    async def release(self) -> None:
        """Release a newly created run, so that another process can work on it."""
        self.store.release_run(self.lease)
        await self.timeline.wait_written()

    async def record_and_release(self, *events: Event) -> None:
        """Record events about a run that this process does not drive, and release the run."""
        self.lease.deliver = None
        for event in events:
            self.timeline.append(event, scope="")
        self.store.release_run(self.lease)
        await self.timeline.wait_written()

    async def record_failure(self, why: str) -> None:
        """End the run as failed, for a reason outside the run's own work."""
        failure = Failure(kind="failed", agent=self.agent, message=why)
        ended = await self._finish_run(RunEnded(outcome="failed", failure=failure, parts=await self._collect_parts()))
        self.lease.deliver = None
        self._close_hooks()
        self.timeline.append(ended, scope="")
        self.store.release_run(self.lease, is_over=True)
        await self.timeline.wait_written()

    async def run(self) -> Result:
        """Work on the run until it ends, pauses or is interrupted, and return the result.

        An error is not raised but stored in `error`; the run can then be resumed from its timeline. Cancellation is
        passed on to the caller.
        """
        try:
            self.result = await self._run_to_end()
        except Exception as error:
            self.error = find_first_error(error)
            ours = isinstance(self.error, PodiumError)
            full = explain_full_disk(self.error)
            why = str(self.error) if ours else full or f"internal error in Podium: {self.error!r}"
            self.result = self._build_result("interrupted", error=self.timeline.redaction.redact_text(why))
            await self._release_lease()
        except BaseException:
            self.result = self._build_result("interrupted", error="this process was interrupted")
            await self._release_lease()
            raise
        finally:
            self.lease.deliver = None
            self._close_hooks()
            self._finished.set()
            for follower in self._followers:
                follower.finish()
        return self.result

    async def _run_to_end(self) -> Result:
        timeline, index = self.timeline, self.timeline.index
        self._timeout.set_duration(self._time_limit - timeline.earlier_seconds)
        answer: Answer | None = None
        ended: RunEnded | RunPaused | None = None
        with timeline.work.timeouts.track_timeout(self._timeout, self.agent), self._timeout.scope:
            if not (index.stop_asked or index.is_pausing):
                try:
                    await self._report_start()
                    async with self._tools:
                        answer = await self._root.run(self._request)
                    ended = await self._build_end_after_answer(answer)
                except AgentFailed as error:
                    ended = RunEnded(
                        outcome=error.failure.outcome, failure=error.failure, parts=await self._collect_parts()
                    )
        ended = ended or await self._build_early_end()
        if isinstance(ended, RunEnded):
            ended = await self._finish_run(ended)
        # The end or the pause must be the last entry on the timeline, so no more mail is delivered from here on.
        self.lease.deliver = None
        timeline.append(ended, scope="")
        self.has_recorded_end = True
        self.store.release_run(self.lease, is_over=isinstance(ended, RunEnded))
        await timeline.wait_written()
        return self._result_from_end(ended, answer)

    async def _build_end_after_answer(self, answer: Answer) -> RunEnded:
        """Return the event that ends a run whose first agent has answered. An incomplete answer is not a success.

        An answer is incomplete if it was cut off, if agents' calls were refused because of a limit of the run, or if a
        member of a team took no part because its provider has no such model.
        """
        why = self.context.allowance.find_refusal(self._root.scope.path)
        if why is not None:
            message = f"{why}; some work was refused for this reason, so the answer is incomplete"
            failure = Failure(kind="budget", agent=self.agent, message=message)
        elif answer.text.endswith(CUT_OFF_MARK) or any(part.text.endswith(CUT_OFF_MARK) for part in answer.parts):
            message = "the answer was cut off at the model's token limit, even after the model was asked to continue"
            failure = Failure(kind="limit", agent=self.agent, message=message)
        elif lost := find_lost_members(self._root.scope):
            names = join_words([one.agent for one in lost], "and")
            why = format_failures(lost)
            message = f"the team worked without {names}, so the answer is incomplete ({why})"
            failure = Failure(kind="engine", agent=self.agent, message=message)
        else:
            return RunEnded(outcome="succeeded")
        parts = answer.parts or await self._collect_parts()
        return RunEnded(outcome=failure.outcome, failure=failure, parts=parts)

    async def _build_early_end(self) -> RunEnded | RunPaused:
        """Return the event that ends or pauses a run before its first agent has answered.

        Such a run was stopped or paused, is waiting for a provider's limit to reset, or has reached its time limit.
        """
        if self.timeline.index.stop_asked:
            return RunEnded(outcome="cancelled", parts=await self._collect_parts())
        if self.timeline.index.is_pausing:
            return RunPaused()
        if (wakeup := self.timeline.work.wakeup) is not None:
            return RunPaused(until=wakeup.until, reason=wakeup.reason)
        message = f"the run's budget of {self._time_limit:g} s is used up"
        failure = Failure(kind="budget", agent=self.agent, message=message)
        return RunEnded(outcome=failure.outcome, failure=failure, parts=await self._collect_parts())

    async def _finish_run(self, ended: RunEnded) -> RunEnded:
        """Do the remaining work before a run ends, and return the event to record.

        If the run succeeded, the results of ended workers are recorded; otherwise, its workers are stopped. Then
        the steps in `before_end` are taken, and undelivered messages are reported.
        """
        await (self._root.record_ended_workers() if ended.outcome == "succeeded" else self._root.stop_workers())
        errors = [await step(ended.outcome == "succeeded") for step in self._before_end.values()]
        if (why := next(filter(None, errors), None)) and ended.outcome == "succeeded":
            failure = Failure(kind="failed", agent=self.agent, message=why)
            ended = RunEnded(outcome="failed", failure=failure, parts=await self._collect_parts())
        if (over := self.context.allowance.describe_overshoot()) is not None:
            self.timeline.append(Noticed(text=over), scope="")
        await self._report_end(ended)
        await self._report_unread_messages()
        return ended

    async def _report_unread_messages(self) -> None:
        """Record which messages no agent received, and tell the runs of their senders. No more mail is delivered."""
        self.lease.deliver = None
        unread = tuple(self.timeline.index.messages.undelivered.values())
        for message in unread:
            self.timeline.append(Noticed(text=f"{message.to} did not receive the message: {message.text}"), scope="")
            if message.attachments:
                self.store.drop_attachments(self.lease, message.id)
        await self.timeline.links.acknowledge(unread, is_delivered=False)

    async def _report_start(self) -> None:
        """Call the hooks for the start of the run."""
        if self.context.hooks is not None:
            await self.context.hooks.report_run("run_started", {"agent": self.agent, "request": self._request.text})

    async def _report_end(self, ended: RunEnded) -> None:
        """Call the hooks for the end of the run. For a worker's run, call the hooks for the end of the worker first."""
        if self.context.hooks is None:
            return
        fields = {
            "agent": self.agent,
            "outcome": ended.outcome,
            "error": "" if ended.failure is None else str(ended.failure),
        }
        if (task := self.worker_task) is not None:
            worker = {"branch": task.branch, "directory": task.path, "task": self._request.text}
            await self.context.hooks.report_run("worker_ended", {**fields, **worker})
        await self.context.hooks.report_run("run_ended", fields)

    def _close_hooks(self) -> None:
        if self.context.hooks is not None:
            self.context.hooks.close()

    @property
    def _time_limit(self) -> float:
        """The maximum total working time of the run."""
        budget = self.context.allowance.budget
        return inf if budget is None or budget.seconds is None else budget.seconds

    async def deliver(self) -> None:
        """Deliver the messages in the run's mailbox."""
        await self.store.deliver_mail(self.lease)

    def _deliver_message(self, message: MailboxMessage) -> None:
        if isinstance(message.event, BudgetChanged):
            self._apply_budget_change(message, message.event)
            return
        if isinstance(message.event, MemberChanged) and (why := self.explain_refusal(message.event)):
            self.timeline.append(
                Noticed(text=f"{message.event.member} was not changed: {why}"), scope="", mail=message.id
            )
            return
        self.timeline.append(message.event, scope="", mail=message.id)
        match message.event:
            case StopAsked():
                self._timeout.scope.cancel()
            case PauseAsked():
                self.timeline.work.pause()
            case PermissionAnswered(decision="abort", by=by, channel=channel):
                self.timeline.append(StopAsked(by=by, channel=channel), scope="")
                self._timeout.scope.cancel()
            case PermissionAnswered(decision="deny_and_pause", by=by, channel=channel):
                self.timeline.append(PauseAsked(by=by, channel=channel), scope="")
                self.timeline.work.pause()

    def _apply_budget_change(self, message: MailboxMessage, change: BudgetChanged) -> None:
        """Apply new limits, or record why they cannot be enforced.

        Only the run's owner can check the limits, because only the owner knows which models the agents use.
        """
        try:
            self.check_budget(change.budget)
        except Mistake as error:
            self.timeline.append(Noticed(text=f"{BUDGET_UNCHANGED}: {error}"), scope="", mail=message.id)
            return
        # A resumed run uses this key to find the change. The prefix keeps the key distinct from the keys of steps.
        number = 1 + len(self.timeline.find_events_below("", BudgetChanged))
        self.timeline.append(change, scope="", key=f"/{KINDS[BudgetChanged]}#{number}", mail=message.id)
        self.context.allowance.change_limits(change.budget)
        if change.budget.seconds is not None:
            self._timeout.set_duration(change.budget.seconds - self.timeline.earlier_seconds)

    async def _collect_parts(self) -> tuple[Part, ...]:
        """Return the partial results that the timeline contains."""
        await self.timeline.wait_written()
        rows = await self.store.read_rows(self.id)
        return RunView.from_entries(decode_entry(row.line) for row in rows).collect_parts()

    def _result_from_end(self, ended: RunEnded | RunPaused, answer: Answer | None) -> Result:
        if isinstance(ended, RunPaused):
            return self._build_result("paused")
        if answer is not None and ended.outcome == "succeeded":
            ended_operation = self._root.scope.find_outcome(OperationEnded)
            unproved = None if ended_operation is None else ended_operation.unproved or None
            return self._build_result(
                "succeeded", text=answer.text, data=answer.data, parts=answer.parts, unproved=unproved
            )
        error = None if ended.failure is None else self.timeline.redaction.redact_text(str(ended.failure))
        given = {} if answer is None else {"text": answer.text, "data": answer.data}
        return self._build_result(ended.outcome, parts=ended.parts, error=error, **given)

    def _build_result(self, outcome: Outcome, **rest: Any) -> Result:
        usage = structs.replace(self.timeline.index.usage_below(), seconds=time.time() - self._started_at)
        return Result(run_id=self.id, outcome=outcome, succeeded=outcome == "succeeded", usage=usage, **rest)

    async def _release_lease(self) -> None:
        """Release the run, and write all recorded entries, even if this task is cancelled."""
        with move_on_after(RELEASE_SECONDS, shield=True):
            try:
                self.store.release_run(self.lease)
                await self.lease.wait_written()
            except PodiumError:
                pass  # the store has already reported its failure, and the lease expires on its own

    def close_followers(self) -> None:
        """Close all followers that `follow_entries` has returned."""
        for follower in self._followers:
            follower.close()
