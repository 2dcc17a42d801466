"""What the runs of a history do: steps with effects that can be counted, some of which need a person's permission."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from ...workers.worker_lab import bash, write

ASKING = 0.4
"""The share of single workers whose commands need permission."""


class RunPlan(Struct, frozen=True, kw_only=True):
    """One worker: its branch or, in a team, its agent; the replies of its model, and whether its commands ask."""

    branch: str
    moves: list[Any]
    marks: tuple[str, ...]
    """The lines that its commands append to the file of effects, one line for each command."""
    files: tuple[str, ...]
    """The files that it writes."""
    asks: bool = False

    @property
    def allow(self) -> tuple[str, ...]:
        """The permission rules of the run."""
        return ("Write",) if self.asks else ("Write", "Bash")


class TeamPlan(Struct, frozen=True, kw_only=True):
    """A team: the request to its lead, and its members, which are workers."""

    name: str
    members: list[RunPlan]


class HistoryPlan(Struct, frozen=True, kw_only=True):
    """All runs of a history, and the seed of everything that is random in it."""

    seed: int
    runs: list[RunPlan]
    teams: list[TeamPlan]
    answered_within: float
    """Seconds after which a request is answered at the latest."""

    @property
    def total(self) -> int:
        """The number of runs, including those of leads and members."""
        return len(self.runs) + sum(1 + len(team.members) for team in self.teams)


@dataclass(frozen=True, slots=True)
class Planning:
    """Plans runs whose effects are lines in the file `effects`.

    A reply, a command and an answer each take up to `longest` seconds, so that faults happen in the middle of them.
    """

    seed: int
    effects: Path
    longest: float

    def make_plan(self, runs: int, teams: int) -> HistoryPlan:
        """Plan this many single workers, and this many teams."""
        random = Random(self.seed)
        return HistoryPlan(
            seed=self.seed,
            runs=[
                self._plan_run(random, f"feat/run-{number}", asks=random.random() < ASKING) for number in range(runs)
            ],
            teams=[
                TeamPlan(
                    name=f"team {number}",
                    members=[self._plan_run(random, f"member-{number}-{letter}") for letter in "ab"],
                )
                for number in range(teams)
            ],
            answered_within=2 * self.longest,
        )

    def _plan_run(self, random: Random, branch: str, *, asks: bool = False) -> RunPlan:
        moves: list[Any] = []
        marks: list[str] = []
        files: list[str] = []
        for step in range(random.randint(1, 3)):
            if step == 0 or random.random() < 0.5:
                marks.append(f"{branch.replace('/', '-')}-step-{step}")
                # The line is written in the middle, so that the command can be interrupted before it and after it.
                nap = f"{random.uniform(0, self.longest / 2):.2f}"
                moves.append(bash(f"sleep {nap}; echo {marks[-1]} >> {self.effects}; sleep {nap}"))
            else:
                files.append(f"file-{step}.txt")
                moves.append(write(files[-1], f"{branch}\n"))
            moves[-1]["delay"] = round(random.uniform(0, self.longest), 2)
        moves.append({"says": "done", "delay": round(random.uniform(0, self.longest), 2)})
        return RunPlan(branch=branch, moves=moves, marks=tuple(marks), files=tuple(files), asks=asks)
