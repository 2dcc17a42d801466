from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

from podium.files.discovery import BUILTIN_AGENTS
from podium.testing import ModelServer

from .conftest import Desk


def parse_facts(said: str) -> dict[str, dict[str, str]]:
    return {fact["what"]: fact for fact in json.loads(said)["facts"]}


@pytest.fixture(autouse=True)
def _no_servers(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for model servers at ports where nothing listens. The llama.cpp variable would select a model."""
    nowhere = "http://127.0.0.1:1/v1"
    for name in ("OLLAMA_BASE_URL", "VLLM_BASE_URL", "LMSTUDIO_BASE_URL"):
        monkeypatch.setenv(name, nowhere)
        desk.environment[name] = nowhere
    (desk.home / "config.yaml").write_text(f"providers: {{llamacpp: {{base_url: '{nowhere}'}}}}\n")


def test_doctor_reports_the_whole_setup(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")

    said = desk.invoke("doctor")

    assert said.exit_code == 0
    assert [line.split()[1] for line in said.stdout.splitlines()] == [
        *("podium", "python", "platform", "settings", "store", "engine", "keys", "local", "coding"),
        "local",
        *("git", "sandbox", "agents"),
    ]
    assert "rehearsal mode (no model is called), because no provider's key or address is set" in said.stdout
    assert f"{len(list(BUILTIN_AGENTS.glob('*.md'))) + 1} agents, 1 of them from " in said.stdout
    assert not desk.store.exists()


def test_a_file_with_sign_ins_that_are_no_longer_used_is_named(desk: Desk) -> None:
    (desk.home / "servers.json").write_text("[]")

    found = parse_facts(desk.run_podium("doctor", "--json").stdout)

    assert found["sign-ins"]["level"] == "note"
    assert str(desk.home / "servers.json") in found["sign-ins"]["text"]


def test_keys_are_named_and_never_shown(desk: Desk) -> None:
    said = desk.run_podium(
        "doctor", "--json", OPENAI_API_KEY="sk-verysecret", OPENAI_BASE_URL="http://me:verysecret@host.test/v1"
    )

    found = parse_facts(said.stdout)
    assert "verysecret" not in said.stdout
    assert found["keys"]["text"].startswith("OPENAI_API_KEY")
    assert found["engine"]["text"].endswith("at host.test, because OPENAI_API_KEY is set")


def test_a_store_that_cannot_be_read_is_a_problem(desk: Desk) -> None:
    desk.store.write_text("this is not a database, and long enough to look like a file of something else")

    said = desk.invoke("doctor", "--json")

    assert said.exit_code == 1
    assert parse_facts(said.stdout)["store"]["level"] == "problem"


def test_agents_with_errors_are_a_problem(desk: Desk) -> None:
    desk.write_agent("lead", "the answer", handoff="nobody")

    said = desk.invoke("doctor")

    assert said.exit_code == 1
    assert "1 diagnostic; run podium check to see them" in said.stdout


def test_nothing_of_the_repository_is_run(desk: Desk) -> None:
    trap = desk.repo / "git"
    trap.write_text("#!/bin/sh\ntouch trapped\n")
    trap.chmod(0o755)

    for path in (f"{desk.repo}{os.pathsep}{os.environ['PATH']}", f".{os.pathsep}{os.environ['PATH']}"):
        said = desk.run_podium("doctor", PATH=path)

        assert said.returncode == 1
        assert "so it was not run" in said.stdout
    assert not (desk.repo / "trapped").exists()


def test_a_missing_program_comes_with_the_way_to_get_it(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "apt-get").touch(mode=0o755)

    said = desk.run_podium("doctor", PATH=str(tmp_path))

    assert said.returncode == 0
    assert "install it with: sudo apt-get install git" in said.stdout
    (tmp_path / "apt-get").unlink()
    bare = desk.run_podium("doctor", PATH=str(tmp_path))
    assert "not found; install it with your system's package manager" in bare.stdout


def test_runs_to_resume_are_named(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.run_podium("run", "lead", "do it", PODIUM_FAULT="4")

    assert f"{desk.run_id()}; continue with podium resume" in desk.invoke("doctor").stdout


def test_settings_files_are_reported_with_their_diagnostics(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text("modle: x\n")

    noted = desk.invoke("doctor", "--json")
    (desk.home / "config.yaml").write_text("workers: many\n")
    broken = desk.invoke("doctor", "--json")

    assert noted.exit_code == 0
    assert parse_facts(noted.stdout)["settings"]["level"] == "note"
    assert "1 diagnostic, first: podium.yaml:1: modle: unknown key" in parse_facts(noted.stdout)["settings"]["text"]
    assert broken.exit_code == 1
    assert parse_facts(broken.stdout)["settings"]["level"] == "problem"
    text = parse_facts(broken.stdout)["settings"]["text"]
    assert 'config.yaml:1: workers: expected an integer of at least 1, got the string "many"' in text
    assert parse_facts(broken.stdout)["agents"]["level"] == "fine"


async def test_local_servers_and_coding_agents_are_reported(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "goose").touch(mode=0o755)

    async with ModelServer({"small": ["hi"]}) as server:
        doctor = partial(desk.run_podium, "doctor", "--json", VLLM_BASE_URL=server.url, PATH=str(tmp_path))
        found = parse_facts((await to_thread.run_sync(doctor)).stdout)

    assert found["local servers"]["text"].startswith(f"vllm at {server.url} (1 model); run podium models to see")
    assert found["coding agents"]["text"] == "goose"
    assert found["engine"]["text"].startswith("rehearsal")
