"""`podium demo`: a team at work, its process dying in the middle, and the run going on as if nothing had happened."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ...core.timeline import first_break
from ...engines.names import REHEARSAL
from ...roster.discovery import load
from ...roster.workflow_graph import tree as graph
from ...store.fault import EXIT_CODE
from ...store.sqlite.reader import Reader
from ...store.wakeup import bell_folder
from ...values.event import Entry, Evaluated, ModelReplied, ReflectEnded
from ...views.run_view import Picture
from ..terminal import exit_codes
from ..terminal.live_tree import drawn
from ..terminal.run_tree import signs_for
from ..terminal.text import visible

AGENTS = Path(__file__).parents[2] / "builtin" / "demo"
LEAD = "lead"
REQUEST = "May we cache prices for a day without leaking a discount?"
TEAM = "release"
GOAL = "Is the price cache ready to ship?"
FOREIGN = "PODIUM_"
"""How the variables begin that would lead the demo out of its own folder."""


@click.command("demo")
@click.option("--keep", "is_kept", is_flag=True, help="Leave the demo's folder in place, to look around in it.")
def command(is_kept: bool) -> int:
    """Watch a team of six agents work, see its process die in the middle, and resume the run; then a team reflect.

    Everything happens in a temporary folder, with the rehearsal engine: the flow is real, the words
    are not. It needs no key and no network, and touches nothing of yours.
    """
    console = Console(markup=False, highlight=False, emoji=False, soft_wrap=True)
    with stage(is_kept=is_kept) as place:
        return Demo(console, place).play(is_kept=is_kept)


@dataclass(frozen=True, slots=True)
class Stage:
    """A folder with all that the demo needs: a repository and a home for Podium."""

    folder: Path

    @property
    def repo(self) -> Path:
        return self.folder / "shop"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def store(self) -> Path:
        return self.home / "podium.db"

    def environment(self) -> dict[str, str]:
        """The variables of a process that stays inside."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        return {**own, "PODIUM_HOME": str(self.home), "PODIUM_MODEL": REHEARSAL}


@contextmanager
def stage(*, is_kept: bool) -> Iterator[Stage]:
    """A stage with its agents; put away at the end unless it is kept."""
    place = Stage(Path(tempfile.mkdtemp(prefix="podium-demo-")))
    try:
        shutil.copytree(AGENTS, place.repo / ".podium" / "agents")
        place.home.mkdir(mode=0o700)
        yield place
    finally:
        if not is_kept:
            for folder in (bell_folder(place.store), place.folder):
                shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Played:
    """A process of the demo that is over."""

    code: int
    answer: str


class Demo:
    """The play, scene by scene; each says first what it does."""

    def __init__(self, console: Console, place: Stage) -> None:
        self._console = console
        self._stage = place
        self._scene = 0
        self._is_right = True

    def play(self, *, is_kept: bool) -> int:
        """All scenes; the exit code."""
        self._print("A rehearsed team: the flow is real, the words are not. Nothing of yours is touched.")
        self._begin(f"Six agents, each a file in {self._stage.repo}/.podium/agents:")
        team = load(self._stage.repo, self._stage.home).team(LEAD)
        self._print(graph({agent.name: agent for agent in team}, LEAD))

        self._begin("A run without trouble, to compare with.")
        whole = self._podium("run", LEAD, REQUEST, "--quiet")
        self._print(whole.answer)
        entries = self._entries(self._newest())
        calls = replies(entries)

        middle = len(entries) // 2
        self._begin(f"The same again, but its process dies right after entry {middle}, as with kill -9.")
        died = self._podium("run", LEAD, REQUEST, "--plain", fault=middle)
        run = self._newest()
        kept = self._entries(run)
        self._print(
            f"The process is gone (exit code {died.code}). On the disk: {len(kept)} entries, "
            f"with {len(replies(kept))} of {len(calls)} model replies."
        )
        self._check("the process died where it was told to", died.code == EXIT_CODE and len(kept) == middle)

        self._begin("Another process goes on: what was done is read from the timeline, not done again.")
        resumed = self._podium("resume", run, "--plain")
        self._print(resumed.answer)

        self._begin("What the timeline says now:")
        timeline = self._entries(run)
        picture = Picture.of(timeline)
        self._console.print(drawn(picture, self._console, signs_for(self._console.encoding), is_live=False))
        done = replies(timeline)
        self._check("the answer is that of the run without trouble", whole.answer == resumed.answer != "")
        self._check(f"there are {len(done)} model replies, none of them twice", sorted(done) == sorted(calls))
        self._check(f"all {len(timeline)} entries are as they were written", self._is_unbroken(run))

        self._begin("A team that reflects: its lead plans, the members work, the lead judges, and again.")
        reflected = self._podium("run", TEAM, GOAL, "--plain")
        loop = [entry.event for entry in self._entries(self._newest())]
        scores = [f"{event.score:.1f}" for event in loop if isinstance(event, Evaluated)]
        ends = [event.end for event in loop if isinstance(event, ReflectEnded)]
        self._print(reflected.answer)
        self._check(f"judged {', then '.join(scores)}: {', '.join(ends)}", ends == ["goal_met"])

        self._begin("What the same team would cost you, before any money is spent:")
        self._podium("run", TEAM, GOAL, "--dry-run", "--quiet")

        self._begin("To look further:")
        self._print("\n".join(f"  {line}" for line in self._next(run, is_kept=is_kept)))
        return exit_codes.GOAL_MET if self._is_right else exit_codes.INTEGRITY

    # Processes

    def _podium(self, *arguments: str, fault: int | None = None) -> Played:
        """Run a command in a process of its own, and show what it says on the way."""
        variables = {} if fault is None else {"PODIUM_FAULT": str(fault)}
        self._prompt(variables, arguments)
        with subprocess.Popen(
            [sys.executable, "-m", "podium", *arguments],
            cwd=self._stage.repo,
            env={**self._stage.environment(), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for said in process.stderr:
                self._print(f"  {said.rstrip()}", "dim")
            answer = process.stdout.read()
        return Played(code=process.returncode, answer=answer.rstrip("\n"))

    # What is on the disk

    def _newest(self) -> str:
        with Reader(self._stage.store) as reader:
            return reader.runs()[0].id

    def _entries(self, run: str) -> list[Entry]:
        with Reader(self._stage.store) as reader:
            return reader.entries(run)

    def _is_unbroken(self, run: str) -> bool:
        with Reader(self._stage.store) as reader:
            return first_break(reader.rows(run)) is None

    # What is said

    def _begin(self, what: str) -> None:
        self._scene += 1
        self._console.print()
        self._print(f"{self._scene}. {what}", "bold")

    def _prompt(self, variables: dict[str, str], arguments: Sequence[str]) -> None:
        words = [*(f"{name}={value}" for name, value in variables.items()), "podium", *map(shlex.quote, arguments)]
        self._print(f"$ {' '.join(words)}", "cyan")

    def _check(self, claim: str, is_true: bool) -> None:
        signs = signs_for(self._console.encoding)
        self._is_right = self._is_right and is_true
        if is_true:
            self._print(f"{signs.done} {claim}", "green")
        else:
            self._print(f"{signs.failed} NOT TRUE: {claim}", "bold red")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(visible(text), style=style))

    def _next(self, run: str, *, is_kept: bool) -> list[str]:
        if not is_kept:
            return [
                "podium demo --keep          the same, and its folder stays to look around in",
                "podium doctor               what there is on this machine to think with",
                'podium run triage "..."     a first question of your own, to agents that come with Podium',
                "podium agents               who they are",
            ]
        place = f"cd {self._stage.repo} && export PODIUM_HOME={self._stage.home}"
        return [place, f"podium show {run}", f"podium logs {run}", f"podium verify {run}", "podium ps"]


def replies(entries: Sequence[Entry]) -> list[str]:
    """The places of the model calls that were answered."""
    return [entry.key for entry in entries if isinstance(entry.event, ModelReplied)]
