"""Checking an action against the rules; against splitting the same command into words."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from time import perf_counter, process_time

from podium.policy import Rules, check
from podium.values.action import Action

from ..harness import LIMIT, OURS, Bench, Sample, interleave_samples
from ..result_line import Goal, Line, Unit, make_line

ROUNDS = 9
CHECKS = 400
MICROSECONDS = Unit("µs", 1e6)
RULES = Rules(
    allow=("Bash(git status *)", "Bash(ls *)", "Bash(pytest *)", "Bash(npm run test *)", "Edit(/src/**)", "Read"),
    ask=("Bash(git push *)",),
    deny=("Bash(rm *)", "Read(./.env)", "WebFetch"),
)


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the check of a new command, and of a path."""
    rounds = bench.scale_count(ROUNDS, quick=2)
    fresh = count()

    def check_subject(subject: Callable[[int], str | Action]) -> object:
        return check(subject(next(fresh)), RULES)

    rows: tuple[tuple[str, Callable[[int], str | Action], float], ...] = (
        ("a new command", make_command, 500.0),
        ("a path", make_edit, 100.0),
    )
    for what, subject, most in rows:
        turns = {
            OURS: partial(_time_call, partial(check_subject, subject)),
            LIMIT: partial(_time_call, lambda: shlex.split(make_command(next(fresh)))),
        }
        taken = interleave_samples(turns, rounds=rounds)
        goals = [Goal("figure", most)]
        yield make_line(bench, taken, row="policy", what=f"verdict on {what}", unit=MICROSECONDS, goals=goals)


def make_command(number: int) -> str:
    """Return a command of three parts, different for every number."""
    return f"git status && ls -la src/{number} | grep {number}"


def make_edit(number: int) -> Action:
    """Return an edit of a file, different for every number."""
    return Action(run="r", agent="a", tool="edit_file", arguments={"path": f"src/{number}.py", "edits": []})


def _time_call(call: Callable[[], object]) -> Sample:
    """Return the time of one call."""
    begin, used = perf_counter(), process_time()
    for _ in range(CHECKS):
        call()
    return Sample(wall=(perf_counter() - begin) / CHECKS, cpu=(process_time() - used) / CHECKS)
