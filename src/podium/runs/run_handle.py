"""Control a run that this process works on: follow it, answer its requests, message it, and change, pause or stop it.

Answers, messages, changes and requests to pause or stop are posted to the run's mailbox; `run_driver` handles them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from anyio import create_task_group, get_cancelled_exc_class, to_thread

from ..store.follower import Follower
from ..store.mailbox import MailboxEvent, post_to_mailbox
from ..values.agent import Budget
from ..values.attachment import AttachedFile, read_attachments
from ..values.errors import Mistake, PodiumError
from ..values.event import (
    BudgetChanged,
    Channel,
    Decision,
    MemberChanged,
    MessageReceived,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    StopAsked,
)
from ..values.request import replace_surrogates
from ..values.result import Result
from .run_driver import RunDriver


class Run:
    """A run that this process is working on."""

    def __init__(self, driver: RunDriver) -> None:
        self.id = driver.id
        self._driver = driver
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

    async def send(self, text: str, *, to: str | None = None, by: str = "", attach: Sequence[str | Path] = ()) -> None:
        """Send a message to an agent of the run, by default the first agent.

        The agent receives the message at its next turn. `attach` lists images and text files to send with the message.
        Raise Mistake if the run has ended or has no such agent, or if a file cannot be attached.
        """
        if to is not None:
            self._driver.require_agent(to)
        files = await to_thread.run_sync(read_attachments, attach) if attach else ()
        message = MessageReceived(
            id=secrets.token_hex(6),
            to=to or self._driver.agent,
            text=self._clean_text(text),
            by=by,
            attachments=tuple(one.attachment for one in files),
        )
        await self._post_event(message, files=files)

    async def answer(
        self, id: str, decision: Decision, *, by: str = "", comment: str = "", rule: str = "", channel: Channel = "api"
    ) -> bool:
        """Answer a permission request. Return False if it was already answered.

        Raise Mistake if the run has ended or has no such request. For the decision `always`, `rule` is the rule that
        the request offers. Actions that it covers are allowed for the rest of the run; the caller has to save it for
        other runs. `by` is the person who answers, and `channel` is the interface that the person used; both are
        recorded.
        """
        self._require_request(id, PermissionAsked)
        answered = PermissionAnswered(
            id=id,
            decision=decision,
            by=by,
            comment=self._clean_text(comment),
            rule=rule,
            at=time.time(),
            channel=channel,
        )
        return await self._post_event(answered, ref=id)

    async def reply(self, id: str, text: str, *, by: str = "", channel: Channel = "api") -> bool:
        """Answer a question from an agent. Return False if the question was already answered.

        Raise Mistake if the run has ended or has no such question.
        """
        asked = self._require_request(id, QuestionAsked)
        digest = asked.digest if isinstance(asked, QuestionAsked) else ""
        answered = QuestionAnswered(id=id, text=self._clean_text(text), by=by, digest=digest, channel=channel)
        return await self._post_event(answered, ref=id)

    async def change_budget(self, budget: Budget, *, by: str = "") -> None:
        """Change the run's limits. Limits that are not set in `budget` stay unchanged.

        A time limit applies at once, the other limits from the next call. Calls that were already refused are not
        repeated. Raise Mistake if a limit is invalid or cannot be enforced.
        """
        self._driver.check_budget(budget)
        await self._post_event(BudgetChanged(budget=budget, by=by))

    async def change_member(self, member: str, *, model: str = "", prompt: str = "", by: str = "") -> None:
        """Change the model or prompt of an agent, starting with its next operation.

        Raise Mistake if the change is not possible.
        """
        change = MemberChanged(member=member, model=model, prompt=self._clean_text(prompt), by=by)
        if why := self._driver.explain_refusal(change):
            raise Mistake(why)
        await self._post_event(change)

    async def pause(self, by: str = "") -> None:
        """Pause the run: let the current steps finish, and do not start any more. Raise Mistake if it is not active."""
        self._require_active()
        await self._post_event(PauseAsked(by=by))

    async def stop(self, by: str = "") -> None:
        """Stop the run now and keep its partial results. Raise Mistake if it is not active."""
        self._require_active()
        await self._post_event(StopAsked(by=by))

    def _require_request(self, id: str, kind: type[PermissionAsked | QuestionAsked]) -> PermissionAsked | QuestionAsked:
        asked = self._timeline.asked.get(id)
        if not isinstance(asked, kind):
            what = "no permission request" if kind is PermissionAsked else "no question"
            raise Mistake(f"run {self.id} has {what} with the id {id!r}")
        return asked

    def _clean_text(self, text: str) -> str:
        return self._timeline.redaction.redact_text(replace_surrogates(text))

    def _require_active(self) -> None:
        if self._driver.result is not None:
            raise Mistake(f"run {self.id} is no longer active in this process ({self._driver.result.outcome})")

    async def _post_event(self, event: MailboxEvent, *, ref: str = "", files: Sequence[AttachedFile] = ()) -> bool:
        if self._driver.result is not None and self._driver.result.outcome not in ("paused", "interrupted"):
            raise Mistake(f"run {self.id} has ended ({self._driver.result.outcome}) and accepts no more messages")
        if ref in self._timeline.answers:
            return False
        is_first = await to_thread.run_sync(
            partial(post_to_mailbox, self._driver.store.path, self.id, event, ref=ref, files=files)
        )
        if not self.is_over:
            await self._driver.store.deliver_mail(self._driver.lease)
        return is_first


@asynccontextmanager
async def drive_run(driver: RunDriver) -> AsyncIterator[Run]:
    """Work on a run while the block is executed. If the run is still active when the block ends, it is stopped.

    If the block is cancelled, the run is not stopped but interrupted, so it can be resumed.
    """
    run = Run(driver)
    trouble: BaseException | None = None
    try:
        async with create_task_group() as group:
            group.start_soon(driver.drive)
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
                    await run.stop()
            except PodiumError as error:
                trouble = trouble or error
                group.cancel_scope.cancel()
    finally:
        driver.close_followers()
    if trouble is not None:
        raise trouble
