"""Driving a run: this process works on it until it ends, pauses or is interrupted.

The driver gives the run's operations their timeline, takes messages from the run's mailbox, and records how the run
ended. Everything that a person does to a run reaches it through the mailbox.
"""

from __future__ import annotations

import time
from asyncio import Event
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from math import inf
from typing import Any

from anyio import move_on_after
from msgspec import structs

from ..core.budget import BUDGET_UNCHANGED
from ..core.clock import PausableTimeout
from ..core.operation import RunContext
from ..setup.preflight import require_prices, validate_budget
from ..store.follower import Follower
from ..store.sqlite.mailbox import MailboxMessage
from ..store.sqlite.store import SqliteLease, SqliteStore
from ..values.agent import Agent, Budget, collect_agent_names
from ..values.errors import AgentFailed, Failure, Mistake, PodiumError, find_first_error
from ..values.event import (
    KINDS,
    BudgetChanged,
    Entry,
    MemberChanged,
    Noticed,
    PauseAsked,
    PermissionAnswered,
    RunEnded,
    RunPaused,
    RunStarted,
    StopAsked,
    WorkerPlaced,
    decode_entry,
)
from ..values.request import Answer, Outcome, Part
from ..values.result import Result
from ..views.run_view import RunView

RELEASE_SECONDS = 5.0


class RunDriver:
    """A run that this process holds the lease of and works on."""

    def __init__(
        self,
        store: SqliteStore,
        lease: SqliteLease,
        *,
        first: Entry,
        context: RunContext,
        tools: AbstractAsyncContextManager[object],
        before_end: Callable[[bool], Awaitable[str]] | None = None,
    ) -> None:
        assert isinstance(first.event, RunStarted)
        self.id = lease.run
        self.store = store
        self.lease = lease
        self.timeline = context.timeline
        self.context = context
        self._tools = tools
        self._before_end = before_end
        """What is done before the run ends, with or without success; it says what went wrong with that."""
        self.agent = first.event.agent
        self._agents = collect_agent_names(first.event.agents)
        self._request = first.event.request
        self._worker_task = first.event.errand
        self._started_at = first.at
        self._timeout = PausableTimeout(inf)
        """The block in which the run is worked on, and the time that it has."""
        self._followers: list[Follower] = []
        self.result: Result | None = None
        self._finished = Event()
        self.error: BaseException | None = None
        lease.deliver = self._deliver_mail
        self.timeline.read_attachment = partial(store.read_attachment, self.id)

    @property
    def is_over(self) -> bool:
        """Whether this process has stopped working on it."""
        return self._finished.is_set()

    def follow_entries(self, after: int) -> Follower:
        """Return a follower of the timeline that ends with the run, or when this process stops working on it."""
        follower = Follower(self.store.path, self.id, after)
        if self.is_over:
            follower.finish()
        self._followers.append(follower)
        return follower

    async def wait_result(self) -> Result:
        """What the run came to; waits for its end."""
        await self._finished.wait()
        assert self.result is not None
        return self.result

    def explain_refusal(self, change: MemberChanged) -> str:
        """Why an agent cannot be changed so; empty where it can. Only the owner knows what can think here."""
        try:
            self.require_agent(change.member)
            if change.model:
                agent = self.context.agents.get(change.member) or Agent(name=change.member)
                self.context.engine_for(structs.replace(agent, model=change.model))
        except Mistake as error:
            return str(error)
        return ""

    def require_agent(self, agent: str) -> None:
        if agent not in self._agents:
            raise Mistake(f"run {self.id} has no agent {agent!r}; there are {', '.join(self._agents)}")

    def check_budget(self, budget: Budget) -> None:
        """Refuse limits that are none, or that this run cannot keep. Raises Mistake."""
        validate_budget(budget)
        if budget.usd is not None:
            require_prices(self.context.agents.values(), self.context.engine_for)

    def record_checkout(self, base: str) -> None:
        """Note where a worker has its checkout, once; `base` is the commit that its branch began at."""
        key = f"/{KINDS[WorkerPlaced]}#1"
        if self._worker_task is not None and base and not self.timeline.has_outcome(key):
            placed = WorkerPlaced(path=self._worker_task.path, branch=self._worker_task.branch, base=base)
            self.timeline.append(placed, scope="", key=key)

    async def release(self) -> None:
        """Leave a run that has only been written down to whoever works on it."""
        self.store.release_run(self.lease)
        await self.timeline.wait_written()

    async def record_pause(self) -> None:
        """Pause a run that nobody works on."""
        self.lease.deliver = None
        self.timeline.append(RunPaused(), scope="")
        self.store.release_run(self.lease)
        await self.timeline.wait_written()

    async def record_failure(self, why: str) -> None:
        """End the run for a reason that lies outside its work."""
        failure = Failure(kind="failed", agent=self.agent, message=why)
        ended = await self._finish_run(RunEnded(outcome="failed", failure=failure, parts=await self._collect_parts()))
        self.lease.deliver = None
        self.timeline.append(ended, scope="")
        self.store.release_run(self.lease, is_over=True)
        await self.timeline.wait_written()

    async def drive(self) -> Result:
        """Work on the run until it ends, pauses or is interrupted. Only cancellation is raised.

        This is the edge at which any error of ours stops: the run stays as it is on the timeline,
        and `trouble` has the error for whoever looks into it.
        """
        try:
            self.result = await self._run_to_end()
        except Exception as error:
            self.error = find_first_error(error)
            ours = isinstance(self.error, PodiumError)
            why = str(self.error) if ours else f"something went wrong inside Podium: {self.error!r}"
            self.result = self._build_result("interrupted", error=self.timeline.redaction.redact_text(why))
            await self._release_lease()
        except BaseException:
            self.result = self._build_result("interrupted", error="this process was interrupted")
            await self._release_lease()
            raise
        finally:
            self.lease.deliver = None
            self._finished.set()
            for follower in self._followers:
                follower.finish()
        return self.result

    async def _run_to_end(self) -> Result:
        timeout, timeline = self._timeout, self.timeline
        timeline.on_quiet = timeout.scope.cancel
        timeout.set_duration(self._time_limit - timeline.earlier_seconds)
        answer: Answer | None = None
        ended: RunEnded | RunPaused | None = None
        with timeline.timeouts.track_timeout(timeout, self.agent), timeout.scope:
            if not timeline.stop_asked:
                try:
                    answer = await self._answer_request()
                    ended = RunEnded(outcome="succeeded")
                except AgentFailed as error:
                    ended = RunEnded(
                        outcome=error.failure.outcome, failure=error.failure, parts=await self._collect_parts()
                    )
        ended = ended or await self._build_early_end()
        if isinstance(ended, RunEnded):
            ended = await self._finish_run(ended)
        # Nothing comes after the end: who says something now says it to a run that is over.
        self.lease.deliver = None
        timeline.append(ended, scope="")
        self.store.release_run(self.lease, is_over=isinstance(ended, RunEnded))
        await timeline.wait_written()
        return self._result_from_end(ended, answer)

    async def _build_early_end(self) -> RunEnded | RunPaused:
        """How work ended that was cut short: by a person, or because its time is over."""
        if self.timeline.stop_asked:
            return RunEnded(outcome="cancelled", parts=await self._collect_parts())
        if self.timeline.is_pausing:
            return RunPaused()
        message = f"the run's budget of {self._time_limit:g} s is used up"
        failure = Failure(kind="budget", agent=self.agent, message=message)
        return RunEnded(outcome=failure.outcome, failure=failure, parts=await self._collect_parts())

    async def _finish_run(self, ended: RunEnded) -> RunEnded:
        """How a run ends after all that has to be done and said before."""
        root = self.context.root_operation(self.agent)
        await (root.record_ended_workers() if ended.outcome == "succeeded" else root.stop_workers())
        if self._before_end is not None:
            why = await self._before_end(ended.outcome == "succeeded")
            if why and ended.outcome == "succeeded":
                failure = Failure(kind="failed", agent=self.agent, message=why)
                ended = RunEnded(outcome="failed", failure=failure, parts=await self._collect_parts())
        for message in self.timeline.messages.values():
            self.timeline.append(Noticed(text=f"{message.to} did not hear the message: {message.text}"), scope="")
            if message.attachments:
                self.store.drop_attachments(self.lease, message.id)
        return ended

    async def _answer_request(self) -> Answer:
        """The first agent's answer, with all tools of the run at hand; raises Failed."""
        async with self._tools:
            return await self.context.root_operation(self.agent).run(self._request)

    @property
    def _time_limit(self) -> float:
        """How long the run may work in all."""
        budget = self.context.allowance.budget
        return inf if budget is None or budget.seconds is None else budget.seconds

    def _deliver_mail(self, message: MailboxMessage) -> None:
        if isinstance(message.event, BudgetChanged):
            self._apply_budget_change(message, message.event)
            return
        if isinstance(message.event, MemberChanged) and (why := self.explain_refusal(message.event)):
            self.timeline.append(
                Noticed(text=f"{message.event.member} stays as it is: {why}"), scope="", mail=message.id
            )
            return
        self.timeline.append(message.event, scope="", mail=message.id)
        match message.event:
            case StopAsked():
                self._timeout.scope.cancel()
            case PauseAsked():
                self.timeline.pause()
            case PermissionAnswered(decision="abort", by=by):
                self.timeline.append(StopAsked(by=by), scope="")
                self._timeout.scope.cancel()
            case PermissionAnswered(decision="deny_and_pause", by=by):
                self.timeline.append(PauseAsked(by=by), scope="")
                self.timeline.pause()

    def _apply_budget_change(self, message: MailboxMessage, change: BudgetChanged) -> None:
        """Hold to other limits from now on, where they can be kept: only the owner knows what its agents think with."""
        try:
            self.check_budget(change.budget)
        except Mistake as error:
            self.timeline.append(Noticed(text=f"{BUDGET_UNCHANGED}: {error}"), scope="", mail=message.id)
            return
        # With a key it is found again when the run is resumed; no step of the run has one that begins so.
        number = 1 + len(self.timeline.find_events_below("", BudgetChanged))
        self.timeline.append(change, scope="", key=f"/{KINDS[BudgetChanged]}#{number}", mail=message.id)
        self.context.allowance.change_limits(change.budget)
        if change.budget.seconds is not None:
            self._timeout.set_duration(change.budget.seconds - self.timeline.earlier_seconds)

    async def _collect_parts(self) -> tuple[Part, ...]:
        """What there is of an answer, as anybody would read it off the timeline."""
        await self.timeline.wait_written()
        rows = await self.store.read_rows(self.id)
        return RunView.from_entries(decode_entry(row.line) for row in rows).collect_parts()

    def _result_from_end(self, ended: RunEnded | RunPaused, answer: Answer | None) -> Result:
        if answer is not None:
            return self._build_result("succeeded", text=answer.text, data=answer.data, parts=answer.parts)
        if isinstance(ended, RunPaused):
            return self._build_result("paused")
        error = None if ended.failure is None else self.timeline.redaction.redact_text(str(ended.failure))
        return self._build_result(ended.outcome, parts=ended.parts, error=error)

    def _build_result(self, outcome: Outcome, **rest: Any) -> Result:
        usage = structs.replace(self.timeline.usage_below(), seconds=time.time() - self._started_at)
        return Result(run_id=self.id, outcome=outcome, succeeded=outcome == "succeeded", usage=usage, **rest)

    async def _release_lease(self) -> None:
        """Give the run back. What was recorded until now is written, whatever cancelled us."""
        with move_on_after(RELEASE_SECONDS, shield=True):
            try:
                self.store.release_run(self.lease)
                await self.lease.wait_written()
            except PodiumError:
                pass  # a store that refuses has said so; the lease ends by itself

    def close_followers(self) -> None:
        """Put away what callers followed the run with."""
        for follower in self._followers:
            follower.close()
