"""Check agents against this installation, and report everything that a run would reject or ignore.

The roster checks files and the references between agents. This module checks everything that depends on the
settings and the environment, in the same way as when a run starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from ...engines.engine_choice import Engines, KeyNotSet
from ...files.settings import Settings
from ...patterns.json_output import validate_output_schema
from ...patterns.member_tasks import validate_team_options
from ...patterns.registry import find_pattern
from ...tools.toolset import Toolbox
from ...values.agent import Agent
from ...values.errors import Diagnostic, Mistake, Severity
from .agent_sandbox import list_agent_programs
from .engine_lookup import find_engine, list_models
from .fallback_models import apply_team_fallbacks, choose_available_models, describe_unlisted_model


class AgentDiagnostics:
    """Checks agents in one repository, with one environment and one set of settings."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], repo: Path | None) -> None:
        self._settings = settings
        self._environ = settings.add_provider_addresses(environ)
        self._engines = Engines(self._environ, home=settings.home, agent_programs=list_agent_programs(settings))
        self._toolbox = Toolbox({repo or Path(): settings.checks})
        self._repo = repo or Path()

    def check_agents(self, agents: Iterable[Agent]) -> Iterator[Diagnostic]:
        """Yield a diagnostic for everything in these agents that a run would reject or ignore."""
        for written in apply_team_fallbacks(agents):
            notices: list[str] = []
            agent = choose_available_models(written, self._find_model_error, notices)
            yield from (_diagnose(agent, "model", notice.rstrip("."), "warning") for notice in notices)
            yield from self._check_start(agent)
            yield from self._check_models(agent)
            yield from self._check_hooks(agent)
            yield from self._check_servers(agent)
            yield from self._check_tools(agent)

    def _check_hooks(self, agent: Agent) -> Iterator[Diagnostic]:
        """Yield a warning if the agent's hooks will not be called because the user has not trusted them."""
        if not agent.other.get("hooks"):
            return
        # Imported here to keep start-up fast: few agents have hooks.
        from ...files.agent_trust import NOT_TRUSTED, iter_untrusted

        for _ in iter_untrusted([agent], self._repo, self._settings.home):
            yield _diagnose(agent, "hooks", NOT_TRUSTED, "warning")

    def _check_servers(self, agent: Agent) -> Iterator[Diagnostic]:
        """Yield a warning if the user's servers will not be started for the agent, because the user must trust that."""
        if not any(entry.startswith("mcp__") for entry in agent.tools or ()):
            return
        # Imported here to keep start-up fast: few agents use servers.
        from ...files.agent_trust import find_own_servers, iter_untrusted_servers
        from ...files.trust import Trust

        own = find_own_servers(self._settings.mcp_servers.values())
        trust = Trust.load(self._settings.home)
        for _, notice in iter_untrusted_servers([agent], own, self._repo, trust):
            yield _diagnose(agent, "tools", notice, "warning")

    def _check_tools(self, agent: Agent) -> Iterator[Diagnostic]:
        """Yield a warning for each tool that neither Podium nor a plug-in provides."""
        unknown = self._toolbox.find_unknown_tools(agent.tools or ())
        if not unknown:
            return
        from .plugin_tools import find_plugin_tools  # imported here to keep start-up fast: most tools are Podium's own

        notices: list[str] = []
        installed = find_plugin_tools(unknown, notices.append)
        for notice in notices:
            yield _diagnose(agent, "tools", notice.rstrip("."), "warning")
        for entry in (entry for entry in unknown if entry not in installed):
            yield _diagnose(agent, "tools", f"tool {entry!r} not found; runs continue without it", "warning")

    def _check_start(self, agent: Agent) -> Iterator[Diagnostic]:
        """Yield a diagnostic for each reason why a run of this agent could not start."""
        checks: list[tuple[str, Callable[[Agent], object]]] = [
            ("team.mode", find_pattern),
            ("team", validate_team_options),
            ("output", validate_output_schema),
            ("engine" if agent.engine != "model" else "model", self._find_engine),
        ]
        for key, check in checks:
            try:
                check(agent)
            except KeyNotSet as error:
                # This is only a warning, because the API key may be set on the machine where the agent runs.
                yield _diagnose(agent, key, str(error), "warning")
            except Mistake as error:
                yield _diagnose(agent, key, str(error), "error")

    def _find_engine(self, agent: Agent) -> object:
        return find_engine(self._engines, self._settings, agent, self._environ)

    def _find_model_error(self, agent: Agent) -> str:
        try:
            self._find_engine(agent)
        except Mistake as error:
            return str(error)
        return ""

    def _check_models(self, agent: Agent) -> Iterator[Diagnostic]:
        """Yield a warning for each model that is not in the list of its provider's known models.

        Models of providers with a custom address are not checked.
        """
        for name in () if agent.engine != "model" else list_models(self._settings, agent):
            if message := describe_unlisted_model(name, self._environ):
                yield _diagnose(agent, "model", message, "warning")


def make_agent_check(
    settings: Settings, environ: Mapping[str, str], repo: Path | None
) -> Callable[[Iterable[Agent]], Iterator[Diagnostic]]:
    """Return a function that checks agents in the same way as a run with these settings does."""
    return partial(AgentDiagnostics.check_agents, AgentDiagnostics(settings, environ, repo))


def _diagnose(agent: Agent, key: str, message: str, severity: Severity) -> Diagnostic:
    return Diagnostic(severity=severity, path=agent.path or agent.name, key=key, message=message)
