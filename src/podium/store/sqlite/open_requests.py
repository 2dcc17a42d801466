"""The inbox: agents' requests, in all runs of a store, that nobody has answered yet.

It is computed from the timelines and not stored. An answer is a message in the run's mailbox, unique by
the request's id; that message is the decision.
"""

from __future__ import annotations

import glob
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...core.open_requests import REQUEST_KINDS, Answered, Asked, RunRequests, describe_answerer
from ...values.errors import AlreadyAnswered, Mistake
from ...values.event import (
    KINDS,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    RunEnded,
    RunStarted,
    decode_entry,
)
from .mailbox import post_to_mailbox
from .reader import RunSummary, StoreReader
from .schema import open_connection, translate_sqlite_errors


class OpenRequest(NamedTuple):
    """A request that waits for a person, and the run that it belongs to."""

    summary: RunSummary
    entry: Entry
    asked: Asked

    @property
    def worker_name(self) -> str:
        """The name of the worker that asks, usually its branch; empty if the run is not a worker's."""
        started = self.summary.first.event
        return started.errand.worker_name if isinstance(started, RunStarted) and started.errand is not None else ""


def list_open_requests(store: Path) -> list[OpenRequest]:
    """Return all open requests, oldest first."""
    found: list[OpenRequest] = []
    with StoreReader(store) as reader:
        for summary in reader.list_runs():
            if not isinstance(summary.last.event, RunEnded):
                found += list_run_requests(reader, summary)
    return sorted(found, key=lambda one: one.entry.at)


def find_open_request(store: Path, prefix: str) -> OpenRequest:
    """Return the only open request whose id starts with `prefix`.

    Raises AlreadyAnswered if the request was answered, and Mistake if it is not found or ambiguous.
    """
    there = list_open_requests(store)
    found = [one for one in there if one.asked.id.startswith(prefix)] if prefix else []
    exact = [one for one in found if one.asked.id == prefix]
    if len(found) == 1 or exact:
        return (exact or found)[0]
    if found:
        ids = ", ".join(one.asked.id for one in found)
        raise Mistake(f"{prefix!r} matches several requests: {ids}; give more characters of the id")
    if (before := _find_posted_answer(store, prefix)) is not None:
        raise as_answered_error(before)
    ids = ", ".join(one.asked.id for one in there)
    raise Mistake(
        f"no open request matches {prefix!r}; " + (f"open requests: {ids}" if ids else "there are no open requests")
    )


def answer_request(store: Path, one: OpenRequest, answered: Answered) -> Answered:
    """Answer a request, and return the answer that counts: an earlier one if somebody else was faster."""
    if post_to_mailbox(store, one.summary.id, answered, ref=answered.id):
        return answered
    return _find_posted_answer(store, answered.id, run=one.summary.id) or answered


def as_answered_error(before: Answered) -> AlreadyAnswered:
    """Return the error that says who has already answered, and how."""
    how = before.decision if isinstance(before, PermissionAnswered) else "answered"
    return AlreadyAnswered(before.id, how=how, by=describe_answerer(before))


def list_run_requests(reader: StoreReader, summary: RunSummary) -> list[OpenRequest]:
    """Return the open requests of one run, oldest first."""
    found = load_run_requests(reader, summary.id).list_open(
        now=time.time(), posted=reader.read_mailbox_refs(summary.id)
    )
    return [OpenRequest(summary, entry, entry.event) for entry in found.values() if isinstance(entry.event, Asked)]


def find_open_permission(store: Path, run: str, id: str) -> PermissionAsked | None:
    """Return a run's permission request with this id, or None if the run has no such open request."""
    with StoreReader(store) as reader:
        # Long runs have many requests, and this request is among the last.
        seq = reader.find_last_entry(run, KINDS[PermissionAsked], containing=f'"id":"{id}"')
        if seq is None or reader.has_message(run, id):
            return None
        found = load_run_requests(reader, run, after=seq - 1).list_open(now=time.time())
    asked = found[id].event if id in found else None
    return asked if isinstance(asked, PermissionAsked) else None


def load_run_requests(reader: StoreReader, run: str, *, after: int = 0) -> RunRequests:
    """Return a run's requests after a sequence number, from its timeline."""
    requests = RunRequests()
    for row in reader.read_rows_of_kinds(run, REQUEST_KINDS, after=after):
        requests.apply(decode_entry(row.line))
    return requests


def _find_posted_answer(store: Path, prefix: str, *, run: str = "*") -> Answered | None:
    """Return the only answer to a request whose id is or starts with `prefix`, in one run or in all."""
    connection = open_connection(store, create=False)
    try:
        with translate_sqlite_errors(store):
            found = connection.execute(
                "SELECT line FROM mail WHERE ref GLOB ? AND run GLOB ?", (f"{glob.escape(prefix)}*", run)
            )
            rows = found.fetchall()
    finally:
        connection.close()
    given: list[Answered] = []
    for (line,) in rows:
        with suppress(msgspec.ValidationError):  # a message of another kind
            given.append(msgspec.json.decode(line, type=Answered))
    exact = [one for one in given if one.id == prefix]
    return next(iter(exact or given), None) if prefix and (exact or len(given) == 1) else None
