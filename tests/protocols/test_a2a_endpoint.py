"""The A2A endpoint of `podium serve`, driven by the client of the public SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any, get_args
from uuid import uuid4

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as a2a
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError
from anyio import fail_after

from podium.protocols.a2a_agent import STATES, TASK_NOT_FOUND
from podium.store.mailbox import read_mailbox
from podium.store.request_list import list_open_requests
from podium.store.store_connection import open_connection
from podium.system.json_rpc import INVALID_PARAMS
from podium.testing import calls
from podium.values.actor import AccessScope
from podium.values.event import MessageReceived, QuestionAsked, StopAsked, TurnStarted
from podium.values.phase import Phase
from podium.web.api.access_tokens import SCOPES

from ..web.conftest import Site
from .conftest import find_newest_run

TOO_LONG = 90.0


@asynccontextmanager
async def connect(site: Site, agent: str, *scopes: AccessScope, streaming: bool = False) -> AsyncIterator[Any]:
    """Read the card of an agent and connect to the endpoint that it names."""
    secret, _ = site.server.context.tokens.create_token("test", scopes or SCOPES)
    headers = {"Authorization": f"Bearer {secret}"}
    with fail_after(TOO_LONG):
        async with httpx.AsyncClient(headers=headers, timeout=60) as http:
            card = await A2ACardResolver(http, f"{site.address}/a2a/{agent}").get_agent_card()
            config = ClientConfig(httpx_client=http, streaming=streaming)
            yield ClientFactory(config).create(card)


def test_every_state_of_a_run_is_the_state_of_a_task() -> None:
    assert sorted(STATES) == sorted(get_args(Phase))


def message(text: str, **more: Any) -> a2a.SendMessageRequest:
    parts = [a2a.Part(text=text)] if text else []
    return a2a.SendMessageRequest(message=a2a.Message(message_id=uuid4().hex, role=a2a.ROLE_USER, parts=parts, **more))


async def send(client: Any, request: a2a.SendMessageRequest) -> list[Any]:
    return [event async for event in client.send_message(request)]


async def test_a_task_is_a_run_and_a_context_is_a_conversation(site: Site) -> None:
    async with connect(site, "pair") as client:
        [first] = await send(client, message("Hi"))
        task = first.task
        [second] = await send(client, message("Again", context_id=task.context_id))
        again = await client.get_task(a2a.GetTaskRequest(id=task.id))

        assert task.status.state == a2a.TASK_STATE_COMPLETED
        assert "Fine." in task.artifacts[0].parts[0].text
        assert again.artifacts == task.artifacts
        assert task.context_id == task.id
        assert (second.task.context_id, second.task.id != task.id) == (task.id, True)
        assert "Again" in site.studio.events(second.task.id, TurnStarted)[0].prompt
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(a2a.CancelTaskRequest(id=task.id))
        with pytest.raises(TaskNotFoundError):
            await client.get_task(a2a.GetTaskRequest(id="ffff"))
        with pytest.raises(InvalidParamsError, match="empty"):
            await send(client, message(""))
        with pytest.raises(InvalidParamsError, match="context"):
            await send(client, message("Hi", context_id="ffff"))


async def test_a_stream_shows_who_waits_for_a_person_and_a_cancelled_task_is_stopped(site: Site) -> None:
    async with connect(site, "writer", streaming=True) as client:
        events = client.send_message(message("Write"))
        seen: list[Any] = []
        async for event in events:
            seen.append(event)
            if (
                event.HasField("status_update")
                and "waiting for a person" in event.status_update.status.message.parts[0].text
            ):
                break
        run = seen[0].task.id
        waiting = [one.summary.id for one in list_open_requests(site.store)]
        await client.close()
    async with connect(site, "writer") as client:
        steering = message("Be quick.", task_id=run)
        steering.configuration.return_immediately = True
        [steered] = await send(client, steering)
        cancelled = await client.cancel_task(a2a.CancelTaskRequest(id=run))

    assert waiting == [run]
    assert (steered.task.id, steered.task.status.state) == (run, a2a.TASK_STATE_WORKING)
    assert [one.text for one in site.studio.events(run, MessageReceived)] == ["Be quick."]
    assert cancelled.status.state == a2a.TASK_STATE_CANCELED
    assert (
        "".join(e.artifact_update.artifact.parts[0].text for e in seen if e.HasField("artifact_update"))
        == "I write it."
    )


async def test_a_token_needs_the_scope_act_to_start_a_task(site: Site) -> None:
    async with connect(site, "greeter", "read") as client:
        with pytest.raises(A2AClientError, match="403"):
            await send(client, message("Hi"))


def test_an_agents_endpoint_knows_only_the_tasks_that_were_started_there(site: Site) -> None:
    parts = {"messageId": "m1", "parts": [{"text": "Obey me"}]}
    now = {"returnImmediately": True}
    own = call(site, "writer", "SendMessage", {"message": parts, "configuration": now})["result"]["task"]["id"]
    site.studio.agent("silent", says=(calls("ask_person", question="Which?"), "done"), tools=("ask_person",))
    other = site.start_run("silent")
    site.wait_for_events(other, QuestionAsked)
    others = {other: "writer", own: "greeter", own[:6]: "writer"}
    newest = find_newest_run(site.store)

    codes = [
        call(site, agent, method, params)["error"]["code"]
        for run, agent in others.items()
        for method, params in (
            ("GetTask", {"id": run}),
            ("CancelTask", {"id": run}),
            ("SubscribeToTask", {"id": run}),
            ("SendMessage", {"message": {**parts, "taskId": run}, "configuration": now}),
            ("SendStreamingMessage", {"message": {**parts, "taskId": run}}),
            ("SendMessage", {"message": {**parts, "contextId": run}, "configuration": now}),
        )
    ]

    assert codes == [*[TASK_NOT_FOUND] * 5, INVALID_PARAMS] * 3
    with closing(open_connection(site.studio.settings.store, create=False)) as store:
        assert [read_mailbox(store, run, 0) for run in others] == [[], [], []]
    assert [site.studio.events(run, MessageReceived, StopAsked) for run in (other, own)] == [[], []]
    assert find_newest_run(site.store) == newest
    assert call(site, "writer", "CancelTask", {"id": own})["result"]["status"]["state"] == "TASK_STATE_CANCELED"


def call(site: Site, agent: str, method: str, params: dict[str, Any]) -> Any:
    """Send a JSON-RPC request to an agent's endpoint and return the reply."""
    secret, _ = site.server.context.tokens.create_token("test", SCOPES)
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"Authorization": f"Bearer {secret}"}
    return httpx.post(f"{site.address}/a2a/{agent}", json=body, headers=headers, timeout=30).json()


def test_hostile_requests_start_no_task(site: Site) -> None:
    secret, _ = site.server.context.tokens.create_token("test", SCOPES)
    url, headers = f"{site.address}/a2a/greeter", {"Authorization": f"Bearer {secret}"}

    assert httpx.get(f"{url}/.well-known/agent-card.json").status_code == 401
    assert httpx.get(f"{site.address}/a2a/nobody/.well-known/agent-card.json", headers=headers).status_code == 404
    assert httpx.post(url, json={}, headers={**headers, "Origin": "http://evil.test"}).status_code == 403
    for body, code in ((b"{", -32700), (b"[" * 100_000, -32600), (b"{}", -32600), (b'{"method": "x"}', -32601)):
        assert httpx.post(url, content=body, headers=headers).json()["error"]["code"] == code
