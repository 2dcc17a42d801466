"""Rehearse a collaborating team: plan a step for each member, accept everything in reviews, and ask for one decision.

A member whose instructions say `hand the step to NAME` hands its step over, so that handovers can be rehearsed too.
"""

from __future__ import annotations

import json
import re

from .model.model_wire import ModelCall
from .script import Move, ToolCall, first_line

LABEL = "[rehearsed]"
LONGEST_QUOTE = 120
MOST_STEPS = 5

_MEMBER = re.compile(r"^- (\S+) \(.*?\): (.*)$", re.MULTILINE)
_CRITERION = re.compile(r"^(\d+)\. ", re.MULTILINE)
_HANDOVER = re.compile(r"\bhand (?:the|your) step (?:over )?to ([\w-]+)", re.IGNORECASE)
_FIRST_STEP = "## Your step: s1\n"


def choose_work_move(call: ModelCall, request: str) -> Move | None:
    """Return the rehearsed reply of a planner, a reviewer, a step's owner or a lead that writes the final report.

    Return None for other calls.
    """
    if request.startswith("You plan a piece of work"):
        return Move(says=make_rehearsed_plan(request))
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


def make_rehearsed_plan(request: str) -> str:
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
