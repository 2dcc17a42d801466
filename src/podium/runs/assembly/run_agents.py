"""Select and check the agents of a run before it starts.

The agents are decoded from the form that is stored on the timeline, so that a resumed run uses exactly the same
agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from ...core.engine import Engine
from ...core.redaction import Redaction
from ...engines.model.providers import REHEARSAL
from ...files.discovery import Roster, load_roster
from ...files.settings import Settings
from ...patterns.json_output import validate_output_schema
from ...patterns.registry import NO_PATTERNS, OwnPatterns, Pattern, find_pattern
from ...system.locations import find_repo
from ...values.agent import Agent, Budget
from ...values.errors import BadAgent, Mistake
from ...values.team_modes import MODES
from .engine_lookup import list_models
from .fallback_models import apply_team_fallbacks, choose_available_models, describe_unlisted_model
from .preflight import collect_reachable_agents, require_prices, validate_budget

MAX_CACHED_TEAMS = 256


class AgentSelection(NamedTuple):
    """The selected agent, followed by the agents that it needs, and notices for the user."""

    agents: tuple[Agent, ...]
    notices: list[str]


class CachedSelection(NamedTuple):
    """A checked team that was built in code.

    `agents` refers to the original objects, so that their ids, which form the cache key, are not reused.
    """

    agents: tuple[Agent, ...]
    selection: AgentSelection


class RunAgents:
    """Selects and checks the agents of runs."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        redaction: Redaction,
        engine_for: Callable[[Settings, Agent], Engine],
    ) -> None:
        self._settings = settings
        self._environ = settings.add_provider_addresses(environ)
        self._redaction = redaction
        self._engine_for = engine_for
        self._teams: dict[tuple[int, ...], CachedSelection] = {}

    def select_agents(
        self,
        agent: str | Agent,
        others: tuple[Agent, ...],
        repo: Path | None,
        *,
        force_model: str = "",
        patterns: OwnPatterns = NO_PATTERNS,
    ) -> AgentSelection:
        """Validate an agent and all agents that it may need, and return them.

        Agent files are read if `agent` is a name, or if `agent` or one of `others` refers to an agent that is not among
        them. With `force_model`, agent files are always read, and this model replaces the models of all agents.
        `patterns` contains the program's own patterns, which the agents can use.
        """
        if isinstance(agent, str) or force_model:
            extra = others if isinstance(agent, str) else (agent, *others)
            _validate_agents(extra)
            roster = load_roster(repo or find_repo(Path()), self._settings.home)
            name = agent if isinstance(agent, str) else agent.name
            return self._select_from_roster(roster, name, extra, force_model=force_model, patterns=patterns)
        given = (agent, *others)
        key = tuple(map(id, given))
        if key in self._teams and not patterns:
            return self._teams[key].selection
        _validate_agents(given)
        names = {one.name for one in given}
        if not all(reference.name in names for one in given for reference in one.references()):
            return self._select_from_roster(
                load_roster(repo or find_repo(Path()), self._settings.home), agent.name, given, patterns=patterns
            )
        if len(self._teams) >= MAX_CACHED_TEAMS:
            self._teams.clear()
        selection = self._select_from_roster(Roster(agents={}), agent.name, given, patterns=patterns)
        if not patterns:
            self._teams[key] = CachedSelection(given, selection)
        return selection

    def _select_from_roster(
        self,
        roster: Roster,
        agent: str,
        extra: tuple[Agent, ...],
        *,
        force_model: str = "",
        patterns: OwnPatterns = NO_PATTERNS,
    ) -> AgentSelection:
        """Return the agents of a run, and notices about them.

        The agents are redacted in the same way as in the store, so that a resumed run uses exactly the same agents.
        """
        written = self._redaction.redact_line(
            msgspec.json.encode(roster.resolve_team(agent, extra=extra)), with_urls=False
        )
        team = apply_team_fallbacks(msgspec.json.decode(written, type=tuple[Agent, ...]))
        if force_model:
            team = tuple(_with_forced_model(one, force_model) for one in team)
        notices: list[str] = []
        team = tuple(
            choose_available_models(
                self._settings.apply_role_budget(one),
                self._find_model_error,
                notices,
                default="" if force_model or one.model in self._settings.models else self._settings.model,
            )
            for one in team
        )
        notices += self.check_agents(team, self._settings, patterns)
        return AgentSelection(team, [*notices, *self._describe_unlisted_models(team)])

    def _find_model_error(self, agent: Agent) -> str:
        """Return why an agent cannot use its models, or an empty string if it can."""
        try:
            self._engine_for(self._settings, agent)
        except Mistake as error:
            return str(error)
        return ""

    def _describe_unlisted_models(self, agents: Iterable[Agent]) -> Iterator[str]:
        """Yield a notice for each agent whose first model may be refused and replaced by its fallback model."""
        for agent in agents:
            models = list_models(self._settings, agent) if agent.engine == "model" else ()
            if len(models) < 2 or self._engine_for(self._settings, agent).name == REHEARSAL:
                continue
            if unlisted := describe_unlisted_model(models[0], self._environ):
                yield f"{agent.name}: {unlisted}; if the provider refuses this model, {models[1]} is used."

    def check_agents(self, team: Iterable[Agent], settings: Settings, patterns: OwnPatterns = NO_PATTERNS) -> list[str]:
        """Return notices for the user about these agents. Raise Mistake if one of them cannot run on this machine."""
        notices = []
        engines = set()
        team = list(team)
        first = team[0]
        for agent in team:
            find_pattern(agent, patterns)
            if agent.team is not None:
                # Imported here to keep start-up fast: most runs have no team.
                from ...patterns.member_tasks import validate_team_options

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
        """Raise Mistake if the price of any agent's model is unknown, because a cost limit could not be enforced."""
        require_prices(agents, partial(self._engine_for, settings))


class AgentWithFunctions(NamedTuple):
    """An agent whose tools and pattern are given by name, and the functions that these names refer to."""

    agent: str | Agent
    functions: tuple[Callable[..., object], ...] = ()
    patterns: tuple[Pattern, ...] = ()


def extract_functions(agent: str | Agent) -> AgentWithFunctions:
    """Return the agent with its functions replaced by their names, so that it can be stored."""
    if isinstance(agent, str):
        return AgentWithFunctions(agent)
    tools: Sequence[Any] = agent.tools or ()
    functions = tuple(tool for tool in tools if callable(tool))
    if functions:
        agent = structs.replace(agent, tools=tuple(_name_of(tool) if callable(tool) else tool for tool in tools))
    pattern: Any = agent.pattern if agent.team is None else agent.team.mode
    if not callable(pattern):
        return AgentWithFunctions(agent, functions)
    if agent.team is None:
        agent = structs.replace(agent, pattern=_name_of(pattern))
    else:
        agent = structs.replace(agent, team=structs.replace(agent.team, mode=_name_of(pattern)))
    return AgentWithFunctions(agent, functions, (pattern,))


def _name_of(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", "")


def index_patterns(patterns: Iterable[Pattern]) -> OwnPatterns:
    """Return patterns, keyed by name. Raise Mistake if one has no usable name, or if two have the same name."""
    found: dict[str, Pattern] = {}
    for pattern in patterns:
        name = _name_of(pattern)
        if not name.isidentifier() or name in MODES:
            raise Mistake(
                f"the pattern {name or pattern!r} has no usable name; define it as a function whose name is not a mode"
            )
        if found.setdefault(name, pattern) is not pattern:
            raise Mistake(f"two patterns are named {name}; rename one of them")
    return found


def _with_forced_model(agent: Agent, model: str) -> Agent:
    """Return a copy of the agent that uses only this model. If it leads a team, remove the members' own models too."""
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
