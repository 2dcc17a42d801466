"""Explain why an answer to a request is too late, and what the user can do instead."""

from __future__ import annotations

from datetime import datetime

from ..core.open_requests import Answered, Asked, describe_answerer, is_automatic_denial, is_expired, is_timeout_denial
from ..values.errors import AlreadyAnswered, PodiumError, RequestClosed
from ..values.event import KINDS, Entry, PermissionAnswered, PermissionAsked, QuestionAsked, RunEnded
from ..values.plain_text import escape_unprintable, truncate_text
from ..values.store_address import StoreAddress
from .reader import RunSummary, StoreReader

ASKED_KINDS = (KINDS[PermissionAsked], KINDS[QuestionAsked])


def explain_closed_request(
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
