"""Attending to a run: what its agents ask, and the workers that it sent, is put to whoever is at the terminal."""

from __future__ import annotations

from anyio import Event, create_task_group

from ...runs.inbox import AnswerMailbox, WorkerRequestWatcher
from ...runs.run_handle import Run
from ...setup.settings import Settings
from ...values.event import Decision, Entry, WorkerSent
from .request_prompt import RequestPrompter, TerminalKeyboard
from .run_display import ProgressView


class RunPrompter:
    """Somebody at the terminal, for as long as a run is worked on."""

    def __init__(self, run: Run, view: ProgressView, settings: Settings) -> None:
        self._run = run
        self._answer_mailbox = AnswerMailbox(settings.store)
        self._prompter = RequestPrompter(self, view, TerminalKeyboard(), home=settings.home)
        self._watcher = WorkerRequestWatcher(settings.store, self._prompter, self._answer_mailbox, sent_by=run.id)
        self._has_workers = Event()

    def handle_entry(self, entry: Entry) -> None:
        """Take in an entry of the run."""
        if isinstance(entry.event, WorkerSent):
            self._has_workers.set()
        self._prompter.handle_entry(entry)

    async def serve_requests(self) -> None:
        """Ask whatever there is to ask, for ever."""
        async with create_task_group() as group:
            group.start_soon(self._prompter.serve_requests)
            # Most runs send nobody; then nobody looks for what others ask.
            await self._has_workers.wait()
            await self._watcher.watch_requests()

    async def answer(self, id: str, decision: Decision, *, by: str = "", comment: str = "", rule: str = "") -> bool:
        """Decide on what an agent of the run, or of a worker, wants to do."""
        receiver = self._answer_mailbox if self._answer_mailbox.has_request(id) else self._run
        return await receiver.answer(id, decision, by=by, comment=comment, rule=rule)

    async def reply(self, id: str, text: str, *, by: str = "") -> bool:
        """Answer a question."""
        receiver = self._answer_mailbox if self._answer_mailbox.has_request(id) else self._run
        return await receiver.reply(id, text, by=by)
