"""Compute the state of a decision from its events: the proposal, the ballots and the chosen option.

The pattern that runs a decision and the views of its timeline use the same rules. `DecisionState.apply` returns the
state after an event, or raises InvalidTransition if the current state does not allow the event.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import fsum, isfinite
from typing import Literal, NamedTuple

from msgspec import structs

from ..values.errors import Mistake
from ..values.event import BallotCast, BallotRefused, DecisionCommitted, DecisionProposed, Event, VoteClosed
from ..values.plain_text import format_count, join_words, truncate_text
from .plan_state import InvalidTransition

NO_REPOSITORY = "There is no repository, so no decisions are in force."


async def _read_nothing(id: str) -> str:
    return NO_REPOSITORY


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryDecisions:
    """The decisions that apply in a run's repository. Without a repository, there are none."""

    in_force: str = ""
    """The decisions in force when the run started, as text for the system prompts, or an empty string."""
    find_repo: Callable[[], str] = str
    """Returns the path of the repository that the run's decisions apply to, or an empty string if there is none."""
    read: Callable[[str], Awaitable[str]] = _read_nothing
    """Returns all decisions in force, or the one with this id in full. Raises Mistake if there is no such decision."""

    def add_to_prompt(self, system: str) -> str:
        """Append the decisions in force to a system prompt."""
        return f"{system}\n\n{self.in_force}".lstrip() if self.in_force else system


NO_DECISIONS = RepositoryDecisions()


DecisionStatus = Literal["proposed", "voting", "closed", "committed"]
RuleName = Literal["majority", "quorum", "unanimous", "weighted"]
DECISION_TRANSITIONS: Mapping[DecisionStatus, Mapping[type[Event], DecisionStatus]] = {
    "proposed": {DecisionProposed: "proposed", BallotCast: "voting", BallotRefused: "proposed", VoteClosed: "closed"},
    "voting": {BallotCast: "voting", BallotRefused: "voting", VoteClosed: "closed"},
    "closed": {BallotRefused: "closed", DecisionCommitted: "committed"},
    "committed": {BallotRefused: "committed", DecisionCommitted: "committed"},
}
"""The events that each state allows, and the state that each event leads to."""
DECISION_EVENTS = (DecisionProposed, BallotCast, BallotRefused, VoteClosed, DecisionCommitted)
ABSTAIN = "abstain"
"""The word that a member uses to abstain. The ballot then has an empty option."""
MOST_OPTIONS = 20
LONGEST_OPTION = 200
LONGEST_TOPIC = 300
_ID = re.compile(r"[\w.-]{1,64}")


# Rules
@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRule:
    """The rule that decides a vote. `quorum` is the number of ballots that a `quorum` rule requires."""

    name: RuleName
    quorum: int = 0


def parse_vote_rule(text: str) -> VoteRule:
    """Parse `majority`, `quorum:N`, `unanimous` or `weighted`. Raise Mistake for any other text."""
    name, colon, number = text.strip().partition(":")
    match name:
        case "majority" | "unanimous" | "weighted" if not colon:
            return VoteRule(name=name)
        case "quorum" if number.strip().isdecimal() and int(number) > 0:
            return VoteRule(name="quorum", quorum=int(number))
    raise Mistake(f"{text!r} is not a vote rule; use majority, unanimous, weighted or quorum:N, where N is at least 1")


def shorten_proposal(proposal: DecisionProposed) -> DecisionProposed:
    """Shorten the topic and the options to single lines. If the topic is cut, add its full text to the evidence."""
    topic = " ".join(proposal.topic.split())
    options = tuple(truncate_text(" ".join(option.split()), LONGEST_OPTION) for option in proposal.options)
    evidence = proposal.evidence
    if len(topic) > LONGEST_TOPIC:
        evidence = f"{proposal.topic}\n\n{evidence}".strip()
    return structs.replace(proposal, topic=truncate_text(topic, LONGEST_TOPIC), options=options, evidence=evidence)


def find_proposal_problem(proposal: DecisionProposed) -> str:
    """Return why a proposal is invalid, or an empty string if it is valid."""
    if proposal.id and not _ID.fullmatch(proposal.id):
        return f"a decision id must be 1 to 64 letters, digits, dots, hyphens or underscores, got {proposal.id[:80]!r}"
    if not proposal.topic.strip():
        return "the decision has no topic; enter the question to decide"
    if len(proposal.topic) > LONGEST_TOPIC:
        return (
            f"the topic has {len(proposal.topic):,} characters; use at most {LONGEST_TOPIC}, "
            "and put the rest into the evidence"
        )
    if not proposal.window > 0 or not isfinite(proposal.window):
        return f"the vote window must be more than 0 seconds, got {proposal.window:g}"
    if proposal.id and proposal.supersedes == proposal.id:
        return f"the decision {proposal.id} cannot supersede itself"
    return _find_option_problem(proposal.options) or _find_voter_problem(proposal)


def _find_option_problem(options: tuple[str, ...]) -> str:
    names = [one.strip().casefold() for one in options]
    if not 2 <= len(names) <= MOST_OPTIONS:
        return f"a decision needs 2 to {MOST_OPTIONS} options, got {len(names)}"
    for option, name in zip(options, names, strict=True):
        if not name or len(option.splitlines()) != 1 or len(option) > LONGEST_OPTION:
            return f"an option must be one line of 1 to {LONGEST_OPTION} characters, got {option[:60]!r}"
        if name == ABSTAIN:
            return f"{option!r} cannot be an option, because members use it to abstain"
        if names.count(name) > 1:
            return f"the option {option!r} is listed twice"
    return ""


def _find_voter_problem(proposal: DecisionProposed) -> str:
    try:
        rule = parse_vote_rule(proposal.rule)
    except Mistake as error:
        return str(error)
    eligible = proposal.eligible
    if twice := next((name for name, count in Counter(eligible).items() if count > 1), ""):
        return f"{twice} is listed twice among the eligible voters"
    if stranger := next((name for name in proposal.weights if name not in eligible), ""):
        return f"{stranger} has a weight but cannot vote; eligible: {_list_names(eligible)}"
    for name, weight in proposal.weights.items():
        if not weight > 0 or not isfinite(weight):
            return f"the weight of {name} must be a number above 0, got {weight:g}"
    if eligible and rule.quorum > len(eligible):
        return f"{proposal.rule} cannot be reached: only {format_count(len(eligible), 'member')} can vote"
    return ""


# State
@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionState:
    """The state of a decision, computed from its events."""

    proposal: DecisionProposed
    status: DecisionStatus = "proposed"
    ballots: Mapping[str, BallotCast] = field(default_factory=dict)
    """The last ballot from each member; earlier ones do not count."""
    refused: tuple[BallotRefused, ...] = ()
    closed: VoteClosed | None = None
    committed: DecisionCommitted | None = None

    @classmethod
    def from_events(cls, id: str, events: Iterable[Event]) -> DecisionState | None:
        """Return the state of a decision after these events, or None if they do not include its proposal.

        Raise InvalidTransition if one of the events is not allowed in the state before it.
        """
        state: DecisionState | None = None
        for event in events:
            if state is not None:
                state = state.apply(event)
            elif isinstance(event, DecisionProposed) and event.id == id:
                state = cls(proposal=event)
            elif get_decision_id(event) == id:
                raise InvalidTransition(
                    f"invalid event for the decision {id}, which has not been proposed: {_name_event(event)}"
                )
        return state

    def apply(self, event: Event) -> DecisionState:
        """Return the state after `event`; ignore unrelated events. Raise InvalidTransition if it is not allowed now."""
        if get_decision_id(event) != self.proposal.id:
            return self
        status = DECISION_TRANSITIONS[self.status].get(type(event))
        if status is None:
            raise InvalidTransition(
                f"invalid event for the decision {self.proposal.id}, which is {self.status}: {_name_event(event)}"
            )
        match event:
            case DecisionProposed():
                return replace(self, proposal=event)
            case BallotCast():
                if why := judge_ballot(self, event.voter, event.option):
                    raise InvalidTransition(f"the ballot from {event.voter} on {event.decision} does not count: {why}")
                # Ballots are in the order in which the members last voted.
                others = {voter: ballot for voter, ballot in self.ballots.items() if voter != event.voter}
                return replace(self, status=status, ballots={**others, event.voter: event})
            case BallotRefused():
                return replace(self, refused=(*self.refused, event))
            case VoteClosed():
                return replace(self, status=status, closed=event)
            case DecisionCommitted():
                return self._commit(event, status)
        return self

    def _commit(self, event: DecisionCommitted, status: DecisionStatus) -> DecisionState:
        """Return the state after the decision was made. Repeating the same event changes nothing."""
        if self.committed is not None and self.committed != event:
            raise InvalidTransition(
                f"the decision {event.decision} has already been made: {self.committed.option!r} "
                f"({self.committed.how}); it cannot be changed to {event.option!r} ({event.how})"
            )
        if event.option not in self.proposal.options:
            raise InvalidTransition(
                f"{event.option!r} is not an option of the decision {event.decision}: {self._describe_options()}"
            )
        return replace(self, status=status, committed=event)

    def _describe_options(self) -> str:
        return f"the options are {join_words([repr(one) for one in self.proposal.options])}"


def get_decision_id(event: Event) -> str:
    """Return the id of the decision that an event is about, or an empty string."""
    match event:
        case DecisionProposed():
            return event.id
        case BallotCast() | BallotRefused() | VoteClosed() | DecisionCommitted():
            return event.decision
    return ""


def judge_ballot(state: DecisionState, voter: str, option: str) -> str:
    """Return why a ballot is refused, or an empty string if it counts. An empty option is an abstention."""
    if state.closed is not None:
        return "the vote is closed"
    if voter not in state.proposal.eligible:
        return f"{voter} cannot vote on this; eligible: {_list_names(state.proposal.eligible)}"
    if option and option not in state.proposal.options:
        return f"{option!r} is not an option; {state._describe_options()}"
    return ""


def _name_event(event: Event) -> str:
    """Describe an event that the current state does not allow, for an error message."""
    match event:
        case DecisionProposed():
            return "its options cannot change after the first ballot"
        case BallotCast():
            return f"{event.voter} cast a ballot"
        case BallotRefused():
            return f"a ballot by {event.voter} was refused"
        case VoteClosed():
            return "its vote was closed"
    return "it was committed"


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(names) or "nobody"


# Results
class VoteResult(NamedTuple):
    """The result of a vote: the chosen option, or None and a description of what is missing.

    `leading` lists the options with the most votes, in the order of the proposal. It is empty if there are no votes.
    """

    option: str | None
    missing: str
    leading: tuple[str, ...]

    @property
    def is_tie(self) -> bool:
        return self.option is None and len(self.leading) > 1


def find_result(state: DecisionState) -> VoteResult:
    """Apply the proposal's rule to the ballots and return the result."""
    rule = parse_vote_rule(state.proposal.rule)
    weights = _sum_weights(state) if rule.name == "weighted" else _count_votes(state)
    most = max(weights.values(), default=0.0)
    leading = tuple(option for option in state.proposal.options if most > 0 and weights[option] == most)
    missing = _describe_missing(state, rule, most, leading)
    return VoteResult(leading[0] if not missing else None, missing, leading)


def _describe_missing(state: DecisionState, rule: VoteRule, most: float, leading: tuple[str, ...]) -> str:
    """Return what the vote still needs for a result, or an empty string if the leading option wins."""
    eligible = len(state.proposal.eligible)
    if not eligible:
        return "nobody can vote"
    match rule.name:
        case "majority" if not 2 * most > eligible:
            return f"{eligible // 2 + 1} of {eligible} votes for one option"
        case "quorum" if len(state.ballots) < rule.quorum:
            return f"{rule.quorum} ballots ({len(state.ballots)} cast)"
        case "quorum" if len(leading) != 1:
            return "one option with more votes than any other"
        case "unanimous" if most != eligible:
            return f"all {eligible} votes for one option"
        case "weighted" if not 2 * most > (total := _sum_total_weight(state.proposal)):
            return f"one option with more than half of the total weight of {total:g}"
    return ""


def _count_votes(state: DecisionState) -> dict[str, float]:
    """Return how many votes each option has."""
    votes = Counter(ballot.option for ballot in state.ballots.values())
    return {option: votes[option] for option in state.proposal.options}


def _sum_weights(state: DecisionState) -> dict[str, float]:
    """Return the total weight of the votes for each option."""
    return {
        option: fsum(get_weight(state.proposal, one.voter) for one in state.ballots.values() if one.option == option)
        for option in state.proposal.options
    }


def _sum_total_weight(proposal: DecisionProposed) -> float:
    return fsum(get_weight(proposal, name) for name in proposal.eligible)


def get_weight(proposal: DecisionProposed, voter: str) -> float:
    """Return the weight of a member's vote, which is 1 unless the proposal says otherwise."""
    return proposal.weights.get(voter, 1.0)
