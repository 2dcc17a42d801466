"""The OpenAI endpoint of `podium serve`, driven by the client that OpenAI publishes."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from podium.testing import read_entries
from podium.values.actor import AccessScope
from podium.values.event import PermissionAsked, RunEnded, TurnStarted
from podium.web.api.access_tokens import SCOPES

from ..web.conftest import Site
from ..web.test_serve import podium, serve
from .conftest import find_newest_run, write_agents


def connect(site: Site, *scopes: AccessScope) -> OpenAI:
    secret, _ = site.server.context.tokens.create_token("test", scopes or SCOPES)
    return OpenAI(base_url=f"{site.address}/v1", api_key=secret, timeout=20)


@pytest.fixture
def client(site: Site) -> Iterator[OpenAI]:
    with connect(site) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def read_outcomes(site: Site, run: str) -> list[str]:
    return [one.outcome for one in site.studio.events(run, RunEnded)]


def test_agents_and_teams_are_models(client: OpenAI) -> None:
    names = {one.id for one in client.models.list()}

    assert {"greeter", "pair", "writer"} <= names
    assert client.models.retrieve("pair").owned_by == "podium"
    with pytest.raises(openai.NotFoundError, match="nobody"):
        client.models.retrieve("nobody")


def test_an_answer_names_its_run_and_its_tokens(client: OpenAI, site: Site) -> None:
    answer = client.chat.completions.create(model="greeter", messages=[user("Hi")])

    assert answer.choices[0].message.content == "Hello there, friend."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0
    assert read_outcomes(site, answer.id.removeprefix("chatcmpl-")) == ["succeeded"]


def test_a_stream_has_the_same_answer_in_pieces_and_the_usage_at_the_end(client: OpenAI) -> None:
    options: Any = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(model="teller", messages=[user("Hi")], stream=True, stream_options=options)
    )

    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert "".join(pieces) == "Once upon a time."
    assert len(pieces) > 1
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None


def test_a_team_answers_when_all_its_members_have(client: OpenAI) -> None:
    chunks = client.chat.completions.create(model="pair", messages=[user("Hi")], stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    whole = client.chat.completions.create(model="pair", messages=[user("Hi")]).choices[0].message.content

    assert whole
    assert streamed == whole


def test_the_messages_before_the_last_one_are_quoted_to_the_agent(client: OpenAI, site: Site) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        user("First"),
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": [{"type": "text", "text": "Second"}]},
    ]
    answer = client.chat.completions.create(model="greeter", messages=messages)

    [turn] = site.studio.events(answer.id.removeprefix("chatcmpl-"), TurnStarted)
    assert "> Be brief." in turn.prompt
    assert "user:\n> First" in turn.prompt
    assert "assistant:\n> Yes?" in turn.prompt
    assert turn.prompt.endswith("Second")


def test_a_permission_request_waits_in_the_inbox_while_the_client_waits(client: OpenAI, site: Site) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.chat.completions.create, model="writer", messages=[user("Write")])
        while not (asked := site.list_requests()):
            time.sleep(0.02)
        assert isinstance(asked[0].asked, PermissionAsked)
        assert not (site.repo / "a.txt").exists()
        site.answer(asked[0].summary.id, asked[0].asked.id)

        assert waiting.result(20).choices[0].message.content == "Wrote it."
    assert (site.repo / "a.txt").read_text() == "new\n"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_disconnects_stops_its_run(client: OpenAI, site: Site, is_stream: bool) -> None:
    impatient = client.with_options(timeout=1.0, max_retries=0)
    if is_stream:
        with client.chat.completions.create(model="stuck", messages=[user("Hi")], stream=True) as chunks:
            next(iter(chunks))
    else:
        with pytest.raises(openai.APITimeoutError):
            impatient.chat.completions.create(model="stuck", messages=[user("Hi")])

    run = find_newest_run(site.store)
    [ended] = site.wait_for_events(run, RunEnded)
    assert ended.outcome == "cancelled"


def test_a_failure_has_the_form_of_the_api_and_is_not_repeated(client: OpenAI, site: Site) -> None:
    with pytest.raises(openai.APIStatusError) as failed:
        client.chat.completions.create(model="broken", messages=[user("Hi")])
    run = failed.value.response.headers["x-podium-run"]
    with pytest.raises(openai.APIError, match="no such luck"):
        list(client.chat.completions.create(model="broken", messages=[user("Hi")], stream=True))

    assert failed.value.status_code == 502
    assert "no such luck" in str(failed.value)
    assert read_outcomes(site, run) == ["failed"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"messages": []}, "the last message must have the role user"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the last message must have the role user"),
        ({"messages": [{"role": "user", "content": "  "}]}, "the last message is empty"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "only text is supported"),
        ({"messages": "x"}, "the request is invalid"),
        ({"tools": [{"type": "function"}]}, "an agent uses only its own"),
        ({"n": 2}, "n must be 1"),
        ({"response_format": {"type": "json_object"}}, "is not supported; use text"),
    ],
)
def test_bad_input_gets_one_sentence(client: OpenAI, wrong: Any, sentence: str) -> None:
    with pytest.raises(openai.BadRequestError, match=sentence) as refused:
        client.chat.completions.create(**({"model": "greeter", "messages": [user("Hi")]} | wrong))

    assert refused.value.type == "invalid_request_error"


def test_an_unknown_model_and_wrong_tokens_are_refused(site: Site, client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nobody", messages=[user("Hi")])
    with pytest.raises(openai.AuthenticationError, match="no valid token"):
        client.with_options(api_key="pod_guess").models.list()
    with connect(site, "read") as reader, pytest.raises(openai.PermissionDeniedError, match="scope act"):
        reader.chat.completions.create(model="greeter", messages=[user("Hi")])

    assert unknown.value.code == "model_not_found"


def test_hostile_requests_start_no_run(site: Site, client: OpenAI) -> None:
    before = find_newest_run(site.store)
    body = {"model": "greeter", "messages": [user("Hi")]}
    headers = {"Authorization": f"Bearer {client.api_key}"}
    url = f"{site.address}/v1/chat/completions"

    assert httpx.post(url, json=body).status_code == 401
    assert httpx.post(url, json=body, headers={**headers, "Origin": "http://evil.test"}).status_code == 403
    assert httpx.post(url, json=body, headers={**headers, "Host": "evil.test"}).status_code == 403
    assert httpx.post(url, json=body, headers={**headers, "Sec-Fetch-Site": "same-site"}).status_code == 403
    large = httpx.post(url, content=b"x" * (8 * 1024 * 1024 + 1), headers=headers)
    assert (large.status_code, set(large.json())) == (413, {"error"})
    for content in (b"[" * 100_000, b'{"model": "\xff"}', b"", b"null"):
        assert httpx.post(url, content=content, headers=headers).status_code == 400
    assert find_newest_run(site.store) == before


def test_a_client_that_reads_slowly_delays_nobody(site: Site, client: OpenAI) -> None:
    body = json.dumps({"model": "greeter", "stream": True, "messages": [user("Hi")]}).encode()
    host, port = site.address.removeprefix("http://").split(":")
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {client.api_key}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(head.encode() + body)

        answer = client.chat.completions.create(model="greeter", messages=[user("Hi")])

        assert answer.choices[0].message.content
        assert b"200 OK" in slow.recv(4096)


def test_a_run_can_be_resumed_after_its_server_was_killed(tmp_path: Path) -> None:
    write_agents(tmp_path)
    made = podium(tmp_path, "serve", "tokens", "--create", "test")
    with serve(tmp_path) as (printed, process):
        client = OpenAI(base_url=f"{printed['address']}/v1", api_key=made.stdout.strip(), max_retries=0)
        with client.chat.completions.create(model="stuck", messages=[user("Hi")], stream=True) as chunks:
            run = next(iter(chunks)).id.removeprefix("chatcmpl-")
            process.send_signal(signal.SIGKILL)
            with pytest.raises((openai.APIError, httpx.HTTPError)):
                list(chunks)

    [listed] = json.loads(podium(tmp_path, "ps", "--json").stdout)["runs"]
    assert (listed["id"], listed["state"]) == (run, "resumable")
    assert not any(isinstance(one.event, RunEnded) for one in read_entries(tmp_path / "home" / "podium.db", run))


def test_a_server_that_stops_tells_its_clients_how_to_continue(tmp_path: Path) -> None:
    write_agents(tmp_path)
    made = podium(tmp_path, "serve", "tokens", "--create", "test")
    with serve(tmp_path) as (printed, process):
        client = OpenAI(base_url=f"{printed['address']}/v1", api_key=made.stdout.strip(), max_retries=0)
        with client.chat.completions.create(model="stuck", messages=[user("Hi")], stream=True) as chunks:
            run = next(iter(chunks)).id.removeprefix("chatcmpl-")
            process.send_signal(signal.SIGTERM)
            with pytest.raises(openai.APIError, match=f"podium resume {run}"):
                list(chunks)
