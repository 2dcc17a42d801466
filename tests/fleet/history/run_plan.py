"""What the runs of a history do: steps with effects that can be counted, some of which need a person's permission."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from ...workers.worker_lab import bash, write

LONGEST_REPLY = 1.5
LONGEST_COMMAND = 1.5
"""Seconds that a model's reply and a command take at most, so that faults also happen in the middle of them."""


class RunPlan(Struct, frozen=True, kw_only=True):
    """One run: its branch, the replies of its model, and whether its commands need permission."""

    branch: str
    moves: list[Any]
    marks: tuple[str, ...]
    """The lines that its commands append to the file of effects, one line for each command."""
    files: tuple[str, ...]
    """The files that it writes."""
    asks: bool

    @property
    def allow(self) -> tuple[str, ...]:
        """The permission rules of the run."""
        return ("Write",) if self.asks else ("Write", "Bash")


class HistoryPlan(Struct, frozen=True, kw_only=True):
    """All runs of a history, and the seed of everything that is random in it."""

    seed: int
    runs: list[RunPlan]
    answered_within: float
    """Seconds after which a request is answered at the latest."""


def make_plan(seed: int, runs: int, effects: Path, *, answered_within: float = 4.0) -> HistoryPlan:
    """Plan this many runs. Their effects are lines in the file `effects`."""
    random = Random(seed)
    return HistoryPlan(
        seed=seed,
        runs=[_plan_run(random, number, effects) for number in range(runs)],
        answered_within=answered_within,
    )


def _plan_run(random: Random, number: int, effects: Path) -> RunPlan:
    moves: list[Any] = []
    marks: list[str] = []
    files: list[str] = []
    for step in range(random.randint(1, 3)):
        if step == 0 or random.random() < 0.5:
            marks.append(f"run-{number}-step-{step}")
            # The line is written in the middle, so that the command can be interrupted before it and after it.
            nap = f"{random.uniform(0, LONGEST_COMMAND / 2):.2f}"
            moves.append(bash(f"sleep {nap}; echo {marks[-1]} >> {effects}; sleep {nap}"))
        else:
            files.append(f"file-{step}.txt")
            moves.append(write(files[-1], f"{number}\n"))
        moves[-1]["delay"] = round(random.uniform(0, LONGEST_REPLY), 2)
    moves.append({"says": "done", "delay": round(random.uniform(0, LONGEST_REPLY), 2)})
    return RunPlan(
        branch=f"feat/run-{number}",
        moves=moves,
        marks=tuple(marks),
        files=tuple(files),
        asks=random.random() < 0.4,
    )
