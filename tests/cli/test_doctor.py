from __future__ import annotations

import json
import os
from pathlib import Path

from .conftest import Desk


def facts(said: str) -> dict[str, dict[str, str]]:
    return {fact["what"]: fact for fact in json.loads(said)["facts"]}


def test_the_doctor_tells_what_there_is(desk: Desk) -> None:
    desk.agent("lead", "the answer")

    said = desk.invoke("doctor")

    assert said.exit_code == 0
    assert [line.split()[1] for line in said.stdout.splitlines()] == [
        *("podium", "python", "platform", "store", "engine", "keys", "git", "sandbox", "agents")
    ]
    assert "rehearsal, because no provider's key or address is set" in said.stdout
    assert "5 agents, 1 of them from " in said.stdout
    assert not desk.store.exists()


def test_keys_are_named_and_never_shown(desk: Desk) -> None:
    said = desk.podium(
        "doctor", "--json", OPENAI_API_KEY="sk-verysecret", OPENAI_BASE_URL="http://me:verysecret@host.test/v1"
    )

    found = facts(said.stdout)
    assert "verysecret" not in said.stdout
    assert found["keys"]["text"].startswith("OPENAI_API_KEY")
    assert found["engine"]["text"].endswith("at host.test, because OPENAI_API_KEY is set")


def test_a_store_that_cannot_be_read_is_a_problem(desk: Desk) -> None:
    desk.store.write_text("this is not a database, and long enough to look like a file of something else")

    said = desk.invoke("doctor", "--json")

    assert said.exit_code == 1
    assert facts(said.stdout)["store"]["level"] == "problem"


def test_agents_with_errors_are_a_problem(desk: Desk) -> None:
    desk.agent("lead", "the answer", handoff="nobody")

    said = desk.invoke("doctor")

    assert said.exit_code == 1
    assert "1 finding; podium check shows them" in said.stdout


def test_nothing_of_the_repository_is_run(desk: Desk) -> None:
    trap = desk.repo / "git"
    trap.write_text("#!/bin/sh\ntouch trapped\n")
    trap.chmod(0o755)

    for path in (f"{desk.repo}{os.pathsep}{os.environ['PATH']}", f".{os.pathsep}{os.environ['PATH']}"):
        said = desk.podium("doctor", PATH=path)

        assert said.returncode == 1
        assert "so it was not run" in said.stdout
    assert not (desk.repo / "trapped").exists()


def test_a_missing_program_comes_with_the_way_to_get_it(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "apt-get").touch(mode=0o755)

    said = desk.podium("doctor", PATH=str(tmp_path))

    assert said.returncode == 0
    assert "get it with: sudo apt-get install git" in said.stdout
    assert "get it with: sudo apt-get install bubblewrap" in said.stdout


def test_runs_to_resume_are_named(desk: Desk) -> None:
    desk.agent("lead", "the answer")
    desk.podium("run", "lead", "do it", PODIUM_FAULT="4")

    assert f"{desk.run_id()}; podium resume goes on with them" in desk.invoke("doctor").stdout
