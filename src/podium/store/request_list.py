"""List the open requests in all runs of a store: requests from agents that nobody has answered yet.

Open requests are computed from the timelines and not stored. An answer is a message in the run's mailbox with the
request's id as its `ref`, so only the first answer is accepted.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import msgspec

from ..core.open_requests import Answered, Asked, describe_answerer, is_automatic_denial, is_expired, is_timeout_denial
from ..values.errors import AlreadyAnswered, Mistake, PodiumError, RequestClosed, StoreCorrupt
from ..values.event import (
    KINDS,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    QuestionAsked,
    RunEnded,
)
from ..values.plain_text import escape_unprintable, truncate_text
from ..values.store_address import StoreAddress
from .reader import RunSummary, StoreReader
from .store_connection import open_connection, translate_errors

ASKED_KINDS = (KINDS[PermissionAsked], KINDS[QuestionAsked])


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
    if (closed := _explain_closed_request(store, prefix, before, now=time.time())) is not None:
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


def _explain_closed_request(
    store: StoreAddress, prefix: str, posted: Answered | None, *, now: float
) -> PodiumError | None:
    """Return the error for a late answer to a request, or None if `prefix` does not identify exactly one request.

    `prefix` is the request's id or the start of it. `posted` is an earlier answer that may not be on the timeline yet.
    """
    with StoreReader(store) as reader:
        asked = _find_request(reader, prefix)
        if asked is None:
            return None
        entry, request = asked
        requests = reader.read_requests(entry.run, after=entry.seq - 1)
        summary = reader.read_summary(entry.run)
    answered = requests.answers.get(request.id, posted)
    if answered is None:
        return RequestClosed(request.id, _describe_unanswered(entry, request, summary, now=now))
    if not is_automatic_denial(answered):
        return as_answered_error(answered)
    return RequestClosed(request.id, _describe_denial(entry, request, answered, summary))


def as_answered_error(before: Answered) -> AlreadyAnswered:
    """Return the error that says who has already answered, and how."""
    how = before.decision if isinstance(before, PermissionAnswered) else "answered"
    why = before.comment if is_automatic_denial(before) and isinstance(before, PermissionAnswered) else ""
    return AlreadyAnswered(before.id, how=how, by=describe_answerer(before), why=why)


def _find_request(reader: StoreReader, prefix: str) -> tuple[Entry, Asked] | None:
    """Return the request whose id is `prefix`, together with its entry.

    If there is none, return the only request whose id starts with `prefix`. Return None if none or several match.
    """
    if not prefix:
        return None
    entries = reader.find_entries(ASKED_KINDS, containing=f'"id":"{prefix}')
    found = [(one, one.event) for one in entries if isinstance(one.event, Asked) and one.event.id.startswith(prefix)]
    exact = [one for one in found if one[1].id == prefix]
    return (exact or found)[0] if exact or len(found) == 1 else None


def _describe_denial(entry: Entry, request: Asked, answered: Answered, summary: RunSummary) -> str:
    """Describe a request that Podium itself denied."""
    assert isinstance(answered, PermissionAnswered)
    assert isinstance(request, PermissionAsked)
    tool = truncate_text(escape_unprintable(request.action.tool))
    done = f"{tool} was denied and the agent went on without it"
    if is_timeout_denial(answered):
        at = _format_time(request.action.expires_at or answered.at or entry.at)
        hint = "increase approvals.timeout in the settings to get more time"
        return f"{request.id} expired at {at}: {answered.comment}, so {done}; {_advise(summary)}; {hint}"
    why = answered.comment or "nobody was available to answer"
    hint = "use podium run --park to queue requests instead"
    return f"{request.id} was closed at {_format_time(entry.at)}: {why}, so {done}; {_advise(summary)}; {hint}"


def _describe_unanswered(entry: Entry, request: Asked, summary: RunSummary, *, now: float) -> str:
    """Describe a request that nobody answered and that can no longer be answered."""
    if isinstance(summary.last.event, RunEnded):
        outcome = summary.last.event.outcome
        return f"{request.id} can no longer be answered: run {entry.run} has ended ({outcome}); {_advise(summary)}"
    if not isinstance(request, PermissionAsked) or not is_expired(request, at=now):
        return f"{request.id} can no longer be answered: the agent that asked has stopped; {_advise(summary)}"
    expired = f"{request.id} expired at {_format_time(request.action.expires_at)} without an answer"
    if summary.lease == "held":
        return f"{expired}; {_advise(summary)}"
    return (
        f"{expired}, and run {entry.run} is not running; "
        f"resume the run with podium resume {entry.run}, and the agent will ask again"
    )


def _advise(summary: RunSummary) -> str:
    """Return advice for a user who still wants the action to be executed."""
    if summary.is_over:
        return "start a new run if this is still needed"
    if summary.lease == "held":
        return f"use podium send {summary.id} TEXT to ask the agent to try again; you will then get a new request"
    return f"continue the run with podium resume {summary.id}"


def _format_time(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"
