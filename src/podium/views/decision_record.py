"""Build records of decisions, which state the outcome, the participants and the reasons, and render them in Markdown.

The text has the form of an architecture decision record (ADR). Text from agents and people is quoted, so that it cannot
imitate a heading of the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote

from ..core.decision_state import DecisionState, find_result, get_decision_id
from ..core.plan_state import InvalidTransition
from ..values.event import BallotCast, DecisionProposed, Entry
from ..values.plain_text import join_words
from .quoted_markdown import escape_inline, quote_block

RecordStatus = Literal["proposed", "accepted", "superseded"]

IN_FORCE = "It applies to all later work in this repository, until another decision supersedes it."


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """A decision, the run in which it was made, and the times when it was proposed and committed."""

    state: DecisionState
    run: str = ""
    proposed_at: float = 0.0
    committed_at: float | None = None
    superseded_by: str = ""
    """The id of the decision that replaces this one."""
    ballot_entries: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """The sequence number and the time of the entry with each voter's last valid ballot, keyed by voter."""

    @property
    def id(self) -> str:
        return self.state.proposal.id

    @property
    def status(self) -> RecordStatus:
        """The status of the decision. An `accepted` decision is in force."""
        if self.state.committed is None:
            return "proposed"
        return "superseded" if self.superseded_by else "accepted"


def collect_decisions(entries: Iterable[Entry]) -> list[DecisionRecord]:
    """Return the decisions in these entries, which can be from several runs, in the order in which they were proposed.

    A fork also contains decisions from the original run. Each decision is returned once: the version that was committed
    last or, if none was committed, the first version.
    """
    found: dict[tuple[str, str], DecisionRecord] = {}
    for entry in entries:
        key = entry.run, get_decision_id(entry.event)
        if key in found:
            found[key] = _apply_entry(found[key], entry)
        elif isinstance(entry.event, DecisionProposed):
            found[key] = DecisionRecord(state=DecisionState(proposal=entry.event), run=entry.run, proposed_at=entry.at)
    latest: dict[tuple[str, str], DecisionRecord] = {}
    for record in found.values():
        shared = record.state.proposal.repo, record.id
        if shared not in latest or (record.committed_at or 0.0) > (latest[shared].committed_at or 0.0):
            latest[shared] = record
    return list(_link_superseded(sorted(latest.values(), key=lambda one: one.proposed_at)))


def _apply_entry(record: DecisionRecord, entry: Entry) -> DecisionRecord:
    try:
        state = record.state.apply(entry.event)
    except InvalidTransition:
        return record  # decisions must be listed even if another release wrote an entry that this one does not accept
    entries = record.ballot_entries
    if isinstance(entry.event, BallotCast) and state.ballots.get(entry.event.voter) is entry.event:
        entries = {**entries, entry.event.voter: (entry.seq, entry.at)}
    is_commit = record.state.committed is None and state.committed is not None
    committed_at = entry.at if is_commit else record.committed_at
    return replace(record, state=state, committed_at=committed_at, ballot_entries=entries)


def _link_superseded(records: list[DecisionRecord]) -> Iterator[DecisionRecord]:
    """Yield the records, with `superseded_by` set in those that another decision replaced."""
    replacements = {
        (one.state.proposal.repo, one.state.proposal.supersedes): one.id
        for one in records
        if one.state.committed is not None and one.state.proposal.supersedes
    }
    for record in records:
        by = replacements.get((record.state.proposal.repo, record.id), "")
        yield replace(record, superseded_by=by) if by else record


# Rendering a record in Markdown


def render_decision(record: DecisionRecord, *, number: str = "", files: Mapping[str, str] | None = None) -> str:
    """Render the record of a decision in Markdown. `files` maps the ids of other decisions to their files."""
    state = record.state
    proposal = state.proposal
    title = f"{number}. {escape_inline(proposal.topic)}" if number else escape_inline(proposal.topic)
    blocks = [
        f"# {title}",
        "\n".join(_iter_facts(record, files or {})),
        "## Context",
        quote_block(proposal.evidence) if proposal.evidence.strip() else "No evidence was given.",
        "## Options",
        "\n".join(f"{place}. {escape_inline(option)}" for place, option in enumerate(proposal.options, 1)),
        "## Ballots",
        *_iter_ballots(state),
        "## Decision",
        *_iter_outcome(state),
    ]
    return "\n\n".join(blocks) + "\n"


def _iter_facts(record: DecisionRecord, files: Mapping[str, str]) -> Iterator[str]:
    proposal = record.state.proposal
    yield format_status_line(record, files)
    yield f"- Decision: `{record.id}`" + (f" in run `{record.run}`" if record.run else "")
    if proposal.supersedes:
        yield f"- Supersedes: {link_decision(proposal.supersedes, files)}"
    at = record.proposed_at if record.committed_at is None else record.committed_at
    if at:
        yield f"- Date: {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    if names := list_participants(record.state):
        yield f"- Participants: {', '.join(map(escape_inline, names))}"


def format_status_line(record: DecisionRecord, files: Mapping[str, str]) -> str:
    """Return the line with the status of a decision."""
    by = f" by {link_decision(record.superseded_by, files)}" if record.superseded_by else ""
    return f"- Status: {record.status}{by}"


def link_decision(id: str, files: Mapping[str, str]) -> str:
    """Return a link to the file of a decision, or its id if it has no file."""
    if id not in files:
        return f"`{id}`"
    name = files[id].rpartition("/")[2]
    return f"[{name.partition('-')[0]}]({quote(name)})"


def list_participants(state: DecisionState) -> list[str]:
    """Return the names of a decision's participants: the proposer, the voters, and the person or agent that decided."""
    if state.committed is not None and state.committed.participants:
        return list(state.committed.participants)
    by = "" if state.committed is None else state.committed.by
    return [name for name in dict.fromkeys([state.proposal.by, *state.ballots, by]) if name]


def _iter_ballots(state: DecisionState) -> Iterator[str]:
    proposal = state.proposal
    if not proposal.eligible:
        yield "There was no vote."
        return
    yield (
        f"Rule: {proposal.rule}. Eligible: {', '.join(_format_voter(proposal, name) for name in proposal.eligible)}."
    )
    for ballot in state.ballots.values():
        yield _format_ballot(ballot)
    if missing := [name for name in proposal.eligible if name not in state.ballots]:
        yield f"No ballot: {', '.join(map(escape_inline, missing))}."
    for one in state.refused:
        option = f" for {escape_inline(one.option)}" if one.option else ""
        yield f"Refused: {escape_inline(one.voter)}{option}: {escape_inline(one.reason)}."


def _format_voter(proposal: DecisionProposed, name: str) -> str:
    weight = f" (weight {proposal.weights[name]:g})" if name in proposal.weights else ""
    return f"{escape_inline(name)}{weight}"


def _format_ballot(ballot: BallotCast) -> str:
    voted = f"votes for {escape_inline(ballot.option)}" if ballot.option else "abstains"
    line = f"**{escape_inline(ballot.voter)}** {voted}"
    return f"{line}:\n\n{quote_block(ballot.reason)}" if ballot.reason.strip() else f"{line}."


def _iter_outcome(state: DecisionState) -> Iterator[str]:
    committed = state.committed
    if committed is None:
        missing = find_result(state).missing
        yield f"Not decided yet; missing: {missing}." if missing else "Not decided yet."
        return
    yield f"**{escape_inline(committed.option)}** ({escape_inline(committed.how)})"
    yield "## Rationale"
    yield quote_block(committed.rationale) if committed.rationale.strip() else "No reason was given."
    yield "## Consequences"
    if committed.consequences.strip():
        yield quote_block(committed.consequences)
    others = [escape_inline(one) for one in state.proposal.options if one != committed.option]
    yield f"{IN_FORCE} Not chosen: {join_words(others)}."
