"""A repository that configures a model on this machine: nothing is sent to its port until the person agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium import Agent, Settings
from podium.engines.model.providers import LOCAL, PROVIDERS
from podium.files.confirmed_model_servers import ConfirmedServer, save_confirmed_server
from podium.runs.assembly.engine_consent import require_consent
from podium.values.errors import Mistake
from podium.values.local_provider import LOCAL_PROVIDERS

from ..cli.conftest import Desk
from ..studio import Studio
from .stage import run_sly_agent


def test_the_local_providers_are_the_servers_without_a_key() -> None:
    # Models that Podium runs itself need no consent: no other program can answer in their place.
    assert {one.name for one in PROVIDERS.values() if one.key_name is None} - {LOCAL} == LOCAL_PROVIDERS


@pytest.mark.parametrize(
    "text",
    [
        "model: lmstudio:x\n",
        "model: ' LMStudio:x'\n",
        "model: llamacpp\n",
        "model: fast\nmodels: {fast: 'ollama:x'}\n",
        "model: fast\nmodels: {fast: deep, deep: {model: sonnet, fallbacks: ['vllm:x']}}\n",
    ],
)
def test_a_repositorys_settings_choose_no_local_server_until_they_are_trusted(desk: Desk, text: str) -> None:
    (desk.repo / "podium.yaml").write_text(text)

    before = Settings.load({}, repo=desk.repo, home=desk.home)
    desk.invoke("trust", "--all")
    after = Settings.load({}, repo=desk.repo, home=desk.home)

    assert (before.model, before.models, before.base_url) == ("", {}, "")
    assert any("podium trust" in notice for notice in before.notices)
    assert after.base_url.startswith(("http://127.0.0.1:", "https://api.anthropic.com"))
    assert after.model


def test_a_model_of_a_provider_with_a_key_needs_no_trust(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text("model: sonnet\nmodels: {fast: 'groq:x'}\n")

    settings = Settings.load({}, repo=desk.repo, home=desk.home)

    assert settings.model == "sonnet"
    assert list(settings.models) == ["fast"]


async def start_agent_of_repository(studio: Studio, repo: Path) -> None:
    studio.agents["sly"] = Agent(name="sly", prompt="x", model="lmstudio:x", source="repo")
    await run_sly_agent(studio, repo)


async def test_an_agent_of_a_repository_calls_no_local_server_that_the_person_has_not_agreed_to(
    studio: Studio, repo: Path
) -> None:
    with pytest.raises(Mistake, match=r"sly, an agent from the repository, uses lmstudio:x on .* not confirmed"):
        await start_agent_of_repository(studio, repo)


@pytest.mark.parametrize("how", ["confirmed", "own settings", "environment", "option", "trusted"])
def test_a_local_server_is_used_once_the_person_has_agreed(desk: Desk, how: str) -> None:
    def load_and_require(environ: dict[str, str], **given: str) -> None:
        settings = Settings.load(environ, repo=desk.repo, home=desk.home, **given)
        require_consent(["lmstudio:x"], settings, environ, chooser="an agent")

    (desk.repo / "podium.yaml").write_text("model: lmstudio:y\n")
    with pytest.raises(Mistake, match=r"podium models use http://127\.0\.0\.1:1234/v1"):
        load_and_require({})
    if how == "confirmed":
        server = ConfirmedServer(url="http://127.0.0.1:9/v1", provider="lmstudio", model="x")
        save_confirmed_server(desk.home, server)
    if how == "own settings":
        (desk.home / "config.yaml").write_text("models: {mine: 'lmstudio:z'}\n")
    if how == "trusted":
        assert desk.invoke("trust", "model").exit_code == 0

    load_and_require(
        {"LMSTUDIO_BASE_URL": "http://127.0.0.1:9/v1"} if how == "environment" else {},
        **({"model": "lmstudio:x"} if how == "option" else {}),
    )
