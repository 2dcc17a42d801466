"""Return decisions as JSON fields."""

from __future__ import annotations

from typing import Any

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
        "proposed_at": record.proposed_at,
        "committed_at": record.committed_at,
    }


def whole_decision_fields(record: DecisionRecord) -> dict[str, Any]:
    """Return a decision with its ballots and its text as a record."""
    return decision_fields(record) | {
        "ballots": list(record.state.ballots.values()),
        "refused": record.state.refused,
        "text": render_decision(record),
    }
