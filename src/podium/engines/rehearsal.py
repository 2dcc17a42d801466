"""Rehearse a run without a model: fixed rules produce replies that follow every protocol but answer nothing.

Replies are instant and byte-for-byte deterministic. Replies that could be mistaken for a real answer contain a label.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

from ..core.engine import Tool
from .model.model_wire import ModelCall, ReplyPart
from .rehearsed_work import LABEL as LABEL
from .rehearsed_work import LONGEST_QUOTE, choose_work_move
from .script import Move, MoveAttempt, ToolCall, count_earlier_calls, cut_to_limit, last_request, stream_move

_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    _WORD.findall(
        "a an and any are as at be by can do does for from has have how i if in is it its me my not of on or our "
        "please so than that the their them then there these this to us was we what when which who will with you your"
    )
)


class RehearsalWire:
    """The adapter that replies according to the rehearsal's rules."""

    def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        move = cut_to_limit(choose_move(call), call)
        return stream_move(lambda call: MoveAttempt(move=move, place=count_earlier_calls(call)), call)


def choose_move(call: ModelCall) -> Move:
    """Return the rehearsal's reply to this call."""
    request = last_request(call)
    is_open = bool(call.messages) and call.messages[-1].role == "user"
    router = next((tool for tool in call.tools if tool.name == "route_to"), None)
    if router is not None and is_open:
        return choose_route(router, request)
    if is_open and (team_move := choose_team_move(call, request)) is not None:
        return team_move
    helpers = [tool.name for tool in call.tools if tool.parameters.get("required") == ["request"]]
    if helpers and is_open:
        return Move(
            says=f"{LABEL} ask {', '.join(helpers)}",
            calls=tuple(ToolCall(name=name, arguments={"request": _quote_request(request)}) for name in helpers),
        )
    return Move(
        says=f"{LABEL} {call.agent} was asked: {_quote_request(request)}\n"
        "No model was called, so this is not an answer."
    )


def choose_team_move(call: ModelCall, request: str) -> Move | None:
    """Return the rehearsed reply of a team's lead, judge or member, or None if the call is for none of these roles.

    A lead assigns a task to every worker, asks for one more iteration and accepts the second result.
    """
    if (move := choose_vote(call) or choose_work_move(call, request)) is not None:
        return move
    turns = sum(message.role == "assistant" for message in call.messages)
    if workers := _WORKERS.findall(request.partition("## Workers")[2].partition("## Rules")[0]):
        asked = _quote_request(request.partition("## Request")[2])
        plan = "\n".join(f"@worker:{name} {LABEL} your part of: {asked}\n@end" for name in workers)
        return Move(says=f"{LABEL} a task for each worker\n\n{plan}")
    if "Plan the work that is still missing" in request:
        names = request.partition("the same workers (")[2].partition(")")[0].split(", ")
        return Move(says=f"{LABEL} another iteration\n\n@worker:{names[0]} {LABEL} check the work again\n@end")
    if "[[REFLECTION_COMPLETE]]" in request:
        verdict = "[[NEEDS_ITERATION]]\nA second look." if turns == 0 else "[[REFLECTION_COMPLETE]]"
        return Move(says=f"{LABEL} {call.agent} was asked: {_quote_request(request)}\n{verdict}")
    if "[[NEEDS_ITERATION]]" in request:
        verdict = "[[NEEDS_ITERATION]]\nA second look." if turns < _FIRST_JUDGEMENT else "[[GROUP_REFLECT_COMPLETE]]"
        return Move(says=f"{LABEL} a summary of the workers' answers (part {turns}).\n{verdict}")
    if "SCORE: a number" in request:
        return Move(says=f"SCORE: 0.95\nRATIONALE: {LABEL} nothing was judged")
    if any(tool.name == "vote_conclude" for tool in call.tools):
        said = {"message": f"{LABEL} {call.agent} has nothing to add"}
        vote = {"ready": True, "reason": LABEL}
        calls = (ToolCall(name="broadcast", arguments=said), ToolCall(name="vote_conclude", arguments=vote))
        return Move(says=f"{LABEL} {call.agent} votes", calls=calls)
    return None


def choose_vote(call: ModelCall) -> Move | None:
    """Return the vote of an agent that is asked to vote or to decide, or None if the call asks for neither."""
    for tool in call.tools:
        if tool.name in ("cast_ballot", "decide") and (options := tool.parameters["properties"]["option"].get("enum")):
            chosen = {"option": options[0], "reason": f"{LABEL} the first option"}
            return Move(says=f"{LABEL} {call.agent} votes", calls=(ToolCall(name=tool.name, arguments=chosen),))
    return None


_WORKERS = re.compile(r"^- (.+?) \(", re.MULTILINE)
_FIRST_JUDGEMENT = 2
"""The position of a lead's first judgement among its replies: reply 1 is the plan, and reply 2 is the judgement."""


def choose_route(router: Tool, request: str) -> Move:
    """Return the reply that routes to the agent whose description shares the most words with the request.

    In a tie, the agent whose name shares the most words is chosen, then the first in the list.
    """
    asked = _extract_words(request)

    def count_shared_words(name: str) -> tuple[int, int]:
        return len(asked & _extract_words(_find_description(router, name))), len(asked & _extract_words(name))

    names: list[str] = router.parameters["properties"]["agent"]["enum"]
    chosen = max(names, key=count_shared_words)
    shared = sorted(asked & (_extract_words(_find_description(router, chosen)) | _extract_words(chosen)))
    reason = f"{LABEL} words in common with the request: {', '.join(shared) or 'none'}"
    return Move(
        says=f"{LABEL} route to {chosen}",
        calls=(ToolCall(name=router.name, arguments={"agent": chosen, "reason": reason}),),
    )


def _find_description(router: Tool, name: str) -> str:
    mark = f"- {name}:"
    return next((line.removeprefix(mark) for line in router.description.splitlines() if line.startswith(mark)), "")


def _extract_words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold())) - _COMMON


def _quote_request(request: str) -> str:
    """Return the first line of the request that is not a heading, shortened if needed.

    If this line is a rehearsed reply, return the request that the reply quotes.
    """
    lines = (line.strip() for line in request.splitlines())
    line = next((line for line in lines if line and not line.startswith("#")), "")
    if line.startswith(LABEL):
        line = line.rpartition(" was asked: ")[2]
    return line if len(line) <= LONGEST_QUOTE else f"{line[: LONGEST_QUOTE - 1]}…"
