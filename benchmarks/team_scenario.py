"""The scenario of the team benchmark: a lead that plans, four workers at once, and the answer from their results.

The lead's script is part of its prompt, so every program that sends the prompt gets the same plan and the same answer.
All programs send the same text, including Podium. Peers import this module in their own environments, so it needs
only the standard library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

WORKERS = {
    "tides": "knows when the water comes and goes",
    "winds": "knows what the wind will be",
    "charts": "knows rocks, wrecks and depths",
    "lights": "knows lighthouses and buoys",
}
CALLS_IN_A_ROW = 3
"""The plan, all workers at once, and the synthesis: every program waits for the model at least this many times."""

REQUEST = "Can we sail from Cuxhaven to Helgoland tonight, and what do we have to look out for?"
ANSWER = "Leave at the turn of the tide, stay south of the shoals, and keep the great light to starboard. " * 4
PIECES = 20

_PLAN = [{"worker": name, "task": f"Find out what {name} mean for this passage."} for name in WORKERS]
_SCRIPT = json.dumps([{"says": json.dumps(_PLAN), "pieces": PIECES}, {"says": ANSWER, "pieces": PIECES}])
LEAD = f"You are the captain of a small boat.\n\n```script\n{_SCRIPT}\n```"

PROMPTS = {
    "plan": """\
You lead a team. Share out the work on the request below; do not do any of it yourself.

## Request
{request}

## Workers
{workers}

Reply with a JSON array, all assignments in it, each complete in itself.""",
    "task": """\
## Original User Request (context)
{request}

## Your Assigned Task
{task}""",
    "synthesis": """\
Your workers are done. Write the answer to the request from their results, and from nothing else.

## Request
{request}

## Results
{results}""",
}


def worker_prompt(worker: str) -> str:
    """Return a worker's system prompt."""
    return f"You are a sailor who {WORKERS[worker]}."


def planning_prompt() -> str:
    """Return the lead's first prompt."""
    workers = "\n".join(f"- {name} (default model): {description}" for name, description in WORKERS.items())
    return PROMPTS["plan"].format(request=REQUEST, workers=workers)


def parse_assignments(reply: str) -> list[dict[str, str]]:
    """Return the lead's plan: a worker and a task for each assignment."""
    plan: list[dict[str, str]] = json.loads(reply)
    return plan


def task_prompt(assignment: Mapping[str, str]) -> str:
    """Return a worker's prompt."""
    return PROMPTS["task"].format(request=REQUEST, task=assignment["task"])


def synthesis_prompt(plan: Sequence[Mapping[str, str]], found: Sequence[str]) -> str:
    """Return the lead's last prompt, with the result of each assignment."""
    results = "\n\n".join(
        f"### {assignment['worker']} (succeeded, 0 s)\nTask: {assignment['task']}\n\n{text}"
        for assignment, text in zip(plan, found, strict=True)
    )
    return PROMPTS["synthesis"].format(request=REQUEST, results=results)
