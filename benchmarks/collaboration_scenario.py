"""The scenario of the collaboration benchmark: a plan whose steps one member does and another one reviews.

The replies depend only on the prompt, so any program that asks in this order gets them.
"""

from __future__ import annotations

import json

OWNER = "owner"
REVIEWER = "reviewer"
LEAD = "lead"
GOAL = "Build a harbour in {steps} steps."
REPORT = "The harbour is built."


def make_plan(steps: int) -> str:
    """Return the plan: one step after the other, so that nothing runs in parallel."""
    return json.dumps(
        {
            "steps": [
                {
                    "id": f"s{number}",
                    "owner": OWNER,
                    "description": f"Build part {number}.",
                    "depends_on": [f"s{number - 1}"] if number > 1 else [],
                    "acceptance": ["The part stands."],
                }
                for number in range(1, steps + 1)
            ]
        }
    )


def choose_reply(prompt: str) -> str:
    """Return the reply to a prompt of the team."""
    if prompt.startswith("You plan a piece of work"):
        return make_plan(int(prompt.partition("Build a harbour in ")[2].split()[0]))
    if prompt.startswith("Review this plan"):
        return "ACCEPT"
    if prompt.startswith("Review one step"):
        return "1: MET"
    return REPORT if prompt.startswith("The team has finished") else "The part is built."


def list_prompts(steps: int) -> list[str]:
    """Return prompts like those of the team, in the order in which it asks, without what they would quote."""
    goal = GOAL.format(steps=steps)
    work = ["You own one step of a plan.", "Review one step of a plan."] * steps
    reviews = ["Review this plan."] * 2
    return [f"You plan a piece of work. {goal}", *reviews, *work, "The team has finished its work."]
