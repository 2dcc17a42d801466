"""What the team is about: a lead that plans, four workers at once, and the lead's answer from what they found.

The lead's script rides in its prompt, so whoever sends that is played the same plan and the same answer.
Everybody sends the same words, Podium too. Peers import this in environments of their own, so it needs
nothing but the standard library.
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
"""The plan, all workers at once, the synthesis: nobody can do with less than so many times the latency."""

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
    """What a worker is told about itself."""
    return f"You are a sailor who {WORKERS[worker]}."


def planning_prompt() -> str:
    """What the lead is asked first."""
    workers = "\n".join(f"- {name} (default model): {description}" for name, description in WORKERS.items())
    return PROMPTS["plan"].format(request=REQUEST, workers=workers)


def parse_assignments(reply: str) -> list[dict[str, str]]:
    """What the lead has planned: a worker and a task each."""
    plan: list[dict[str, str]] = json.loads(reply)
    return plan


def task_prompt(assignment: Mapping[str, str]) -> str:
    """What a worker is asked."""
    return PROMPTS["task"].format(request=REQUEST, task=assignment["task"])


def synthesis_prompt(plan: Sequence[Mapping[str, str]], found: Sequence[str]) -> str:
    """What the lead is asked last: what became of each assignment."""
    results = "\n\n".join(
        f"### {assignment['worker']} (succeeded, 0 s)\nTask: {assignment['task']}\n\n{text}"
        for assignment, text in zip(plan, found, strict=True)
    )
    return PROMPTS["synthesis"].format(request=REQUEST, results=results)
