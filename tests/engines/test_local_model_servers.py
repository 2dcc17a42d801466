"""A model server on this machine, such as Ollama: detected, approved and used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group
from msgspec import structs

from podium import Agent, App, Settings
from podium.engines.local_model_servers import find_servers, list_local_addresses
from podium.engines.model.model_wire import Model
from podium.engines.model.provider_throttle import ProviderThrottle
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.script import ScriptedWire
from podium.files.confirmed_model_servers import ConfirmedServer, save_confirmed_server
from podium.files.settings_document import ProviderLimits
from podium.store.reader import StoreReader
from podium.testing import ModelServer, read_events
from podium.values.event import CallFailed, Noticed, TurnStarted
from podium.values.usage import TurnLimits


async def test_a_local_server_is_found_confirmed_and_used(tmp_path: Path) -> None:
    async with ModelServer("from my own machine") as server:
        environ = {"OLLAMA_HOST": server.url.removeprefix("http://").removesuffix("/v1")}
        found = await find_servers(
            [address for address in list_local_addresses(environ) if address.provider == "ollama"], seconds=5
        )
        before = Settings.load(environ, home=tmp_path)
        save_confirmed_server(tmp_path, ConfirmedServer(url=found[0].url, provider="ollama", model="llama3.2"))
        settings = Settings.load(environ, home=tmp_path)
        async with App(settings, environ=environ) as app:
            result = await app.run(Agent(name="local"), "hello")

    assert before.model == ""
    assert settings.model == "ollama:llama3.2"
    assert result.text == "from my own machine"
    assert (result.usage.usd, result.usage.unpriced) == (0.0, 0)
    [received] = server.calls
    assert received.call.model == "llama3.2"
    assert "authorization" not in received.headers
    with StoreReader(settings.store) as reader:
        engines = [
            entry.event.engine for entry in reader.read_entries(result.run_id) if isinstance(entry.event, TurnStarted)
        ]
    assert engines == ["ollama:llama3.2"]


def load_local_settings(home: Path, server: ModelServer, **limits: Any) -> Settings:
    own = ProviderLimits(base_url=server.url, **limits)
    return Settings.load({}, home=home, model="ollama:small", providers={"ollama": own})


async def test_a_local_server_gets_one_call_at_a_time_unless_the_settings_allow_more(tmp_path: Path) -> None:
    most = []
    for limits in ({}, {"concurrent": 3}):
        async with ModelServer({"small": [{"says": "ok", "delay": 0.1}]}) as server:
            settings = load_local_settings(tmp_path, server, **limits)
            async with App(settings, environ={}) as app, create_task_group() as group:
                for number in range(3):
                    group.start_soon(app.run, Agent(name=f"a{number}"), "hello")
            most.append(server.most_in_flight)

    assert most == [1, 3]


@pytest.mark.parametrize(("silent", "failures"), [(1, 1), (True, 2)])
async def test_a_silent_server_is_called_once_more_and_the_turn_waits_for_it(
    tmp_path: Path, silent: bool | int, failures: int
) -> None:
    # The limit of the turn is shorter than that of the call, which takes precedence.
    async with ModelServer({"small": [{"says": "awake", "silent": silent}]}) as server:
        settings = load_local_settings(tmp_path, server, first_token_timeout=0.3)
        hasty = structs.replace(settings, patience=TurnLimits(thinking=0.1))
        async with App(hasty, environ={}) as app:
            result = await app.run(Agent(name="local"), "hello")

    assert len(server.calls) == 2
    assert len(read_events(settings.store, result.run_id, CallFailed)) == failures
    if failures == 1:
        assert result.text == "awake"
    else:
        assert "ollama sent nothing for 0.3 s (first_token_timeout in the settings)" in str(result.error)


async def test_a_call_that_waits_for_a_busy_server_says_so_on_the_timeline(tmp_path: Path) -> None:
    wire = ScriptedWire([{"says": "ok", "delay": 0.2}])
    throttle = ProviderThrottle(concurrent=1, notice_seconds=0.01)
    engine = ModelEngine(Model(wire=wire, name="small", provider="ollama", throttle=throttle), name="ollama:small")
    settings = Settings.load({}, home=tmp_path)
    runs = []

    async def run_agent(name: str) -> None:
        runs.append((await app.run(Agent(name=name, engine="mine"), "hello")).run_id)

    async with App(settings, engines={"mine": engine}, environ={}) as app, create_task_group() as group:
        for name in ("first", "second", "third"):
            group.start_soon(run_agent, name)

    notices = [event.text for run in runs for event in read_events(settings.store, run, Noticed)]
    assert sorted(text.partition(" ")[2] for text in notices if "is waiting" in text) == [
        "is waiting for ollama (1 call ahead).",
        "is waiting for ollama (2 calls ahead).",
    ]
