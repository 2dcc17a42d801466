"""Control a run that this process works on: follow it, answer its requests, message it, and change, pause or stop it.

Answers, messages, changes and requests to pause or stop are posted to the run's mailbox; `driver` handles them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import create_task_group, get_cancelled_exc_class, to_thread

from ..core.open_requests import Asked
from ..store.follower import Follower
from ..store.reader import RunSummary, StoreReader
from ..system.identity import get_local_actor
from ..values.actor import Actor
from ..values.agent import Budget
from ..values.errors import AlreadyAnswered, Mistake, PodiumError
from ..values.event import Channel, Decision, MemberChanged, PermissionAsked, QuestionAsked
from ..values.request import Result, read_attachments, replace_surrogates
from .answers import NewAnswer, answer_request, get_shown
from .driver import RunDriver
from .run_steering import (
    MemberChange,
    NewMessage,
    change_budget,
    change_member,
    post_message,
    post_pause,
    post_stop,
)


class Run:
    """A run that this process is working on."""

    def __init__(self, driver: RunDriver) -> None:
        self.id = driver.id
        self._driver = driver
        self._store = driver.store.path
        self._timeline = driver.timeline

    def entries(self, after: int = 0) -> Follower:
        """Return a follower of the timeline. It starts after entry `after` and ends when `is_over` becomes true."""
        return self._driver.follow_entries(after)

    async def result(self) -> Result:
        """Wait until the run has ended, is paused or was interrupted, and return its result."""
        return await self._driver.wait_result()

    @property
    def error(self) -> BaseException | None:
        """The exception that interrupted the run, if any."""
        return self._driver.error

    @property
    def is_over(self) -> bool:
        """Whether this process has stopped working on the run."""
        return self._driver.is_over

    async def send(
        self, text: str, *, to: str | None = None, by: str | Actor = "", attach: Sequence[str | Path] = ()
    ) -> None:
        """Send a message to an agent of the run, by default the first agent.

        The agent receives the message at its next turn. `attach` lists images and text files to send with the message.
        `by` is the name of the person who sends it, by default the user of this process, or the whole actor. Raise
        Mistake if the run has ended or has no such agent, or if a file cannot be attached.
        """
        if to is not None:
            self._driver.require_agent(to)
        files = await to_thread.run_sync(read_attachments, attach) if attach else ()
        message = NewMessage(text=self._clean_text(text), files=files)
        receiver = to or self._driver.agent
        await self._post(lambda by: post_message(self._store, self.id, receiver, message, by=by), by)

    async def answer(
        self,
        id: str,
        decision: Decision,
        *,
        by: str | Actor = "",
        comment: str = "",
        rule: str = "",
        channel: Channel = "api",
    ) -> bool:
        """Answer a permission request. Return False if it was already answered.

        Raise Mistake if the run has ended or has no such request. For the decision `always`, `rule` is the rule that
        the request offers. Actions that it covers are allowed for the rest of the run; the caller has to save it for
        other runs. `by` is the person who answers, by default the user of this process, and `channel` is the interface
        that the person used; both are recorded.
        """
        asked = self._require_request(id, PermissionAsked)
        answer = NewAnswer(shown=get_shown(asked), decision=decision, comment=self._clean_text(comment))
        return await self._answer(asked, answer, _as_actor(by, channel), rule=rule)

    async def reply(self, id: str, text: str, *, by: str | Actor = "", channel: Channel = "api") -> bool:
        """Answer a question from an agent. Return False if the question was already answered.

        Raise Mistake if the run has ended or has no such question, or if a decision has no such option.
        """
        asked = self._require_request(id, QuestionAsked)
        answer = NewAnswer(shown=get_shown(asked), text=self._clean_text(text))
        return await self._answer(asked, answer, _as_actor(by, channel))

    async def change_budget(self, budget: Budget, *, by: str | Actor = "") -> None:
        """Change the run's limits. Limits that are not set in `budget` stay unchanged.

        A time limit applies at once, the other limits from the next call. Calls that were already refused are not
        repeated. Raise Mistake if a limit is invalid or cannot be enforced.
        """
        self._driver.check_budget(budget)
        await self._post(lambda by: change_budget(self._store, self._read_summary(), budget, by=by), by)

    async def change_member(self, member: str, *, model: str = "", prompt: str = "", by: str | Actor = "") -> None:
        """Change the model or prompt of an agent, starting with its next operation.

        Raise Mistake if the change is not possible.
        """
        change = MemberChange(member=member, model=model, prompt=self._clean_text(prompt))
        if why := self._driver.explain_refusal(MemberChanged(member=member, model=model)):
            raise Mistake(why)
        await self._post(lambda by: change_member(self._store, self._read_summary(), change, by=by), by)

    async def pause(self, by: str | Actor = "") -> None:
        """Pause the run: let the current steps finish, and do not start any more. Raise Mistake if it is not active."""
        self._require_active()
        await self._post(lambda by: post_pause(self._store, self.id, by=by), by)

    async def stop(self, by: str | Actor = "") -> None:
        """Stop the run now and keep its partial results. Raise Mistake if it is not active."""
        self._require_active()
        await self._post(lambda by: post_stop(self._store, self.id, by=by), by)

    def _require_request(self, id: str, kind: type[PermissionAsked | QuestionAsked]) -> PermissionAsked | QuestionAsked:
        asked = self._timeline.index.requests.asked.get(id)
        if not isinstance(asked, kind):
            what = "no permission request" if kind is PermissionAsked else "no question"
            raise Mistake(f"run {self.id} has {what} with the id {id!r}")
        return asked

    def _clean_text(self, text: str) -> str:
        return self._timeline.redaction.redact_text(replace_surrogates(text))

    def _require_active(self) -> None:
        if self._driver.result is not None:
            raise Mistake(f"run {self.id} is no longer active in this process ({self._driver.result.outcome})")

    def _read_summary(self) -> RunSummary:
        with StoreReader(self._store) as reader:
            return reader.read_summary(self.id)

    def _require_open(self) -> None:
        if self._driver.result is not None and self._driver.result.outcome not in ("paused", "interrupted"):
            raise Mistake(f"run {self.id} has ended ({self._driver.result.outcome}) and accepts no more messages")

    async def _answer(self, asked: Asked, answer: NewAnswer, by: Actor, *, rule: str = "") -> bool:
        if asked.id in self._timeline.index.requests.answers:
            return False

        def submit(by: Actor) -> object:
            return answer_request(self._store, self.id, asked, answer, by=by, home=None, rule=rule)

        try:
            await self._post(submit, by)
        except AlreadyAnswered:
            return False
        return True

    async def _post(self, act: Callable[[Actor], object], by: str | Actor) -> None:
        """Perform an act that posts a message to this run's mailbox, and handle the message at once."""
        self._require_open()
        await to_thread.run_sync(act, _as_actor(by, "api"))
        if not self.is_over:
            await self._driver.deliver()


def _as_actor(by: str | Actor, channel: Channel) -> Actor:
    """Return who acts. A name is that of a person who uses `channel`, and an empty name the user of this process."""
    return by if isinstance(by, Actor) else get_local_actor(channel, by)


@asynccontextmanager
async def drive_run(driver: RunDriver, *, by: Actor) -> AsyncIterator[Run]:
    """Work on a run while the block is executed. If the run is still active when the block ends, `by` stops it.

    If the block is cancelled, the run is not stopped but interrupted, so it can be resumed.
    """
    run = Run(driver)
    trouble: BaseException | None = None
    try:
        async with create_task_group() as group:
            group.start_soon(driver.run)
            try:
                yield run
            except get_cancelled_exc_class():
                raise
            except BaseException as error:
                trouble = error
            try:
                # Do not send a stop request if the pause of the run is already recorded: the request would stop the
                # run as soon as it is resumed.
                if not driver.has_recorded_end and not run.is_over:
                    await run.stop(by=by)
            except PodiumError as error:
                trouble = trouble or error
                group.cancel_scope.cancel()
    finally:
        driver.close_followers()
    if trouble is not None:
        raise trouble
