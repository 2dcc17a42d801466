"""What the runs of a history do: steps with effects that can be counted, some of which need a person's permission."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from msgspec import Struct, structs

from podium.engines.script import Move
from podium.values.agent import Permissions

from ...workers.worker_lab import bash, write

PROGRAM = "effect"
"""The command that appends a line to the file of effects: `effect LINE SECONDS`."""
ALLOWING = Permissions(allow=("Write", f"Bash({PROGRAM} *)"))
ASKING = 0.4
"""The share of single workers whose commands need permission."""


class RunPlan(Struct, frozen=True, kw_only=True):
    """One worker: its branch or, in a team, its agent; the replies of its model, and whether its commands ask."""

    branch: str
    moves: list[Move]
    marks: tuple[str, ...]
    """The lines that its commands append to the file of effects, one line for each command."""
    files: tuple[str, ...]
    """The files that it writes."""
    asks: bool = False

    @property
    def permissions(self) -> Permissions:
        """The rules of the run."""
        return Permissions(allow=("Write",)) if self.asks else ALLOWING


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
    """Plans runs with effects that can be counted.

    A reply, a command and an answer each take up to `longest` seconds, so that faults happen in the middle of them.
    """

    seed: int
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
        moves: list[Move] = []
        marks: list[str] = []
        files: list[str] = []
        for step in range(random.randint(1, 3)):
            if step == 0 or random.random() < 0.5:
                marks.append(f"{branch.replace('/', '-')}-step-{step}")
                move = bash(f"{PROGRAM} {marks[-1]} {random.uniform(0, self.longest / 2):.2f}")
            else:
                files.append(f"file-{step}.txt")
                move = write(files[-1], f"{branch}\n")
            moves.append(structs.replace(move, delay=round(random.uniform(0, self.longest), 2)))
        moves.append(Move(says="done", delay=round(random.uniform(0, self.longest), 2)))
        return RunPlan(branch=branch, moves=moves, marks=tuple(marks), files=tuple(files), asks=asks)
