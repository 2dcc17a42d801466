"""The API does what the command line does: start, steer, answer, and read what every command shows."""

from __future__ import annotations

import base64
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from podium import Agent
from podium.store.reader import StoreReader
from podium.testing import calls, read_entries
from podium.values.agent import Budget
from podium.values.event import (
    BudgetChanged,
    MessageReceived,
    PermissionAnswered,
    QuestionAsked,
    RunEnded,
    RunStarted,
)
from podium.values.request import Request

from ..views.test_run_state import apply_changes, omit_zeros
from . import screen_data as data
from .api_client import ApiClient
from .conftest import Site, open_site

STARTED = RunStarted(agent="lead", request=Request(text="Ship it"), agents=(Agent(name="lead"),))


@pytest.fixture(scope="module")
def client(site: Site) -> Iterator[ApiClient]:
    with ApiClient(site) as client:
        yield client


def write_asking_agent(site: Site, name: str = "asker") -> None:
    site.studio.agent(name, says=(calls("bash", command="touch done.txt"), "done"), tools=("bash",))


def test_a_run_is_started_once_for_each_key(site: Site, client: ApiClient) -> None:
    body = {"agent": "answer", "request": "hello"}

    first = client.command("/api/runs", body, key="k1")
    again = client.command("/api/runs", body, key="k1")
    other = client.command("/api/runs", body, key="k2")
    misused = client.command("/api/runs", {**body, "request": "bye"}, key="k1", status=422)

    assert first == again
    assert first != other
    assert misused["detail"] == "the idempotency key 'k1' was used for another command; use a new key"
    assert len(client.read("/api/runs", text="hello")["runs"]) == 2


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"agent": "nobody", "request": "hi"}, 422, "nobody"),
        ({"agent": "answer", "request": " "}, 422, "request"),
        ({"agent": "answer", "request": "hi", "repo": "/nowhere"}, 422, "'/nowhere' is not a folder"),
        ({"agent": "answer", "request": "hi", "mode": "sideways"}, 400, ""),
    ],
)
def test_a_run_that_cannot_start_gets_the_sentence_of_the_command_line(
    client: ApiClient, body: dict[str, str], status: int, says: str
) -> None:
    problem = client.command("/api/runs", body, status=status)

    assert says in problem["detail"]
    assert (problem["status"], problem["type"]) == (status, "about:blank")


def test_unknown_runs_requests_and_routes_are_not_found(client: ApiClient) -> None:
    assert "run 'none' not found" in client.get("/api/runs/none").json()["detail"]
    assert client.get("/api/runs/none").status_code == 404
    assert client.get("/api/requests/none").status_code == 422
    assert client.get("/api/nothing").status_code == 404
    assert client.delete("/api/runs").status_code == 405


def test_a_run_is_read_with_its_tree_its_costs_and_its_entries(site: Site, client: ApiClient) -> None:
    site.studio.agent("speaker", says=("It is done.",))
    run = site.run("speaker", "Say it").run_id

    read = client.read(f"/api/runs/{run[:8]}")
    entries = client.read(f"/api/runs/{run}/entries")

    assert (read["state"], read["agent"], read["tree"]["agent"]) == ("succeeded", "speaker", "speaker")
    assert entries["entries"][0]["event"]["type"] == "run_started"
    assert [entry["seq"] for entry in entries["entries"]] == list(range(1, read["entries"] + 1))
    assert client.read(f"/api/runs/{run}/entries", until=2)["entries"] == entries["entries"][:2]
    assert [one["id"] for one in client.read("/api/runs", text="say it", state="succeeded")["runs"]] == [run]


def test_the_state_of_a_run_is_read_at_an_entry_and_changed_up_to_another(site: Site, client: ApiClient) -> None:
    site.studio.agent("talker", says=["One.", "Two."])
    run = site.run("talker").run_id
    last = len(read_entries(site.store, run))

    document = client.read(f"/api/runs/{run[:8]}/state", at=3)["document"]
    told = client.read(f"/api/runs/{run}/changes", after=3, until=last - 1)
    rest = client.read(f"/api/runs/{run}/changes", after=last - 1)
    for changes in (*told["changes"], *rest["changes"]):
        apply_changes(document, msgspec.json.encode(changes))

    assert (told["run"], told["state"], told["after"], told["has_more"]) == (run, "succeeded", 3, False)
    assert (len(told["changes"]), len(rest["changes"])) == (last - 4, 1)
    assert omit_zeros(document) == omit_zeros(client.read(f"/api/runs/{run}/state")["document"])
    assert client.read(f"/api/runs/{run}/changes", after=last)["changes"] == []


def test_one_entry_is_read_with_its_hash_and_the_hash_before_it(site: Site, client: ApiClient) -> None:
    site.studio.agent("chained", says=("It is done.",))
    run = site.run("chained").run_id
    with StoreReader(site.store) as reader:
        rows = reader.read_rows(run)

    read = [client.read(f"/api/runs/{run[:8]}/entries/{row.seq}") for row in rows]

    assert [one["entry"] for one in read] == client.read(f"/api/runs/{run}/entries")["entries"]
    assert [one["hash"] for one in read] == [row.hash.hex() for row in rows]
    assert [one["previous_hash"] for one in read] == ["0" * 64, *(one["hash"] for one in read[:-1])]
    late = client.get(f"/api/runs/{run}/entries/{len(rows) + 1}")
    assert (late.status_code, late.json()["detail"]) == (404, f"run {run} has no entry {len(rows) + 1}")
    assert client.get(f"/api/runs/{run}/entries/0").status_code == 400
    assert client.get(f"/api/runs/{run}/entries/{2**63}").status_code == 400


def test_a_request_is_answered_for_exactly_what_was_shown_and_only_once(site: Site, client: ApiClient) -> None:
    write_asking_agent(site)
    run = site.start_run("asker")
    [asked] = wait_for_requests(site, client, run)

    stale = client.command(f"/api/requests/{asked['id']}/answer", {"shown": "x", "decision": "once"}, status=422)
    missing = client.command(f"/api/requests/{asked['id']}/answer", {"shown": asked["action_id"]}, status=422)
    given = {"shown": asked["action_id"], "decision": "deny", "comment": "not today"}
    done = client.command(f"/api/requests/{asked['id']}/answer", given)
    late = client.command(f"/api/requests/{asked['id']}/answer", given, status=409)

    assert "for a different action than the one that was shown" in stale["detail"]
    assert "give a decision" in missing["detail"]
    assert done == {"id": asked["id"], "run": run, "saved_rule": ""}
    assert "was already answered: deny by" in late["detail"]
    wait_until_over(site, client, run)
    answers = [one for one in events_of(site, run) if isinstance(one, PermissionAnswered)]
    assert [(one.decision, one.comment, one.channel) for one in answers] == [("deny", "not today", "api")]


def test_a_question_is_answered_for_the_text_that_was_shown(site: Site, client: ApiClient) -> None:
    asked = QuestionAsked(id="q1", text="Which?", choices=("red", "blue"), kind="decision", shown="Text", digest="d1")
    site.write_run("question1", STARTED, asked)

    wrong = client.command("/api/requests/q1/answer", {"shown": "d0", "text": "red"}, status=422)
    unknown = client.command("/api/requests/q1/answer", {"shown": "d1", "text": "green"}, status=422)
    client.command("/api/requests/q1/answer", {"shown": "d1", "text": "2"})

    assert "q1 has changed since it was shown" in wrong["detail"]
    assert "'green' is not" in unknown["detail"]
    assert client.get("/api/requests/q1").status_code == 409
    assert "q1" not in [one["id"] for one in client.read("/api/requests")["requests"]]


def test_a_run_is_steered(site: Site, client: ApiClient) -> None:
    site.write_run("steer1", STARTED)
    file = {"name": "a.txt", "data": base64.b64encode(b"text").decode()}

    said = client.command("/api/runs/steer1/messages", {"text": "Hurry", "files": [file]}, key="m1")
    client.command("/api/runs/steer1/messages", {"text": "Hurry", "files": [file]}, key="m1")
    client.command("/api/runs/steer1/budget", {"usd": 2})
    empty = client.command("/api/runs/steer1/budget", {}, status=422)
    paused = client.command("/api/runs/steer1/pause", {})
    stopped = client.command("/api/runs/steer1/stop", {})

    assert said["text"].startswith("run steer1 is not running")
    assert "give at least one" in empty["detail"]
    assert "paused" in paused["text"]
    assert stopped["text"] == "stopping run steer1"
    found = events_of(site, "steer1")
    assert [one.text for one in found if isinstance(one, MessageReceived)] == ["Hurry"]
    assert [one.budget.usd for one in found if isinstance(one, BudgetChanged)] == [2]
    assert [one.outcome for one in found if isinstance(one, RunEnded)] == ["cancelled"]
    assert client.command("/api/runs/steer1/pause", {}, status=422)["detail"].startswith("run steer1 has ended")


def test_an_interrupted_run_is_continued_by_the_server(site: Site, client: ApiClient) -> None:
    started = client.command("/api/runs", {"agent": "answer", "request": "again"})
    wait_until_over(site, client, started["id"])

    retried = client.command(f"/api/runs/{started['id']}/fork", {"at": "1"}, key="fork1")
    again = client.command(f"/api/runs/{started['id']}/fork", {"at": "1"}, key="fork1")

    assert retried["id"] == again["id"] != started["id"]
    wait_until_over(site, client, retried["id"])
    assert client.read(f"/api/runs/{retried['id']}")["state"] == "succeeded"


@pytest.mark.parametrize("way", ["fork", "retry"])
def test_a_fork_whose_reply_was_lost_in_a_crash_is_not_written_again(site: Site, client: ApiClient, way: str) -> None:
    started = client.command("/api/runs", {"agent": "answer", "request": "again"})
    wait_until_over(site, client, started["id"])
    address, body = f"/api/runs/{started['id']}/{way}", {"at": "1"} if way == "fork" else {"start": "answer"}
    forked = client.command(address, body, key=f"lost-{way}")
    wait_until_over(site, client, forked["id"])
    with closing(sqlite3.connect(site.store)) as connection, connection:
        connection.execute("UPDATE command_key SET reply = NULL WHERE key = ?", (f"lost-{way}",))

    again = client.command(address, body, key=f"lost-{way}")

    assert (again["id"], again["at"]) == (forked["id"], forked["at"])


def test_each_provider_has_the_columns_that_the_page_shows(client: ApiClient) -> None:
    found = client.read("/api/models")

    shown = {one["name"] for one in found["columns"]["providers"]}
    assert shown == {"name", "key_name", "has_key", "default_model"}
    assert all(shown <= provider.keys() for provider in found["providers"])


def test_everything_that_lists_answers_for_an_empty_repository(client: ApiClient) -> None:
    for path in ("plans", "decisions", "workers", "forecast", "worktrees", "agents", "teams", "costs", "groups"):
        assert client.read(f"/api/{path}")["schema"], path
    assert any(fact["what"] == "python" for fact in client.read("/api/doctor")["facts"])
    assert client.read("/api/models")["default"]["models"] == ["rehearsal"]
    assert client.read("/api/teams/plan-build-review")["mode"] == "collaborate"
    assert client.read("/api/agents/plan-build-review/graph")["agents"]
    assert "podium_runs{" in client.get("/metrics").text


def commit_nothing(site: Site, message: str) -> None:
    data.git(site.repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", message)


def test_a_worker_gets_all_options_of_the_command_through_the_api(site: Site, client: ApiClient) -> None:
    for message in ("Base", "Later"):
        commit_nothing(site, message)
    task = {"branch": "feat/options", "task": "Write it", "base": "HEAD~1", "role": "simple-fix", "engine": "scripted"}
    limits = {"timeout": 90, "max_turns": 7, "max_restarts": 0, "budget": {"usd": 2}, "auto_approve": ["Bash(ls *)"]}

    sent = client.command("/api/workers", {**task, **limits, "unattended": True})

    with StoreReader(site.store) as reader:
        started = reader.read_summary(sent["id"]).started
    agent, worker_task = started.agents[0], started.errand
    assert (agent.engine, agent.max_turns, agent.budget) == ("scripted", 7, Budget(usd=2.0, seconds=90.0, turns=40))
    assert worker_task is not None
    assert worker_task.base == data.git(site.repo, "rev-parse", "HEAD~1")
    assert (worker_task.role, worker_task.max_restarts, worker_task.is_unattended) == ("simple-fix", 0, True)
    assert "Bash(ls *)" in started.settings["permissions"]["allow"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"timeout": 0}, "timeout"),
        ({"times": 11}, "times"),
        ({"choose": "judge"}, "--choose needs --times"),
        ({"times": 2, "read_only": True}, "--times cannot be combined with --read-only"),
        ({"role": "nobody"}, "role 'nobody' not found"),
        ({"auto_approve": ["Nothing"]}, "unknown tool in --auto-approve: Nothing"),
        ({"labels": ["gpu"]}, "no host has the labels gpu"),
        ({"is_shared": True}, "is_shared"),
    ],
)
def test_options_that_cannot_be_used_start_no_worker(
    site: Site, client: ApiClient, options: dict[str, Any], problem: str
) -> None:
    commit_nothing(site, "Base")
    before = client.read("/api/workers")["workers"]
    body = {"branch": "feat/none", "task": "Write it", **options}

    refused = client.post("/api/workers", json=body)

    assert 400 <= refused.status_code < 500
    assert problem in refused.text
    assert client.read("/api/workers")["workers"] == before


def test_a_worker_is_delegated_its_diff_shown_and_its_branch_merged(site: Site, client: ApiClient) -> None:
    git = ["git", "-C", str(site.repo), "-c", "user.name=a", "-c", "user.email=a@b"]
    (site.repo / "base.txt").write_text("base\n")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "Base"], check=True)

    sent = client.command("/api/workers", {"branch": "feat/a", "task": "Write it"}, key="w1")
    assert client.command("/api/workers", {"branch": "feat/a", "task": "Write it"}, key="w1") == sent
    wait_until_over(site, client, sent["id"])
    path = client.read("/api/workers")["workers"][-1]["path"]
    worktree = ["git", "-C", path, "-c", "user.name=a", "-c", "user.email=a@b"]
    with open(f"{path}/new.txt", "w") as file:  # noqa: PTH123 - what a worker would have written
        file.write("one\ntwo\n")
    subprocess.run([*worktree, "add", "."], check=True)
    subprocess.run([*worktree, "commit", "-qm", "New"], check=True)

    diff = client.read(f"/api/workers/{sent['id']}/diff")
    merged = client.command("/api/merges", {"branches": ["feat/a"]})
    wrong = {key: merged[key] for key in ("target", "base", "commit")} | {"tree": "0" * 40}
    refused = client.command("/api/merges/apply", wrong, status=422)
    applied = client.command("/api/merges/apply", wrong | {"tree": merged["tree"]})

    assert [(one["path"], one["status"], one["added"]) for one in diff["files"]] == [("new.txt", "added", 2)]
    assert [one["branch"] for one in merged["coupled"]] == ["feat/a"]
    assert "was approved" in refused["detail"]
    assert applied["commit"] == merged["commit"]
    assert (site.repo / "new.txt").read_text() == "one\ntwo\n"


def test_every_generated_request_gets_a_response_that_the_document_describes(site: Site, client: ApiClient) -> None:
    schema = schemathesis.openapi.from_dict(client.read("/api/schema/openapi.json"))
    skipped = {"/api/events", "/api/session/end", "/api/login"}
    operations: list[Any] = [one.ok() for one in schema.get_all_operations()]  # type: ignore[union-attr]

    assert len(operations) > 30
    for operation in operations:
        if operation.path not in skipped:
            check_operation(operation, site.address, client.secret)


def check_operation(operation: Any, address: str, secret: str) -> None:
    """Send generated requests to one operation; the server may refuse them, but only as it is documented."""

    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy())
    def send_request(case: Any) -> None:
        response = case.call(base_url=address, headers={"Authorization": f"Bearer {secret}"})
        assert response.status_code < 500, f"{operation.label}: {response.text}"
        case.validate_response(response, checks=(status_code_conformance, response_schema_conformance))

    send_request()


def events_of(site: Site, run: str) -> list[object]:
    return [entry.event for entry in read_entries(site.store, run)]


def wait_for_requests(site: Site, client: ApiClient, run: str) -> list[dict[str, str]]:
    """Wait until a run asks, and return its requests."""
    with client.follow("", runs=run) as events:
        for event in events:
            if event.name == "entries" and any(entry["event"]["type"] == "permission_asked" for entry in event.data):
                break
    return [one for one in client.read("/api/requests")["requests"] if one["run"] == run]


def wait_until_over(site: Site, client: ApiClient, run: str) -> None:
    """Wait until a run has ended."""
    with client.follow("", runs=run) as events:
        for event in events:
            if event.name == "entries" and any(entry["event"]["type"] == "run_ended" for entry in event.data):
                return


def test_a_run_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    with open_site(tmp_path) as site, ApiClient(site) as client:
        site.write_run("good1", STARTED)
        site.write_run("bad1", STARTED)
        connection = sqlite3.connect(site.store)
        connection.execute("DROP TRIGGER entry_stays")
        connection.execute("UPDATE entry SET line = x'7b' WHERE run = 'bad1'")
        connection.commit()
        connection.close()

        overview = client.read("/api/overview")

        assert [one["id"] for one in overview["active"]] == ["good1"]
        assert [one["id"] for one in overview["damaged"]] == ["bad1"]
        assert [one["id"] for one in client.read("/api/runs")["runs"]] == ["good1"]
