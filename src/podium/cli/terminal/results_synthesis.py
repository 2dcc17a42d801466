"""A synthesis of results: who is asked for it, in a run of its own, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.member_change import apply_change
from ...roster.discovery import load_roster
from ...setup.settings import Settings
from ...system.locations import find_repo
from ...values.agent import Agent
from ...values.errors import PodiumError, find_first_error
from ...values.event import Entry, MemberChanged, RunStarted
from ...values.request import Outcome
from . import exit_codes
from .quoted_markdown import escape_inline, quote_block
from .text import print_to_stderr

DEFAULT_AGENT = "worker"
MODEL_SETTINGS = ("model", "base_url", "models")
"""What a run remembers that says what its agents think with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisAuthor:
    """Who writes a synthesis, about what, where, and with which settings.

    `place` is None where the repository is gone.
    """

    agent: Agent
    about: str
    repo: Path | None
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

    def as_fields(self) -> dict[str, Any]:
        """All of it for programs."""
        return {
            "run": self.run or None,
            "agent": self.by,
            "outcome": self.outcome,
            "text": self.text,
            "error": self.error or None,
            "left_out": self.left_out,
        }

    def format_lines(self) -> list[str]:
        """It in lines."""
        return [f"{self._title}:", f"There is none: {self.error}." if self.error else self.text.rstrip("\n")]

    def format_markdown(self) -> list[str]:
        """It as blocks of Markdown."""
        return [
            f"## {escape_inline(self._title)}",
            f"There is none: {escape_inline(self.error)}." if self.error else quote_block(self.text),
        ]

    @property
    def _title(self) -> str:
        return f"Synthesis by {self.by} (run {self.run})" if self.run else f"Synthesis by {self.by}"


def choose_run_author(entries: Sequence[Entry], agent_name: str | None) -> SynthesisAuthor:
    """The first agent of a run as it was at the end, or the one that is named. Raises Mistake."""
    started = entries[0].event
    assert isinstance(started, RunStarted)
    at = Path(started.repo if started.errand is None else started.errand.root)
    place = at if started.repo and at.is_dir() else None
    recorded = {key: started.settings[key] for key in MODEL_SETTINGS if started.settings.get("model")}
    settings = _load_readonly_settings(place).with_record(recorded)
    if agent_name is not None:
        agent = _find_agent(place or find_repo(Path()), settings, agent_name)
    else:
        agent = _apply_member_changes(entries, next(one for one in started.agents if one.name == started.agent))
    return SynthesisAuthor(agent=agent, about=f"run {entries[0].run}", repo=place, settings=settings)


def _apply_member_changes(entries: Iterable[Entry], agent: Agent) -> Agent:
    """An agent of a run with the changes that were made to it on the way."""
    for entry in entries:
        if isinstance(entry.event, MemberChanged) and entry.event.member == agent.name:
            agent = apply_change(agent, entry.event)
    return agent


def choose_workers_author(place: Path, agent_name: str | None) -> SynthesisAuthor:
    """The agent that is named, or the one that workers are by default. Raises Mistake."""
    settings = _load_readonly_settings(place)
    agent = _find_agent(place, settings, agent_name or DEFAULT_AGENT)
    return SynthesisAuthor(agent=agent, about=f"the workers of {place.name}", repo=place, settings=settings)


def _load_readonly_settings(place: Path | None) -> Settings:
    # Nothing is to be changed, whatever engine it thinks with.
    return Settings.load(repo=place, permission_mode="plan")


def _find_agent(place: Path, settings: Settings, name: str) -> Agent:
    return load_roster(place, settings.home).resolve_team(name)[0]


def run_synthesis(author: SynthesisAuthor, report: Iterable[str]) -> Synthesis:
    """Ask for a synthesis of a report and follow it to its end. That it failed is told, and is no error here."""
    # Here, because most reports are not summed up.
    from ...patterns.synthesis import as_writer, make_synthesis_request
    from .follow_run import work_on_run
    from .run_output import OutputOptions

    by, agent = author.agent.name, as_writer(author.agent)
    request = make_synthesis_request(author.agent, report, about=author.about)
    if request.left_out:
        print_to_stderr(f"the report is long: {request.left_out:,} characters of it are left out of what {by} is given")
    # As for JSON, because the text is shown by whoever shows the report.
    output = OutputOptions(is_json=True)
    try:
        ending = work_on_run(
            author.settings, lambda app: app.start(agent, request.text, repo=author.repo), output.make_view
        )
    except Exception as error:
        cause = find_first_error(error)
        if not isinstance(cause, PodiumError):
            raise
        print_to_stderr(f"podium: {cause}")
        return Synthesis(by=by, outcome="failed", error=str(cause), code=exit_codes.error_exit_code(cause))
    code, result = output.print_ending(ending), ending.result
    if result is None:
        return Synthesis(by=by, outcome="interrupted", error="it was interrupted before it began", code=code)
    return Synthesis(
        by=by,
        run=result.run_id,
        outcome=result.outcome,
        text=result.text,
        error="" if result.succeeded else result.error or f"its run was {result.outcome}",
        code=code,
        left_out=request.left_out,
    )
