"""`podium acp`, driven by acpx, a headless client from npm. It must be installed: make agents, pytest -m engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podium.store.reader import StoreReader

from ..installed_agents import build_search_path, find_agent
from .conftest import write_agents

pytestmark = [pytest.mark.engines, pytest.mark.slow]

TOO_LONG = 120


class AcpClient:
    """acpx in a repository with agents, with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.repo = folder / "repo"
        self.store = folder / "podium" / "podium.db"
        self._program = find_agent("acpx")
        self._environ = {
            **os.environ,
            "PATH": build_search_path(),
            "HOME": str(folder),
            "PODIUM_HOME": str(self.store.parent),
        }
        write_agents(self.repo)

    def start(self, agent: str, *arguments: str) -> subprocess.Popen[str]:
        """Start acpx with these arguments; an agent of Podium is its agent."""
        command = [self._program, "--ttl", "60", "--agent", f"{sys.executable} -m podium acp {agent}", *arguments]
        return subprocess.Popen(command, cwd=self.repo, env=self._environ, stdout=subprocess.PIPE, text=True)

    def call(self, agent: str, *arguments: str) -> tuple[int, str]:
        """Run acpx and return its exit code and output."""
        with self.start(agent, *arguments) as process:
            output, _ = process.communicate(timeout=TOO_LONG)
        return process.returncode, output

    def list_runs(self) -> list[str]:
        with StoreReader(self.store) as reader:
            return [one.id for one in reader.read_run_list().readable]


@pytest.fixture
def client(tmp_path: Path) -> AcpClient:
    return AcpClient(tmp_path)


def read_updates(output: str, kind: str) -> list[Any]:
    lines = [json.loads(line) for line in output.splitlines()]
    updates = [line["params"]["update"] for line in lines if line.get("method") == "session/update"]
    return [update for update in updates if update["sessionUpdate"] == kind]


def test_a_team_answers_each_prompt_of_a_session(client: AcpClient) -> None:
    opened, _ = client.call("pair", "sessions", "new")
    answers = [client.call("pair", "--format", "quiet", text) for text in ("Hi", "Again")]
    closed, _ = client.call("pair", "sessions", "close")

    assert (opened, closed) == (0, 0)
    assert answers == [(0, "Fine.\n")] * 2
    assert len(client.list_runs()) == 2


def test_what_the_client_allows_is_written_and_each_text_is_shown_once(client: AcpClient) -> None:
    code, output = client.call("writer", "--approve-all", "--format", "json", "exec", "Write")

    said = "".join(update["content"]["text"] for update in read_updates(output, "agent_message_chunk"))
    ends = [update["status"] for update in read_updates(output, "tool_call_update")]
    assert code == 0
    assert said == "I write it.\n\nWrote it."
    assert ends == ["completed"]
    assert (client.repo / "a.txt").read_text() == "new\n"


def test_what_the_client_denies_is_not_written(client: AcpClient) -> None:
    code, output = client.call("writer", "--deny-all", "--format", "json", "exec", "Write")

    assert code == 5  # acpx: a permission was denied
    assert [update["status"] for update in read_updates(output, "tool_call_update")] == ["failed"]
    assert not (client.repo / "a.txt").exists()


def test_a_prompt_is_cancelled(client: AcpClient) -> None:
    client.call("stuck", "sessions", "new")
    with client.start("stuck", "--format", "json", "Go") as process:
        assert process.stdout is not None
        assert any('"session/prompt"' in line for line in process.stdout)
        _, asked = client.call("stuck", "cancel")
        rest = process.stdout.read()
    client.call("stuck", "sessions", "close")

    assert "cancel requested" in asked
    assert json.loads(rest.splitlines()[-1])["result"] == {"stopReason": "cancelled"}
