"""A synthesis of results: who is asked for it, in a run of its own, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.member_change import changed
from ...roster.discovery import load
from ...setup.settings import Settings
from ...system.locations import find_repo
from ...values.agent import Agent
from ...values.errors import PodiumError, first_error
from ...values.event import Entry, MemberChanged, RunStarted
from ...values.request import Outcome
from . import exit_codes
from .quoted_markdown import inline, quotation
from .say import say

AGENT = "worker"
THINKING = ("model", "base_url", "models")
"""What a run remembers that says what its agents think with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who writes a synthesis, about what, where, and with which settings.

    `place` is None where the repository is gone.
    """

    agent: Agent
    about: str
    place: Path | None
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """What came of asking for one; without a `run` it did not even begin."""

    by: str
    outcome: Outcome
    code: int
    run: str = ""
    text: str = ""
    error: str = ""
    left_out: int = 0

    def fields(self) -> dict[str, Any]:
        """All of it for programs."""
        return {
            "run": self.run or None,
            "agent": self.by,
            "outcome": self.outcome,
            "text": self.text,
            "error": self.error or None,
            "left_out": self.left_out,
        }

    def rendered(self) -> list[str]:
        """It in lines."""
        return [f"{self._title}:", f"There is none: {self.error}." if self.error else self.text.rstrip("\n")]

    def markdown(self) -> list[str]:
        """It as blocks of Markdown."""
        return [
            f"## {inline(self._title)}",
            f"There is none: {inline(self.error)}." if self.error else quotation(self.text),
        ]

    @property
    def _title(self) -> str:
        return f"Synthesis by {self.by} (run {self.run})" if self.run else f"Synthesis by {self.by}"


def lead(entries: Sequence[Entry], named: str | None) -> Author:
    """The first agent of a run as it was at the end, or the one that is named. Raises Mistake."""
    started = entries[0].event
    assert isinstance(started, RunStarted)
    at = Path(started.repo if started.errand is None else started.errand.root)
    place = at if started.repo and at.is_dir() else None
    then = {key: started.settings[key] for key in THINKING if started.settings.get("model")}
    settings = _settings(place).as_recorded(then)
    if named is not None:
        agent = _found(place or find_repo(Path()), settings, named)
    else:
        agent = _latest(entries, next(one for one in started.agents if one.name == started.agent))
    return Author(agent=agent, about=f"run {entries[0].run}", place=place, settings=settings)


def _latest(entries: Iterable[Entry], agent: Agent) -> Agent:
    """An agent of a run with the changes that were made to it on the way."""
    for entry in entries:
        if isinstance(entry.event, MemberChanged) and entry.event.member == agent.name:
            agent = changed(agent, entry.event)
    return agent


def anyone(place: Path, named: str | None) -> Author:
    """The agent that is named, or the one that workers are by default. Raises Mistake."""
    settings = _settings(place)
    agent = _found(place, settings, named or AGENT)
    return Author(agent=agent, about=f"the workers of {place.name}", place=place, settings=settings)


def _settings(place: Path | None) -> Settings:
    # Nothing is to be changed, whatever engine it thinks with.
    return Settings.load(repo=place, permission_mode="plan")


def _found(place: Path, settings: Settings, name: str) -> Agent:
    return load(place, settings.home).team(name)[0]


def made(author: Author, report: Iterable[str]) -> Synthesis:
    """Ask for a synthesis of a report and follow it to its end. That it failed is told, and is no error here."""
    # Here, because most reports are not summed up.
    from ...patterns.synthesis import summing_up, writer
    from .follow_run import worked
    from .run_output import Output

    by, agent = author.agent.name, writer(author.agent)
    asked = summing_up(author.agent, report, about=author.about)
    if asked.left_out:
        say(f"the report is long: {asked.left_out:,} characters of it are left out of what {by} is given")
    # As for JSON, because the text is shown by whoever shows the report.
    shown = Output(is_json=True)
    try:
        ending = worked(author.settings, lambda app: app.start(agent, asked.text, repo=author.place), shown.view)
    except Exception as error:
        found = first_error(error)
        if not isinstance(found, PodiumError):
            raise
        say(f"podium: {found}")
        return Synthesis(by=by, outcome="failed", error=str(found), code=exit_codes.of_error(found))
    code, result = shown.tell(ending), ending.result
    if result is None:
        return Synthesis(by=by, outcome="interrupted", error="it was interrupted before it began", code=code)
    return Synthesis(
        by=by,
        run=result.run_id,
        outcome=result.outcome,
        text=result.text,
        error="" if result.succeeded else result.error or f"its run was {result.outcome}",
        code=code,
        left_out=asked.left_out,
    )
