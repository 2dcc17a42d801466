"""Build records of decisions, render them in Markdown, and name and number their files.

A record states the outcome, the participants and the reasons.

The text has the form of an architecture decision record (ADR). Text from agents and people is quoted, so that it cannot
imitate a heading of the record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Literal
from urllib.parse import quote, unquote

from ..core.decision_state import DecisionState, find_result, get_decision_id
from ..core.plan_state import InvalidTransition
from ..values.event import BallotCast, DecisionProposed, Entry
from ..values.plain_text import join_words
from .quoted_markdown import escape_inline, quote_block

ADR_FOLDER = "docs/adr"
LONGEST_FILE_TITLE = 60
_ADR_NAME = re.compile(r"(?:^|/)(\d{4,})-[^/]*\.md$")
_ID_LINE = re.compile(r"^- Decision: `([^`]+)`", re.MULTILINE)
_STATUS_LINE = re.compile(r"^- Status: .*$", re.MULTILINE)
_LINKING_LINE = re.compile(r"^- (?:Status|Supersedes): .*$", re.MULTILINE)
_LINK = re.compile(r"\[\d+\]\(([^()\s]+)\)")
_UNLINKED = re.compile(r"^- Supersedes: `([^`]+)`$", re.MULTILINE)
_TITLE_NUMBER = re.compile(r"\A# \d+(?=\. )")


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
    yield _format_status_line(record, files)
    yield f"- Decision: `{record.id}`" + (f" in run `{record.run}`" if record.run else "")
    if proposal.supersedes:
        yield f"- Supersedes: {_link_decision(proposal.supersedes, files)}"
    at = record.proposed_at if record.committed_at is None else record.committed_at
    if at:
        yield f"- Date: {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
    if names := list_participants(record.state):
        yield f"- Participants: {', '.join(map(escape_inline, names))}"


def _format_status_line(record: DecisionRecord, files: Mapping[str, str]) -> str:
    """Return the line with the status of a decision."""
    by = f" by {_link_decision(record.superseded_by, files)}" if record.superseded_by else ""
    return f"- Status: {record.status}{by}"


def _link_decision(id: str, files: Mapping[str, str]) -> str:
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


def render_adr_files(decisions: Iterable[DecisionRecord], existing: Mapping[str, str]) -> dict[str, str]:
    """Return the files to write for these decisions, keyed by path: new records, and records that are now superseded.

    `existing` maps the paths of the files in the target tree to their content; only the content of decision records is
    read. A committed decision without a file gets the next free number in the target. Decisions that are not committed
    get no file.
    """
    made = [one for one in decisions if one.state.committed is not None]
    texts = {path: text for path, text in existing.items() if _parse_number(path)}
    files = find_recorded_decisions(texts)
    new: dict[str, str] = {}
    number = find_next_number(existing)
    for record in sorted(made, key=lambda one: one.committed_at or 0.0):
        if record.id not in files:
            files[record.id] = new[record.id] = make_adr_path(number, record.state.proposal.topic)
            number += 1
    written = {
        path: render_decision(record, number=_format_number(_parse_number(path)), files=files)
        for record in made
        if (path := new.get(record.id)) is not None
    }
    return written | _update_superseded(made, files, texts)


def _update_superseded(
    made: list[DecisionRecord], files: Mapping[str, str], texts: Mapping[str, str]
) -> dict[str, str]:
    """Return the updated files of the existing decisions that these decisions supersede, keyed by path."""
    changed: dict[str, str] = {}
    for record in made:
        path = files.get(record.state.proposal.supersedes, "")
        if path in texts:
            text = _replace_status(texts[path], f"superseded by {_link_decision(record.id, files)}")
            if text != texts[path]:
                changed[path] = text
    return changed


def _replace_status(text: str, status: str) -> str:
    found = _STATUS_LINE.search(text)
    return text if found is None else f"{text[: found.start()]}- Status: {status}{text[found.end() :]}"


def find_next_number(names: Iterable[str]) -> int:
    """Return the number after the highest number of a decision record among these files."""
    return max(map(_parse_number, names), default=0) + 1


def make_adr_path(number: int, title: str) -> str:
    """Return the path of a decision record: `docs/adr/0007-which-drink.md`."""
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:LONGEST_FILE_TITLE].strip("-")
    return f"{ADR_FOLDER}/{_format_number(number)}-{words or 'decision'}.md"


def _format_number(number: int) -> str:
    return f"{number:04}"


def _parse_number(path: str) -> int:
    """Return the number of a decision record, or 0 for any other file."""
    found = _ADR_NAME.search(path) if path.startswith(f"{ADR_FOLDER}/") else None
    return 0 if found is None else int(found[1])


def find_recorded_decisions(files: Mapping[str, str]) -> dict[str, str]:
    """Return the paths of the decision records among these files, keyed by decision id."""
    found: dict[str, str] = {}
    for path, text in files.items():
        for id in _ID_LINE.findall(text)[:1] if _parse_number(path) else ():
            found.setdefault(id, path)
    return found


# Renumbering
def renumber_adr_files(
    arriving: Mapping[str, str], target: Mapping[str, str], base: Mapping[str, str]
) -> dict[str, str | None]:
    """Renumber a branch's records to fit the target.

    Return the changed files, keyed by path, with None for each removed file. The arguments map the paths of the
    files in the ADR folder to their content: on the branch, on the target, and at their merge base. A record that the
    target also has gets the target's number. If the target uses the number of a new record for another file, all new
    records get the next free numbers, in the same order. Files without a decision id keep their numbers, because users
    write these files and link to them.
    """
    moved = _plan_moves(arriving, target, base)
    changes: dict[str, str | None] = dict.fromkeys(moved)
    for path in find_recorded_decisions(arriving).values():
        new = moved.get(path, path)
        text = _LINKING_LINE.sub(partial(_follow_moves, moved), arriving[path])
        if new != path:
            text = _TITLE_NUMBER.sub(f"# {_format_number(_parse_number(new))}", text)
        if new != path or text != arriving[path]:
            changes[new] = text
    return changes


def _plan_moves(arriving: Mapping[str, str], target: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """Return the new paths of the records that move, keyed by their old paths."""
    own, there, before = map(find_recorded_decisions, (arriving, target, base))
    moved = {path: there[id] for id, path in own.items() if id in there and there[id] != path}
    new = sorted((path for id, path in own.items() if id not in there and id not in before), key=_parse_number)
    used = set(map(_parse_number, target))
    if any(_parse_number(path) in used for path in new):
        kept = {_parse_number(path) for path in arriving if path not in moved and path not in new}
        moved |= dict(zip(new, _iter_free_paths(new, find_next_number(target), kept), strict=True))
    staying = arriving.keys() - moved.keys()
    return {old: path for old, path in moved.items() if path != old and path not in staying}


def _iter_free_paths(paths: Iterable[str], first: int, taken: Collection[int]) -> Iterator[str]:
    """Yield a renumbered path for each path. The new numbers start at `first`; numbers in `taken` are skipped."""
    numbers = (number for number in count(first) if number not in taken)
    for path in paths:
        title = path.rpartition("/")[2].partition("-")[2]
        yield f"{ADR_FOLDER}/{_format_number(next(numbers))}-{title}"


def _follow_moves(moved: Mapping[str, str], line: re.Match[str]) -> str:
    """Return a line of a record, with its links to renamed records updated."""

    def follow_link(link: re.Match[str]) -> str:
        new = moved.get(f"{ADR_FOLDER}/{unquote(link[1])}")
        return link[0] if new is None else _link_decision("", {"": new})

    return _LINK.sub(follow_link, line[0])


def link_adr_files(files: Mapping[str, str]) -> dict[str, str]:
    """Add missing links between each record and the record that it supersedes, in both directions.

    Links are missing if the two records come from different branches. Return the changed records, keyed by path.
    """
    paths = find_recorded_decisions(files)
    changed: dict[str, str] = {}
    for id, path in paths.items():
        text = changed.get(path, files[path])
        replaced = _UNLINKED.search(text)
        if replaced is None or (old := paths.get(replaced[1], path)) == path:
            continue
        link = f"- Supersedes: {_link_decision(replaced[1], paths)}"
        changed[path] = f"{text[: replaced.start()]}{link}{text[replaced.end() :]}"
        status = f"superseded by {_link_decision(id, paths)}"
        changed[old] = _replace_status(changed.get(old, files[old]), status)
    return changed
