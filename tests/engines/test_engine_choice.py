"""Which models agents use according to the settings: roles, fallbacks, and limits shared for each provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group

from podium import Agent, App, Settings
from podium.files.model_role import Role
from podium.files.settings_document import ProviderLimits
from podium.store.reader import StoreReader
from podium.testing import ModelServer, read_events
from podium.values.agent import Budget, Member, Team
from podium.values.errors import Mistake
from podium.values.event import CallFailed, ModelReplied, Noticed, TurnStarted

from ..actors import ADA


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


def write_agent_file(repo: Path, name: str, frontmatter: str) -> None:
    (repo / ".podium/agents").mkdir(parents=True, exist_ok=True)
    (repo / f".podium/agents/{name}.md").write_text(f"---\ndescription: {name}\n{frontmatter}\n---\nYou work.\n")


def read_notices(settings: Settings, run: str) -> list[str]:
    return [event.text for event in read_events(settings.store, run, Noticed)]


@pytest.mark.parametrize("model", ["mistral:none", "nobody:knows", "gpt-nobody-knows"])
async def test_an_agent_without_its_model_uses_the_first_fallback_of_its_file(tmp_path: Path, model: str) -> None:
    write_agent_file(tmp_path / "repo", "lead", f"model: {model}\nfallbackModels: gemini:x, anthropic:other")
    async with ModelServer("from the other") as server:
        environ = {"ANTHROPIC_API_KEY": "sk-two-222222", "ANTHROPIC_BASE_URL": server.url.removesuffix("/v1")}
        settings = load_settings(tmp_path / "home", environ)
        async with App(settings, environ=environ) as app:
            result = await app.run("lead", "hello", repo=tmp_path / "repo")

    assert result.text == "from the other"
    first, second = read_notices(settings, result.run_id)
    assert first.startswith("lead uses anthropic:other: ")
    assert second.startswith("lead cannot fall back to gemini:x: ")


async def test_a_run_is_refused_if_neither_the_model_nor_a_fallback_is_available(tmp_path: Path) -> None:
    write_agent_file(tmp_path / "repo", "lead", "model: mistral:none\nfallback_models: [gemini:x]")
    environ = {"ANTHROPIC_API_KEY": "sk-two-222222"}
    async with App(load_settings(tmp_path / "home", environ), environ=environ) as app:
        with pytest.raises(Mistake, match="lead uses mistral:none, but MISTRAL_API_KEY is not set"):
            await app.run("lead", "hello", repo=tmp_path / "repo")


async def test_a_teams_fallback_models_hold_for_those_who_list_none(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    team = "team: {mode: sequential, members: [one, two], fallback_models: [anthropic:other]}"
    write_agent_file(repo, "lead", team)
    write_agent_file(repo, "one", "model: mistral:none")
    write_agent_file(repo, "two", "model: mistral:none\nfallback_models: anthropic:own")
    async with ModelServer("done") as server:
        environ = {"ANTHROPIC_API_KEY": "sk-two-222222", "ANTHROPIC_BASE_URL": server.url.removesuffix("/v1")}
        settings = load_settings(tmp_path / "home", environ)
        async with App(settings, environ=environ) as app:
            result = await app.run("lead", "hello", repo=repo)

    assert result.succeeded
    assert [call.call.model for call in server.calls] == ["other", "own"]
    assert [notice.partition(": ")[0] for notice in read_notices(settings, result.run_id)] == [
        "one uses anthropic:other",
        "two uses anthropic:own",
    ]


async def test_a_model_that_is_in_no_list_is_mentioned_at_the_start_with_the_fallback(tmp_path: Path) -> None:
    environ = {"OPENAI_API_KEY": "sk-one-111111", "ANTHROPIC_API_KEY": "sk-two-222222"}
    settings = load_settings(tmp_path, environ)
    async with App(settings, environ=environ) as app:
        notices = []
        for fallbacks in (("sonnet",), ()):
            agent = Agent(name="a", model="openai:gpt-5-minj", fallback_models=fallbacks)
            created = await app.runs.create(agent, "hello", {}, by=ADA)
            await created.release()
            notices.append(read_notices(settings, created.id))

    [[notice], none] = notices
    assert notice.startswith("a: 'gpt-5-minj' is not a known model of openai; similar models: gpt-5-mini, ")
    assert notice.endswith("; if the provider refuses this model, sonnet is used.")
    assert none == []


async def test_a_model_that_its_provider_does_not_have_is_replaced_for_the_rest_with_one_notice(tmp_path: Path) -> None:
    refusal = {"fails": {"status": 404, "message": "The model `gpt-5-minj` does not exist."}}
    async with ModelServer([refusal]) as first, ModelServer([{"calls": [{"name": "x"}]}, "done"]) as second:
        environ = {
            "OPENAI_API_KEY": "sk-one-111111",
            "OPENAI_BASE_URL": first.url,
            "ANTHROPIC_API_KEY": "sk-two-222222",
            "ANTHROPIC_BASE_URL": second.url.removesuffix("/v1"),
        }
        settings = load_settings(tmp_path, environ)
        agent = Agent(name="a", model="openai:gpt-5-minj", fallback_models=("anthropic:other",))
        async with App(settings, environ=environ) as app:
            result = await app.run(agent, "hello")
            alone = await app.run(Agent(name="b", model="openai:gpt-5-minj"), "hello")

    assert result.text == "done"
    assert (len(first.calls), len(second.calls)) == (3, 2)
    said = "The model `gpt-5-minj` does not exist; similar models: gpt-5-mini,"
    refused = f"openai returned 404 for the model gpt-5-minj: {said}"
    [notice] = read_notices(settings, result.run_id)
    assert notice.startswith(f"a uses other instead: {refused}")
    assert (alone.error or "").startswith(f"b: {refused}")
    assert "; the default model gpt-5-mini cannot be used either: openai returned 404" in (alone.error or "")


REFUSAL = {"fails": {"status": 404, "message": "The model does not exist."}}


async def test_a_model_that_its_provider_does_not_have_is_replaced_by_the_default_model(tmp_path: Path) -> None:
    async with ModelServer({"nosuch": [REFUSAL] * 3, "base": ["done"] * 3}) as server:
        environ = {"OPENAI_API_KEY": "sk-one-111111", "OPENAI_BASE_URL": server.url}
        settings = load_settings(tmp_path, environ, model="openai:base")
        async with App(settings, environ=environ) as app:
            result = await app.run(Agent(name="a", model="openai:nosuch"), "hello")

    assert result.text == "done"
    assert read_notices(settings, result.run_id)[-1].startswith(
        "a uses base instead: openai returned 404 for the model"
    )
    assert [call.call.model for call in server.calls] == ["nosuch", "base"]


async def test_the_default_model_replaces_an_unknown_one_only_after_the_named_fallbacks(tmp_path: Path) -> None:
    async with ModelServer({"nosuch": [REFUSAL], "neither": [REFUSAL], "base": ["done"]}) as server:
        environ = {"OPENAI_API_KEY": "sk-one-111111", "OPENAI_BASE_URL": server.url}
        settings = load_settings(tmp_path, environ, model="openai:base")
        agent = Agent(name="a", model="openai:nosuch", fallback_models=("openai:neither",))
        async with App(settings, environ=environ) as app:
            result = await app.run(agent, "hello")

    assert result.text == "done"
    assert [call.call.model for call in server.calls] == ["nosuch", "neither", "base"]


async def test_a_model_that_fails_for_another_reason_is_not_replaced_by_the_default_model(tmp_path: Path) -> None:
    async with ModelServer({"own": [{"fails": {"status": 401, "message": "no credit"}}], "base": ["done"]}) as server:
        environ = {"OPENAI_API_KEY": "sk-one-111111", "OPENAI_BASE_URL": server.url}
        settings = load_settings(tmp_path, environ, model="openai:base")
        async with App(settings, environ=environ) as app:
            result = await app.run(Agent(name="a", model="openai:own"), "hello")

    assert result.outcome == "failed"
    assert [call.call.model for call in server.calls] == ["own"]


async def test_an_agent_whose_provider_is_unknown_uses_the_default_model_with_a_notice(tmp_path: Path) -> None:
    async with ModelServer({"base": ["done"]}) as server:
        environ = {"OPENAI_API_KEY": "sk-one-111111", "OPENAI_BASE_URL": server.url}
        settings = load_settings(tmp_path, environ, model="openai:base")
        async with App(settings, environ=environ) as app:
            result = await app.run(Agent(name="a", model="opnai:gpt-5"), "hello")

    assert result.text == "done"
    assert read_notices(settings, result.run_id)[0].startswith(
        "a uses the default model: a uses the model 'opnai:gpt-5'"
    )


async def test_a_team_that_lost_a_member_to_an_unknown_model_does_not_simply_succeed(tmp_path: Path) -> None:
    async with ModelServer({"nosuch": [REFUSAL] * 3, "base": ["fine"] * 3}) as server:
        environ = {"OPENAI_API_KEY": "sk-one-111111", "OPENAI_BASE_URL": server.url}
        settings = load_settings(tmp_path, environ, model="openai:nosuch")
        team = Team(mode="broadcast", members=(Member(agent="lost"), Member(agent="there")))
        agents = [Agent(name="lost", model="openai:nosuch"), Agent(name="there", model="openai:base")]
        async with App(settings, environ=environ) as app:
            result = await app.run(Agent(name="lead", model="openai:base", team=team), "hello", agents=agents)

    assert result.outcome == "failed"
    assert "fine" in result.text
    assert (result.error or "").startswith(
        "lead: the team worked without lost, so the answer is incomplete (lost: openai"
    )


async def test_a_roles_budget_holds_for_its_agents(tmp_path: Path) -> None:
    async with ModelServer([{"calls": [{"name": "x"}]}, "never"]) as server:
        environ = {"OPENAI_API_KEY": "sk-one-111111", "OPENAI_BASE_URL": server.url}
        roles = {"short": Role(model="openai:m", budget=Budget(turns=1))}
        async with App(load_settings(tmp_path, environ, models=roles), environ=environ) as app:
            result = await app.run(Agent(name="a", model="short"), "hello")

    assert (result.outcome, result.usage.calls) == ("failed", 1)
    assert "a's budget of 1 model calls" in str(result.error)


async def test_all_agents_share_the_limits_of_a_provider(tmp_path: Path) -> None:
    async with ModelServer([{"says": "ok", "delay": 0.02}]) as server:
        environ = {"OPENAI_API_KEY": "sk-one-111111", "OPENAI_BASE_URL": server.url}
        settings = load_settings(tmp_path, environ, providers={"openai": ProviderLimits(concurrent=2)})
        async with App(settings, environ=environ) as app, create_task_group() as group:
            for number in range(8):
                group.start_soon(app.run, Agent(name=f"a{number}"), "hello")

    assert len(server.calls) == 8
    assert server.most_in_flight == 2
