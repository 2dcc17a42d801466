"""A team: a plan, four workers at once, one answer; against the raw client making the same six calls."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..harness import LIMIT, Bench, Child, Sample, interleave_samples, start_model_server
from ..result_line import Line, make_line, max_ratio
from ..team_scenario import ANSWER, CALLS_IN_A_ROW
from .contest import start_contestants

ROUNDS = 12
TEAMS = 40
"""Enough for a sample to include its share of deferred work, as with single calls."""

LATENCY = 0.05
LATENCY_ROUNDS = 9
LATENCY_TEAMS = 10


def lines(bench: Bench) -> Iterator[Line]:
    """Measure a team whose model answers at once, and one that has to wait for it at least three times 50 ms."""
    with start_contestants(bench, "team") as children:
        with start_model_server(latency=0) as url:
            taken = measure_teams(
                children, url, teams=bench.scale_count(TEAMS, quick=3), rounds=bench.scale_count(ROUNDS, quick=3)
            )
        what = "plan, 4 workers, synthesis"
        yield make_line(bench, taken, row="team", what=what, goals=[max_ratio(2)], has_peers=True)
        yield make_line(bench, taken, row="team", what=f"{what}: processor", measure="cpu", has_peers=True)
        with start_model_server(latency=LATENCY) as url:
            taken = measure_teams(
                children,
                url,
                teams=bench.scale_count(LATENCY_TEAMS, quick=2),
                rounds=bench.scale_count(LATENCY_ROUNDS, quick=2),
            )
    yield make_line(bench, taken, row="team", what=f"{what}, 50 ms", has_peers=True)
    least = [Sample(wall=CALLS_IN_A_ROW * LATENCY)]
    what, goals = f"{what}, 50 ms: against {CALLS_IN_A_ROW} × 50 ms", [max_ratio(1.15)]
    yield make_line(bench, taken | {LIMIT: least}, row="team", what=what, goals=goals, has_peers=True)


def measure_teams(children: dict[str, Child], url: str, *, teams: int, rounds: int) -> dict[str, list[Sample]]:
    """Return the samples of a team for each program."""
    request = {"url": url, "reply": ANSWER, "at_once": 1, "waves": teams, "warm_up": 2}
    return interleave_samples(
        {name: partial(one.ask, "calls", **request) for name, one in children.items()}, rounds=rounds
    )
