"""List the open requests in all runs of a store: requests from agents that nobody has answered yet.

Open requests are computed from the timelines and not stored. An answer is a message in the run's mailbox with the
request's id as its `ref`, so only the first answer is accepted.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import NamedTuple

import msgspec

from ..core.open_requests import Answered, Asked, is_automatic_denial
from ..values.errors import Mistake, StoreCorrupt
from ..values.event import (
    KINDS,
    Entry,
    PermissionAsked,
)
from ..values.store_address import StoreAddress
from .closed_requests import as_answered_error, explain_closed_request
from .reader import RunSummary, StoreReader
from .store_connection import open_connection, translate_errors


class OpenRequest(NamedTuple):
    """A request waiting for a person, with a summary of its run."""

    summary: RunSummary
    entry: Entry
    asked: Asked

    @property
    def worker_name(self) -> str:
        """The name of the worker that asked, usually its branch. It is empty if no worker asked."""
        task = self.summary.started.errand
        return "" if task is None else task.worker_name


def list_open_requests(store: StoreAddress) -> list[OpenRequest]:
    """Return all open requests, oldest first. Requests in a run that cannot be read are left out."""
    found: list[OpenRequest] = []
    with StoreReader(store) as reader:
        for summary in reader.read_run_list().readable:
            if not summary.is_over:
                with suppress(StoreCorrupt):  # the run cannot continue, so an answer would have no effect
                    found += list_run_requests(reader, summary)
    return sorted(found, key=lambda one: one.entry.at)


def find_open_request(store: StoreAddress, prefix: str) -> OpenRequest:
    """Return the open request whose id is `prefix`, or the only open request whose id starts with it.

    Raise AlreadyAnswered if a person has answered the request, RequestClosed if it was denied automatically, expired
    or is no longer needed, and Mistake if no request or several requests match.
    """
    there = list_open_requests(store)
    found = [one for one in there if one.asked.id.startswith(prefix)] if prefix else []
    exact = [one for one in found if one.asked.id == prefix]
    if len(found) == 1 or exact:
        return (exact or found)[0]
    if found:
        ids = ", ".join(one.asked.id for one in found)
        raise Mistake(f"{prefix!r} matches several requests: {ids}; give more characters of the id")
    before = find_posted_answer(store, prefix)
    if before is not None and not is_automatic_denial(before):
        raise as_answered_error(before)
    if (closed := explain_closed_request(store, prefix, before, now=time.time())) is not None:
        raise closed
    ids = ", ".join(one.asked.id for one in there)
    raise Mistake(
        f"no open request matches {prefix!r}; " + (f"open requests: {ids}" if ids else "there are no open requests")
    )


def list_run_requests(reader: StoreReader, summary: RunSummary) -> list[OpenRequest]:
    """Return the open requests of one run, oldest first."""
    found = reader.read_requests(summary.id).list_open(now=time.time(), posted=reader.read_mailbox_refs(summary.id))
    return [OpenRequest(summary, entry, entry.event) for entry in found.values() if isinstance(entry.event, Asked)]


def find_open_permission(store: StoreAddress, run: str, id: str) -> PermissionAsked | None:
    """Return a run's open permission request with this id, or None if there is none."""
    with StoreReader(store) as reader:
        # A long run has many requests, so read only the entries from this request on.
        seq = reader.find_last_entry(run, KINDS[PermissionAsked], containing=f'"id":"{id}"')
        if seq is None or reader.has_message(run, id):
            return None
        found = reader.read_requests(run, after=seq - 1).list_open(now=time.time())
    asked = found[id].event if id in found else None
    return asked if isinstance(asked, PermissionAsked) else None


def find_posted_answer(store: StoreAddress, prefix: str, *, run: str = "") -> Answered | None:
    """Return the posted answer to the request that `prefix` identifies, in `run` or in all runs, or None."""
    connection = open_connection(store, create=False)
    try:
        with translate_errors(store):
            found = connection.execute(
                "SELECT line FROM mail WHERE substr(ref, 1, ?) = ? AND ? IN ('', run)", (len(prefix), prefix, run)
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
