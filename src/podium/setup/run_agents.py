"""Casting: which agents take part in a run, found and checked before it begins.

They are taken as a resumed run will read them from its timeline, so that it runs with the very same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from ..core.engine import Engine
from ..core.redaction import Redaction
from ..engines.names import REHEARSAL
from ..patterns.json_output import must_be_schema
from ..patterns.registry import way_of
from ..patterns.team_members import must_be_a_team
from ..roster.discovery import Roster, load
from ..system.locations import find_repo
from ..values.agent import Agent, Budget
from ..values.errors import BadAgent, Mistake
from .preflight import below, must_be_a_budget, must_be_priced
from .settings import Settings

MOST_TEAMS = 256
SQUADS = (".squad/", ".ai-team/")


class Cast(NamedTuple):
    """An agent first, then those that it needs; and what the person should know about them."""

    agents: tuple[Agent, ...]
    notices: list[str]


class Known(NamedTuple):
    """A team that was built in code and checked before; `given` keeps its agents, and so their ids, alive."""

    given: tuple[Agent, ...]
    team: Cast


class Casting:
    """The agents of the runs of one Podium."""

    def __init__(
        self, settings: Settings, redaction: Redaction, engine_for: Callable[[Settings, Agent], Engine]
    ) -> None:
        self._settings = settings
        self._redaction = redaction
        self._engine_for = engine_for
        self._teams: dict[tuple[int, ...], Known] = {}

    def cast(self, agent: str | Agent, others: tuple[Agent, ...], repo: Path | None) -> Cast:
        """The agent and all that it may need, checked. Files are read only for what code does not give."""
        if isinstance(agent, str):
            _must_be_sound(others)
            return self._fit(load(repo or find_repo(Path()), self._settings.home), agent, others)
        given = (agent, *others)
        key = tuple(map(id, given))
        if key in self._teams:
            return self._teams[key].team
        _must_be_sound(given)
        names = {one.name for one in given}
        if not all(reference.name in names for one in given for reference in one.references()):
            return self._fit(load(repo or find_repo(Path()), self._settings.home), agent.name, given)
        if len(self._teams) >= MOST_TEAMS:
            self._teams.clear()
        self._teams[key] = Known(given, self._fit(Roster(agents={}), agent.name, given))
        return self._teams[key].team

    def _fit(self, roster: Roster, agent: str, extra: tuple[Agent, ...]) -> Cast:
        """The agents as a resumed run will read them, so that it runs with the very same."""
        written = self._redaction.line(msgspec.json.encode(roster.team(agent, extra=extra)))
        team = msgspec.json.decode(written, type=tuple[Agent, ...])
        notices: list[str] = []
        team = tuple(self._with_known_model(self._settings.of_its_role(agent), notices) for agent in team)
        return Cast(team, notices + self.checked(team, self._settings))

    def _with_known_model(self, agent: Agent, notices: list[str]) -> Agent:
        """An agent of a squad thinks with the default model where nobody knows the one that its charter prefers."""
        if not agent.model or not (agent.path or "").startswith(SQUADS):
            return agent
        try:
            self._engine_for(self._settings, agent)
        except Mistake as error:
            notices.append(f"{agent.name} thinks with the default model: {error}.")
            return structs.replace(agent, model="")
        return agent

    def checked(self, team: Iterable[Agent], settings: Settings) -> list[str]:
        """What the person should know before the run begins; raises Mistake for what cannot run here."""
        notices = []
        engines = set()
        team = list(team)
        first = team[0]
        for agent in team:
            way_of(agent)
            must_be_a_team(agent)
            must_be_schema(agent)
            engines.add(self._engine_for(settings, agent).name)
            if agent.isolation != "shared" and agent is first:
                notices.append(
                    f"{agent.name} works in the repository itself; podium delegate gives it its own checkout."
                )
            if agent.budget is not None and agent.budget.usd is not None:
                self._must_be_priced(below(agent, team), settings)
        if REHEARSAL in engines and settings.model in ("", REHEARSAL):
            notices.append("This run is rehearsed: the flow is real, the words are not.")
        if REHEARSAL in engines and not settings.model:
            notices.append("No model is configured: set OPENAI_API_KEY or ANTHROPIC_API_KEY, or see podium doctor.")
        return notices

    def must_be_kept(self, budget: Budget | None, team: Iterable[Agent], settings: Settings) -> None:
        """Refuse limits that are none, or that nobody could keep. Raises Mistake."""
        if budget is None:
            return
        must_be_a_budget(budget)
        if budget.usd is not None:
            self._must_be_priced(team, settings)

    def _must_be_priced(self, agents: Iterable[Agent], settings: Settings) -> None:
        """A limit on money needs the price of every model under it. Raises Mistake."""
        must_be_priced(agents, partial(self._engine_for, settings))


class Named(NamedTuple):
    """An agent whose tools are all named, and the functions that some of them are."""

    agent: str | Agent
    functions: tuple[Callable[..., object], ...]


def named(agent: str | Agent) -> Named:
    """The agent with the functions among its tools by their names: these can be written down."""
    tools: Sequence[Any] = () if isinstance(agent, str) else agent.tools or ()
    functions = tuple(tool for tool in tools if callable(tool))
    if isinstance(agent, str) or not functions:
        return Named(agent, ())
    names = tuple(getattr(tool, "__name__", "") if callable(tool) else tool for tool in tools)
    return Named(structs.replace(agent, tools=names), functions)


def _must_be_sound(agents: Iterable[Agent]) -> None:
    """Refuse an agent built in code whose values are not what they should be. Raises BadAgent."""
    for agent in agents:
        try:
            msgspec.convert(msgspec.to_builtins(agent), Agent)
        except (msgspec.ValidationError, TypeError) as error:
            raise BadAgent(f"agent {agent.name} cannot be used as it was built: {error}") from None
