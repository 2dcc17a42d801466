"""Which models agents use according to the settings: roles, fallbacks, and limits shared for each provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anyio import create_task_group

from podium import Agent, App, Settings
from podium.config.model_role import Role
from podium.config.settings_document import ProviderLimits
from podium.store.sqlite.reader import StoreReader
from podium.testing import ModelServer
from podium.values.agent import Budget
from podium.values.event import CallFailed, ModelReplied, Noticed, TurnStarted


def load_settings(tmp_path: Path, environ: dict[str, str], **given: Any) -> Settings:
    return Settings.load(environ, home=tmp_path, **given)


async def test_a_role_falls_back_to_another_providers_model(tmp_path: Path) -> None:
    async with (
        ModelServer([{"fails": {"status": 401, "message": "no credit"}}]) as first,
        ModelServer("from the other") as second,
    ):
        environ = {
            "OPENAI_API_KEY": "sk-one-111111",
            "OPENAI_BASE_URL": first.url,
            "ANTHROPIC_API_KEY": "sk-two-222222",
            "ANTHROPIC_BASE_URL": second.url.removesuffix("/v1"),
        }
        roles = {"careful": Role(model="openai:big", fallbacks=("anthropic:other",), prompt="Doubt everything.")}
        settings = load_settings(tmp_path, environ, models=roles, model="careful")
        async with App(settings, environ=environ) as app:
            result = await app.run(Agent(name="a", prompt="You think."), "hello")

    assert result.text == "from the other"
    assert second.calls[0].call.system == "You think.\n\nDoubt everything."
    with StoreReader(settings.store) as reader:
        events = [entry.event for entry in reader.read_entries(result.run_id)]
    assert [event.engine for event in events if isinstance(event, TurnStarted)] == ["openai:big"]
    assert [event.model for event in events if isinstance(event, CallFailed | ModelReplied)] == ["big", "other"]


async def test_an_agent_falls_back_to_the_models_that_it_names(tmp_path: Path) -> None:
    async with (
        ModelServer([{"fails": {"status": 401, "message": "no credit"}}]) as first,
        ModelServer("from the other") as second,
    ):
        environ = {
            "OPENAI_API_KEY": "sk-one-111111",
            "OPENAI_BASE_URL": first.url,
            "ANTHROPIC_API_KEY": "sk-two-222222",
            "ANTHROPIC_BASE_URL": second.url.removesuffix("/v1"),
        }
        settings = load_settings(tmp_path, environ)
        agent = Agent(name="a", model="openai:big", fallback_models=("mistral:none", "anthropic:other"))
        async with App(settings, environ=environ) as app:
            result = await app.run(agent, "hello")

    assert result.text == "from the other"
    with StoreReader(settings.store) as reader:
        events = [entry.event for entry in reader.read_entries(result.run_id)]
    assert [event.model for event in events if isinstance(event, CallFailed | ModelReplied)] == ["big", "other"]
    [notice] = [event.text for event in events if isinstance(event, Noticed)]
    assert notice.startswith("a cannot fall back to mistral:none: ")


async def test_a_squads_member_without_its_model_uses_the_first_fallback_that_is_available(tmp_path: Path) -> None:
    charter = "You fly.\n\n## Model\n\nPreferred: mistral:none\nFallback: anthropic:other\n"
    for path, text in (
        ("team.md", "# Crew\n\n## Members\n\n| Name | Role |\n|-|-|\n| Flight | Lead |\n"),
        ("agents/flight/charter.md", charter),
    ):
        (tmp_path / "repo/.squad" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repo/.squad" / path).write_text(text)
    async with ModelServer("from the other") as server:
        environ = {
            "OPENAI_API_KEY": "sk-one-111111",
            "ANTHROPIC_API_KEY": "sk-two-222222",
            "ANTHROPIC_BASE_URL": server.url.removesuffix("/v1"),
        }
        settings = load_settings(tmp_path / "home", environ)
        async with App(settings, environ=environ) as app:
            result = await app.run("flight", "hello", repo=tmp_path / "repo")

    assert result.text == "from the other"
    with StoreReader(settings.store) as reader:
        events = [entry.event for entry in reader.read_entries(result.run_id)]
    [notice] = [event.text for event in events if isinstance(event, Noticed)]
    assert notice.startswith("flight uses anthropic:other: ")


async def test_a_roles_budget_holds_for_its_agents(tmp_path: Path) -> None:
    async with ModelServer([{"calls": [{"name": "x"}]}, "never"]) as server:
        environ = {"OPENAI_API_KEY": "sk-one-111111", "OPENAI_BASE_URL": server.url}
        roles = {"short": Role(model="openai:m", budget=Budget(turns=1))}
        async with App(load_settings(tmp_path, environ, models=roles), environ=environ) as app:
            result = await app.run(Agent(name="a", model="short"), "hello")

    assert result.error == "a: a's budget of 1 model calls has no room for a model call: 1 used"


async def test_all_agents_share_the_limits_of_a_provider(tmp_path: Path) -> None:
    async with ModelServer([{"says": "ok", "delay": 0.02}]) as server:
        environ = {"OPENAI_API_KEY": "sk-one-111111", "OPENAI_BASE_URL": server.url}
        settings = load_settings(tmp_path, environ, providers={"openai": ProviderLimits(concurrent=2)})
        async with App(settings, environ=environ) as app, create_task_group() as group:
            for number in range(8):
                group.start_soon(app.run, Agent(name=f"a{number}"), "hello")

    assert len(server.calls) == 8
    assert server.most_in_flight == 2
