"""A live run: one request that this process is working on.

It gives the run's operations their timeline, listens to the run's mailbox, and records how the
run ended. The person's words, wherever they are said, come through the mailbox.
"""

from __future__ import annotations

import secrets
import time
from asyncio import Event
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from anyio import move_on_after, to_thread
from msgspec import structs

from ..core.budget import BUDGET_UNCHANGED
from ..core.clock import PausableTimeout
from ..core.operation import RunContext
from ..setup.preflight import require_prices, validate_budget
from ..store.follower import Follower
from ..store.sqlite.mailbox import MailboxEvent, MailboxMessage, post_to_mailbox
from ..store.sqlite.store import SqliteLease, SqliteStore
from ..values.agent import Agent, Budget, collect_agent_names
from ..values.attachment import AttachedFile, read_attachments
from ..values.errors import AgentFailed, Failure, Mistake, PodiumError, find_first_error
from ..values.event import (
    KINDS,
    BudgetChanged,
    Decision,
    Entry,
    MemberChanged,
    MessageReceived,
    Noticed,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunStarted,
    StopAsked,
    WorkerPlaced,
    decode_entry,
)
from ..values.request import Answer, Outcome, Part, replace_surrogates
from ..values.result import Result
from ..views.run_view import RunView

RELEASE_SECONDS = 5.0


class Run:
    """One request and all that comes of it, while this process works on it."""

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
        self._store = store
        self._lease = lease
        self._timeline = context.timeline
        self._context = context
        self._tools = tools
        self._before_end = before_end
        """What is done before the run ends, with or without success; it says what went wrong with that."""
        self._agent = first.event.agent
        self._agents = collect_agent_names(first.event.agents)
        self._request = first.event.request
        self._worker_task = first.event.errand
        self._started_at = first.at
        self._timeout = PausableTimeout(inf)
        """The block in which the run is worked on, and the time that it has."""
        self._followers: list[Follower] = []
        self._result: Result | None = None
        self._finished = Event()
        self.error: BaseException | None = None
        lease.deliver = self._deliver_mail
        self._timeline.read_attachment = partial(store.read_attachment, self.id)

    # What the caller can do

    def entries(self, after: int = 0) -> Follower:
        """The timeline from the entry after `after`, and what comes, until the run ends or pauses."""
        follower = Follower(self._store.path, self.id, after)
        if self.is_over:
            follower.finish()
        self._followers.append(follower)
        return follower

    async def result(self) -> Result:
        """What the run came to; waits for its end."""
        await self._finished.wait()
        assert self._result is not None
        return self._result

    @property
    def open_requests(self) -> list[str]:
        """The ids of what agents ask and nobody has answered."""
        return [id for id in self._timeline.asked if id not in self._timeline.answers]

    @property
    def is_over(self) -> bool:
        """Whether this process has stopped working on it."""
        return self._finished.is_set()

    async def send(self, text: str, *, to: str | None = None, by: str = "", attach: Sequence[str | Path] = ()) -> None:
        """Say something to an agent of the run, the first one by default; it hears it at its next turn.

        `attach` are images and text files that go with it. Raises Mistake for what cannot be attached.
        """
        if to is not None:
            self._require_agent(to)
        files = await to_thread.run_sync(read_attachments, attach) if attach else ()
        message = MessageReceived(
            id=secrets.token_hex(6),
            to=to or self._agent,
            text=self._clean_text(text),
            by=by,
            attachments=tuple(one.attachment for one in files),
        )
        await self._post_event(message, files=files)

    async def answer(self, id: str, decision: Decision, *, by: str = "", comment: str = "", rule: str = "") -> bool:
        """Decide on a request for permission; False where somebody else already has.

        `rule` is what is allowed for good, and comes with the decision `always`.
        """
        self._require_request(id, PermissionAsked)
        answered = PermissionAnswered(
            id=id, decision=decision, by=by, comment=self._clean_text(comment), rule=rule, at=time.time()
        )
        return await self._post_event(answered, ref=id)

    async def reply(self, id: str, text: str, *, by: str = "") -> bool:
        """Answer a question of an agent's; False where somebody else already has."""
        self._require_request(id, QuestionAsked)
        return await self._post_event(QuestionAnswered(id=id, text=self._clean_text(text), by=by), ref=id)

    async def change_budget(self, budget: Budget, *, by: str = "") -> None:
        """Give the run these limits, from the next model call on; those that `budget` leaves out stay as they are.

        What was refused before stays refused. A limit below what is spent ends the run at its next call.
        """
        self._check_budget(budget)
        await self._post_event(BudgetChanged(budget=budget, by=by))

    async def change_member(self, member: str, *, model: str = "", prompt: str = "", by: str = "") -> None:
        """Give an agent of the run another model or prompt from its next part on. Raises Mistake for none that work."""
        change = MemberChanged(member=member, model=model, prompt=self._clean_text(prompt), by=by)
        if why := self._explain_refusal(change):
            raise Mistake(why)
        await self._post_event(change)

    def _explain_refusal(self, change: MemberChanged) -> str:
        """Why an agent cannot be changed so; empty where it can. Only the owner knows what can think here."""
        try:
            self._require_agent(change.member)
            if change.model:
                agent = self._context.agents.get(change.member) or Agent(name=change.member)
                self._context.engine_for(structs.replace(agent, model=change.model))
        except Mistake as error:
            return str(error)
        return ""

    async def pause(self, by: str = "") -> None:
        """Begin no further step; what is under way comes to its end first."""
        self._require_active()
        await self._post_event(PauseAsked(by=by))

    async def stop(self, by: str = "") -> None:
        """End the run now, with what there is."""
        self._require_active()
        await self._post_event(StopAsked(by=by))

    def _require_agent(self, agent: str) -> None:
        if agent not in self._agents:
            raise Mistake(f"run {self.id} has no agent {agent!r}; there are {', '.join(self._agents)}")

    def _require_request(self, id: str, kind: type[PermissionAsked | QuestionAsked]) -> None:
        asked = self._timeline.asked.get(id)
        if not isinstance(asked, kind):
            what = "no request for permission" if kind is PermissionAsked else "no question"
            raise Mistake(f"run {self.id} has asked {what} with the id {id!r}")

    def _check_budget(self, budget: Budget) -> None:
        """Refuse limits that are none, or that this run cannot keep. Raises Mistake."""
        validate_budget(budget)
        if budget.usd is not None:
            require_prices(self._context.agents.values(), self._context.engine_for)

    def _clean_text(self, text: str) -> str:
        return self._timeline.redaction.redact_text(replace_surrogates(text))

    def _require_active(self) -> None:
        if self._result is not None:
            raise Mistake(f"nobody works on run {self.id} here any more: it is {self._result.outcome}")

    async def _post_event(self, event: MailboxEvent, *, ref: str = "", files: Sequence[AttachedFile] = ()) -> bool:
        if self._result is not None and self._result.outcome not in ("paused", "interrupted"):
            raise Mistake(f"run {self.id} has ended ({self._result.outcome}) and hears nothing any more")
        if ref in self._timeline.answers:
            return False
        is_first = await to_thread.run_sync(
            partial(post_to_mailbox, self._store.path, self.id, event, ref=ref, files=files)
        )
        if not self.is_over:
            self._store.deliver_mail(self._lease)
        return is_first

    # What happens inside

    def record_checkout(self, base: str) -> None:
        """Note where a worker has its checkout, once; `base` is the commit that its branch began at."""
        key = f"/{KINDS[WorkerPlaced]}#1"
        if self._worker_task is not None and base and not self._timeline.has_outcome(key):
            placed = WorkerPlaced(path=self._worker_task.path, branch=self._worker_task.branch, base=base)
            self._timeline.append(placed, scope="", key=key)

    async def release(self) -> None:
        """Leave a run that has only been written down to whoever works on it."""
        self._store.release_run(self._lease)
        await self._timeline.wait_written()

    async def record_pause(self) -> None:
        """Pause a run that nobody works on."""
        self._lease.deliver = None
        self._timeline.append(RunPaused(), scope="")
        self._store.release_run(self._lease)
        await self._timeline.wait_written()

    async def record_failure(self, why: str) -> None:
        """End the run for a reason that lies outside its work."""
        failure = Failure(kind="failed", agent=self._agent, message=why)
        ended = await self._finish_run(RunEnded(outcome="failed", failure=failure, parts=await self._collect_parts()))
        self._lease.deliver = None
        self._timeline.append(ended, scope="")
        self._store.release_run(self._lease, is_over=True)
        await self._timeline.wait_written()

    async def drive(self) -> Result:
        """Work on the run until it ends, pauses or is interrupted. Only cancellation is raised.

        This is the edge at which any error of ours stops: the run stays as it is on the timeline,
        and `trouble` has the error for whoever looks into it.
        """
        try:
            self._result = await self._run_to_end()
        except Exception as error:
            self.error = find_first_error(error)
            ours = isinstance(self.error, PodiumError)
            why = str(self.error) if ours else f"something went wrong inside Podium: {self.error!r}"
            self._result = self._build_result("interrupted", error=self._timeline.redaction.redact_text(why))
            await self._release_lease()
        except BaseException:
            self._result = self._build_result("interrupted", error="this process was interrupted")
            await self._release_lease()
            raise
        finally:
            self._lease.deliver = None
            self._finished.set()
            for follower in self._followers:
                follower.finish()
        return self._result

    async def _run_to_end(self) -> Result:
        timeout, timeline = self._timeout, self._timeline
        timeline.on_quiet = timeout.scope.cancel
        timeout.set_duration(self._time_limit - timeline.earlier_seconds)
        answer: Answer | None = None
        ended: RunEnded | RunPaused | None = None
        with timeline.timeouts.track_timeout(timeout, self._agent), timeout.scope:
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
        self._lease.deliver = None
        timeline.append(ended, scope="")
        self._store.release_run(self._lease, is_over=isinstance(ended, RunEnded))
        await timeline.wait_written()
        return self._result_from_end(ended, answer)

    async def _build_early_end(self) -> RunEnded | RunPaused:
        """How work ended that was cut short: by a person, or because its time is over."""
        if self._timeline.stop_asked:
            return RunEnded(outcome="cancelled", parts=await self._collect_parts())
        if self._timeline.is_pausing:
            return RunPaused()
        message = f"the run's budget of {self._time_limit:g} s is used up"
        failure = Failure(kind="budget", agent=self._agent, message=message)
        return RunEnded(outcome=failure.outcome, failure=failure, parts=await self._collect_parts())

    async def _finish_run(self, ended: RunEnded) -> RunEnded:
        """How a run ends after all that has to be done and said before."""
        root = self._context.root_operation(self._agent)
        await (root.record_ended_workers() if ended.outcome == "succeeded" else root.stop_workers())
        if self._before_end is not None:
            why = await self._before_end(ended.outcome == "succeeded")
            if why and ended.outcome == "succeeded":
                failure = Failure(kind="failed", agent=self._agent, message=why)
                ended = RunEnded(outcome="failed", failure=failure, parts=await self._collect_parts())
        for message in self._timeline.messages.values():
            self._timeline.append(Noticed(text=f"{message.to} did not hear the message: {message.text}"), scope="")
            if message.attachments:
                self._store.drop_attachments(self._lease, message.id)
        return ended

    async def _answer_request(self) -> Answer:
        """The first agent's answer, with all tools of the run at hand; raises Failed."""
        async with self._tools:
            return await self._context.root_operation(self._agent).run(self._request)

    @property
    def _time_limit(self) -> float:
        """How long the run may work in all."""
        budget = self._context.allowance.budget
        return inf if budget is None or budget.seconds is None else budget.seconds

    def _deliver_mail(self, message: MailboxMessage) -> None:
        if isinstance(message.event, BudgetChanged):
            self._apply_budget_change(message, message.event)
            return
        if isinstance(message.event, MemberChanged) and (why := self._explain_refusal(message.event)):
            self._timeline.append(
                Noticed(text=f"{message.event.member} stays as it is: {why}"), scope="", mail=message.id
            )
            return
        self._timeline.append(message.event, scope="", mail=message.id)
        match message.event:
            case StopAsked():
                self._timeout.scope.cancel()
            case PauseAsked():
                self._timeline.pause()
            case PermissionAnswered(decision="abort", by=by):
                self._timeline.append(StopAsked(by=by), scope="")
                self._timeout.scope.cancel()
            case PermissionAnswered(decision="deny_and_pause", by=by):
                self._timeline.append(PauseAsked(by=by), scope="")
                self._timeline.pause()

    def _apply_budget_change(self, message: MailboxMessage, change: BudgetChanged) -> None:
        """Hold to other limits from now on, where they can be kept: only the owner knows what its agents think with."""
        try:
            self._check_budget(change.budget)
        except Mistake as error:
            self._timeline.append(Noticed(text=f"{BUDGET_UNCHANGED}: {error}"), scope="", mail=message.id)
            return
        # With a key it is found again when the run is resumed; no step of the run has one that begins so.
        number = 1 + len(self._timeline.find_events_below("", BudgetChanged))
        self._timeline.append(change, scope="", key=f"/{KINDS[BudgetChanged]}#{number}", mail=message.id)
        self._context.allowance.change_limits(change.budget)
        if change.budget.seconds is not None:
            self._timeout.set_duration(change.budget.seconds - self._timeline.earlier_seconds)

    async def _collect_parts(self) -> tuple[Part, ...]:
        """What there is of an answer, as anybody would read it off the timeline."""
        await self._timeline.wait_written()
        rows = await self._store.read_rows(self.id)
        return RunView.from_entries(decode_entry(row.line) for row in rows).collect_parts()

    def _result_from_end(self, ended: RunEnded | RunPaused, answer: Answer | None) -> Result:
        if answer is not None:
            return self._build_result("succeeded", text=answer.text, data=answer.data, parts=answer.parts)
        if isinstance(ended, RunPaused):
            return self._build_result("paused")
        error = None if ended.failure is None else self._timeline.redaction.redact_text(str(ended.failure))
        return self._build_result(ended.outcome, parts=ended.parts, error=error)

    def _build_result(self, outcome: Outcome, **rest: Any) -> Result:
        usage = structs.replace(self._timeline.usage_below(), seconds=time.time() - self._started_at)
        return Result(run_id=self.id, outcome=outcome, succeeded=outcome == "succeeded", usage=usage, **rest)

    async def _release_lease(self) -> None:
        """Give the run back. What was recorded until now is written, whatever cancelled us."""
        with move_on_after(RELEASE_SECONDS, shield=True):
            try:
                self._store.release_run(self._lease)
                await self._lease.wait_written()
            except PodiumError:
                pass  # a store that refuses has said so; the lease ends by itself

    def close_followers(self) -> None:
        """Put away what callers followed the run with."""
        for follower in self._followers:
            follower.close()
