"""A test environment made of real parts, with agents that follow scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from podium import Agent, App, Result, Run, Settings
from podium.core.engine import Engine
from podium.engines.model.model_wire import Model, ModelCall, add_zero_cost
from podium.engines.model.retry_policy import RetryPolicy
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.script import Move, ScriptedWire, echo_request
from podium.store.fault_injection import Fault
from podium.store.store_connection import open_connection
from podium.testing import read_entries, read_events
from podium.values.event import Entry, Event, event_kind
from podium.values.store_address import StoreAddress
from podium.values.usage import TurnLimits


async def skip_sleep(seconds: float) -> None:
    """Return at once instead of waiting before the next attempt."""


def expire_leases(store: StoreAddress) -> None:
    """Let the leases of a store expire, as if their owners were gone."""
    with closing(open_connection(store, create=False)) as connection:
        connection.execute("UPDATE owner SET until = 0")


class Studio:
    """Agents and a store in a temporary folder, with access to the results."""

    def __init__(
        self, folder: Path, *, turn_limits: TurnLimits | None = None, store: StoreAddress | None = None
    ) -> None:
        options: dict[str, Any] = {} if turn_limits is None else {"patience": turn_limits}
        self.settings = Settings.load({}, home=folder, store=store, **options)
        self.agents: dict[str, Agent] = {}
        self.scripts: dict[str, Sequence[Any]] = {}
        self.calls: list[ModelCall] = []
        self.respond: Callable[[ModelCall], Move] = echo_request
        """Returns the reply to a call of an agent without a script."""

    def agent(self, name: str, *, says: Sequence[Any] = ("ok",), **keys: Any) -> Agent:
        """Add an agent that follows this script, one step a turn."""
        self.scripts[name] = says
        self.agents[name] = Agent(name=name, **({"engine": "scripted"} | keys))
        return self.agents[name]

    @asynccontextmanager
    async def app(
        self, *, fault: Fault | None = None, engines: Mapping[str, Engine] | None = None
    ) -> AsyncIterator[App]:
        wire = ScriptedWire(self.scripts, otherwise=self.respond)
        wire.heard = self.calls
        scripted = ModelEngine(
            Model(wire=wire, add_cost=add_zero_cost), name="scripted", retry=RetryPolicy(sleep=skip_sleep)
        )
        async with App(
            self.settings, engines={"scripted": scripted} | dict(engines or {}), environ={}, fault=fault
        ) as app:
            yield app

    async def run(self, agent: str, request: str, *, fault: Fault | None = None) -> Result:
        async with self.app(fault=fault) as app:
            return await app.run(self.agents[agent], request, agents=self.agents.values())

    @asynccontextmanager
    async def start(self, agent: str, request: str) -> AsyncIterator[Run]:
        async with self.app() as app, app.start(self.agents[agent], request, agents=self.agents.values()) as run:
            yield run

    def expire_leases(self) -> None:
        """Let the leases expire, as if the process that owned the runs were gone."""
        expire_leases(self.settings.store)

    async def resume(self, run: str, *, fault: Fault | None = None) -> Result:
        async with self.app(fault=fault) as app, app.resume(run) as resumed:
            return await resumed.result()

    def heard(self, agent: str) -> list[str]:
        """Return the last prompt of each call to the agent."""
        return [call.messages[-1].text for call in self.calls if call.agent == agent]

    def entries(self, run: str | Result) -> list[Entry]:
        return read_entries(self.settings.store, run)

    def events(self, run: str | Result, *kinds: type[Event]) -> list[Any]:
        return read_events(self.settings.store, run, *kinds)

    def kinds(self, run: str | Result) -> list[str]:
        return [event_kind(entry.event) for entry in self.entries(run)]
