"""Test what a model can do, and save the result in Podium's home."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec import Struct

from ..engines.engine_choice import ModelAddress, find_key, resolve_model_address
from ..engines.local_model_servers import is_loopback
from ..engines.model.model_prices import calculate_cost
from ..engines.model.providers import LOCAL, PROVIDERS, REHEARSAL, without_credentials
from ..engines.model_probes import MOST_TOKENS, PROMPT_TOKENS, ProbeResult
from ..files.model_role import resolve_models
from ..files.settings import Settings
from ..files.tested_models import AbilityRecord, describe_test, save_ability_record
from ..values.column import Document
from ..values.errors import Mistake
from ..values.model_abilities import ModelAbilities
from ..values.usage import Usage
from .model_choice import ask_server, choose_model

MOST_CALLS = 9
"""The maximum number of calls in a test of a paid model, used to estimate the maximum cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetModel:
    """The model to test, and the key for its provider."""

    address: ModelAddress
    key: str

    @property
    def name(self) -> str:
        """The model as `provider:model`."""
        return f"{self.address.provider.name}:{self.address.model}"

    @property
    def url(self) -> str:
        """The address of the server, without credentials."""
        return without_credentials(self.address.url)

    @property
    def is_free(self) -> bool:
        """Whether calls cost nothing: the provider needs no key, or no key is set and the server is on this machine."""
        return self.address.provider.key_name is None or (not self.key and is_loopback(self.address.url))

    def estimate_cost(self) -> float | None:
        """Return the maximum cost of a test in dollars, or None if the price is unknown."""
        one = Usage(calls=1, input_tokens=PROMPT_TOKENS, output_tokens=MOST_TOKENS)
        cost = calculate_cost(self.address.provider.name, self.address.model, one)
        return None if cost is None else cost * MOST_CALLS


class ModelTestReport(Document, frozen=True, kw_only=True):
    """The outcome of a model test as it is sent: what the model can do, with a summary and the result of each probe."""

    url: str
    provider: str
    model: str
    at: float
    abilities: ModelAbilities
    summary: str
    results: tuple[ProbeResult, ...]


class ModelTest(Struct, frozen=True, kw_only=True):
    """The outcome of a model test. It is saved only if the test was conclusive."""

    record: AbilityRecord
    results: tuple[ProbeResult, ...]

    @property
    def has_shown_anything(self) -> bool:
        return any(result.verdict != "unknown" and result.probe != "context window" for result in self.results)

    def to_report(self) -> ModelTestReport:
        """Return the outcome as it is sent."""
        return ModelTestReport.of(self.record, summary=describe_test(self.record), results=self.results)


async def find_target(name: str, settings: Settings, environ: Mapping[str, str], model: str | None) -> TargetModel:
    """Return the model to test. `name` is a model, a role or the URL of a server; empty means the default model.

    With a URL, `model` is one of the server's models. Raise Mistake if there is no such model.
    """
    if "://" in name:
        server = choose_model(await ask_server(name, environ), model)
        provider = PROVIDERS[server.provider]
        return TargetModel(address=ModelAddress(provider=provider, url=server.url, model=server.model), key="")
    if model is not None:
        raise Mistake("--model needs the URL of a server; to test another model, use podium models test PROVIDER:MODEL")
    default = resolve_models(settings.model, settings.models).models[0] if settings.model else ""
    first = resolve_models(name, settings.models).models[0] if name else default
    if first in ("", REHEARSAL):
        raise Mistake("no model is configured; name one to test, such as podium models test ollama:llama3.2")
    address = resolve_model_address(
        first, environ, default="" if default == REHEARSAL else default, default_url=settings.base_url
    )
    if address.provider.name == LOCAL:
        raise Mistake(
            f"{first} needs no test, because Podium runs local models itself and knows what they can do; "
            "run podium models to list the installed ones"
        )
    return TargetModel(address=address, key=find_key(address, environ, user="the test"))


async def run_model_test(
    target: TargetModel,
    settings: Settings,
    *,
    seconds: float,
    at: float,
    report: Callable[[ProbeResult], None],
    announce: Callable[[str], None],
) -> ModelTest:
    """Test a model and save what it can do. `at` is the current time.

    `announce` is called with the name of each probe, and `report` with its result. Raise OutsideFailed if the server
    cannot be called at all.
    """
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector

    # Imported here to keep start-up fast: both packages take longer to import than most commands take to run.
    from ..engines.model_prober import ModelProber, ProbeLimits

    results: list[ProbeResult] = []

    def keep_and_report(result: ProbeResult) -> None:
        results.append(result)
        report(result)

    async with ClientSession(connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar()) as client:
        prober = ModelProber(
            client,
            target.address,
            target.key,
            limits=ProbeLimits(seconds),
            report=keep_and_report,
            announce=announce,
        )
        abilities = await prober.probe()
    provider, model = target.address.provider.name, target.address.model
    record = AbilityRecord(url=target.url, provider=provider, model=model, at=at, abilities=abilities)
    test = ModelTest(record=record, results=tuple(results))
    if test.has_shown_anything:
        save_ability_record(settings.home, record)
    return test
