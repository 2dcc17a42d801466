"""The state of a decision: every transition that is possible and no other, who may vote, and what a vote gives."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from podium.core.decision_state import (
    DECISION_TRANSITIONS,
    DecisionState,
    DecisionStatus,
    find_proposal_problem,
    find_result,
    judge_ballot,
    parse_vote_rule,
    shorten_proposal,
)
from podium.core.plan_state import InvalidTransition
from podium.values.errors import Mistake
from podium.values.event import (
    BallotCast,
    BallotRefused,
    DecisionCommitted,
    DecisionProposed,
    Event,
    Noticed,
    VoteClosed,
)

STATES: tuple[DecisionStatus, ...] = get_args(DecisionStatus)
MEMBERS = ("ada", "bob", "cleo", "dan", "eve")
OPTIONS = ("tea", "coffee", "water")
PROPOSAL = DecisionProposed(id="d1", topic="Which drink?", options=OPTIONS, eligible=MEMBERS)
OTHER = structs.replace(PROPOSAL, options=("tea", "juice"))
CLOSED = VoteClosed(decision="d1", why="complete")
COMMITTED = DecisionCommitted(decision="d1", option="tea", how="majority")
REFUSED = BallotRefused(decision="d1", voter="zoe", option="tea", reason="zoe cannot vote on this")

UNTIL: dict[DecisionStatus, list[Event]] = {
    "proposed": [PROPOSAL],
    "voting": [PROPOSAL, BallotCast(decision="d1", voter="ada", option="tea")],
    "closed": [PROPOSAL, CLOSED],
    "committed": [PROPOSAL, CLOSED, COMMITTED],
}
EVENTS: list[Event] = [OTHER, BallotCast(decision="d1", voter="bob", option="tea"), REFUSED, CLOSED, COMMITTED]


def read_state(*events: Event) -> DecisionState:
    state = DecisionState.from_events("d1", events)
    assert state is not None
    return state


def cast(voter: str, option: str) -> BallotCast:
    return BallotCast(decision="d1", voter=voter, option=option)


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_decision_changes_only_along_its_transitions(before: DecisionStatus, event: Event) -> None:
    state = read_state(*UNTIL[before])
    assert state.status == before

    after = DECISION_TRANSITIONS[before].get(type(event))

    if after is None:
        with pytest.raises(InvalidTransition, match=f"invalid event for the decision d1, which is {before}: "):
            state.apply(event)
    else:
        assert state.apply(event).status == after


def test_only_these_transitions_are_possible() -> None:
    possible = {
        (before, kind.__name__, after) for before, to in DECISION_TRANSITIONS.items() for kind, after in to.items()
    }

    refusals = {(state, "BallotRefused", state) for state in STATES}
    assert possible - refusals == {
        ("proposed", "DecisionProposed", "proposed"),
        ("proposed", "BallotCast", "voting"),
        ("proposed", "VoteClosed", "closed"),
        ("voting", "BallotCast", "voting"),
        ("voting", "VoteClosed", "closed"),
        ("closed", "DecisionCommitted", "committed"),
        ("committed", "DecisionCommitted", "committed"),
    }


def test_a_proposal_can_be_replaced_until_the_first_ballot() -> None:
    assert read_state(PROPOSAL, REFUSED, OTHER).proposal == OTHER
    with pytest.raises(InvalidTransition, match="its options cannot change after the first ballot"):
        read_state(PROPOSAL, cast("ada", "tea"), OTHER)


def test_events_about_other_things_change_nothing() -> None:
    elsewhere: list[Event] = [
        structs.replace(PROPOSAL, id="d2"),
        BallotCast(decision="d2", voter="ada", option="water"),
    ]

    assert read_state(Noticed(text="hm"), PROPOSAL, *elsewhere, Noticed(text="hm")) == read_state(PROPOSAL)
    assert DecisionState.from_events("d1", elsewhere) is None


def test_a_ballot_before_the_proposal_is_invalid() -> None:
    with pytest.raises(InvalidTransition, match="the decision d1, which has not been proposed: ada cast a ballot"):
        DecisionState.from_events("d1", [cast("ada", "tea"), PROPOSAL])


def test_a_second_equal_commit_changes_nothing_and_a_different_one_is_invalid() -> None:
    state = read_state(*UNTIL["committed"])

    assert state.apply(COMMITTED) == state
    for other in (structs.replace(COMMITTED, option="water"), structs.replace(COMMITTED, how="unanimous")):
        with pytest.raises(InvalidTransition, match="it cannot be changed to"):
            state.apply(other)


def test_only_an_option_can_be_committed() -> None:
    why = "'juice' is not an option of the decision d1: the options are 'tea', 'coffee' and"
    with pytest.raises(InvalidTransition, match=why):
        read_state(PROPOSAL, CLOSED, structs.replace(COMMITTED, option="juice"))


@pytest.mark.parametrize(
    ("events", "voter", "option", "why"),
    [
        ([], "ada", "tea", ""),
        ([], "ada", "", ""),
        ([cast("ada", "tea")], "ada", "coffee", ""),
        ([CLOSED], "ada", "tea", "the vote is closed"),
        ([CLOSED], "zoe", "juice", "the vote is closed"),
        ([], "zoe", "tea", "zoe cannot vote on this; eligible: ada, bob, cleo, dan, eve"),
        ([], "ada", "juice", "'juice' is not an option; the options are 'tea', 'coffee' and 'water'"),
        ([], "ada", "Tea", "'Tea' is not an option; the options are 'tea', 'coffee' and 'water'"),
    ],
)
def test_a_ballot_is_refused_with_the_reason(events: list[Event], voter: str, option: str, why: str) -> None:
    state = read_state(PROPOSAL, *events)

    assert judge_ballot(state, voter, option) == why
    if why:
        with pytest.raises(InvalidTransition):
            state.apply(cast(voter, option))
    else:
        assert state.apply(cast(voter, option)).ballots[voter].option == option


@pytest.mark.parametrize(
    ("rule", "ballots", "option", "missing"),
    [
        ("majority", "ttt", "tea", ""),
        ("majority", "ttcw", None, "3 of 5 votes for one option"),
        ("majority", "tt---", None, "3 of 5 votes for one option"),
        ("majority", "", None, "3 of 5 votes for one option"),
        ("quorum:3", "tc", None, "3 ballots (2 cast)"),
        ("quorum:3", "t--", "tea", ""),
        ("quorum:3", "---", None, "one option with more votes than any other"),
        ("quorum:3", "ttcc", None, "one option with more votes than any other"),
        ("quorum:3", "ttccc", "coffee", ""),
        ("unanimous", "ttttt", "tea", ""),
        ("unanimous", "tttt-", None, "all 5 votes for one option"),
        ("unanimous", "tttt", None, "all 5 votes for one option"),
        ("weighted", "tcccc", "tea", ""),
        ("weighted", "-cccc", None, "one option with more than half of the total weight of 9"),
    ],
)
def test_a_rule_decides_when_there_is_a_result(rule: str, ballots: str, option: str | None, missing: str) -> None:
    names = {"t": "tea", "c": "coffee", "w": "water", "-": ""}
    weights = {"ada": 5.0} if rule == "weighted" else {}
    proposal = structs.replace(PROPOSAL, rule=rule, weights=weights)

    result = find_result(read_state(proposal, *(cast(who, names[b]) for who, b in zip(MEMBERS, ballots, strict=False))))

    assert (result.option, result.missing) == (option, missing)


def test_a_tie_names_the_leading_options_in_the_order_of_the_proposal() -> None:
    ballots = [cast("ada", "water"), cast("bob", "tea"), cast("cleo", "tea"), cast("dan", "water"), cast("eve", "")]

    result = find_result(read_state(PROPOSAL, *ballots))

    assert result.is_tie
    assert result.leading == ("tea", "water")


def test_without_eligible_members_there_is_no_result() -> None:
    result = find_result(read_state(structs.replace(PROPOSAL, eligible=())))

    assert (result.option, result.missing, result.leading) == (None, "nobody can vote", ())


@pytest.mark.parametrize("text", ["majority", "unanimous", "weighted", "quorum:1", " quorum:12 "])
def test_a_rule_is_read(text: str) -> None:
    rule = parse_vote_rule(text)

    assert (f"{rule.name}:{rule.quorum}" if rule.quorum else rule.name) == text.strip()


@pytest.mark.parametrize("text", ["", "most", "quorum", "quorum:0", "quorum:-1", "quorum:two", "majority:2"])
def test_a_rule_that_does_not_exist_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(Mistake) as caught:
        parse_vote_rule(text)

    assert str(caught.value) == (
        f"{text!r} is not a vote rule; use majority, unanimous, weighted or quorum:N, where N is at least 1"
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"eligible": (), "rule": "quorum:9"}, ""),
        ({"id": "a/b"}, "a decision id must be 1 to 64 letters, digits, dots, hyphens or underscores, got 'a/b'"),
        ({"topic": " "}, "the decision has no topic"),
        ({"topic": "t" * 301}, "the topic has 301 characters; use at most 300"),
        ({"options": ("tea",)}, "a decision needs 2 to 20 options, got 1"),
        ({"options": tuple(map(str, range(21)))}, "a decision needs 2 to 20 options, got 21"),
        ({"options": ("tea", "Tea ")}, "the option 'tea' is listed twice"),
        ({"options": ("tea", "")}, "an option must be one line of 1 to 200 characters, got ''"),
        ({"options": ("tea", "a\nb")}, r"an option must be one line of 1 to 200 characters, got 'a\nb'"),
        ({"options": ("tea", "Abstain")}, "'Abstain' cannot be an option"),
        ({"eligible": ("ada", "ada")}, "ada is listed twice among the eligible voters"),
        ({"weights": {"zoe": 2.0}}, "zoe has a weight but cannot vote"),
        ({"weights": {"ada": 0.0}}, "the weight of ada must be a number above 0, got 0"),
        ({"weights": {"ada": float("nan")}}, "the weight of ada must be a number above 0, got nan"),
        ({"rule": "quorum:6"}, "quorum:6 cannot be reached: only 5 members can vote"),
        ({"rule": "most"}, "'most' is not a vote rule"),
        ({"window": 0.0}, "the vote window must be more than 0 seconds, got 0"),
        ({"supersedes": "d1"}, "the decision d1 cannot supersede itself"),
    ],
)
def test_a_proposal_that_cannot_be_decided_is_refused_in_one_sentence(changes: dict[str, Any], problem: str) -> None:
    assert find_proposal_problem(structs.replace(PROPOSAL, **changes)).startswith(problem)
    assert bool(find_proposal_problem(structs.replace(PROPOSAL, **changes))) == bool(problem)


def test_a_proposal_of_an_agent_is_cut_to_single_lines_and_loses_nothing() -> None:
    long = "Which drink?\n" + "x" * 400

    short = shorten_proposal(structs.replace(PROPOSAL, topic=long, options=("tea\n or", "y" * 300), evidence="Cheap."))

    assert find_proposal_problem(short) == ""
    assert short.topic.startswith("Which drink? xxx")
    assert (short.evidence, short.options[0]) == (f"{long}\n\nCheap.", "tea or")
    assert shorten_proposal(PROPOSAL) == PROPOSAL


# Properties

RULES = st.sampled_from(["majority", "quorum:2", "quorum:4", "unanimous", "weighted"])
BALLOTS = st.lists(st.builds(cast, st.sampled_from([*MEMBERS, "zoe"]), st.sampled_from([*OPTIONS, "", "juice"])))
WEIGHTS = st.dictionaries(st.sampled_from(MEMBERS), st.floats(0.1, 1000))


def count_ballots(proposal: DecisionProposed, ballots: list[BallotCast]) -> DecisionState:
    """Return the state after the ballots that count; the others are refused."""
    state = read_state(proposal)
    for ballot in ballots:
        why = judge_ballot(state, ballot.voter, ballot.option)
        refused = BallotRefused(decision="d1", voter=ballot.voter, option=ballot.option, reason=why)
        state = state.apply(refused if why else ballot)
    return state


@given(RULES, WEIGHTS, BALLOTS)
def test_nobody_votes_twice_and_no_stranger_at_all(
    rule: str, weights: dict[str, float], ballots: list[BallotCast]
) -> None:
    state = count_ballots(structs.replace(PROPOSAL, rule=rule, weights=weights), ballots)

    counted = [one for one in ballots if one.voter in MEMBERS and one.option != "juice"]
    assert state.ballots == {one.voter: one for one in counted}
    assert len(state.refused) == len(ballots) - len(counted)


@given(RULES, WEIGHTS, BALLOTS, st.randoms(use_true_random=False))
def test_the_order_of_the_members_does_not_matter(
    rule: str, weights: dict[str, float], ballots: list[BallotCast], random: Any
) -> None:
    proposal = structs.replace(PROPOSAL, rule=rule, weights=weights)
    last = list({one.voter: one for one in ballots if one.option != "juice"}.values())
    random.shuffle(last)

    assert find_result(count_ballots(proposal, ballots)) == find_result(count_ballots(proposal, last))


@given(RULES, WEIGHTS, BALLOTS)
def test_a_result_is_an_option_that_leads_alone(
    rule: str, weights: dict[str, float], ballots: list[BallotCast]
) -> None:
    result = find_result(count_ballots(structs.replace(PROPOSAL, rule=rule, weights=weights), ballots))

    assert (result.option is None) == bool(result.missing)
    assert result.option is None or result.leading == (result.option,)
    assert list(result.leading) == [option for option in OPTIONS if option in result.leading]


@given(BALLOTS, st.permutations(OPTIONS))
def test_options_stay_as_they_were_at_the_first_ballot(ballots: list[BallotCast], options: list[str]) -> None:
    state = count_ballots(PROPOSAL, ballots)
    changed = structs.replace(PROPOSAL, options=(*options, "juice"))

    if state.ballots:
        with pytest.raises(InvalidTransition):
            state.apply(changed)
    else:
        assert state.apply(changed).proposal == changed


@given(BALLOTS, BALLOTS, st.sampled_from(OPTIONS), st.integers(1, 4))
def test_ballots_after_the_vote_and_repeated_commits_change_nothing(
    ballots: list[BallotCast], late: list[BallotCast], option: str, times: int
) -> None:
    closed = count_ballots(PROPOSAL, ballots).apply(CLOSED)
    committed = DecisionCommitted(decision="d1", option=option, how="decided by lead (tie)")
    assert all(judge_ballot(closed, one.voter, one.option) == "the vote is closed" for one in late)

    state = closed
    for _ in range(times):
        state = state.apply(committed)

    assert state == closed.apply(committed)
    assert find_result(state) == find_result(count_ballots(PROPOSAL, ballots))
