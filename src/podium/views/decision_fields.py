"""Return decisions as JSON fields."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.decision_state import find_result, get_weight
from ..values.event import BallotCast
from .decision_record import DecisionRecord, list_participants, render_decision


def decision_fields(record: DecisionRecord) -> dict[str, Any]:
    """Return a decision as JSON fields."""
    proposal, made = record.state.proposal, record.state.committed
    return {
        "id": record.id,
        "topic": proposal.topic,
        "status": record.status,
        "superseded_by": record.superseded_by or None,
        "supersedes": proposal.supersedes or None,
        "option": None if made is None else made.option,
        "how": None if made is None else made.how,
        "rationale": "" if made is None else made.rationale,
        "options": proposal.options,
        "participants": list_participants(record.state),
        "run": record.run,
        "step": proposal.step or None,
        "proposed_at": record.proposed_at,
        "committed_at": record.committed_at,
    }


def whole_decision_fields(record: DecisionRecord) -> dict[str, Any]:
    """Return a decision as JSON fields, with its vote, its ballots and the text of its record."""
    state, made = record.state, record.state.committed
    return decision_fields(record) | {
        "evidence": state.proposal.evidence,
        "proposed_by": state.proposal.by,
        "committed_by": "" if made is None else made.by,
        "consequences": "" if made is None else made.consequences,
        "vote": vote_fields(record),
        "ballots": [_ballot_fields(record, ballot) for ballot in state.ballots.values()],
        "refused": state.refused,
        "text": render_decision(record),
    }


def _ballot_fields(record: DecisionRecord, ballot: BallotCast) -> dict[str, Any]:
    seq, at = record.ballot_entries.get(ballot.voter, (None, None))
    return {**msgspec.to_builtins(ballot), "seq": seq, "at": at}


def vote_fields(record: DecisionRecord) -> dict[str, Any]:
    """Return a vote's rule, who can vote, who has not voted yet, and when the vote times out, as JSON fields.

    `missing` says what the vote still needs for a result. `closes_at` is the earliest time when an open vote can time
    out. If the run is interrupted and resumed, the vote window starts again, so the vote times out later.
    """
    proposal, closed = record.state.proposal, record.state.closed
    is_open = closed is None and record.state.committed is None
    return {
        "rule": proposal.rule,
        "decide_by": proposal.decide_by,
        "eligible": {name: get_weight(proposal, name) for name in proposal.eligible},
        "waiting_for": [name for name in proposal.eligible if name not in record.state.ballots] if is_open else [],
        "closed": None if closed is None else closed.why,
        "closes_at": record.proposed_at + proposal.window if is_open and proposal.eligible else None,
        "missing": find_result(record.state).missing if record.state.committed is None else "",
    }
