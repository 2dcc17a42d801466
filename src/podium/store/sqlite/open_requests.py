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

from ...values.errors import AlreadyAnswered, Mistake
from ...values.event import (
    Entry,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunStarted,
    decode_entry,
)
from .mailbox import post_to_mailbox
from .reader import RunSummary, StoreReader
from .schema import open_connection, translate_sqlite_errors

Answer = PermissionAnswered | QuestionAnswered

_ASKED = ("permission_asked", "question_asked")
_ANSWERED = ("permission_answered", "question_answered")


class OpenRequest(NamedTuple):
    """One thing that waits for a person, and the run that it belongs to."""

    summary: RunSummary
    entry: Entry
    asked: PermissionAsked | QuestionAsked

    @property
    def worker_name(self) -> str:
        """What people call the worker that asks, mostly its branch; empty where it is none."""
        started = self.summary.first.event
        return started.errand.worker_name if isinstance(started, RunStarted) and started.errand is not None else ""


def list_open_requests(store: Path) -> list[OpenRequest]:
    """All that waits for a person, the oldest first."""
    found: list[OpenRequest] = []
    with StoreReader(store) as reader:
        for summary in reader.list_runs():
            if not isinstance(summary.last.event, RunEnded):
                found += _list_run_requests(reader, summary)
    return sorted(found, key=lambda one: one.entry.at)


def find_open_request(store: Path, prefix: str) -> OpenRequest:
    """The one thing that waits whose id begins so. Raises Answered where somebody was faster, and Mistake."""
    there = list_open_requests(store)
    found = [one for one in there if one.asked.id.startswith(prefix)] if prefix else []
    exact = [one for one in found if one.asked.id == prefix]
    if len(found) == 1 or exact:
        return (exact or found)[0]
    if found:
        ids = ", ".join(one.asked.id for one in found)
        raise Mistake(f"{prefix!r} is the beginning of several requests: {ids}; give more of the one you mean")
    if (before := _find_posted_answer(store, prefix)) is not None:
        raise as_answered_error(before)
    ids = ", ".join(one.asked.id for one in there)
    raise Mistake(f"nothing called {prefix!r} waits for you; " + (f"there is {ids}" if ids else "nothing waits at all"))


def answer_request(store: Path, one: OpenRequest, answered: Answer) -> Answer:
    """Give an answer. What counts is returned: another one where somebody was faster."""
    if post_to_mailbox(store, one.summary.id, answered, ref=answered.id):
        return answered
    return _find_posted_answer(store, answered.id, run=one.summary.id) or answered


def as_answered_error(before: Answer) -> AlreadyAnswered:
    """That somebody has answered before, and how."""
    how = before.decision if isinstance(before, PermissionAnswered) else "answered"
    return AlreadyAnswered(before.id, how=how, by=before.by)


def _list_run_requests(reader: StoreReader, summary: RunSummary) -> list[OpenRequest]:
    entries = [decode_entry(row.line) for row in reader.read_rows_of_kinds(summary.id, (*_ASKED, *_ANSWERED))]
    over = reader.read_mailbox_refs(summary.id)
    over |= {entry.event.id for entry in entries if isinstance(entry.event, PermissionAnswered | QuestionAnswered)}
    return [
        OpenRequest(summary, entry, entry.event)
        for entry in entries
        if isinstance(entry.event, PermissionAsked | QuestionAsked)
        and entry.event.id not in over
        and not _is_expired(entry.event)
    ]


def _is_expired(asked: PermissionAsked | QuestionAsked) -> bool:
    """Whether an answer would come too late: the agent will ask anew, if it still wants to."""
    return isinstance(asked, PermissionAsked) and 0 < asked.action.expires_at < time.time()


def _find_posted_answer(store: Path, prefix: str, *, run: str = "*") -> Answer | None:
    """The one answer that was given to a request whose id begins so, or is that, of a run or of any."""
    connection = open_connection(store, create=False)
    try:
        with translate_sqlite_errors(store):
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
