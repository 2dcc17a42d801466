"""The columns of the lists of models: providers, model servers on this machine, tested and installed models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from ...engines.local.model_folder import InstalledModel, find_models_folder
from ...engines.local_model_servers import LocalServer, find_coding_agents
from ...engines.model.providers import ALIASES, LOCAL, PROVIDERS, Provider, resolve_base_url, without_credentials
from ...files.confirmed_model_servers import load_confirmed_servers
from ...files.model_role import resolve_models
from ...files.settings import Settings
from ...files.tested_models import AbilityRecord, describe_test, load_ability_records
from ...values.column import Column, Document, PageColumn, RowColumns, encode_rows, list_page_columns
from ...values.plain_text import format_size, join_some
from ..model_choice import MOST_NAMES, DefaultModel, describe_default_model


class ProviderRow(Struct, frozen=True, kw_only=True):
    """A provider, with the address that the settings give it, and whether its API key is set."""

    provider: Provider
    url: str
    has_key: bool


class ServerRow(Struct, frozen=True, kw_only=True):
    """A model server that responded on this machine, and whether the user has chosen it."""

    server: LocalServer
    is_confirmed: bool


class ModelCatalogue(Struct, frozen=True, kw_only=True):
    """The models that can be used, and what is known about them."""

    default: DefaultModel
    providers: list[ProviderRow]
    aliases: Mapping[str, str]
    roles: dict[str, list[str]]
    servers: list[ServerRow]
    coding_agents: Mapping[str, str]
    tests: Sequence[AbilityRecord]
    local_models: Sequence[InstalledModel]


def load_models(settings: Settings, environ: Mapping[str, str], servers: Sequence[LocalServer]) -> ModelCatalogue:
    """Return the available models. `servers` contains the model servers that have responded."""
    moved = settings.add_provider_addresses(environ)
    agreed = {one.url for one in load_confirmed_servers(settings.home)}
    return ModelCatalogue(
        default=describe_default_model(settings, environ),
        providers=[
            ProviderRow(
                provider=one,
                url=without_credentials(resolve_base_url(one, moved)),
                has_key=bool(one.key_name and environ.get(one.key_name, "").strip()),
            )
            for one in PROVIDERS.values()
            if one.name != LOCAL
        ],
        aliases=ALIASES,
        roles={name: list(resolve_models(name, settings.models).models) for name in settings.models},
        servers=[ServerRow(server=one, is_confirmed=one.url in agreed) for one in servers],
        coding_agents=find_coding_agents(environ),
        tests=load_ability_records(settings.home),
        local_models=find_models_folder(environ, settings.home).load_models(),
    )


class ModelLists(Document, frozen=True, kw_only=True):
    """The available models. The dashboard also needs the columns of the lists that it draws."""

    default: DefaultModel
    providers: list[Annotated[dict[str, object], RowColumns(PROVIDER_COLUMNS)]]
    aliases: Mapping[str, str]
    roles: dict[str, list[str]]
    servers: list[Annotated[dict[str, object], RowColumns(SERVER_COLUMNS)]]
    coding_agents: Mapping[str, str]
    tests: list[Annotated[dict[str, object], RowColumns(TEST_COLUMNS)]]
    local_models: list[Annotated[dict[str, object], RowColumns(LOCAL_MODEL_COLUMNS)]]
    columns: dict[str, list[PageColumn]] | UnsetType = UNSET


def encode_models(found: ModelCatalogue, *, has_columns: bool = False) -> ModelLists:
    """Return the available models as lists."""
    return ModelLists.of(
        found,
        providers=encode_rows(found.providers, PROVIDER_COLUMNS),
        servers=encode_rows(found.servers, SERVER_COLUMNS),
        tests=encode_rows(found.tests, TEST_COLUMNS),
        local_models=encode_rows(found.local_models, LOCAL_MODEL_COLUMNS),
        columns={"providers": list_page_columns(PROVIDER_COLUMNS)} if has_columns else UNSET,
    )


def _format_key_state(row: ProviderRow) -> str:
    if row.provider.key_name is None:
        return "needs no key"
    return f"{row.provider.key_name} is {'set' if row.has_key else 'not set'}"


def _format_use(row: ServerRow) -> str:
    return "confirmed" if row.is_confirmed else f"use it with: podium models use {row.server.url}"


def _format_local_size(model: InstalledModel) -> str:
    return f"{format_size(model.size)}, {format_size(model.memory)} of memory"


PROVIDER_COLUMNS: tuple[Column[ProviderRow], ...] = (
    Column("name", "Provider", lambda row: row.provider.name),
    Column("url", "URL", lambda row: row.url, shown="terminal", fills=True),
    Column("key_name", "API key", lambda row: row.provider.key_name, text=_format_key_state),
    Column("has_key", "Has a key", lambda row: row.has_key, "data", shown="page"),
    Column("default_model", "Default model", lambda row: row.provider.default_model),
)
"""The columns of the list of providers."""

SERVER_COLUMNS: tuple[Column[ServerRow], ...] = (
    Column("provider", "Provider", lambda row: row.server.provider),
    Column("url", "URL", lambda row: row.server.url),
    Column(
        "models",
        "Models",
        lambda row: row.server.models,
        "data",
        text=lambda row: join_some(row.server.models, MOST_NAMES) or "no models",
    ),
    Column("is_confirmed", "Use", lambda row: row.is_confirmed, "data", text=_format_use),
)
"""The columns of the list of model servers on this machine."""

TEST_COLUMNS: tuple[Column[AbilityRecord], ...] = (
    Column("provider", "Provider", lambda test: test.provider, shown="nowhere"),
    Column("model", "Model", lambda test: test.model, text=lambda test: f"{test.provider}:{test.model}"),
    Column("url", "URL", lambda test: test.url),
    Column("at", "Tested", lambda test: test.at, "age", shown="nowhere"),
    Column("abilities", "Abilities", lambda test: test.abilities, "data", shown="nowhere"),
    Column("summary", "Summary", describe_test),
)
"""The columns of the list of tested models."""

LOCAL_MODEL_COLUMNS: tuple[Column[InstalledModel], ...] = (
    Column("name", "Model", lambda model: f"{LOCAL}:{model.name}"),
    Column("title", "Title", lambda model: model.title, fills=True),
    Column("licence", "Licence", lambda model: model.licence, shown="nowhere"),
    Column("size", "Size", lambda model: model.size, "size", text=_format_local_size),
    Column("memory", "Memory", lambda model: model.memory, "size", shown="nowhere"),
    Column("sha256", "SHA-256", lambda model: model.sha256, shown="nowhere"),
)
"""The columns of the list of installed local models."""
