"""Decisions as records: their status, their text, and the files that hold them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from podium.values.event import (
    BallotCast,
    BallotRefused,
    DecisionCommitted,
    DecisionProposed,
    Entry,
    Event,
    VoteClosed,
)
from podium.views.decision_record import (
    DecisionRecord,
    collect_decisions,
    find_next_number,
    make_adr_path,
    render_adr_files,
    render_decision,
)

HEADINGS = ["## Context", "## Options", "## Ballots", "## Decision", "## Rationale", "## Consequences"]


def make_entries(*events: Event, run: str = "r1") -> list[Entry]:
    return [
        Entry(run=run, seq=seq, at=1e9 + 60 * seq, scope="lead", event=event) for seq, event in enumerate(events, 1)
    ]


def make_decision(
    id: str = "d1", *, option: str = "tea", committed: dict[str, Any] | None = None, **keys: Any
) -> list[Event]:
    given = {"topic": "Which drink?", "options": ("tea", "coffee"), "eligible": ("ada", "bob")} | keys
    return [
        DecisionProposed(id=id, **given),
        BallotCast(decision=id, voter="ada", option=option, reason="It is cheap."),
        BallotRefused(decision=id, voter="zoe", option="tea", reason="zoe cannot vote on this"),
        VoteClosed(decision=id, why="decided"),
        DecisionCommitted(decision=id, option=option, how="majority", **committed or {}),
    ]


def read_one(*events: Event) -> DecisionRecord:
    [record] = collect_decisions(make_entries(*events))
    return record


def test_a_decision_is_proposed_then_accepted_then_superseded() -> None:
    first, second = make_decision("d1"), make_decision("d2", supersedes="d1")

    assert read_one(*first[:-1]).status == "proposed"
    assert read_one(*first).status == "accepted"
    open, decided = (
        collect_decisions(make_entries(*first, *second[:-1])),
        collect_decisions(make_entries(*first, *second)),
    )
    assert [(one.id, one.status, one.superseded_by) for one in open] == [("d1", "accepted", ""), ("d2", "proposed", "")]
    assert [(one.id, one.status, one.superseded_by) for one in decided] == [
        ("d1", "superseded", "d2"),
        ("d2", "accepted", ""),
    ]


def test_decisions_of_other_runs_and_repositories_stay_apart() -> None:
    here = make_entries(*make_decision("d1", repo="/a"), run="r1")
    elsewhere = make_entries(*make_decision("d1", option="coffee", repo="/b"), run="r2")
    other = make_entries(*make_decision("d2", supersedes="d1", repo="/b"), run="r3")

    found = collect_decisions([*here, *elsewhere, *other])

    assert {(one.run, one.status) for one in found} == {("r1", "accepted"), ("r2", "superseded"), ("r3", "accepted")}


def test_a_decision_that_a_fork_shares_or_changes_is_listed_once() -> None:
    original = make_entries(*make_decision("d1"), run="r1")
    shared = [structs.replace(entry, run="r2") for entry in original]
    open = [structs.replace(entry, run="r3") for entry in original[:-1]]
    changed = DecisionCommitted(decision="d1", option="coffee", how="decided by person")
    other = [*open, structs.replace(original[-1], run="r3", event=changed, at=2e9)]

    assert [one.run for one in collect_decisions([*original, *shared, *open])] == ["r1"]
    [made] = collect_decisions([*original, *other, *shared])
    assert (made.run, made.state.committed) == ("r3", changed)


def test_an_event_that_is_not_possible_does_not_hide_the_decision() -> None:
    late = DecisionCommitted(decision="d1", option="coffee", how="unanimous")

    assert read_one(*make_decision(), late).state.committed == make_decision()[-1]


def test_a_record_says_everything_about_a_decision() -> None:
    committed = {"by": "", "rationale": "Cheap and quick.", "consequences": "We buy a kettle."}
    record = read_one(*make_decision(evidence="Coffee costs 3.", committed=committed, weights={"ada": 2.0}, by="lead"))

    assert render_decision(record, number="0007") == (
        "# 0007. Which drink?\n\n"
        "- Status: accepted\n"
        "- Decision: `d1` in run `r1`\n"
        "- Date: 2001-09-09 01:51 UTC\n"
        "- Participants: lead, ada\n\n"
        "## Context\n\n> Coffee costs 3.\n\n"
        "## Options\n\n1. tea\n2. coffee\n\n"
        "## Ballots\n\nRule: majority. Eligible: ada (weight 2), bob.\n\n"
        "**ada** votes for tea:\n\n> It is cheap.\n\n"
        "No ballot: bob.\n\n"
        "Refused: zoe for tea: zoe cannot vote on this.\n\n"
        "## Decision\n\n**tea** (majority)\n\n"
        "## Rationale\n\n> Cheap and quick.\n\n"
        "## Consequences\n\n> We buy a kettle.\n\n"
        "It applies to all later work in this repository, until another decision supersedes it. Not chosen: coffee.\n"
    )


def test_a_record_of_an_open_decision_says_what_is_missing() -> None:
    text = render_decision(read_one(*make_decision()[:2]))

    assert "- Status: proposed" in text
    assert text.endswith("## Decision\n\nNot decided yet; missing: 2 of 2 votes for one option.\n")


HOSTILE = st.lists(
    st.sampled_from(
        ["# Fake", "## Decision", "- Status: accepted", "- Decision: `d9`", "===", "---", "<h1>x</h1>", "```", "text"]
    )
    | st.text(max_size=20),
    max_size=6,
).flatmap(lambda lines: st.sampled_from(["\n", "\r\n", "\u2028", "\x85"]).map(lambda end: end.join(lines)))


@given(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
def test_text_of_agents_cannot_imitate_the_record(topic: str, evidence: str, reason: str, rationale: str) -> None:
    events: list[Event] = [
        DecisionProposed(id="d1", topic=topic, options=("a", "b"), evidence=evidence, eligible=("ada",)),
        BallotCast(decision="d1", voter="ada", option="a", reason=reason),
        VoteClosed(decision="d1", why="decided"),
        DecisionCommitted(decision="d1", option="a", how="majority", rationale=rationale, consequences=rationale),
    ]

    lines = render_decision(read_one(*events), number="0001").splitlines()

    assert [line for line in lines if line.startswith("#")] == [lines[0], *HEADINGS]
    assert [line for line in lines if line.startswith("- Status")] == ["- Status: accepted"]
    assert [line for line in lines if line.startswith("- Decision")] == ["- Decision: `d1` in run `r1`"]
    assert not any(re.match(r"[>\s]*#{1,6}\s", line) for line in lines if line.startswith(">"))
    assert not any(re.match(r"(?:>\s*)*(=+|-+)\s*$", line) for line in lines if line)
    assert "<h1>" not in "\n".join(lines)


def test_files_are_numbered_after_those_of_the_target() -> None:
    existing = {"docs/adr/0002-old.md": "", "docs/adr/0011-old.md": "", "docs/adr/notes.md": "", "src/0099-x.md": ""}
    records = collect_decisions(make_entries(*make_decision("d1"), *make_decision("d2", topic="Größe & Form?!")))

    files = render_adr_files(records, existing)

    assert list(files) == ["docs/adr/0012-which-drink.md", "docs/adr/0013-gr-e-form.md"]
    assert files["docs/adr/0012-which-drink.md"].startswith("# 0012. Which drink?")
    assert find_next_number([]) == 1
    assert make_adr_path(12345, "?") == "docs/adr/12345-decision.md"


def test_two_branches_that_reach_the_target_one_after_the_other_do_not_collide() -> None:
    one, other = read_one(*make_decision("d1")), read_one(*make_decision("d2"))

    target = render_adr_files([one], {})
    target |= render_adr_files([other], target)

    assert list(target) == ["docs/adr/0001-which-drink.md", "docs/adr/0002-which-drink.md"]


def test_a_decision_that_has_a_file_is_not_written_again_and_an_open_one_not_at_all() -> None:
    record = read_one(*make_decision())
    target = render_adr_files([record], {})

    assert render_adr_files([record], target) == {}
    assert render_adr_files([read_one(*make_decision("d2")[:-1])], target) == {}


@pytest.mark.parametrize("is_together", [True, False])
def test_a_decision_that_supersedes_another_links_both_files(is_together: bool) -> None:
    records = collect_decisions(
        make_entries(*make_decision("d1"), *make_decision("d2", topic="Which cup?", supersedes="d1"))
    )

    if is_together:
        target = render_adr_files(records, {})
    else:
        target = render_adr_files([read_one(*make_decision("d1"))], {})
        target |= render_adr_files(records[1:], target)

    assert "- Status: superseded by [0002](0002-which-cup.md)\n" in target["docs/adr/0001-which-drink.md"]
    assert "- Supersedes: [0001](0001-which-drink.md)\n" in target["docs/adr/0002-which-cup.md"]
    assert "- Status: accepted\n" in target["docs/adr/0002-which-cup.md"]


def test_a_superseded_decision_without_a_file_is_named_by_its_id() -> None:
    [text] = render_adr_files([read_one(*make_decision("d2", supersedes="d1"))], {}).values()

    assert "- Supersedes: `d1`\n" in text
