"""How the cost of an agent grows with the number of agents at once: its time and its memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ..harness import LIMIT, OURS, REPLY, Bench, Sample, interleave_samples, start_child, start_model_server
from ..result_line import KILOBYTES, Goal, Line, Unit, make_line

ROUNDS = 5
CALLS = 1000
WARM_UP = 1
FEWEST_FOR_MEMORY = 10
"""Memory is allocated in pages; with fewer agents than this, page granularity would dominate the figure."""

CHILDREN = {OURS: "children.podium_app", LIMIT: "children.raw_aiohttp"}


def lines(bench: Bench) -> Iterator[Line]:
    """Measure time and memory per agent, each time in a process that has never held more agents."""
    sizes = (1, 10) if bench.is_quick else (1, 10, 100, 1000)
    with start_model_server(latency=0) as fast, start_model_server(latency=0.2 if bench.is_quick else 2) as slow:
        for agents in sizes:
            waves = max(bench.scale_count(CALLS, quick=10) // agents, 1)
            taken = _measure_in_new_processes(bench, "calls", url=fast, at_once=agents, waves=waves)
            what, unit = f"time per agent, {agents:,} at once", Unit("ms", 1e3 / agents)
            yield make_line(bench, taken, row="growth", what=what, unit=unit)
        for agents in sizes:
            if agents < FEWEST_FOR_MEMORY:
                continue
            taken = _measure_in_new_processes(bench, "memory", url=slow, at_once=agents)
            what, goals = f"memory per live agent, {agents:,} at once", [Goal("figure", 50)] * (agents == sizes[-1])
            yield make_line(bench, taken, row="growth", what=what, measure="memory", unit=KILOBYTES, goals=goals)


def _measure_in_new_processes(bench: Bench, job: str, **request: Any) -> dict[str, list[Sample]]:
    """Return the samples of a job, each taken in a new process."""

    def take(name: str) -> Sample:
        with start_child(CHILDREN[name], name=name) as one:
            return one.ask(job, reply=REPLY, warm_up=WARM_UP, **request)

    return interleave_samples(
        {name: partial(take, name) for name in CHILDREN}, rounds=bench.scale_count(ROUNDS, quick=1)
    )
