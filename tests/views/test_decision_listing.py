"""A decision as JSON says how its vote stands."""

from __future__ import annotations

from typing import Any

from podium.values.event import BallotCast, DecisionCommitted, DecisionProposed, Entry, Event, VoteClosed
from podium.views.decision_listing import encode_decision
from podium.views.decision_record import collect_decisions


def read_fields(*events: Event) -> dict[str, Any]:
    entries = [Entry(run="r1", seq=seq, at=1000.0 + seq, scope="lead", event=one) for seq, one in enumerate(events)]
    [record] = collect_decisions(entries)
    return encode_decision(record)


PROPOSED = DecisionProposed(
    id="d1",
    topic="Which drink?",
    options=("tea", "coffee"),
    eligible=("ada", "bob", "cy"),
    weights={"ada": 2.0},
    window=60.0,
)
BALLOT = BallotCast(decision="d1", voter="ada", option="tea", reason="It is cheap.")


def test_an_open_vote_says_who_has_not_voted_what_it_needs_and_when_it_closes() -> None:
    vote = read_fields(PROPOSED, BALLOT)["vote"]

    assert vote.waiting_for == ["bob", "cy"]
    assert vote.eligible == {"ada": 2.0, "bob": 1.0, "cy": 1.0}
    assert vote.missing == "2 of 3 votes for one option"
    assert (vote.closes_at, vote.closed) == (1060.0, None)


def test_a_ballot_has_the_entry_and_the_time_of_the_last_vote_of_its_voter() -> None:
    again = BallotCast(decision="d1", voter="ada", option="coffee")

    [ballot] = read_fields(PROPOSED, BALLOT, again)["ballots"]

    assert (ballot["voter"], ballot["option"], ballot["seq"], ballot["at"]) == ("ada", "coffee", 2, 1002.0)


def test_a_vote_that_is_over_waits_for_nobody() -> None:
    committed = DecisionCommitted(
        decision="d1", option="tea", how="decided by lead", by="lead", consequences="Buy tea."
    )

    fields = read_fields(PROPOSED, BALLOT, VoteClosed(decision="d1", why="timeout"), committed)

    vote = fields["vote"]
    assert (vote.waiting_for, vote.closes_at, vote.closed, vote.missing) == ([], None, "timeout", "")
    assert (fields["committed_by"], fields["consequences"]) == ("lead", "Buy tea.")
