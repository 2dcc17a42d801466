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

from ..core.budget import STAYS
from ..core.clock import Limit
from ..core.operation import Engagement
from ..setup.preflight import must_be_a_budget, must_be_priced
from ..store.follower import Follower
from ..store.sqlite.mailbox import Letter, Wish, post
from ..store.sqlite.store import SqliteLease, SqliteStore
from ..values.agent import Agent, Budget, working_names
from ..values.attachment import Attached, attached
from ..values.errors import Failed, Failure, Mistake, PodiumError, first_error
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
    decode,
)
from ..values.request import Answer, Outcome, Part, readable
from ..values.result import Result
from ..views.run_view import Picture

RELEASE_SECONDS = 5.0


class Run:
    """One request and all that comes of it, while this process works on it."""

    def __init__(
        self,
        store: SqliteStore,
        lease: SqliteLease,
        *,
        first: Entry,
        engagement: Engagement,
        outfit: AbstractAsyncContextManager[object],
        closing: Callable[[bool], Awaitable[str]] | None = None,
    ) -> None:
        assert isinstance(first.event, RunStarted)
        self.id = lease.run
        self._store = store
        self._lease = lease
        self._timeline = engagement.timeline
        self._engagement = engagement
        self._outfit = outfit
        self._closing = closing
        """What is done before the run ends, with or without success; it says what went wrong with that."""
        self._agent = first.event.agent
        self._agents = working_names(first.event.agents)
        self._request = first.event.request
        self._errand = first.event.errand
        self._started_at = first.at
        self._limit = Limit(inf)
        """The block in which the run is worked on, and the time that it has."""
        self._followers: list[Follower] = []
        self._result: Result | None = None
        self._over = Event()
        self.trouble: BaseException | None = None
        lease.deliver = self._deliver
        self._timeline.attached = partial(store.attached, self.id)

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
        await self._over.wait()
        assert self._result is not None
        return self._result

    @property
    def open_requests(self) -> list[str]:
        """The ids of what agents ask and nobody has answered."""
        return [id for id in self._timeline.asked if id not in self._timeline.answers]

    @property
    def is_over(self) -> bool:
        """Whether this process has stopped working on it."""
        return self._over.is_set()

    async def send(self, text: str, *, to: str | None = None, by: str = "", attach: Sequence[str | Path] = ()) -> None:
        """Say something to an agent of the run, the first one by default; it hears it at its next turn.

        `attach` are images and text files that go with it. Raises Mistake for what cannot be attached.
        """
        if to is not None:
            self._must_have(to)
        files = await to_thread.run_sync(attached, attach) if attach else ()
        message = MessageReceived(
            id=secrets.token_hex(6),
            to=to or self._agent,
            text=self._clean(text),
            by=by,
            attachments=tuple(one.about for one in files),
        )
        await self._post(message, files=files)

    async def answer(self, id: str, decision: Decision, *, by: str = "", comment: str = "", rule: str = "") -> bool:
        """Decide on a request for permission; False where somebody else already has.

        `rule` is what is allowed for good, and comes with the decision `always`.
        """
        self._must_be_open(id, PermissionAsked)
        answered = PermissionAnswered(
            id=id, decision=decision, by=by, comment=self._clean(comment), rule=rule, at=time.time()
        )
        return await self._post(answered, ref=id)

    async def reply(self, id: str, text: str, *, by: str = "") -> bool:
        """Answer a question of an agent's; False where somebody else already has."""
        self._must_be_open(id, QuestionAsked)
        return await self._post(QuestionAnswered(id=id, text=self._clean(text), by=by), ref=id)

    async def change_budget(self, budget: Budget, *, by: str = "") -> None:
        """Give the run these limits, from the next model call on; those that `budget` leaves out stay as they are.

        What was refused before stays refused. A limit below what is spent ends the run at its next call.
        """
        self._must_be_kept(budget)
        await self._post(BudgetChanged(budget=budget, by=by))

    async def change_member(self, member: str, *, model: str = "", prompt: str = "", by: str = "") -> None:
        """Give an agent of the run another model or prompt from its next part on. Raises Mistake for none that work."""
        change = MemberChanged(member=member, model=model, prompt=self._clean(prompt), by=by)
        if why := self._refused(change):
            raise Mistake(why)
        await self._post(change)

    def _refused(self, change: MemberChanged) -> str:
        """Why an agent cannot be changed so; empty where it can. Only the owner knows what can think here."""
        try:
            self._must_have(change.member)
            if change.model:
                agent = self._engagement.agents.get(change.member) or Agent(name=change.member)
                self._engagement.engine_for(structs.replace(agent, model=change.model))
        except Mistake as error:
            return str(error)
        return ""

    async def pause(self, by: str = "") -> None:
        """Begin no further step; what is under way comes to its end first."""
        self._must_be_under_way()
        await self._post(PauseAsked(by=by))

    async def stop(self, by: str = "") -> None:
        """End the run now, with what there is."""
        self._must_be_under_way()
        await self._post(StopAsked(by=by))

    def _must_have(self, agent: str) -> None:
        if agent not in self._agents:
            raise Mistake(f"run {self.id} has no agent {agent!r}; there are {', '.join(self._agents)}")

    def _must_be_open(self, id: str, kind: type[PermissionAsked | QuestionAsked]) -> None:
        asked = self._timeline.asked.get(id)
        if not isinstance(asked, kind):
            what = "no request for permission" if kind is PermissionAsked else "no question"
            raise Mistake(f"run {self.id} has asked {what} with the id {id!r}")

    def _must_be_kept(self, budget: Budget) -> None:
        """Refuse limits that are none, or that this run cannot keep. Raises Mistake."""
        must_be_a_budget(budget)
        if budget.usd is not None:
            must_be_priced(self._engagement.agents.values(), self._engagement.engine_for)

    def _clean(self, text: str) -> str:
        return self._timeline.redaction.text(readable(text))

    def _must_be_under_way(self) -> None:
        if self._result is not None:
            raise Mistake(f"nobody works on run {self.id} here any more: it is {self._result.outcome}")

    async def _post(self, wish: Wish, *, ref: str = "", files: Sequence[Attached] = ()) -> bool:
        if self._result is not None and self._result.outcome not in ("paused", "interrupted"):
            raise Mistake(f"run {self.id} has ended ({self._result.outcome}) and hears nothing any more")
        if ref in self._timeline.answers:
            return False
        is_first = await to_thread.run_sync(partial(post, self._store.path, self.id, wish, ref=ref, files=files))
        if not self.is_over:
            self._store.collect_mail(self._lease)
        return is_first

    # What happens inside

    def place(self, base: str) -> None:
        """Note where a worker has its checkout, once; `base` is the commit that its branch began at."""
        key = f"/{KINDS[WorkerPlaced]}#1"
        if self._errand is not None and base and not self._timeline.knows(key):
            placed = WorkerPlaced(path=self._errand.path, branch=self._errand.branch, base=base)
            self._timeline.append(placed, scope="", key=key)

    async def left(self) -> None:
        """Leave a run that has only been written down to whoever works on it."""
        self._store.release(self._lease)
        await self._timeline.settled()

    async def rest(self) -> None:
        """Pause a run that nobody works on."""
        self._lease.deliver = None
        self._timeline.append(RunPaused(), scope="")
        self._store.release(self._lease)
        await self._timeline.settled()

    async def fail(self, why: str) -> None:
        """End the run for a reason that lies outside its work."""
        failure = Failure(kind="failed", agent=self._agent, message=why)
        ended = await self._closed(RunEnded(outcome="failed", failure=failure, parts=await self._parts()))
        self._lease.deliver = None
        self._timeline.append(ended, scope="")
        self._store.release(self._lease, is_over=True)
        await self._timeline.settled()

    async def drive(self) -> Result:
        """Work on the run until it ends, pauses or is interrupted. Only cancellation is raised.

        This is the edge at which any error of ours stops: the run stays as it is on the timeline,
        and `trouble` has the error for whoever looks into it.
        """
        try:
            self._result = await self._driven()
        except Exception as error:
            self.trouble = first_error(error)
            ours = isinstance(self.trouble, PodiumError)
            why = str(self.trouble) if ours else f"something went wrong inside Podium: {self.trouble!r}"
            self._result = self._came_to("interrupted", error=self._timeline.redaction.text(why))
            await self._let_go()
        except BaseException:
            self._result = self._came_to("interrupted", error="this process was interrupted")
            await self._let_go()
            raise
        finally:
            self._lease.deliver = None
            self._over.set()
            for follower in self._followers:
                follower.finish()
        return self._result

    async def _driven(self) -> Result:
        limit, timeline = self._limit, self._timeline
        timeline.when_quiet = limit.scope.cancel
        limit.allow(self._seconds - timeline.worked)
        answer: Answer | None = None
        ended: RunEnded | RunPaused | None = None
        with timeline.clock.watching(limit, self._agent), limit.scope:
            if not timeline.stop_asked:
                try:
                    answer = await self._answered()
                    ended = RunEnded(outcome="succeeded")
                except Failed as error:
                    ended = RunEnded(outcome=error.failure.outcome, failure=error.failure, parts=await self._parts())
        ended = ended or await self._cut()
        if isinstance(ended, RunEnded):
            ended = await self._closed(ended)
        # Nothing comes after the end: who says something now says it to a run that is over.
        self._lease.deliver = None
        timeline.append(ended, scope="")
        self._store.release(self._lease, is_over=isinstance(ended, RunEnded))
        await timeline.settled()
        return self._resulting(ended, answer)

    async def _cut(self) -> RunEnded | RunPaused:
        """How work ended that was cut short: by a person, or because its time is over."""
        if self._timeline.stop_asked:
            return RunEnded(outcome="cancelled", parts=await self._parts())
        if self._timeline.is_pausing:
            return RunPaused()
        message = f"the run's budget of {self._seconds:g} s is used up"
        failure = Failure(kind="budget", agent=self._agent, message=message)
        return RunEnded(outcome=failure.outcome, failure=failure, parts=await self._parts())

    async def _closed(self, ended: RunEnded) -> RunEnded:
        """How a run ends after all that has to be done and said before."""
        root = self._engagement.root(self._agent)
        await (root.count_ended() if ended.outcome == "succeeded" else root.call_back())
        if self._closing is not None:
            why = await self._closing(ended.outcome == "succeeded")
            if why and ended.outcome == "succeeded":
                failure = Failure(kind="failed", agent=self._agent, message=why)
                ended = RunEnded(outcome="failed", failure=failure, parts=await self._parts())
        for message in self._timeline.messages.values():
            self._timeline.append(Noticed(text=f"{message.to} did not hear the message: {message.text}"), scope="")
            if message.attachments:
                self._store.drop_attached(self._lease, message.id)
        return ended

    async def _answered(self) -> Answer:
        """The first agent's answer, with all tools of the run at hand; raises Failed."""
        async with self._outfit:
            return await self._engagement.root(self._agent).run(self._request)

    @property
    def _seconds(self) -> float:
        """How long the run may work in all."""
        budget = self._engagement.allowance.budget
        return inf if budget is None or budget.seconds is None else budget.seconds

    def _deliver(self, letter: Letter) -> None:
        if isinstance(letter.event, BudgetChanged):
            self._change_budget(letter, letter.event)
            return
        if isinstance(letter.event, MemberChanged) and (why := self._refused(letter.event)):
            self._timeline.append(
                Noticed(text=f"{letter.event.member} stays as it is: {why}"), scope="", mail=letter.id
            )
            return
        self._timeline.append(letter.event, scope="", mail=letter.id)
        match letter.event:
            case StopAsked():
                self._limit.scope.cancel()
            case PauseAsked():
                self._timeline.pause()
            case PermissionAnswered(decision="abort", by=by):
                self._timeline.append(StopAsked(by=by), scope="")
                self._limit.scope.cancel()
            case PermissionAnswered(decision="deny_and_pause", by=by):
                self._timeline.append(PauseAsked(by=by), scope="")
                self._timeline.pause()

    def _change_budget(self, letter: Letter, change: BudgetChanged) -> None:
        """Hold to other limits from now on, where they can be kept: only the owner knows what its agents think with."""
        try:
            self._must_be_kept(change.budget)
        except Mistake as error:
            self._timeline.append(Noticed(text=f"{STAYS}: {error}"), scope="", mail=letter.id)
            return
        # With a key it is found again when the run is resumed; no step of the run has one that begins so.
        number = 1 + len(self._timeline.below("", BudgetChanged))
        self._timeline.append(change, scope="", key=f"/{KINDS[BudgetChanged]}#{number}", mail=letter.id)
        self._engagement.allowance.change(change.budget)
        if change.budget.seconds is not None:
            self._limit.allow(change.budget.seconds - self._timeline.worked)

    async def _parts(self) -> tuple[Part, ...]:
        """What there is of an answer, as anybody would read it off the timeline."""
        await self._timeline.settled()
        rows = await self._store.rows(self.id)
        return Picture.of(decode(row.line) for row in rows).parts_so_far()

    def _resulting(self, ended: RunEnded | RunPaused, answer: Answer | None) -> Result:
        if answer is not None:
            return self._came_to("succeeded", text=answer.text, data=answer.data, parts=answer.parts)
        if isinstance(ended, RunPaused):
            return self._came_to("paused")
        error = None if ended.failure is None else self._timeline.redaction.text(str(ended.failure))
        return self._came_to(ended.outcome, parts=ended.parts, error=error)

    def _came_to(self, outcome: Outcome, **rest: Any) -> Result:
        usage = structs.replace(self._timeline.spent(), seconds=time.time() - self._started_at)
        return Result(run_id=self.id, outcome=outcome, succeeded=outcome == "succeeded", usage=usage, **rest)

    async def _let_go(self) -> None:
        """Give the run back. What was recorded until now is written, whatever cancelled us."""
        with move_on_after(RELEASE_SECONDS, shield=True):
            try:
                self._store.release(self._lease)
                await self._lease.settled()
            except PodiumError:
                pass  # a store that refuses has said so; the lease ends by itself

    def close(self) -> None:
        """Put away what callers followed the run with."""
        for follower in self._followers:
            follower.close()
