"""Which engine an agent gets. Engines are made when first needed and put away together."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from ..agent import Agent
from ..errors import Mistake
from ..mind import Engine
from .model.loop import ModelEngine
from .model.wire import Wire
from .names import KEY_NAME, OPENAI_URL, REHEARSAL

if TYPE_CHECKING:
    from aiohttp import ClientSession


class Engines:
    """The engines of one running product, `given` ones first, and the connections that they share."""

    def __init__(self, environ: Mapping[str, str], given: Mapping[str, Engine] | None = None) -> None:
        self._environ = environ
        self._given = dict(given or {})
        self._made: dict[tuple[str, str], Engine] = {}
        self._client: ClientSession | None = None

    def for_agent(self, agent: Agent, *, model: str, base_url: str) -> Engine:
        """What this agent thinks with, where those that name nothing think with `model`."""
        if agent.engine in self._given:
            return self._given[agent.engine]
        if agent.engine not in ("model", "scripted", REHEARSAL):
            known = ", ".join(sorted({"model", "scripted", REHEARSAL, *self._given}))
            raise Mistake(f"{agent.name} wants the engine {agent.engine!r}, but there are only {known}")
        name = agent.engine if agent.engine != "model" else _wanted(agent, model)
        place = name, base_url
        if place not in self._made:
            self._made[place] = self._make(agent, name, base_url)
        return self._made[place]

    def _make(self, agent: Agent, name: str, base_url: str) -> Engine:
        provider, _, model = name.rpartition(":")
        return ModelEngine(self._wire(agent, provider or model, base_url), name=name, model=model)

    def _wire(self, agent: Agent, provider: str, base_url: str) -> Wire:
        match provider:
            case "scripted":
                from .scripted import ScriptedWire

                return ScriptedWire()
            case "rehearsal":
                from .rehearsal import RehearsalWire

                return RehearsalWire()
            case "openai":
                from .model.openai import OpenAIWire, proxy_for

                key = self._environ.get(KEY_NAME, "")
                if not key and base_url == OPENAI_URL:
                    raise Mistake(f"{agent.name} thinks with a model of OpenAI's, but {KEY_NAME} is not set")
                return OpenAIWire(self._shared_client, base_url, key, key_name=KEY_NAME, proxy=proxy_for(base_url))
        raise Mistake(
            f"{agent.name} thinks with {provider!r}, which this release does not speak; "
            "it speaks openai (any OpenAI-compatible address in OPENAI_BASE_URL), scripted and rehearsal"
        )

    def _shared_client(self) -> ClientSession:
        if self._client is None:
            from aiohttp import ClientSession, TCPConnector

            # A thousand agents want a thousand connections. Looking proxies up is left to each wire,
            # once: the client would do it in a thread, and read .netrc, before every call.
            self._client = ClientSession(connector=TCPConnector(limit=0))
        return self._client

    async def __aenter__(self) -> Engines:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()


def _wanted(agent: Agent, model: str) -> str:
    """The model that an agent names, or the default; all is rehearsed where nothing else is there."""
    if model == REHEARSAL or agent.model in ("", "inherit"):
        return model if ":" in model or model == REHEARSAL else f"openai:{model}"
    return agent.model if ":" in agent.model else f"openai:{agent.model}"
