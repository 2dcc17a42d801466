"""A member that is a real coding agent, goose: its start, a permission request, and its memory; against goose alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..agent_scenario import find_goose
from ..harness import LIMIT, OURS, Bench, BenchmarkFailed, interleave_samples, start_child
from ..result_line import MILLISECONDS, Line, Measure, Unit, make_line

ROUNDS = 9
MEGABYTES = Unit("MB", 1e-6)

FIGURES: tuple[tuple[str, str, Measure, Unit], ...] = (
    ("start", "a goose member: from its start to its first call", "wall", MILLISECONDS),
    ("permission", "a goose member: permission for an edit, and the edit", "wall", MILLISECONDS),
    ("memory", "a goose member that waits for its model: its processes", "memory", MEGABYTES),
)
"""The job of the programs, what it measures, and how."""


def lines(bench: Bench) -> Iterator[Line]:
    """Measure goose as a member of a run, in the sandbox, with its permissions judged by rules and recorded."""
    try:
        find_goose()
    except FileNotFoundError as error:
        raise BenchmarkFailed(str(error)) from None
    with (
        start_child("children.podium_goose", name="podium") as ours,
        start_child("children.raw_goose", name="goose") as limit,
    ):
        for job, what, measure, unit in FIGURES:
            turns = {OURS: partial(ours.ask, job), LIMIT: partial(limit.ask, job)}
            taken = interleave_samples(turns, rounds=bench.scale_count(ROUNDS, quick=1))
            yield make_line(bench, taken, row="coding_agent", what=what, measure=measure, unit=unit)
