"""The inbox: what agents of all runs in a store have asked a person and nobody has answered yet.

It is no list of its own but what the timelines say; an answer is a letter in the run's mailbox,
unique by the request's id, and that letter is the decision.
"""

from __future__ import annotations

import glob
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...values.errors import Answered, Mistake
from ...values.event import (
    Entry,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunStarted,
    decode,
)
from .mailbox import post
from .reader import Reader, Summary
from .schema import connect, explained

Answer = PermissionAnswered | QuestionAnswered

_ASKED = ("permission_asked", "question_asked")
_ANSWERED = ("permission_answered", "question_answered")


class Waiting(NamedTuple):
    """One thing that waits for a person, and the run that it belongs to."""

    summary: Summary
    entry: Entry
    asked: PermissionAsked | QuestionAsked

    @property
    def worker(self) -> str:
        """What people call the worker that asks, mostly its branch; empty where it is none."""
        started = self.summary.first.event
        return started.errand.called if isinstance(started, RunStarted) and started.errand is not None else ""


def waiting(store: Path) -> list[Waiting]:
    """All that waits for a person, the oldest first."""
    found: list[Waiting] = []
    with Reader(store) as reader:
        for summary in reader.runs():
            if not isinstance(summary.last.event, RunEnded):
                found += _of_run(reader, summary)
    return sorted(found, key=lambda one: one.entry.at)


def find(store: Path, prefix: str) -> Waiting:
    """The one thing that waits whose id begins so. Raises Answered where somebody was faster, and Mistake."""
    there = waiting(store)
    found = [one for one in there if one.asked.id.startswith(prefix)] if prefix else []
    exact = [one for one in found if one.asked.id == prefix]
    if len(found) == 1 or exact:
        return (exact or found)[0]
    if found:
        ids = ", ".join(one.asked.id for one in found)
        raise Mistake(f"{prefix!r} is the beginning of several requests: {ids}; give more of the one you mean")
    if (before := _posted(store, prefix)) is not None:
        raise decided(before)
    ids = ", ".join(one.asked.id for one in there)
    raise Mistake(f"nothing called {prefix!r} waits for you; " + (f"there is {ids}" if ids else "nothing waits at all"))


def answer(store: Path, one: Waiting, answered: Answer) -> Answer:
    """Give an answer. What counts is returned: another one where somebody was faster."""
    if post(store, one.summary.id, answered, ref=answered.id):
        return answered
    return _posted(store, answered.id, run=one.summary.id) or answered


def decided(before: Answer) -> Answered:
    """That somebody has answered before, and how."""
    how = before.decision if isinstance(before, PermissionAnswered) else "answered"
    return Answered(before.id, how=how, by=before.by)


def _of_run(reader: Reader, summary: Summary) -> list[Waiting]:
    entries = [decode(row.line) for row in reader.of_kinds(summary.id, (*_ASKED, *_ANSWERED))]
    over = reader.letters(summary.id)
    over |= {entry.event.id for entry in entries if isinstance(entry.event, PermissionAnswered | QuestionAnswered)}
    return [
        Waiting(summary, entry, entry.event)
        for entry in entries
        if isinstance(entry.event, PermissionAsked | QuestionAsked)
        and entry.event.id not in over
        and not _is_expired(entry.event)
    ]


def _is_expired(asked: PermissionAsked | QuestionAsked) -> bool:
    """Whether an answer would come too late: the agent will ask anew, if it still wants to."""
    return isinstance(asked, PermissionAsked) and 0 < asked.action.expires_at < time.time()


def _posted(store: Path, prefix: str, *, run: str = "*") -> Answer | None:
    """The one answer that was given to a request whose id begins so, or is that, of a run or of any."""
    connection = connect(store, create=False)
    try:
        with explained(store):
            found = connection.execute(
                "SELECT line FROM mail WHERE ref GLOB ? AND run GLOB ?", (f"{glob.escape(prefix)}*", run)
            )
            rows = found.fetchall()
    finally:
        connection.close()
    given: list[Answer] = []
    for (line,) in rows:
        with suppress(msgspec.ValidationError):  # another letter, which is no answer
            given.append(msgspec.json.decode(line, type=Answer))
    exact = [one for one in given if one.id == prefix]
    return next(iter(exact or given), None) if prefix and (exact or len(given) == 1) else None
