"""Rehearse a run without a model: fixed rules produce replies that follow every protocol but answer nothing.

Replies are instant and byte-for-byte deterministic. Replies that could be mistaken for a real answer contain a label.

A member whose instructions say `hand the step to NAME` hands its step over, so that handovers can be rehearsed too.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator

from ..core.engine import Tool
from .model.model_wire import ModelCall, ReplyPart
from .script import (
    Move,
    MoveAttempt,
    ToolCall,
    count_earlier_calls,
    cut_to_limit,
    first_line,
    last_request,
    stream_move,
)

LABEL = "[rehearsed]"
LONGEST_QUOTE = 120
MOST_STEPS = 5
_MEMBER = re.compile(r"^- (\S+) \(.*?\): (.*)$", re.MULTILINE)
_CRITERION = re.compile(r"^(\d+)\. ", re.MULTILINE)
_HANDOVER = re.compile(r"\bhand (?:the|your) step (?:over )?to ([\w-]+)", re.IGNORECASE)
_FIRST_STEP = "## Your step: s1\n"


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
        move = cut_to_limit(_choose_move(call), call)
        return stream_move(lambda call: MoveAttempt(move=move, place=count_earlier_calls(call)), call)


def _choose_move(call: ModelCall) -> Move:
    """Return the rehearsal's reply to this call."""
    request = last_request(call)
    is_open = bool(call.messages) and call.messages[-1].role == "user"
    router = next((tool for tool in call.tools if tool.name == "route_to"), None)
    if router is not None and is_open:
        return choose_route(router, request)
    if is_open and (team_move := _choose_team_move(call, request)) is not None:
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


def _choose_team_move(call: ModelCall, request: str) -> Move | None:
    """Return the rehearsed reply of a team's lead, judge or member, or None if the call is for none of these roles.

    A lead assigns a task to every worker, asks for one more iteration and accepts the second result.
    """
    if (move := _choose_vote(call) or _choose_work_move(call, request)) is not None:
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


def _choose_vote(call: ModelCall) -> Move | None:
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


def _choose_work_move(call: ModelCall, request: str) -> Move | None:
    """Return the rehearsed reply of a planner, a reviewer, a step's owner or a lead that writes the final report.

    Return None for other calls.
    """
    if request.startswith("You plan a piece of work"):
        return Move(says=_make_rehearsed_plan(request))
    if request.startswith("Review this plan"):
        return Move(says=f"ACCEPT: {LABEL} nothing was reviewed")
    if request.startswith("Review one step"):
        criteria = _CRITERION.findall(_cut_section(request, "## Acceptance criteria"))
        return Move(says="\n".join(f"{number}: MET" for number in criteria))
    if request.startswith("You own one step"):
        is_new = "## What happened before" not in request
        step = request.partition("## Your step: ")[2].partition("\n\n")[0].partition("\n")
        done = Move(says=f"{LABEL} {call.agent} was given step {step[0]}: {first_line(step[2])[:LONGEST_QUOTE]}")
        signal = _hand_step_over(call) or (_raise_rehearsed_blocker(call) if _FIRST_STEP in request else None)
        return (signal if is_new else None) or done
    if request.startswith("The team has finished its work"):
        goal = first_line(_cut_section(request, "## Goal"))[:LONGEST_QUOTE]
        return Move(says=f"{LABEL} report on: {goal}\nNo model was called, so this is not an answer.")
    return None


def _make_rehearsed_plan(request: str) -> str:
    """Return a plan with a step for each member except planners and reviewers.

    If there are two or more of these steps, a last step combines their results. The plan has at most `MOST_STEPS`
    steps. If all members are planners or reviewers, each of them gets a step.
    """
    goal = first_line(_cut_section(request, "## Goal"))[:LONGEST_QUOTE]
    members = _MEMBER.findall(_cut_section(request, "## Members"))
    owners = [name for name, about in members if not re.match(r"(planner|reviewer)\b", about, re.IGNORECASE)]
    names = (owners or [name for name, _ in members])[: MOST_STEPS - 1]
    steps = [_make_step(f"s{number}", name, f"your part of: {goal}", []) for number, name in enumerate(names, 1)]
    if len(steps) > 1:
        last = _make_step(
            f"s{len(steps) + 1}", names[0], f"combine the results for: {goal}", [step["id"] for step in steps]
        )
        steps.append(last)
    return json.dumps({"steps": steps}, indent=1)


def _make_step(id: str, owner: str, task: str, depends_on: list[object]) -> dict[str, object]:
    return {
        "id": id,
        "owner": owner,
        "description": f"{LABEL} {task}",
        "depends_on": depends_on,
        "acceptance": [f"{LABEL} this part of the work is done"],
    }


def _raise_rehearsed_blocker(call: ModelCall) -> Move | None:
    """Return a rehearsed reply that raises a blocker, or None if the owner cannot raise blockers.

    The blocker makes the team rehearse a decision.
    """
    if all(tool.name != "raise_blocker" for tool in call.tools):
        return None
    question = {
        "topic": f"{LABEL} which approach should the team use?",
        "options": ["the simple approach", "the thorough approach"],
        "evidence": f"{LABEL} no model was called, so there is no evidence for either option",
    }
    return Move(says=f"{LABEL} {call.agent} asks the team", calls=(ToolCall(name="raise_blocker", arguments=question),))


def _hand_step_over(call: ModelCall) -> Move | None:
    """Return a handover to the member that the agent's instructions name, or None if they name none."""
    named = _HANDOVER.search(call.system)
    if named is None or named[1] == call.agent or all(tool.name != "handoff_step" for tool in call.tools):
        return None
    arguments = {"to": named[1], "reason": f"{LABEL} the agent's instructions tell it to hand the step over"}
    return Move(says=f"{LABEL} {call.agent} hands over", calls=(ToolCall(name="handoff_step", arguments=arguments),))


def _cut_section(request: str, heading: str) -> str:
    """Return the text below a heading, up to the next heading."""
    return request.partition(f"{heading}\n")[2].partition("\n## ")[0]
