"""The tasks: each makes one attempt, and checks the work itself instead of believing the report about it."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from podium import Agent
from podium.values.agent import Advisors, Member, Router, Team
from podium.values.event import Advised, HandedOff, ReflectEnded, Routed, TeamPlanned
from podium.values.team_modes import Mode

from ..quality_scenario import CODER_PROMPT, DESTINATIONS, EDITS, ROUTER_PROMPT, ROUTES
from .attempt import Outcome, find_answer_problem
from .lab import Lab, Observed

BRIEF = "Answer in one short sentence."
SCRIPT = '```script\n["Done."]\n```'
CHECK = f"{sys.executable} -B -m unittest -q"
TEST = """\
import unittest

from price import total


class TotalTest(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total(5, 3), 15)
"""
REPAIR = "The test in test_price.py fails because total ignores the quantity. Fix the function total in price.py."
CODER = f"---\ndescription: Makes one exact edit.\ntools: [Edit]\nmaxTurns: 6\n---\n{CODER_PROMPT}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task, and how often it is tried. `attempt` gets the number of the attempt, from 0."""

    tries: int
    attempt: Callable[[Lab, int], Awaitable[Outcome]]


async def route(lab: Lab, number: int) -> Outcome:
    """Let a router choose one of three agents."""
    request, expected = ROUTES[number % len(ROUTES)]
    members = [
        Agent(name=name, description=description, engine="scripted", prompt=SCRIPT)
        for name, description in DESTINATIONS.items()
    ]
    desk = Agent(name="desk", prompt=ROUTER_PROMPT, tools=(), router=Router(destinations=tuple(DESTINATIONS)))
    seen = await lab.run(desk, request, *members)
    chosen = [event.agent for event in seen.select(Routed)]
    return make_outcome(seen, "" if chosen == [expected] else f"{request} went to {chosen or 'nobody'}")


async def plan(lab: Lab, number: int) -> Outcome:
    """Let a lead assign work to the two members whom the request concerns."""
    workers = {
        "frontend": "Writes HTML and CSS.",
        "database": "Writes SQL.",
        "legal": "Checks licences.",
    }
    members = [Agent(name=name, description=text, engine="scripted", prompt=SCRIPT) for name, text in workers.items()]
    lead = Agent(
        name="lead",
        prompt="You lead a small team.",
        tools=(),
        team=Team(
            mode="orchestrate",
            members=tuple(Member(agent=name) for name in workers),
            options={"answer_directly": False},
        ),
    )
    request = "Add a table for orders to the database, and a web page with a form that adds an order."
    seen = await lab.run(lead, request, *members)
    assigned = {one.worker for event in seen.select(TeamPlanned) for one in event.assignments}
    used = ", ".join(sorted(assigned)) or "nobody"
    problem = "" if assigned >= {"frontend", "database"} else f"the plan uses {used}"
    return make_outcome(seen, problem or find_answer_problem(seen.result.text, request=request))


async def edit(lab: Lab, number: int) -> Outcome:
    """Let an agent make one exact edit in a file."""
    one = EDITS[number % len(EDITS)]
    lab.write_files({one.file: one.content})
    coder = Agent(name="coder", prompt=CODER_PROMPT, tools=("Edit",), max_turns=6)
    seen = await lab.run(coder, one.request, has_repo=True)
    content = (lab.repo / one.file).read_text()
    return make_outcome(seen, "" if content == one.expected else f"{one.file} is {content!r}")


async def delegate_and_merge(lab: Lab, number: int) -> Outcome:
    """Delegate an edit to a worker in its own checkout, and merge its branch if the test passes."""
    one = EDITS[0]
    lab.write_files({one.file: one.content, "test_price.py": TEST, ".podium/agents/coder.md": CODER})
    lab.commit_files()
    options = ("--agent", "coder", "--auto-approve", "Edit", "--no-input")
    started = lab.call_podium("delegate", "fix/total", one.request, *options)
    waited = lab.call_podium("workers", "wait", "fix/total")
    merged = lab.call_podium("merge", "--all", "--check", CHECK, "--yes")
    said = "; ".join(
        step.stderr.strip().splitlines()[-1] for step in (started, waited, merged) if step.returncode and step.stderr
    )
    is_right = lab.call(sys.executable, "-B", "-m", "unittest", "-q").returncode == 0
    return Outcome(
        is_reported_success=not any(step.returncode for step in (started, waited, merged)),
        problem="" if is_right else f"the test fails after the merge: {merged.stderr.strip()[-120:]}",
        reported=said,
    )


async def repair(lab: Lab, number: int) -> Outcome:
    """Delegate a repair to the built-in worker, which may edit files but not run commands."""
    one = EDITS[0]
    lab.write_files({one.file: one.content, "test_price.py": TEST})
    lab.commit_files()
    started = lab.call_podium("delegate", "fix/total", REPAIR, "--auto-approve", "Edit", "--no-input")
    waited = lab.call_podium("workers", "wait", "fix/total")
    status = lab.call_podium("workers", "status", "fix/total", "--json")
    state = json.loads(status.stdout) if status.returncode == 0 else {}
    why = state.get("why") or state.get("unproved") or ""
    lab.call("git", "checkout", "--quiet", "--detach", "fix/total")
    is_right = lab.call(sys.executable, "-B", "-m", "unittest", "-q").returncode == 0
    is_kept = (lab.repo / "test_price.py").read_text() == TEST
    return Outcome(
        is_reported_success=not any(step.returncode for step in (started, waited)) and not why,
        problem="" if is_right and is_kept else "the test fails" if is_kept else "the test was changed",
        reported=str(why),
    )


async def handoff(lab: Lab, number: int) -> Outcome:
    """Let one agent work, and another give the answer."""
    request = "Which city is the capital of France?"
    first = Agent(name="finder", prompt=BRIEF, tools=(), handoff="speaker")
    last = Agent(name="speaker", prompt="Repeat what you are told, in one short sentence.", tools=())
    seen = await lab.run(first, request, last)
    problem = "" if seen.select(HandedOff) else "nothing was handed off"
    return make_outcome(seen, problem or find_answer_problem(seen.result.text, request=request, contains=("Paris",)))


async def advisors(lab: Lab, number: int) -> Outcome:
    """Let an agent answer after two others advised it."""
    request = "Which planet is the largest of the solar system?"
    others = [Agent(name=name, description=name, prompt=BRIEF, tools=()) for name in ("astronomer", "teacher")]
    chief = Agent(name="chief", prompt=BRIEF, tools=(), advisors=Advisors(agents=("astronomer", "teacher"), require=2))
    seen = await lab.run(chief, request, *others)
    problem = "" if seen.select(Advised) else "nobody gave advice"
    return make_outcome(seen, problem or find_answer_problem(seen.result.text, request=request, contains=("Jupiter",)))


async def broadcast(lab: Lab, number: int) -> Outcome:
    """Let two members answer the same request at once."""
    seen, request = await run_team(lab, "broadcast", "Which city is the capital of Japan?")
    problems = [find_answer_problem(part.text, request=request, contains=("Tokyo",)) for part in seen.result.parts]
    problem = next(filter(None, problems), "" if len(problems) >= 2 else f"{len(problems)} of 2 members answered")
    return make_outcome(seen, problem)


async def sequential(lab: Lab, number: int) -> Outcome:
    """Let two members work one after the other."""
    seen, request = await run_team(lab, "sequential", "Which gas do plants take from the air?")
    problem = find_answer_problem(seen.result.text, request=request, contains=("carbon dioxide", "CO2", "CO₂"))
    return make_outcome(seen, problem)


async def reflect(lab: Lab, number: int) -> Outcome:
    """Let a team work in iterations until its goal is met."""
    seen, request = await run_team(lab, "reflect", "Name the three primary colours.", max_iterations=3)
    problem = find_answer_problem(seen.result.text, request=request, contains=("red", "blue", "yellow"))
    ends = [event.end for event in seen.select(ReflectEnded)]
    return make_outcome(seen, problem or ("" if ends == ["goal_met"] else f"the loop ended with {ends}"))


async def discuss(lab: Lab, number: int) -> Outcome:
    """Let two members discuss a question in rounds, and the lead conclude."""
    seen, request = await run_team(lab, "discuss", "Tea or coffee for the meeting? Choose one.", max_rounds=2)
    return make_outcome(seen, find_answer_problem(seen.result.text, request=request, contains=("tea", "coffee")))


async def run_team(lab: Lab, mode: Mode, request: str, **options: object) -> tuple[Observed, str]:
    """Run a team of two members in this mode, and return the observed run and the request."""
    names = ("ada", "bob")
    members = [Agent(name=name, description="Knows many facts.", prompt=BRIEF, tools=()) for name in names]
    team = Team(mode=mode, members=tuple(Member(agent=name) for name in names), options=options)
    return await lab.run(Agent(name="lead", prompt=BRIEF, tools=(), team=team), request, *members), request


def make_outcome(seen: Observed, problem: str) -> Outcome:
    """Return what a run reported, and what is wrong with its work. Work that is unproved is no reported success."""
    result = seen.result
    return Outcome(
        is_reported_success=result.succeeded and not result.unproved,
        problem=problem,
        reported=result.error or result.unproved or result.outcome,
    )


TASKS = {
    "route": Task(tries=10, attempt=route),
    "plan": Task(tries=10, attempt=plan),
    "edit": Task(tries=10, attempt=edit),
    "delegate_and_merge": Task(tries=10, attempt=delegate_and_merge),
    "repair": Task(tries=3, attempt=repair),
    "handoff": Task(tries=3, attempt=handoff),
    "advisors": Task(tries=3, attempt=advisors),
    "broadcast": Task(tries=3, attempt=broadcast),
    "sequential": Task(tries=3, attempt=sequential),
    "reflect": Task(tries=3, attempt=reflect),
    "discuss": Task(tries=3, attempt=discuss),
}
"""The tasks, keyed by name, in the order in which they are tried."""
