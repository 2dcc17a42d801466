"""What agents ask while a person is at the terminal: those of the run there, and workers, and the answers.

Answers go into the mailbox of the run that asks, as they do from everywhere else; of two answers
the first counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from anyio import sleep, to_thread, wait_readable

from ..cli.terminal.request_prompt import Asking
from ..store.clients import present
from ..store.sqlite.mailbox import post
from ..store.sqlite.open_requests import Answer, Waiting, waiting
from ..store.sqlite.reader import Reader, Summary
from ..store.sqlite.worker_index import Crew
from ..store.wakeup import Bell, bell_folder, ring_once
from ..values.event import Decision, PermissionAnswered, QuestionAnswered, RunEnded, RunStarted, decode
from ..values.request import readable

LOOK_SECONDS = 0.5
"""A look goes through all runs; workers that say much do not bring about more of them than this."""

ANSWERED = ("permission_answered", "question_answered")


class Letters:
    """Answers to requests, by the id of the request."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._runs: dict[str, str] = {}

    def expect(self, id: str, run: str) -> None:
        """Remember which run has asked something."""
        self._runs[id] = run

    def has(self, id: str) -> bool:
        """Whether it is known who has asked this."""
        return id in self._runs

    async def answer(self, id: str, decision: Decision, *, by: str = "", comment: str = "", rule: str = "") -> bool:
        given = PermissionAnswered(
            id=id, decision=decision, by=by, comment=readable(comment), rule=rule, at=time.time()
        )
        return await self._post(given)

    async def reply(self, id: str, text: str, *, by: str = "") -> bool:
        return await self._post(QuestionAnswered(id=id, text=readable(text), by=by))

    async def _post(self, given: Answer) -> bool:
        return await to_thread.run_sync(partial(post, self._store, self._runs[given.id], given, ref=given.id))


class Watch:
    """Looks for what the workers of a store ask, or those of one run, and hands it to `asking`."""

    def __init__(self, store: Path, asking: Asking, letters: Letters, *, of: str = "") -> None:
        self._store = store
        self._of = of
        self._asking = asking
        self._letters = letters
        self._open: dict[str, str] = {}
        """What was asked and had no answer at the last look, and by which run."""

    async def keep(self) -> None:
        """Watch for ever. It waits for a bell, and looks when that rang.

        Only who sees what all workers ask counts as one who is there to answer them.
        """
        folder = bell_folder(self._store)
        bell = Bell(folder, "follower")
        try:
            ring_once(folder, "owner")
            with nullcontext() if self._of else present(self._store):
                while True:
                    bell.hush()
                    if self._store.exists():
                        asked = await to_thread.run_sync(self._asked)
                        self._take(asked, await to_thread.run_sync(self._answered, self._open.keys() - asked.keys()))
                    await sleep(LOOK_SECONDS)
                    await wait_readable(bell)
        finally:
            bell.close()

    def _asked(self) -> dict[str, Waiting]:
        """What workers ask, by its id."""
        workers = {hired.run for hired in Crew(self._store).open()}
        if not workers:
            return {}
        asked = [one for one in waiting(self._store) if one.summary.id in workers]
        if self._of:
            with Reader(self._store) as reader:
                asked = [one for one in asked if self._of in senders(reader, one.summary)]
        return {one.asked.id: one for one in asked}

    def _answered(self, gone: set[str]) -> dict[str, str]:
        """Who has answered what is not open any more; `podium` where its run has ended without an answer.

        What is answered and not on the timeline yet is told at a later look.
        """
        by: dict[str, str] = {}
        with Reader(self._store) as reader:
            for run in {self._open[id] for id in gone}:
                if isinstance(reader.summary(run).last.event, RunEnded):
                    by |= {id: "podium" for id in gone if self._open[id] == run}
                events = [decode(row.line).event for row in reader.of_kinds(run, ANSWERED)]
                by |= {event.id: event.by for event in events if isinstance(event, Answer) and event.id in gone}
        return by

    def _take(self, asked: dict[str, Waiting], answered: dict[str, str]) -> None:
        for id, by in answered.items():
            self._asking.withdraw(id, by)
            del self._open[id]
        for id, one in asked.items():
            if id not in self._open:
                self._open[id] = one.entry.run
                self._letters.expect(id, one.entry.run)
                self._asking.hear(one.entry, one.worker)


def senders(reader: Reader, summary: Summary) -> Iterator[str]:
    """The run that sent a worker, the one that sent that, and so on."""
    while isinstance(started := summary.first.event, RunStarted) and started.errand and started.errand.parent:
        yield started.errand.parent
        summary = reader.summary(started.errand.parent)
