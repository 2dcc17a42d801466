"""Create the tools for voting and deciding, and parse and record ballots."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...core.decision_state import ABSTAIN, LONGEST_OPTION, DecisionState, judge_ballot
from ...core.engine import Tool, ToolAnswer
from ...core.scope import Scope
from ...values.event import KINDS, BallotCast, BallotRefused, DecisionProposed, ToolUse
from ...values.json import JsonObject, JsonSchema
from ...values.plain_text import join_words, truncate_text
from ..json_output import find_json

LONGEST_REASON = 2000
MOST_LAYERS = 10
"""How many pairs of quotes or emphasis marks around a name are removed."""

_VOTE_LINE = re.compile(
    r"^[ \t]*(?:\d{1,3}[.)])?[ \t*_`#-]*vote\b[*_ \t]*:[*_ \t]*(?P<option>\S.*)$", re.IGNORECASE | re.MULTILINE
)
_QUOTED_LINE = re.compile(r"^[ \t]*(?:[-*+] |\d{1,3}[.)] )?[ \t]*>.*$", re.MULTILINE)
_FENCED = re.compile(r"^[ \t]*(?P<fence>```|~~~).*?(?:^[ \t]*(?P=fence)[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]")
_MARKS = "`*_\"'~“”‘’«»"
_ANY_MARK = re.compile(f"[{re.escape(_MARKS)}]")
_WRAPPED = re.compile(
    r"(?P<mark>`{1,3}|\*{1,3}|_{1,3}|~~|[\"'])(?P<inner>.*)(?P=mark)|[“‘«(\[](?P<quoted>.*)[”’»)\]]", re.DOTALL
)


class Ballot(NamedTuple):
    """A member's vote or a lead's choice, with the reason. `option` is empty if the member abstains."""

    option: str
    reason: str
    consequences: str = ""

    @classmethod
    def from_arguments(cls, arguments: JsonObject) -> Ballot:
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
    their markup, the one is returned that is written like the text, or like the text without the markup around it.
    """
    layers = list(_iter_layers(text))
    name = layers[-1]
    if name.rstrip(".").casefold() in (ABSTAIN, ""):
        return next((layer for layer in layers if layer in options), "")
    for layer in layers:
        if layer in options:
            return layer
    forms = [str.casefold, _normalise, _strip_all_markup]
    for form in forms:
        for layer in layers:
            same = [option for option in options if form(option) == form(layer) != ""]
            if len(same) == 1:
                return same[0]
    return name


def match_answer(options: Sequence[str], text: str) -> str:
    """Return the option that a person chose, by its text or by its number in the list; see `match_option`."""
    option = match_option(options, text)
    number = text.strip().rstrip(".")
    if option not in options and number.isascii() and number.isdecimal() and 1 <= int(number[:9]) <= len(options):
        return options[int(number[:9]) - 1]
    return option


def _iter_layers(text: str) -> Iterator[str]:
    """Yield the text, and the text without one pair of quotes or emphasis marks around it after the other.

    At the end, yield the text without any such marks at its ends, unless it consists only of them.
    """
    left = text.strip()
    yield left
    for _ in range(MOST_LAYERS):
        wrapped = _WRAPPED.fullmatch(left)
        inner = "" if wrapped is None else (wrapped["inner"] or wrapped["quoted"] or "").strip()
        if not inner:
            break
        left = inner
        yield left
    yield left.strip(_MARKS).strip() or left


def _normalise(text: str) -> str:
    """Return a name without case, without marks at its ends and without a final full stop, for comparisons."""
    bare = text.strip()
    return (bare.strip(_MARKS).strip() or bare).rstrip(".").strip(_MARKS).casefold()


def _strip_all_markup(text: str) -> str:
    """Return a name without any markup, as a model may write an option such as Use `tab`."""
    return " ".join(_ANY_MARK.sub("", text).strip(" \t.!,;:()[]").casefold().split())


def parse_ballot(text: str) -> Ballot | None:
    """Return the ballot in a reply: a JSON object or the last `VOTE: option` line. Return None if there is neither.

    What is quoted with `>` is not a ballot, and neither is a line in a code block that is only a part of the reply.
    """
    own = _QUOTED_LINE.sub(_blank, text)
    outside = _FENCED.sub(_blank, own)
    lines = list(_VOTE_LINE.finditer(outside if outside.strip() else own))
    # JSON between sentences may be what somebody else said, so a line with a vote takes precedence over it.
    found = find_json(own)
    is_said = not (lines and find_json(outside) is not None)
    if is_said and isinstance(found, dict) and isinstance(found.get("option"), str):
        return Ballot.from_arguments(found)
    if not lines:
        return None
    reason = (text[: lines[-1].start()] + text[lines[-1].end() :]).strip()
    return Ballot(lines[-1]["option"], reason)


def _blank(found: re.Match[str]) -> str:
    """Return blanks in place of a text, so that the positions in the rest stay the same."""
    return _NOT_NEWLINE.sub(" ", found[0])


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


def _make_choice_schema(options: Sequence[str], more: Mapping[str, JsonSchema] | None = None) -> JsonSchema:
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
