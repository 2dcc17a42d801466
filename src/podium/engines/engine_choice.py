"""Which engine an agent gets. Engines are made when first needed and put away together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from ..core.engine import Engine
from ..values.agent import Agent
from ..values.errors import Mistake
from .model import model_prices
from .model.model_caller import Model, free
from .model.model_wire import Wire
from .model.provider_traffic import Traffic
from .model.providers import Provider, base_url, parse_model
from .model.tool_loop import ModelEngine
from .names import REHEARSAL

if TYPE_CHECKING:
    from aiohttp import ClientSession

SCRIPTED = "scripted"


class Engines:
    """The engines of one running product, `given` ones first, and the connections that they share.

    `traffic` gives the limits that hold for a provider. `beside` does something while other things
    go on: reading all prices takes longer than most calls.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        given: Mapping[str, Engine] | None = None,
        *,
        traffic: Callable[[str], Traffic] = lambda provider: Traffic(),
        beside: Callable[[Callable[[], None]], object] = lambda work: None,
    ) -> None:
        self._environ = environ
        self._given = dict(given or {})
        self._new_traffic = traffic
        self._beside = beside
        self._made: dict[tuple[str, ...], Engine] = {}
        self._traffic: dict[str, Traffic] = {}
        self._client: ClientSession | None = None

    def for_agent(self, agent: Agent, wanted: tuple[str, ...], *, model: str, url: str) -> Engine:
        """What this agent thinks with: the first of the models that it wants, the others where that gives up.

        The provider of `model`, the one for agents that name nothing, is at `url`. All agents are
        rehearsed where `model` is the rehearsal, and without one those whose provider has no key.
        """
        if agent.engine in self._given:
            return self._given[agent.engine]
        if agent.engine not in ("model", SCRIPTED, REHEARSAL):
            known = ", ".join(sorted({"model", SCRIPTED, REHEARSAL, *self._given}))
            raise Mistake(f"{agent.name} wants the engine {agent.engine!r}, but there are only {known}")
        if agent.engine != "model":
            wanted = (agent.engine,)
        elif self._is_rehearsed(wanted, model):
            wanted = (REHEARSAL,)
        if (url, *wanted) not in self._made:
            self._made[url, *wanted] = self._make(agent, wanted, model=model, url=url)
        return self._made[url, *wanted]

    def _is_rehearsed(self, wanted: tuple[str, ...], model: str) -> bool:
        if model == REHEARSAL or not wanted:
            return True
        return not model and not self._is_reachable(parse_model(wanted[0])[0])

    def _is_reachable(self, provider: Provider) -> bool:
        """Whether a provider can be called: it needs no key, has one, or is not where it usually is."""
        has_moved = base_url(provider, self._environ) != provider.base_url
        return provider.key_name is None or bool(self._environ.get(provider.key_name)) or has_moved

    def _make(self, agent: Agent, wanted: tuple[str, ...], *, model: str, url: str) -> Engine:
        if wanted == (SCRIPTED,):
            from .script import ScriptedWire

            return ModelEngine(Model(wire=ScriptedWire(), priced=free), name=SCRIPTED)
        if wanted == (REHEARSAL,):
            from .rehearsal import RehearsalWire

            return ModelEngine(Model(wire=RehearsalWire(), priced=free), name=REHEARSAL)
        models = [self._model(agent, one, model=model, url=url) for one in wanted]
        provider, name = parse_model(wanted[0])
        return ModelEngine(*models, name=f"{provider.name}:{name}")

    def _model(self, agent: Agent, wanted: str, *, model: str, url: str) -> Model:
        try:
            provider, name = parse_model(wanted)
        except Mistake as error:
            raise Mistake(f"{agent.name} thinks with {wanted!r}, but {error}") from None
        is_default = bool(model) and parse_model(model)[0] == provider
        address = url if is_default and url else base_url(provider, self._environ)
        if not self._traffic and provider.key_name is not None:
            self._beside(model_prices.load)
        if address not in self._traffic:
            self._traffic[address] = self._new_traffic(provider.name)
        return Model(
            wire=self._wire(agent, provider, address),
            name=name,
            priced=partial(model_prices.priced, provider.name, name),
            traffic=self._traffic[address],
            window=partial(model_prices.context_window, provider.name, name),
        )

    def _wire(self, agent: Agent, provider: Provider, url: str) -> Wire:
        key = self._environ.get(provider.key_name or "", "")
        if provider.key_name and not key and url == provider.base_url:
            raise Mistake(f"{agent.name} thinks with a model of {provider.name}, but {provider.key_name} is not set")
        from .model.http_wire import proxy_for

        key_name = provider.key_name or "a key"
        if provider.wire == "anthropic":
            from .model.anthropic_wire import AnthropicWire

            return AnthropicWire(
                self._shared_client, url, key, key_name=key_name, provider=provider.name, proxy=proxy_for(url)
            )
        from .model.openai_wire import OpenAIWire

        return OpenAIWire(
            self._shared_client,
            url,
            key,
            key_name=key_name,
            provider=provider.name,
            proxy=proxy_for(url),
            asks_usage=provider.asks_usage,
            takes_schema=provider.takes_schema,
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
