"""Which engine an agent gets. Engines are made when first needed and put away together."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from ..agent import Agent
from ..errors import Mistake
from ..mind import Engine
from .model.loop import ModelEngine
from .model.providers import Provider, base_url, parse_model
from .model.wire import Wire
from .names import REHEARSAL

if TYPE_CHECKING:
    from aiohttp import ClientSession

SCRIPTED = "scripted"


class Engines:
    """The engines of one running product, `given` ones first, and the connections that they share."""

    def __init__(self, environ: Mapping[str, str], given: Mapping[str, Engine] | None = None) -> None:
        self._environ = environ
        self._given = dict(given or {})
        self._made: dict[tuple[str, str], Engine] = {}
        self._client: ClientSession | None = None

    def for_agent(self, agent: Agent, *, model: str, url: str) -> Engine:
        """What this agent thinks with.

        Agents that name nothing think with `model`, whose provider is at `url`; all of them are
        rehearsed where `model` is the rehearsal, and without one those whose provider has no key.
        """
        if agent.engine in self._given:
            return self._given[agent.engine]
        if agent.engine not in ("model", SCRIPTED, REHEARSAL):
            known = ", ".join(sorted({"model", SCRIPTED, REHEARSAL, *self._given}))
            raise Mistake(f"{agent.name} wants the engine {agent.engine!r}, but there are only {known}")
        wanted = agent.engine if agent.engine != "model" else self._wanted(agent, model)
        if (wanted, url) not in self._made:
            self._made[wanted, url] = self._make(agent, wanted, model=model, url=url)
        return self._made[wanted, url]

    def _wanted(self, agent: Agent, model: str) -> str:
        named = "" if agent.model == "inherit" else agent.model
        if model == REHEARSAL or not (named or model):
            return REHEARSAL
        if not model and not self._is_reachable(parse_model(named)[0]):
            return REHEARSAL
        return named or model

    def _is_reachable(self, provider: Provider) -> bool:
        """Whether a provider can be called: it needs no key, has one, or is not where it usually is."""
        has_moved = base_url(provider, self._environ) != provider.base_url
        return provider.key_name is None or bool(self._environ.get(provider.key_name)) or has_moved

    def _make(self, agent: Agent, wanted: str, *, model: str, url: str) -> Engine:
        if wanted == SCRIPTED:
            from .scripted import ScriptedWire

            return ModelEngine(ScriptedWire(), name=wanted)
        if wanted == REHEARSAL:
            from .rehearsal import RehearsalWire

            return ModelEngine(RehearsalWire(), name=wanted)
        try:
            provider, name = parse_model(wanted)
        except Mistake as error:
            raise Mistake(f"{agent.name} thinks with {wanted!r}, but {error}") from None
        is_default = bool(model) and parse_model(model)[0] == provider
        address = url if is_default and url else base_url(provider, self._environ)
        return ModelEngine(self._wire(agent, provider, address), name=f"{provider.name}:{name}", model=name)

    def _wire(self, agent: Agent, provider: Provider, url: str) -> Wire:
        key = self._environ.get(provider.key_name or "", "")
        if provider.key_name and not key and url == provider.base_url:
            raise Mistake(f"{agent.name} thinks with a model of {provider.name}, but {provider.key_name} is not set")
        from .model.http import proxy_for

        key_name = provider.key_name or "a key"
        if provider.wire == "anthropic":
            from .model.anthropic import AnthropicWire

            return AnthropicWire(
                self._shared_client, url, key, key_name=key_name, provider=provider.name, proxy=proxy_for(url)
            )
        from .model.openai import OpenAIWire

        return OpenAIWire(
            self._shared_client,
            url,
            key,
            key_name=key_name,
            provider=provider.name,
            proxy=proxy_for(url),
            asks_usage=provider.asks_usage,
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
