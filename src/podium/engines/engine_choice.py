"""Choose an engine for each agent. Engines are created on first use and closed together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from anyio import CancelScope, create_task_group
from anyio.abc import TaskGroup

from ..core.engine import Engine
from ..system.locations import find_home_folder
from ..values.agent import Agent
from ..values.errors import Mistake
from ..values.model_abilities import UNTESTED, ModelAbilities
from ..values.usage import NO_CALL_LIMITS, CallLimits, Usage
from .model import model_prices
from .model.model_prices import PriceCache
from .model.model_wire import DEFAULT_MAX_WAIT, Model, ModelServer, ToolCallMode, Wire, add_zero_cost
from .model.provider_throttle import ProviderThrottle, ReserveCall
from .model.providers import LOCAL, REHEARSAL, Provider, parse_model, resolve_base_url
from .model.tool_emulation import RefusedSchemas
from .model.tool_loop import ModelEngine

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from .acp.agent_process import AgentProcesses, AgentSandbox
    from .acp.agent_program import AgentProgram

    ChooseSandbox = Callable[[AgentProgram, bool], AgentSandbox]

SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAddress:
    """A model on one server. `url` is the base URL, which may contain credentials."""

    provider: Provider
    url: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The options for calls to a model: its known abilities, and the limits on calls to its server.

    `max_tokens` limits the length of a reply. If the server asks the client to wait for more than `max_wait` seconds
    before the next call, the model is treated as having reached its limit.
    """

    abilities: ModelAbilities = UNTESTED
    limits: CallLimits = NO_CALL_LIMITS
    tool_calls: ToolCallMode = "auto"
    max_tokens: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    max_wait: float = DEFAULT_MAX_WAIT


class KeyNotSet(Mistake):
    """An agent uses a provider whose key is not in the environment."""


class Engines:
    """One app's engines and the HTTP client that they share. Custom engines take precedence.

    `find_options` returns the options for calls to a model. `run_in_background` runs a function without blocking the
    caller, because loading all prices takes longer than most calls. `home` is Podium's home folder, which contains the
    local models. `agent_programs` contains the coding agents that can be used.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        custom_engines: Mapping[str, Engine] | None = None,
        *,
        find_options: Callable[[ModelAddress], CallOptions] = lambda address: CallOptions(),
        run_in_background: Callable[[Callable[[], None]], object] = lambda work: None,
        price_cache: PriceCache | None = None,
        home: Path | None = None,
        agent_programs: Mapping[str, AgentProgram] | None = None,
        reserve_call: Callable[[str], Awaitable[float]] | None = None,
    ) -> None:
        self._environ = environ
        self._custom_engines = dict(custom_engines or {})
        self._find_options = find_options
        self._run_in_background = run_in_background
        self._price_cache = price_cache
        self._home = home
        self._engines: dict[tuple[str, ...], Engine] = {}
        self._throttles: dict[str, ProviderThrottle] = {}
        self._refused_schemas: RefusedSchemas = set()
        self._client: ClientSession | None = None
        self._agent_programs = agent_programs or {}
        self._reserve_call = reserve_call
        self._agent_tasks: TaskGroup | None = None
        self._agent_processes: AgentProcesses | None = None

    def for_agent(
        self,
        agent: Agent,
        model_names: tuple[str, ...],
        *,
        model: str,
        url: str,
        limit_fallbacks: tuple[str, ...] = (),
        default_models: tuple[str, ...] = (),
        choose_sandbox: ChooseSandbox | None = None,
    ) -> Engine:
        """Return the engine for an agent. The engine calls the agent's first model and falls back to the others.

        `model_names` lists the agent's models. `limit_fallbacks` lists further models, which are called only if one of
        the agent's models has reached its provider's limit.

        `default_models` lists the models to call if the provider of one of the agent's models has no such model and no
        other model of the agent can be called.

        `model` is the default model, and `url` is the address of its provider. An agent with the engine `model` gets
        the rehearsal engine, which simulates replies, in three cases: `model` is `rehearsal`, `model_names` is empty,
        or there is no default model and the provider of the agent's first model cannot be called, for example because
        its key is not set. `choose_sandbox` returns the sandbox for a coding agent; its second argument is True if
        Podium chooses the coding agent's model. If `choose_sandbox` is None, there is no sandbox.
        """
        if agent.engine in self._custom_engines:
            return self._custom_engines[agent.engine]
        if agent.engine not in ("model", SCRIPTED, REHEARSAL, *self._agent_programs):
            # Imported here to keep start-up fast: most engines are Podium's own.
            from ..system.installed_plugins import find_plugin_part

            if (engine := find_plugin_part("engines", agent.engine)) is not None:
                return self._custom_engines.setdefault(agent.engine, engine)
            known = ", ".join(sorted({"model", SCRIPTED, REHEARSAL, *self._custom_engines, *self._agent_programs}))
            raise Mistake(f"{agent.name} uses the engine {agent.engine!r}, which does not exist; available: {known}")
        if agent.engine in self._agent_programs:
            named = model_names if agent.model not in ("", "inherit") else ()
            if model != REHEARSAL and named[:1] != (REHEARSAL,):
                return self._find_agent_engine(agent, named[:1], model=model, url=url, choose_sandbox=choose_sandbox)
            model_names = (REHEARSAL,)
        elif agent.engine != "model":
            model_names = (agent.engine,)
        elif self._is_rehearsed(model_names, model):
            model_names = (REHEARSAL,)
        extra = tuple(one for one in limit_fallbacks if one not in model_names) if agent.engine == "model" else ()
        spare = self._list_spare_models(model_names, default_models) if agent.engine == "model" else ()
        choice = (url, *model_names, "", *extra, "", *spare)
        if choice not in self._engines:
            self._engines[choice] = self._make_engine(agent, model_names, extra, spare, model=model, url=url)
        return self._engines[choice]

    def find_program(self, agent: Agent) -> AgentProgram | None:
        """Return the coding agent that this agent uses as its engine, or None if its engine is not a coding agent."""
        return None if agent.engine in self._custom_engines else self._agent_programs.get(agent.engine)

    def _find_agent_engine(
        self,
        agent: Agent,
        model_names: tuple[str, ...],
        *,
        model: str,
        url: str,
        choose_sandbox: ChooseSandbox | None,
    ) -> Engine:
        """Return the engine that drives a coding agent with the first of these models, if any, or its own model.

        Raise Mistake if the coding agent is not installed or cannot use the model.
        """
        # Imported here to keep start-up fast: most runs use no coding agent.
        from .acp.acp_engine import AcpEngine
        from .acp.agent_home import AgentModel
        from .acp.agent_process import NO_SANDBOX

        program, agent_model = self._agent_programs[agent.engine], None
        executable = program.find_executable(self._home, self._environ.get("PATH", ""))
        if executable is None:
            command = program.describe_installation(self._home)
            how = f"install it with: {command}" if command else f"install it, and put {program.command[0]} on the PATH"
            raise Mistake(f"{agent.name} uses {program.name}, which is not installed; {how}")
        if model_names:
            address = resolve_model_address(model_names[0], self._environ, default=model, default_url=url)
            provider = address.provider
            wire = program.choose_wire(provider.name, provider.wire, agent=agent.name, model=model_names[0])
            key = find_key(address, self._environ, user=agent.name)
            # The URL of the provider gemini is that of its OpenAI-compatible API, which is a subpath of its native API.
            base = address.url.removesuffix("/v1beta/openai") if wire == "gemini" else address.url
            agent_model = AgentModel(name=address.model, wire=wire, url=base, key=key)
        sandbox = NO_SANDBOX if choose_sandbox is None else choose_sandbox(program, agent_model is not None)
        known = (agent.engine, executable, sandbox.name, url, *model_names)
        if known not in self._engines:
            self._engines[known] = AcpEngine(
                program,
                executable,
                model=agent_model,
                environ=self._environ,
                home=self._home or find_home_folder(self._environ),
                get_processes=self._get_agent_processes,
                sandbox=sandbox,
            )
        return self._engines[known]

    def _get_agent_processes(self) -> AgentProcesses:
        if self._agent_processes is None:
            # Imported here to keep start-up fast: most runs use no coding agent.
            from .acp.agent_process import AgentProcesses

            assert self._agent_tasks is not None, "coding agents can be used only inside `async with` on Engines"
            self._agent_processes = AgentProcesses(self._agent_tasks)
        return self._agent_processes

    def _is_rehearsed(self, model_names: tuple[str, ...], model: str) -> bool:
        if model == REHEARSAL or not model_names:
            return True
        return not model and not self._is_reachable(parse_model(model_names[0])[0])

    def _list_spare_models(self, model_names: tuple[str, ...], default_models: tuple[str, ...]) -> tuple[str, ...]:
        """Return the default models that can replace an agent's unknown models.

        An agent whose model runs on a server without a key, such as one on this machine, does not use one elsewhere.
        """
        if model_names[:1] == (REHEARSAL,) or REHEARSAL in default_models or not model_names:
            return ()
        try:
            own = parse_model(model_names[0])[0]
        except Mistake:
            return ()  # the agent cannot use its model at all, which is reported where the model is made
        left = (one for one in default_models if one not in model_names)
        return tuple(one for one in left if own.key_name is not None or parse_model(one)[0].service == own.service)

    def _is_reachable(self, provider: Provider) -> bool:
        """Return whether a provider can be called: it needs no key, its key is set, or it has a custom address."""
        has_moved = resolve_base_url(provider, self._environ) != provider.base_url
        return provider.key_name is None or bool(self._environ.get(provider.key_name)) or has_moved

    def _make_engine(
        self,
        agent: Agent,
        model_names: tuple[str, ...],
        limit_fallbacks: tuple[str, ...],
        spare_models: tuple[str, ...],
        *,
        model: str,
        url: str,
    ) -> Engine:
        if model_names == (SCRIPTED,):
            from .script import ScriptedWire  # imported here to keep start-up fast: few runs are scripted

            return ModelEngine(Model(wire=ScriptedWire(), add_cost=add_zero_cost), name=SCRIPTED)
        if model_names == (REHEARSAL,):
            from .rehearsal import RehearsalWire  # imported here to keep start-up fast: only rehearsals need it

            return ModelEngine(Model(wire=RehearsalWire(), add_cost=Usage.as_rehearsed), name=REHEARSAL)
        models = [self._make_model(agent, one, model=model, url=url) for one in model_names]
        try:
            extra = [self._make_model(agent, one, model=model, url=url) for one in limit_fallbacks]
        except Mistake as error:
            raise Mistake(f"limits.fallback_models: {error}") from None
        models += [replace(one, is_for_limits=True) for one in extra]
        for spare in spare_models:
            with suppress(Mistake):  # the default model may need a key that is not set
                models.append(replace(self._make_model(agent, spare, model=model, url=url), is_for_unknown=True))
        provider, name = parse_model(model_names[0])
        return ModelEngine(*models, name=f"{provider.name}:{name}")

    def _make_model(self, agent: Agent, model_name: str, *, model: str, url: str) -> Model:
        try:
            address = resolve_model_address(model_name, self._environ, default=model, default_url=url)
        except Mistake as error:
            raise Mistake(f"{agent.name} uses the model {model_name!r}: {error}") from None
        provider, name = address.provider, address.model
        if provider.name == LOCAL:
            return self._make_local_model(agent, address)
        if provider.key_name is not None:
            self._prepare_price(provider.name, name)
        options = self._find_options(address)
        # Each account has its own limits.
        place = f"{provider.name} {address.url}" if "@" in provider.name else address.url
        if place not in self._throttles:
            reserve = None if self._reserve_call is None else partial(self._reserve_call, provider.name)
            self._throttles[place] = _make_throttle(options, reserve)
        key = find_key(address, self._environ, user=agent.name)
        return Model(
            wire=make_wire(
                provider,
                address.url,
                key,
                self._get_client,
                takes_schema=options.abilities.json_schema,
                refused_schemas=self._refused_schemas,
            ),
            name=name,
            provider=provider.name,
            add_cost=partial(model_prices.add_cost, provider.name, name),
            throttle=self._throttles[place],
            limits=options.limits,
            window=partial(_find_window, provider.name, name, options.abilities.window),
            abilities=options.abilities,
            tool_calls=options.tool_calls,
            max_tokens=options.max_tokens,
            max_wait=options.max_wait,
        )

    def _make_local_model(self, agent: Agent, address: ModelAddress) -> Model:
        # Imported here to keep start-up fast: most runs use no local model.
        from .local.engine_process import LocalEngine
        from .local.local_wire import LocalWire
        from .local.model_folder import find_models_folder

        name, options = address.model, self._find_options(address)
        folder = find_models_folder(self._environ, self._home)
        try:
            abilities = folder.get_model(name).abilities
        except Mistake as error:
            raise Mistake(f"{agent.name} uses the model {LOCAL}:{name}: {error}") from None
        # The engine answers one call at a time. Other calls wait in the throttle, where no silence timeout applies.
        throttle = self._throttles.setdefault(f"{LOCAL}:{name}", ProviderThrottle(concurrent=abilities.concurrent))
        engine = LocalEngine(folder=folder, name=name, environ=self._environ)
        return Model(
            wire=LocalWire(self._get_client, engine),
            name=name,
            provider=LOCAL,
            add_cost=add_zero_cost,
            throttle=throttle,
            limits=options.limits,
            window=lambda: abilities.window,
            abilities=abilities,
            tool_calls=options.tool_calls,
            max_tokens=options.max_tokens,
        )

    def _prepare_price(self, provider: str, model: str) -> None:
        """Read the price of a model from the cache, or load it in the background while waiting for the first reply."""
        if self._price_cache is None:
            if not self._throttles:
                self._run_in_background(model_prices.load_prices)
        elif not self._price_cache.restore(provider, model):
            self._run_in_background(partial(self._price_cache.load_and_store, provider, model))

    def _get_client(self) -> ClientSession:
        if self._client is None:
            from aiohttp import ClientSession, TCPConnector

            # No limit: a thousand agents need a thousand connections. Each adapter looks up its proxy once,
            # because the client would do that in a thread, and read .netrc, before every call.
            self._client = ClientSession(connector=TCPConnector(limit=0))
        return self._client

    async def __aenter__(self) -> Engines:
        self._agent_tasks = await create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._client is not None:
                with CancelScope(shield=True):  # closes the connections even if the run was interrupted
                    await self._client.close()
        finally:
            if self._agent_tasks is not None:
                self._agent_tasks.cancel_scope.cancel()
                await self._agent_tasks.__aexit__(exc_type, exc, traceback)


def resolve_model_address(
    name: str, environ: Mapping[str, str], *, default: str = "", default_url: str = ""
) -> ModelAddress:
    """Return the model that a name stands for, with the address of its server.

    `default_url` is the address for models of the same provider as the model `default`.
    """
    provider, model = parse_model(name)
    is_default = bool(default) and parse_model(default)[0].service == provider.service
    has_own_url = "@" in provider.name and bool(environ.get(provider.url_name, "").strip())
    url = default_url if is_default and default_url and not has_own_url else resolve_base_url(provider, environ)
    return ModelAddress(provider=provider, url=url, model=model)


def find_key(address: ModelAddress, environ: Mapping[str, str], *, user: str) -> str:
    """Return the provider's key, or "" if it is neither set nor required.

    Raise KeyNotSet if the provider requires a key at this address and it is not set. `user` says who uses the model,
    for example the name of an agent, and is part of the error message.
    """
    provider = address.provider
    key = environ.get(provider.key_name or "", "")
    if provider.key_name and not key and (address.url == provider.base_url or "@" in provider.name):
        raise KeyNotSet(f"{user} uses {provider.name}:{address.model}, but {provider.key_name} is not set")
    return key


def make_wire(
    provider: Provider,
    url: str,
    key: str,
    get_client: Callable[[], ClientSession],
    *,
    takes_schema: bool | None = None,
    refused_schemas: RefusedSchemas | None = None,
) -> Wire:
    """Return the adapter for a provider's server at this address; see `ModelServer`."""
    from .model.http_wire import find_proxy  # imported here to keep start-up fast: it imports aiohttp

    server = ModelServer(
        provider=provider,
        url=url,
        key=key,
        get_client=get_client,
        proxy=find_proxy(url),
        takes_schema=takes_schema,
        refused_schemas=refused_schemas,
    )
    # Each adapter is loaded only when it is used.
    wire: Wire = import_module(f".model.{provider.wire}_wire", __package__).make_wire(server)
    return wire


def _make_throttle(options: CallOptions, reserve_call: ReserveCall | None) -> ProviderThrottle:
    return ProviderThrottle(
        requests_per_minute=options.requests_per_minute,
        tokens_per_minute=options.tokens_per_minute,
        concurrent=options.concurrent,
        reserve_call=reserve_call,
    )


def _find_window(provider: str, model: str, tested: int | None) -> int | None:
    """Return the context window that a test of the model found or, if there is none, the one in the price list."""
    return tested or model_prices.find_context_window(provider, model)
