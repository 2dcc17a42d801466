"""Synthesise results: choose an agent, run it, and format the synthesis that it writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct, field

from ...core.member_change import apply_change
from ...files.discovery import load_roster
from ...files.settings import Settings
from ...system.locations import find_repo
from ...values.agent import Agent
from ...values.errors import PodiumError, find_first_error
from ...values.event import Entry, MemberChanged
from ...values.request import Outcome
from ...values.worker_task import DEFAULT_WORKER_AGENT
from ...views.quoted_markdown import escape_inline, quote_block
from . import exit_codes
from .agent_text import AgentText
from .command_options import get_command_actor
from .text import print_to_stderr

MODEL_SETTINGS = ("model", "base_url", "models")
"""The recorded settings of a run that determine which models its agents use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisAuthor:
    """The agent that writes a synthesis, the subject of the synthesis, and the repository and settings to use.

    `repo` is None if the run has no repository, or if the repository no longer exists.
    """

    agent: Agent
    about: str
    repo: Path | None
    settings: Settings


class Synthesis(Struct, frozen=True, kw_only=True):
    """A synthesis and its outcome. `run` is None if the run could not be started."""

    run: str | None = None
    by: str = field(name="agent")
    outcome: Outcome
    text: str = ""
    error: str | None = None
    left_out: int = 0

    def format_lines(self) -> list[str]:
        """Return the synthesis as lines of text."""
        return [f"{self._title}:", f"No synthesis: {self.error}." if self.error else AgentText(self.text.rstrip("\n"))]

    def format_markdown(self) -> list[str]:
        """Return the synthesis as blocks of Markdown."""
        return [
            f"## {escape_inline(self._title)}",
            f"No synthesis: {escape_inline(self.error)}." if self.error else quote_block(self.text),
        ]

    @property
    def _title(self) -> str:
        return f"Synthesis by {self.by} (run {self.run})" if self.run else f"Synthesis by {self.by}"


def choose_run_author(entries: Sequence[Entry], agent_name: str | None) -> SynthesisAuthor:
    """Return the author of a run's synthesis: the given agent or, by default, the run's first agent.

    The first agent is returned with the changes that were made to it during the run. Raise Mistake if the given agent
    does not exist.
    """
    started = entries[0].started
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
    """Return an agent with the changes that were made to it during the run."""
    for entry in entries:
        if isinstance(entry.event, MemberChanged) and entry.event.member == agent.name:
            agent = apply_change(agent, entry.event)
    return agent


def choose_workers_author(place: Path, agent_name: str | None) -> SynthesisAuthor:
    """Return the author of a synthesis about workers: the given agent or a default. Raise Mistake if there is none."""
    settings = _load_readonly_settings(place)
    agent = _find_agent(place, settings, agent_name or DEFAULT_WORKER_AGENT)
    return SynthesisAuthor(agent=agent, about=f"the workers of {place.name}", repo=place, settings=settings)


def _load_readonly_settings(place: Path | None) -> Settings:
    # Writing a synthesis must not change anything, whatever engine the agent uses.
    return Settings.load(repo=place, permission_mode="plan")


def _find_agent(place: Path, settings: Settings, name: str) -> Agent:
    return load_roster(place, settings.home).resolve_team(name)[0]


def run_synthesis(author: SynthesisAuthor, report: Iterable[str]) -> tuple[Synthesis, int]:
    """Run an agent that summarises a report, and return its synthesis and the exit code. Return Podium's errors."""
    # Imported here for start-up time: most reports need no synthesis.
    from ...patterns.report_synthesis import as_writer, make_synthesis_request
    from ...runs.run_start import start_run
    from .follow_run import work_on_run
    from .run_output import OutputOptions

    by, agent = author.agent.name, as_writer(author.agent)
    request = make_synthesis_request(author.agent, report, about=author.about)
    if request.left_out:
        print_to_stderr(f"the report is too long for {by}: {request.left_out:,} characters were omitted")
    # With `is_json`, the text is not printed here: the caller prints it with the report.
    output = OutputOptions(is_json=True)
    try:
        ending = work_on_run(
            author.settings,
            lambda app: start_run(app.runs, agent, request.text, {"repo": author.repo}, by=get_command_actor()),
            output.make_view,
        )
    except Exception as error:
        cause = find_first_error(error)
        if not isinstance(cause, PodiumError):
            raise
        print_to_stderr(f"podium: {cause}")
        return Synthesis(by=by, outcome="failed", error=str(cause)), exit_codes.error_exit_code(cause)
    code, result = output.print_ending(ending), ending.result
    if result is None:
        return Synthesis(by=by, outcome="interrupted", error="interrupted before the run started"), code
    synthesis = Synthesis(
        by=by,
        run=result.run_id,
        outcome=result.outcome,
        text=result.text,
        error=None if result.succeeded else result.error or f"the run was {result.outcome}",
        left_out=request.left_out,
    )
    return synthesis, code
