"""A token of scope act starts and steers work, but has no commands, answers or folders of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from podium import Agent
from podium.store.store_connection import open_for_reading
from podium.values.action import Action
from podium.values.event import PermissionAsked, RunStarted
from podium.values.request import Request
from podium.values.worker_task import WorkerTask

from . import screen_data as data
from .api_client import ApiClient
from .conftest import Site, open_site


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


CHECKS = "checks:\n  lint: 'true'\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("act")) as site:
        (site.studio.settings.home / "config.yaml").write_text(CHECKS)
        data.write_workers(site)
        data.make_branch(site.repo, "feat/checked", {"new.txt": "new\n"})
        data.write_worker(site, "da01", "feat/checked", "Do it", change=(1, 0))
        yield site


@pytest.fixture(scope="module")
def actor(site: Site) -> Iterator[ApiClient]:
    with ApiClient(site, scopes=("read", "act")) as client:
        yield client


def list_merges(client: ApiClient, checks: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the two requests that build a merge, of whole branches and of a part of one."""
    shown = client.read("/api/workers/da01/diff")["digest"]
    return [
        ("/api/merges", {"branches": ["feat/checked"], "checks": checks}),
        ("/api/workers/da01/merges", {"shown": shown, "files": [{"path": "new.txt"}], "checks": checks}),
    ]


@pytest.mark.parametrize("check", ["touch {}", "lint; touch {}", " lint", "lint\n touch {}", "Lint", ""])
def test_checks_that_are_not_in_the_settings_need_the_scope_approve(
    site: Site, actor: ApiClient, tmp_path: Path, check: str
) -> None:
    canary, refs = tmp_path / "canary", data.git(site.repo, "for-each-ref")

    replies = [
        actor.command(path, body, status=403) for path, body in list_merges(actor, ["lint", check.format(canary)])
    ]

    assert {reply["detail"].partition("settings, ")[2] for reply in replies} == {
        "needs a token with the scope approve; yours has read, act"
    }
    assert not canary.exists()
    assert data.git(site.repo, "for-each-ref") == refs


def test_the_checks_in_the_settings_run_for_everybody_and_can_be_named(actor: ApiClient) -> None:
    for checks in ([], ["lint"]):
        for path, body in list_merges(actor, checks):
            merged = actor.command(path, body)
            assert merged["checks"] == ["lint"], merged["left_out"]


def test_a_token_that_may_approve_adds_checks(site: Site) -> None:
    with ApiClient(site) as client:
        for path, body in list_merges(client, ["lint", "test -e new.txt"]):
            assert client.command(path, body)["checks"] == ["lint", "test -e new.txt"]


def test_rules_for_a_worker_need_the_scope_approve(site: Site, actor: ApiClient) -> None:
    task = {"branch": "feat/rules", "task": "Do it", "agent": "greeter", "auto_approve": ["Bash(touch *)"]}

    refused = actor.command("/api/workers", task, status=403)

    assert refused["detail"] == (
        "the rule 'Bash(touch *)' in auto_approve needs a token with the scope approve; yours has read, act"
    )
    assert "feat/rules" not in data.git(site.repo, "branch")


def test_a_fork_that_changes_a_decision_needs_the_scope_approve(actor: ApiClient) -> None:
    refused = actor.command("/api/runs/da01/fork", {"decision": "d1", "option": "b"}, status=403)

    assert refused["detail"].startswith("changing a decision needs a token with the scope approve")


def test_a_message_does_not_take_the_place_of_the_answer_to_a_request(site: Site, actor: ApiClient) -> None:
    action = Action(run="ask1", agent="lead", tool="bash", arguments={"command": "touch x"})
    task = WorkerTask(root=str(site.repo), path=str(site.repo), name="asker", endpoint="a2a/answer")
    started = RunStarted(agent="lead", request=Request(text="work"), agents=(Agent(name="lead"),), errand=task)
    site.write_run("ask1", started, *(PermissionAsked(id=id, action=action, reason="no rule") for id in ("q91", "q92")))
    sent = {"message": {"messageId": "q92", "taskId": "ask1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": sent}

    actor.command("/api/runs/ask1/messages", {"text": "hello"}, key="q91")
    actor.post("/a2a/answer", json=rpc | {"params": sent | {"configuration": {"returnImmediately": True}}})

    with closing(open_for_reading(site.store)) as connection:
        refs = [ref for (ref,) in connection.execute("SELECT ref FROM mail WHERE run = 'ask1' ORDER BY id")]
    assert refs == ["client:q91", "client:q92"]
    assert {"q91", "q92"} <= {one.asked.id for one in site.list_requests()}


def test_a_request_whose_end_can_be_read_in_two_ways_is_refused_and_nothing_after_it_is_read(
    site: Site, actor: ApiClient
) -> None:
    host = site.address.removeprefix("http://")
    head = f"Host: {host}\r\nAuthorization: Bearer {actor.secret}\r\n"
    both = f"POST /api/runs HTTP/1.1\r\n{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    name, _, port = host.partition(":")

    with socket.create_connection((name, int(port)), timeout=10) as connection:
        connection.sendall(f"{both}GET /api/runs HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
        reply = b"".join(iter(lambda: connection.recv(65536), b""))

    assert [line for line in reply.split(b"\r\n") if b"HTTP/1.1" in line] == [b"HTTP/1.1 400 Bad Request"]
    assert b"a request with Transfer-Encoding has no Content-Length" in reply
