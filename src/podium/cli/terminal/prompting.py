"""Attending to a run: what its agents ask, and the workers that it sent, is put to whoever is at the terminal."""

from __future__ import annotations

from anyio import Event, create_task_group

from ...runs.inbox import Letters, Watch
from ...runs.run_handle import Run
from ...setup.settings import Settings
from ...values.event import Decision, Entry, WorkerSent
from .request_prompt import Asking, Terminal
from .run_display import View


class Attendance:
    """Somebody at the terminal, for as long as a run is worked on."""

    def __init__(self, run: Run, view: View, settings: Settings) -> None:
        self._run = run
        self._letters = Letters(settings.store)
        self._asking = Asking(self, view, Terminal(), home=settings.home)
        self._watch = Watch(settings.store, self._asking, self._letters, of=run.id)
        self._has_sent = Event()

    def hear(self, entry: Entry) -> None:
        """Take in an entry of the run."""
        if isinstance(entry.event, WorkerSent):
            self._has_sent.set()
        self._asking.hear(entry)

    async def keep(self) -> None:
        """Ask whatever there is to ask, for ever."""
        async with create_task_group() as group:
            group.start_soon(self._asking.attend)
            # Most runs send nobody; then nobody looks for what others ask.
            await self._has_sent.wait()
            await self._watch.keep()

    async def answer(self, id: str, decision: Decision, *, by: str = "", comment: str = "", rule: str = "") -> bool:
        """Decide on what an agent of the run, or of a worker, wants to do."""
        whose = self._letters if self._letters.has(id) else self._run
        return await whose.answer(id, decision, by=by, comment=comment, rule=rule)

    async def reply(self, id: str, text: str, *, by: str = "") -> bool:
        """Answer a question."""
        whose = self._letters if self._letters.has(id) else self._run
        return await whose.reply(id, text, by=by)
