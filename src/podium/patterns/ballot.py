"""Create the tools for voting and deciding, and parse and record ballots."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..core.decision_state import ABSTAIN, LONGEST_OPTION, DecisionState, judge_ballot
from ..core.engine import Tool, ToolAnswer
from ..core.scope import Scope
from ..values.event import KINDS, BallotCast, BallotRefused, DecisionProposed, ToolUse
from ..values.plain_text import join_words, truncate_text
from .json_output import find_json

LONGEST_REASON = 2000

_VOTE_LINE = re.compile(r"^[ \t*_`#-]*vote\b[*_ \t]*:[*_ \t]*(?P<option>\S.*)$", re.IGNORECASE | re.MULTILINE)


class Ballot(NamedTuple):
    """A member's vote or a lead's choice, with the reason. `option` is empty if the member abstains."""

    option: str
    reason: str
    consequences: str = ""

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> Ballot:
        """Build a ballot from the arguments of a tool call, or from a JSON object."""
        texts = (arguments.get(name) for name in ("option", "reason", "consequences"))
        return cls(*(one.strip() if isinstance(one, str) else "" for one in texts))


def cast_ballot(scope: Scope, state: DecisionState, voter: str, said: Ballot) -> BallotCast | BallotRefused:
    """Record a ballot at this scope: a BallotCast if it is valid, otherwise a BallotRefused.

    If the scope already has a ballot, return that ballot.
    """
    known: BallotCast | BallotRefused | None = scope.child(f"{KINDS[BallotCast]}#1").find_outcome(BallotCast)
    known = known or scope.child(f"{KINDS[BallotRefused]}#1").find_outcome(BallotRefused)
    if known is not None:
        return known
    id, option = state.proposal.id, match_option(state.proposal.options, said.option)
    if why := judge_ballot(state, voter, option):
        shown, reason = truncate_text(option, LONGEST_OPTION), truncate_text(why, LONGEST_REASON)
        return scope.record(BallotRefused(decision=id, voter=voter, option=shown, reason=reason))
    reason = truncate_text(said.reason, LONGEST_REASON)
    return scope.record(BallotCast(decision=id, voter=voter, option=option, reason=reason))


def match_option(options: Sequence[str], text: str) -> str:
    """Return the option that matches `text`, ignoring case and markup on both sides.

    Return "" for an abstention, and the text without markup if no option matches. If several options differ only in
    their markup, the one that is written exactly like the text is returned.
    """
    written, name = text.strip(), _strip_markup(text)
    bare = name.rstrip(".").casefold()
    if bare == ABSTAIN or not (bare or written):
        return ""
    for spelled in (written, name):
        if spelled in options:
            return spelled
    same = [option for option in options if _strip_markup(option).rstrip(".").casefold() == bare]
    if len(same) > 1:
        same = [option for option in same if option.strip().casefold() == written.casefold()]
    return same[0] if same else name


def match_answer(options: Sequence[str], text: str) -> str:
    """Return the option that a person chose, by its text or by its number in the list; see `match_option`."""
    option = match_option(options, text)
    number = text.strip().rstrip(".")
    if option not in options and number.isascii() and number.isdecimal() and 1 <= int(number[:9]) <= len(options):
        return options[int(number[:9]) - 1]
    return option


def _strip_markup(text: str) -> str:
    """Return a name without the quotes and emphasis around it. A name of only such characters stays as it is."""
    return text.strip().strip("`*_\"'").strip() or text.strip()


def parse_ballot(text: str) -> Ballot | None:
    """Return the ballot in a reply: a JSON object or the last `VOTE: option` line. Return None if there is neither."""
    found = find_json(text)
    if isinstance(found, dict) and isinstance(found.get("option"), str):
        return Ballot.from_arguments(found)
    lines = list(_VOTE_LINE.finditer(text))
    if not lines:
        return None
    reason = (text[: lines[-1].start()] + text[lines[-1].end() :]).strip()
    return Ballot(lines[-1]["option"], reason)


def answer_ballot(cast: BallotCast | BallotRefused) -> ToolAnswer:
    """Return the tool answer for a ballot that was recorded or refused."""
    if isinstance(cast, BallotRefused):
        return ToolAnswer(text=f"Your ballot was refused: {cast.reason}.", is_error=True)
    return ToolAnswer(text=f"You voted for {cast.option}." if cast.option else "You abstained.")


def make_ballot_tool(proposal: DecisionProposed, read_state: Callable[[], DecisionState], voter: str) -> Tool:
    """Create the tool that a member uses to vote when asked. An accepted ballot ends the member's turn."""

    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        if not isinstance(call.arguments.get("option"), str):
            return ToolAnswer(text=f"cast_ballot expects an option: {_list_options(proposal.options)}.", is_error=True)
        cast = cast_ballot(scope, read_state(), voter, Ballot.from_arguments(call.arguments))
        ends_turn = isinstance(cast, BallotCast)
        return replace(answer_ballot(cast), ends_turn=ends_turn, is_reply=ends_turn)

    return Tool(
        name="cast_ballot",
        description=f"Vote for one of the options, or {ABSTAIN}.",
        parameters=_make_choice_schema((*proposal.options, ABSTAIN)),
        answer=answer_call,
        is_parallel=False,
    )


def make_decide_tool(options: Sequence[str]) -> Tool:
    """Create the tool that a lead uses to decide. The tool records nothing; the caller reads the call from the turn."""

    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        if match_option(options, Ballot.from_arguments(call.arguments).option) not in options:
            return ToolAnswer(text=f"decide expects an option: {_list_options(options)}.", is_error=True)
        return ToolAnswer(text="noted", ends_turn=True, is_reply=True)

    consequences = {"consequences": {"type": "string", "description": "The consequences of this choice."}}
    return Tool(
        name="decide",
        description="Choose one of the options.",
        parameters=_make_choice_schema(options, consequences),
        answer=answer_call,
        is_parallel=False,
    )


def _make_choice_schema(options: Sequence[str], more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "option": {"type": "string", "enum": list(options)},
            "reason": {"type": "string"},
            **(more or {}),
        },
        "required": ["option", "reason"],
    }


def _list_options(options: Sequence[str]) -> str:
    return join_words([repr(one) for one in options], "or")
