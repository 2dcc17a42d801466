"""The home and the environment of a coding agent, and the processes that sessions share."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from anyio import create_task_group
from msgspec import structs

from podium.engines.acp.agent_home import AgentModel, build_agent_environment, prepare_home
from podium.engines.acp.agent_program import AGENT_PROGRAMS
from podium.values.event import AgentSessionOpened

from .agent_lab import AgentLab

GOOSE, CODEX = AGENT_PROGRAMS["goose"], AGENT_PROGRAMS["codex"]
MODEL = AgentModel(name="gpt", wire="openai", url="https://host.test:8443/base/v1", key="sk-1")


def test_each_run_has_its_own_home_with_a_copy_of_the_login(tmp_path: Path) -> None:
    user, podium = tmp_path / "user", tmp_path / "podium"
    (user / ".codex").mkdir(parents=True)
    (user / ".codex" / "auth.json").write_text("secret")

    one = prepare_home(CODEX, podium, "one", user_home=str(user), model=None)
    two = prepare_home(CODEX, podium, "two", user_home=str(user), model=None)

    assert one != two
    assert (one / ".codex" / "auth.json").read_text() == "secret"
    assert (one / ".codex" / "auth.json").stat().st_mode & 0o077 == 0
    assert one.stat().st_mode & 0o077 == 0


def test_an_agent_with_a_given_model_gets_neither_the_login_nor_the_keys_of_the_user(tmp_path: Path) -> None:
    (user := tmp_path / "user" / ".codex").mkdir(parents=True)
    (user / "auth.json").write_text("secret")
    (user / "config.toml").write_text("mine")
    model = replace(MODEL, relayed_url="http://127.0.0.1:1")

    home = prepare_home(CODEX, tmp_path, "one", user_home=str(user.parent), model=model)
    environment = build_agent_environment(CODEX, home, {"OPENAI_API_KEY": "sk-2"}, model)

    assert [file.name for file in (home / ".codex").iterdir()] == ["config.toml"]
    assert 'base_url = "http://127.0.0.1:1"' in (home / ".codex" / "config.toml").read_text()
    assert environment["PODIUM_MODEL_KEY"] == "none"
    assert "OPENAI_API_KEY" not in environment


def test_a_home_that_an_agent_has_used_is_not_written_to(tmp_path: Path) -> None:
    home = prepare_home(CODEX, tmp_path, "one", user_home="", model=MODEL)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (home / ".codex" / "config.toml").unlink()
    (home / ".codex" / "config.toml").symlink_to(victim)

    assert prepare_home(CODEX, tmp_path, "one", user_home="", model=MODEL) == home
    assert victim.read_text() == "mine"


def test_homes_of_old_runs_are_removed(tmp_path: Path) -> None:
    old = prepare_home(GOOSE, tmp_path, "old", user_home="", model=None)
    (old / "deep").mkdir()
    os.utime(old.parent, (0, 0))

    prepare_home(GOOSE, tmp_path, "new", user_home="", model=None)

    assert [path.name for path in (tmp_path / "agent-homes").iterdir()] == ["new"]


def test_the_environment_has_the_model_and_only_the_variables_of_the_agents_row(tmp_path: Path) -> None:
    environ = {"PATH": "/bin:.", "HOME": "/me", "GOOSE_PROVIDER": "x", "AWS_SECRET_ACCESS_KEY": "s", "GH_TOKEN": "t"}

    found = build_agent_environment(GOOSE, tmp_path, environ, MODEL)

    assert (found["HOME"], found["PATH"]) == (str(tmp_path), "/bin")
    assert (found["GOOSE_PROVIDER"], found["GOOSE_MODEL"], found["GOOSE_MODE"]) == ("openai", "gpt", "approve")
    assert (found["OPENAI_HOST"], found["OPENAI_BASE_PATH"]) == ("https://host.test:8443", "base/v1/chat/completions")
    assert not found.keys() & {"AWS_SECRET_ACCESS_KEY", "GH_TOKEN"}


async def test_sessions_in_one_checkout_share_a_process_if_the_agent_can(tmp_path: Path) -> None:
    for shares in (True, False):
        (folder := tmp_path / str(shares)).mkdir()
        lab = AgentLab("scripted", folder)
        lab.program = structs.replace(lab.program, shares_process=shares)
        async with lab.session(["Hi."] * 2) as session:
            other = lab.make_session("other")
            async with create_task_group() as group:
                group.start_soon(session.ask, "One?")
                group.start_soon(other.ask, "Two?")
            await other.aclose()
            await session.ask("Three?")

        assert len(lab.children) == (1 if shares else 2)
        assert len({opened.session for opened in lab.events(AgentSessionOpened)}) == 2
