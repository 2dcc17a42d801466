"""The inbox: what agents of all runs in a store have asked a person and nobody has answered yet.

It is no list of its own but what the timelines say; an answer is a letter in the run's mailbox,
unique by the request's id, and that letter is the decision.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import Mistake
from ..event import (
    Entry,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
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


def waiting(store: Path) -> list[Waiting]:
    """All that waits for a person, the oldest first."""
    found: list[Waiting] = []
    with Reader(store) as reader:
        for summary in reader.runs():
            if not isinstance(summary.last.event, RunEnded):
                found += _of_run(reader, summary)
    return sorted(found, key=lambda one: one.entry.at)


def find(store: Path, prefix: str) -> Waiting:
    """The one thing that waits whose id begins so. Raises Mistake."""
    there = waiting(store)
    found = [one for one in there if one.asked.id.startswith(prefix)] if prefix else []
    exact = [one for one in found if one.asked.id == prefix]
    if len(found) == 1 or exact:
        return (exact or found)[0]
    if found:
        ids = ", ".join(one.asked.id for one in found)
        raise Mistake(f"{prefix!r} is the beginning of several requests: {ids}; give more of the one you mean")
    ids = ", ".join(one.asked.id for one in there)
    raise Mistake(f"nothing called {prefix!r} waits for you; " + (f"there is {ids}" if ids else "nothing waits at all"))


def answer(store: Path, one: Waiting, answered: Answer) -> Answer:
    """Give an answer. What counts is returned: another one where somebody was faster."""
    if post(store, one.summary.id, answered, ref=answered.id):
        return answered
    return _posted(store, one.summary.id, answered.id) or answered


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


def _posted(store: Path, run: str, ref: str) -> Answer | None:
    connection = connect(store, create=False)
    try:
        with explained(store):
            row = connection.execute("SELECT line FROM mail WHERE run = ? AND ref = ?", (run, ref)).fetchone()
    finally:
        connection.close()
    return None if row is None else msgspec.json.decode(row[0], type=Answer)
