"""A model server on this machine, such as Ollama: detected, approved and used."""

from __future__ import annotations

from pathlib import Path

from podium import Agent, App, Settings
from podium.config.confirmed_model_servers import ConfirmedServer, save_confirmed_server
from podium.engines.local_model_servers import find_servers, list_local_addresses
from podium.store.sqlite.reader import StoreReader
from podium.testing import ModelServer
from podium.values.event import TurnStarted


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
