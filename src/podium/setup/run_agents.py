"""The agents of a run, selected and checked before it starts.

They are decoded from the form that is stored on the timeline, so that a resumed run uses exactly the same
agents.
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
from ..engines.model.providers import REHEARSAL
from ..patterns.json_output import validate_output_schema
from ..patterns.member_tasks import validate_team_options
from ..patterns.registry import find_pattern
from ..roster.discovery import Roster, load_roster
from ..system.locations import find_repo
from ..values.agent import Agent, Budget
from ..values.errors import BadAgent, Mistake
from .preflight import collect_reachable_agents, require_prices, validate_budget
from .settings import Settings

MAX_CACHED_TEAMS = 256
SQUAD_FOLDERS = (".squad/", ".ai-team/")


class AgentSelection(NamedTuple):
    """The selected agent first, then the agents that it needs, and notices for the person."""

    agents: tuple[Agent, ...]
    notices: list[str]


class CachedSelection(NamedTuple):
    """A checked team that was built in code.

    `agents` keeps its agents alive, so that the object ids in the cache key stay valid.
    """

    agents: tuple[Agent, ...]
    selection: AgentSelection


class RunAgents:
    """Selects and checks the agents of runs."""

    def __init__(
        self, settings: Settings, redaction: Redaction, engine_for: Callable[[Settings, Agent], Engine]
    ) -> None:
        self._settings = settings
        self._redaction = redaction
        self._engine_for = engine_for
        self._teams: dict[tuple[int, ...], CachedSelection] = {}

    def select_agents(
        self, agent: str | Agent, others: tuple[Agent, ...], repo: Path | None, *, force_model: str = ""
    ) -> AgentSelection:
        """Check and return the agent and all agents that it may need.

        Files are read if code does not define all these agents. `force_model` replaces the models of all agents.
        """
        if isinstance(agent, str) or force_model:
            extra = others if isinstance(agent, str) else (agent, *others)
            _validate_agents(extra)
            roster = load_roster(repo or find_repo(Path()), self._settings.home)
            name = agent if isinstance(agent, str) else agent.name
            return self._select_from_roster(roster, name, extra, force_model=force_model)
        given = (agent, *others)
        key = tuple(map(id, given))
        if key in self._teams:
            return self._teams[key].selection
        _validate_agents(given)
        names = {one.name for one in given}
        if not all(reference.name in names for one in given for reference in one.references()):
            return self._select_from_roster(
                load_roster(repo or find_repo(Path()), self._settings.home), agent.name, given
            )
        if len(self._teams) >= MAX_CACHED_TEAMS:
            self._teams.clear()
        self._teams[key] = CachedSelection(given, self._select_from_roster(Roster(agents={}), agent.name, given))
        return self._teams[key].selection

    def _select_from_roster(
        self, roster: Roster, agent: str, extra: tuple[Agent, ...], *, force_model: str = ""
    ) -> AgentSelection:
        """Return the agents as a resumed run will read them."""
        written = self._redaction.redact_line(msgspec.json.encode(roster.resolve_team(agent, extra=extra)))
        team = msgspec.json.decode(written, type=tuple[Agent, ...])
        if force_model:
            team = tuple(_with_forced_model(one, force_model) for one in team)
        notices: list[str] = []
        team = tuple(self._with_available_models(self._settings.apply_role_budget(agent), notices) for agent in team)
        return AgentSelection(team, notices + self.check_agents(team, self._settings))

    def _with_available_models(self, agent: Agent, notices: list[str]) -> Agent:
        """Return the agent without fallback models that are not available.

        If its model is not available and it belongs to a squad, it uses the first fallback, or the default model.
        """
        is_squads = (agent.path or "").startswith(SQUAD_FOLDERS)
        if not agent.fallback_models and not (is_squads and agent.model):
            return agent
        model, fallbacks = agent.model, agent.fallback_models
        if error := self._find_model_error(agent, model):
            if not is_squads:
                return agent
            available = [one for one in fallbacks if not self._find_model_error(agent, one)]
            model = available[0] if available else ""
            notices.append(f"{agent.name} uses {model or 'the default model'}: {error}.")
        kept = []
        for one in fallbacks:
            if one != model and (error := self._find_model_error(agent, model, one)):
                notices.append(f"{agent.name} cannot fall back to {one}: {error}.")
            elif one != model:
                kept.append(one)
        return structs.replace(agent, model=model, fallback_models=tuple(kept))

    def _find_model_error(self, agent: Agent, model: str, *fallbacks: str) -> str:
        """Return why an agent cannot use a model with these fallbacks, or an empty string."""
        try:
            self._engine_for(self._settings, structs.replace(agent, model=model, fallback_models=fallbacks))
        except Mistake as error:
            return str(error)
        return ""

    def check_agents(self, team: Iterable[Agent], settings: Settings) -> list[str]:
        """Return notices for the person. Raises Mistake for an agent that cannot run here."""
        notices = []
        engines = set()
        team = list(team)
        first = team[0]
        for agent in team:
            find_pattern(agent)
            validate_team_options(agent)
            validate_output_schema(agent)
            engines.add(self._engine_for(settings, agent).name)
            if agent.isolation != "shared" and agent is first:
                notices.append(
                    f"{agent.name} works in the repository itself; to give it its own checkout, use podium delegate."
                )
            if agent.budget is not None and agent.budget.usd is not None:
                self._require_prices(collect_reachable_agents(agent, team), settings)
        if REHEARSAL in engines and settings.model in ("", REHEARSAL):
            notices.append("This run is a rehearsal: the flow is real, the replies are simulated.")
        if REHEARSAL in engines and not settings.model:
            notices.append("No model is configured: set OPENAI_API_KEY or ANTHROPIC_API_KEY, or run podium doctor.")
        return notices

    def check_budget(self, budget: Budget | None, team: Iterable[Agent], settings: Settings) -> None:
        """Raise Mistake if limits are invalid or cannot be enforced."""
        if budget is None:
            return
        validate_budget(budget)
        if budget.usd is not None:
            self._require_prices(team, settings)

    def _require_prices(self, agents: Iterable[Agent], settings: Settings) -> None:
        """Raise Mistake unless the prices of all models under a cost limit are known."""
        require_prices(agents, partial(self._engine_for, settings))


class AgentWithFunctions(NamedTuple):
    """An agent whose tools are all referred to by name, and the functions among them."""

    agent: str | Agent
    functions: tuple[Callable[..., object], ...]


def extract_functions(agent: str | Agent) -> AgentWithFunctions:
    """Return the agent with its functions replaced by their names, so that it can be stored."""
    tools: Sequence[Any] = () if isinstance(agent, str) else agent.tools or ()
    functions = tuple(tool for tool in tools if callable(tool))
    if isinstance(agent, str) or not functions:
        return AgentWithFunctions(agent, ())
    names = tuple(getattr(tool, "__name__", "") if callable(tool) else tool for tool in tools)
    return AgentWithFunctions(structs.replace(agent, tools=names), functions)


def _with_forced_model(agent: Agent, model: str) -> Agent:
    """Return the agent with this model as its only one, and without the models set for its team's members."""
    team = agent.team
    if team is not None:
        members = tuple(structs.replace(member, model="") if member.model else member for member in team.members)
        team = structs.replace(team, members=members)
    return structs.replace(agent, model=model, fallback_models=(), team=team)


def _validate_agents(agents: Iterable[Agent]) -> None:
    """Raise BadAgent for an agent built in code whose values have the wrong types."""
    for agent in agents:
        try:
            msgspec.convert(msgspec.to_builtins(agent), Agent)
        except (msgspec.ValidationError, TypeError) as error:
            raise BadAgent(f"agent {agent.name} has invalid values: {error}") from None
