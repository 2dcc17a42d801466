"""Our own decisions are recorded in `docs/adr/` in the format in which Podium writes the decisions of its users."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podium.values.event import DecisionCommitted, DecisionProposed, Entry, Event, VoteClosed
from podium.views.decision_record import (
    ADR_FOLDER,
    collect_decisions,
    find_next_number,
    find_recorded_decisions,
    make_adr_path,
    render_decision,
)

ROOT = Path(__file__).parents[1]
RECORDS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in (ROOT / ADR_FOLDER).glob("*.md")}


def test_the_records_are_numbered_without_gaps_and_have_ids_of_their_own() -> None:
    assert sorted(find_recorded_decisions(RECORDS).values()) == sorted(RECORDS)
    assert find_next_number(RECORDS) == len(RECORDS) + 1


@pytest.mark.parametrize("path", sorted(RECORDS))
def test_a_record_is_what_podium_writes_for_its_decision(path: str) -> None:
    text = RECORDS[path]
    number, topic = re.findall(r"^# (\d+)\. (.+)$", text, re.MULTILINE)[0]
    [id] = re.findall(r"^- Decision: `(\w+)`", text, re.MULTILINE)
    option, how = re.findall(r"^\*\*(.+)\*\* \((.+)\)$", text, re.MULTILINE)[0]
    events: list[Event] = [
        DecisionProposed(
            id=id,
            topic=topic,
            options=tuple(re.findall(r"^\d+\. (.+)$", text, re.MULTILINE)),
            evidence=read_quote(text, "Context"),
        ),
        VoteClosed(decision=id, why="decided"),
        DecisionCommitted(
            decision=id,
            option=option,
            how=how,
            rationale=read_quote(text, "Rationale"),
            consequences=read_quote(text, "Consequences"),
        ),
    ]
    entries = [Entry(run="", seq=seq, at=0.0, scope="", event=event) for seq, event in enumerate(events, 1)]

    [record] = collect_decisions(entries)

    assert render_decision(record, number=number) == text
    assert make_adr_path(int(number), topic) == path


def read_quote(text: str, heading: str) -> str:
    """Return the quoted text in a section."""
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return "\n".join(line.removeprefix("> ") for line in section.splitlines() if line.startswith(">"))
