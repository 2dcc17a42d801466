"""The columns of a list of decisions, and a whole decision."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from ..core.decision_state import find_result, get_weight
from ..values.column import Column, DocumentPart, encode_row
from ..values.event import DecisionCommitted
from .decision_record import DecisionRecord, list_participants, render_decision


class DecisionRow(NamedTuple):
    """A decision in a list.

    With `names_run`, the terminal shows its id as `RUN/ID`, which is needed if several runs have a decision with this
    id.
    """

    record: DecisionRecord
    names_run: bool = False


def list_decision_rows(records: Sequence[DecisionRecord]) -> list[DecisionRow]:
    """Return decisions as rows of a list."""
    ids = Counter(record.id for record in records)
    return [DecisionRow(record, names_run=ids[record.id] > 1) for record in records]


def _format_id(row: DecisionRow) -> str:
    return f"{row.record.run}/{row.record.id}" if row.names_run else row.record.id


def _format_day(row: DecisionRow) -> str:
    """Return the day on which a decision was made or, until then, proposed."""
    return time.strftime("%Y-%m-%d", time.localtime(row.record.committed_at or row.record.proposed_at))


def _format_status(row: DecisionRow) -> str:
    superseded_by = row.record.superseded_by
    return f"superseded by {superseded_by}" if superseded_by else row.record.status


def _format_topic(row: DecisionRow) -> str:
    """Return the topic of a decision with its outcome or, until it is made, with its options."""
    proposal, made = row.record.state.proposal, row.record.state.committed
    outcome = " | ".join(proposal.options) if made is None else f"{made.option} ({made.how})"
    return f"{proposal.topic} -> {outcome}"


def _of_outcome(get: Callable[[DecisionCommitted], object], default: object) -> Callable[[DecisionRow], object]:
    """Return a function that gets a value from the outcome, or the default until the decision is made."""
    return lambda row: default if (made := row.record.state.committed) is None else get(made)


DECISION_COLUMNS: tuple[Column[DecisionRow], ...] = (
    Column("id", "Decision", lambda row: row.record.id, text=_format_id),
    Column("committed_at", "Date", lambda row: row.record.committed_at, "age", text=_format_day),
    Column("status", "Status", lambda row: row.record.status, text=_format_status),
    Column("topic", "Topic", lambda row: row.record.state.proposal.topic, text=_format_topic, fills=True),
    Column("superseded_by", "Superseded by", lambda row: row.record.superseded_by or None, shown="nowhere"),
    Column("supersedes", "Supersedes", lambda row: row.record.state.proposal.supersedes or None, shown="nowhere"),
    Column("option", "Option", _of_outcome(lambda made: made.option, None), shown="nowhere"),
    Column("how", "Decided by", _of_outcome(lambda made: made.how, None), shown="nowhere"),
    Column("rationale", "Rationale", _of_outcome(lambda made: made.rationale, ""), shown="nowhere"),
    Column("options", "Options", lambda row: row.record.state.proposal.options, "data", shown="nowhere"),
    Column("participants", "Participants", lambda row: list_participants(row.record.state), "data", shown="nowhere"),
    Column("run", "Run", lambda row: row.record.run, shown="nowhere"),
    Column("step", "Step", lambda row: row.record.state.proposal.step or None, shown="nowhere"),
    Column("proposed_at", "Proposed", lambda row: row.record.proposed_at, "age", shown="nowhere"),
)
"""The columns of a list of decisions."""


class Vote(DocumentPart, frozen=True, kw_only=True):
    """A vote's rule, who can vote, who has not voted yet, and when the vote times out.

    `missing` says what the vote still needs for a result. `closes_at` is the earliest time when an open vote can time
    out. If the run is interrupted and resumed, the vote window starts again, so the vote times out later.
    """

    rule: str
    decide_by: str
    eligible: dict[str, float]
    waiting_for: list[str]
    closed: str | None
    closes_at: float | None
    missing: str


def encode_decision(record: DecisionRecord) -> dict[str, Any]:
    """Return a decision as a row of a list, with its vote, its ballots and the text of its record."""
    state, made = record.state, record.state.committed
    ballots = []
    for ballot in state.ballots.values():
        seq, at = record.ballot_entries.get(ballot.voter, (None, None))
        ballots.append(msgspec.to_builtins(ballot) | {"seq": seq, "at": at})
    return encode_row(DecisionRow(record), DECISION_COLUMNS) | {
        "evidence": state.proposal.evidence,
        "proposed_by": state.proposal.by,
        "committed_by": "" if made is None else made.by,
        "consequences": "" if made is None else made.consequences,
        "vote": _describe_vote(record),
        "ballots": ballots,
        "refused": state.refused,
        "text": render_decision(record),
    }


def _describe_vote(record: DecisionRecord) -> Vote:
    """Return the state of a vote."""
    proposal, closed = record.state.proposal, record.state.closed
    is_open = closed is None and record.state.committed is None
    return Vote.of(
        proposal,
        eligible={name: get_weight(proposal, name) for name in proposal.eligible},
        waiting_for=[name for name in proposal.eligible if name not in record.state.ballots] if is_open else [],
        closed=None if closed is None else closed.why,
        closes_at=record.proposed_at + proposal.window if is_open and proposal.eligible else None,
        missing=find_result(record.state).missing if record.state.committed is None else "",
    )
