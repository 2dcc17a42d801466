"""Run agents with scripted models in tests.

Only the model is simulated; the roster, the patterns, the tool loop, the store and recovery are the real ones.
Agents are defined in the test itself, or are found by name in the repository or among Podium's built-in agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
from msgspec import structs

from ..app import App
from ..cli.output.entry_lines import format_entry
from ..engines.model.model_wire import Model, ModelCall, ReplyPart, add_zero_cost
from ..engines.model.provider_throttle import ProviderThrottle
from ..engines.model.retry_policy import RetryPolicy
from ..engines.model.tool_loop import ModelEngine
from ..engines.script import Move, Moves, stream_move
from ..files.discovery import load_roster
from ..files.settings import Settings
from ..store.fault_injection import refuse_after
from ..store.reader import StoreReader
from ..store.store_connection import open_connection
from ..values.agent import Agent
from ..values.errors import Mistake, OutsideFailed, PodiumError
from ..values.event import Entry, Event, event_kind
from ..values.request import Result
from ..values.usage import TurnLimits
from .script_queue import MutableScriptSet
from .timeline_reader import get_run_id, read_entries, read_events

SILENCE_SECONDS = 10.0
"""The timeout in seconds for a silent turn or an unanswered question, so that neither blocks a test for minutes."""

E = TypeVar("E", bound=Event)


class Scripted:
    """Defines scripted agents, runs them, and reads their timelines.

    Agents that the test does not define are loaded from `repo` or are built in. Runs work in `workspace`, which is
    an empty folder unless the test fills it. `patience` contains the turn limits; a test can replace it before a run.
    `report` receives the timeline of every run as readable text.
    """

    def __init__(
        self, settings: Settings, *, repo: Path, workspace: Path, report: Callable[[str], None] | None = None
    ) -> None:
        self.repo = repo
        self.workspace = workspace
        self.patience = TurnLimits(
            thinking=SILENCE_SECONDS, used_tools=SILENCE_SECONDS, resumed=SILENCE_SECONDS, approval=SILENCE_SECONDS
        )
        self.calls: list[ModelCall] = []
        """All model calls, in order."""
        self._settings = settings
        self._report = report
        self._own_agents: dict[str, Agent] = {}
        self._run_agents: dict[str, Agent] = {}
        self._scripts = MutableScriptSet(otherwise=self._fail_without_script)

    # Defining agents

    def agent(self, name: str, *, says: Moves = "ok", **keys: Any) -> Agent:
        """Define an agent with these scripted replies, one per model call. `keys` sets fields of `podium.Agent`."""
        self._own_agents[name] = Agent(name=name, **keys)
        self._scripts.set_script(name, says)
        return self._own_agents[name]

    def says(self, agent: str, *moves: Move | str | Mapping[str, Any]) -> None:
        """Set an agent's scripted replies, one per model call.

        The agent can be defined with `agent`, defined by a file in the repository, or built in.
        """
        self._scripts.set_script(agent, moves)

    # Running agents

    def run(
        self, agent: str | Agent, request: str, *, agents: Iterable[Agent] = (), dies_after: int | None = None
    ) -> Result:
        """Send a request to an agent and wait for the result.

        If `dies_after` is given, simulate a process that is killed after that many entries: nothing more is written,
        the run is `interrupted`, and it can be resumed.
        """
        __tracebackhide__ = True
        return _run_blocking("run", partial(self.arun, agent, request, agents=agents, dies_after=dies_after))

    async def arun(
        self, agent: str | Agent, request: str, *, agents: Iterable[Agent] = (), dies_after: int | None = None
    ) -> Result:
        """Send a request to an agent and wait for the result, like `run`, but in an async test."""
        team = self._resolve_team(agent, agents)
        # The roster finds agents with a prefix, such as builtin:answer, by itself.
        given = [one for one in team if ":" not in one.name]
        async with self._make_app(team, dies_after) as app:
            result = await app.run(team[0].name, request, repo=self.workspace, agents=given)
        return self._finish_run(result, dies_after)

    def resume(self, run: str | Result, *, dies_after: int | None = None) -> Result:
        """Resume an interrupted run and wait for the result."""
        __tracebackhide__ = True
        return _run_blocking("resume", partial(self.aresume, run, dies_after=dies_after))

    async def aresume(self, run: str | Result, *, dies_after: int | None = None) -> Result:
        """Resume an interrupted run and wait for the result, like `resume`, but in an async test."""
        started = self.entries(run)[0].started
        async with self._make_app(started.agents, dies_after) as app, app.resume(get_run_id(run)) as resumed:
            result = await resumed.result()
        return self._finish_run(result, dies_after)

    # Inspecting runs

    def heard(self, agent: str) -> list[str]:
        """Return the last message of each of an agent's model calls: a prompt or the result of a tool call."""
        __tracebackhide__ = True
        if agent not in self._run_agents and agent not in self._own_agents:
            there_are = ", ".join(sorted({*self._run_agents, *self._own_agents})) or "none yet"
            raise Mistake(f"agent {agent!r} was not part of any run; available: {there_are}")
        return [call.messages[-1].text for call in self.calls if call.agent == agent]

    def entries(self, run: str | Result) -> list[Entry]:
        """Return the timeline of a run."""
        with StoreReader(self._settings.store) as reader:
            reader.read_summary(get_run_id(run))
        return read_entries(self._settings.store, run)

    def events(self, run: str | Result, kind: type[E]) -> list[E]:
        """Return the events of this type in a run, such as `podium.values.event.HandedOff`."""
        return read_events(self._settings.store, run, kind)

    def kinds(self, run: str | Result) -> list[str]:
        """Return the kinds of all events in a run, as named in the documentation."""
        return [event_kind(entry.event) for entry in self.entries(run)]

    # Implementation

    def stream(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        """Yield the scripted reply to a call. This method lets the object replace a provider's API in the tool loop."""
        self.calls.append(call)
        return stream_move(self._scripts.next_attempt, call)

    def _resolve_team(self, agent: str | Agent, others: Iterable[Agent]) -> tuple[Agent, ...]:
        """Return the agent and all agents it needs. Raise an error if a script was set for an unknown agent."""
        given = [*others, agent] if isinstance(agent, Agent) else [*others]
        self._own_agents |= {one.name: one for one in given}
        roster = load_roster(self.repo, self._settings.home)
        for name in self._scripts.agent_names:
            if name not in self._own_agents:
                roster.get(name)
        team = roster.resolve_team(agent.name if isinstance(agent, Agent) else agent, extra=self._own_agents.values())
        self._run_agents |= {one.name: one for one in team}
        return team

    def _make_app(self, agents: Iterable[Agent], dies_after: int | None) -> App:
        """Build an app in which the scripted model replaces every engine that the agents use."""
        time = _InstantClock()
        throttle = ProviderThrottle(clock=time.now, sleep=time.sleep, jitter=lambda: 1.0)
        model = Model(wire=self, add_cost=add_zero_cost, throttle=throttle)
        engine = ModelEngine(model, name="scripted", retry=RetryPolicy(sleep=time.sleep, jitter=lambda: 1.0))
        return App(
            structs.replace(self._settings, patience=self.patience, approval_seconds=self.patience.approval),
            engines={agent.engine: engine for agent in agents},
            fault=None if dies_after is None else refuse_after(dies_after),
        )

    def _fail_without_script(self, call: ModelCall) -> Move:
        scripts = ", ".join(sorted(self._scripts.agent_names)) or "no agent"
        raise OutsideFailed(
            f'the agent has no script; there are scripts for {scripts}; add one with scripted.says("{call.agent}", ...)'
        )

    def _finish_run(self, result: Result, dies_after: int | None) -> Result:
        if dies_after is not None and result.outcome == "interrupted":
            self._delete_owner(result.run_id)
        if self._report is not None:
            lines = [said for entry in self.entries(result) if (said := format_entry(entry)) is not None]
            if result.outcome == "interrupted":
                lines.append(f"run {result.run_id}: interrupted: {result.error}")
            self._report("\n".join(lines))
        return result

    def _delete_owner(self, run: str) -> None:
        """Delete a run's owner, so that the run counts as abandoned although the test's process is still alive."""
        with closing(open_connection(self._settings.store, create=False)) as connection:
            connection.execute("DELETE FROM owner WHERE id = (SELECT owner FROM run WHERE id = ?)", (run,))


class _InstantClock:
    """A fake clock. `sleep` returns at once and advances the clock by the given number of seconds."""

    def __init__(self) -> None:
        self._passed = 0.0

    def now(self) -> float:
        return self._passed

    async def sleep(self, seconds: float) -> None:
        self._passed += seconds


def _run_blocking(name: str, work: Callable[[], Awaitable[Result]]) -> Result:
    __tracebackhide__ = True  # makes pytest report the line in the test
    if _is_in_event_loop():
        raise Mistake(
            f"scripted.{name} was called in an async test, but it blocks the event loop; await scripted.a{name} instead"
        )
    try:
        return anyio.run(work)
    except PodiumError as error:
        # The message says what to do; Podium's own stack frames would only distract from it.
        raise error.with_traceback(None) from None


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
