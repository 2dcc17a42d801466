"""Timelines of busy runs, as long as a test wants, written to a real store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from typing import NamedTuple

import anyio

from podium.core.timeline import Timeline
from podium.store.run_store import RunStore
from podium.values.action import Action
from podium.values.agent import Agent
from podium.values.event import (
    BallotCast,
    CallFailed,
    DecisionCommitted,
    DecisionProposed,
    Event,
    HandedOff,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    RunEnded,
    RunStarted,
    TeamPlanned,
    TextStreamed,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnStarted,
    WorkCommitted,
)
from podium.values.event.team_events import PlannedAssignment
from podium.values.request import Request
from podium.values.usage import Usage

from .conftest import Site

WORDS = "The parser reads each line once and keeps the fields that the report needs. ".split(" ")


class Step(NamedTuple):
    """An event of an operation, so many seconds after the start of the run."""

    at: float
    operation: str
    event: Event


def iter_busy_run(agents: int = 8, *, seconds: float = 0.05) -> Iterator[Step]:
    """Yield the entries of a run in which these agents work in turn, without end. `seconds` pass between entries."""
    names = [f"worker-{number}" for number in range(1, agents + 1)]
    count = 0

    def step(operation: str, event: Event) -> Step:
        nonlocal count
        count += 1
        return Step(count * seconds, operation, event)

    request = Request(text="Rewrite the importer and test it")
    yield step(
        "", RunStarted(agent="lead", request=request, agents=tuple(Agent(name=name) for name in ("lead", *names)))
    )
    yield step("lead", OperationStarted(agent="lead", trigger="request", request=request))
    assignments = tuple(PlannedAssignment(worker=name, task=f"Part of {name}") for name in names)
    yield step("lead", TeamPlanned(assignments=assignments))
    for name in names:
        part = Request(text=f"Do the part of {name}.")
        yield step(f"lead/member:{name}#1", OperationStarted(agent=name, trigger="member", request=part))
    number = 0
    while True:
        number += 1
        # The agents work side by side: their entries alternate.
        for events in zip_longest(*(iter_round(name, number) for name in names)):
            for event in events:
                if event is not None:
                    yield step(*event)


def iter_round(name: str, number: int) -> Iterator[tuple[str, Event]]:
    """Yield what an agent does in a round: it thinks, uses tools, sometimes waits, fails or hands its work on."""
    path, call = f"lead/member:{name}#1", f"{name}-{number}"
    place = int(name.rpartition("-")[2])
    action = Action(run="busy", agent=name, tool="bash", arguments={"command": f"pytest -q tests/part_{number}.py"})
    yield path, TurnStarted(agent=name, engine="scripted", prompt="Go on.")
    for word in WORDS:
        yield path, TextStreamed(text=f"{word} ")
    yield (
        path,
        ModelReplied(model="small", text="ok", usage=Usage(input_tokens=900, output_tokens=40, usd=0.0021, calls=1)),
    )
    yield path, ToolCalled(id=call, action=action)
    if (number + place) % 4 == 0:
        yield path, PermissionAsked(id=call, action=action, reason="no rule matches")
        yield path, PermissionAnswered(id=call, decision="once", by="ada", channel="page")
    yield path, ToolAnswered(id=call, text=f"{number} passed", is_error=(number + place) % 7 == 0)
    yield path, TurnEnded(outcome="succeeded", text=f"Part {number} of {name} is done.")
    if place == number % 8 + 1:
        yield path, CallFailed(model="small", message="the provider is busy", wait=1.0)
    if place == 1:
        yield from iter_team_events(number)


def iter_team_events(number: int) -> Iterator[tuple[str, Event]]:
    """Yield what happens between the agents in a round."""
    decision = f"d{number}"
    yield "lead", HandedOff(sender="worker-1", receiver="worker-2")
    yield "lead", DecisionProposed(id=decision, topic="Which format?", options=("csv", "json"))
    yield "lead", BallotCast(decision=decision, voter="worker-1", option="csv")
    yield "lead", BallotCast(decision=decision, voter="worker-2", option="csv")
    yield "lead", DecisionCommitted(decision=decision, option="csv", how="majority")
    commit = f"{number:040x}"
    yield "lead", WorkCommitted(branch="podium/part", commit=commit, files=("a.py",), added=12, removed=3)


def iter_ending(seconds: float) -> Iterator[Step]:
    """Yield the end of a busy run."""
    yield Step(seconds, "lead", OperationEnded(outcome="succeeded", text="The importer is rewritten and tested."))
    yield Step(seconds, "", RunEnded(outcome="succeeded"))


def write_timeline(site: Site, run: str, steps: Iterable[Step]) -> int:
    """Write a run that ended before now, and return how many entries it has. No process works on it."""
    listed = list(steps)
    begin = time.time() - listed[-1].at - 5
    now = begin

    async def write() -> None:
        nonlocal now
        async with RunStore(site.store) as store:
            timeline = Timeline(run, store.begin_run(run), clock=lambda: now)
            for at, operation, event in listed:
                now = begin + at
                timeline.append(event, scope=operation, operation=operation)
            await timeline.wait_written()

    site.portal.call(write)
    return len(listed)


def write_busy_run(site: Site, run: str, entries: int, *, agents: int = 8, is_over: bool = True) -> int:
    """Write a busy run with about this many entries, and return how many it has."""
    steps = list(islice(iter_busy_run(agents), entries - 2 * is_over))
    return write_timeline(site, run, [*steps, *(iter_ending(steps[-1].at + 1) if is_over else ())])


async def write_live_run(site: Site, run: str, *, before: int, entries: int, rate: int, agents: int = 8) -> None:
    """Write a run, then go on with so many more entries at a rate per second, and end it."""
    steps = iter_busy_run(agents, seconds=1 / rate)
    batch = max(1, rate // 50)
    async with RunStore(site.store) as store:
        timeline = Timeline(run, store.begin_run(run))
        for _, operation, event in islice(steps, before):
            timeline.append(event, scope=operation, operation=operation)
        await timeline.wait_written()
        start = anyio.current_time()
        for number in range(0, entries, batch):
            for _, operation, event in islice(steps, batch):
                timeline.append(event, scope=operation, operation=operation)
            await anyio.sleep_until(start + (number + batch) / rate)
        for _, operation, event in iter_ending(0):
            timeline.append(event, scope=operation, operation=operation)
        await timeline.wait_written()
