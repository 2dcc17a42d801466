from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.abc
import msgspec
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from podium.testing import ModelServer
from podium.testing.model_server.http_connection import LONGEST_HEAD

CHAT_REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def open_client(server: ModelServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with server, aiohttp.ClientSession(base_url=server.url + "/") as client:
        yield client


async def ask_model(client: aiohttp.ClientSession, **more: Any) -> str:
    async with client.post("chat/completions", json={**CHAT_REQUEST, **more}) as response:
        document = await response.json()
        return str(document["choices"][0]["message"]["content"])


async def test_a_whole_reply_has_its_message_its_reason_and_its_usage() -> None:
    script = [{"says": "hello", "reasoning": "hm", "calls": [{"name": "look", "arguments": {"at": 1}}]}]
    async with (
        open_client(ModelServer(script)) as client,
        client.post("chat/completions", json=CHAT_REQUEST) as response,
    ):
        document = await response.json()

    assert response.content_type == "application/json"
    assert document["model"] == "m"
    assert document["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "hello",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "call-0-0", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}
                ],
            },
            "finish_reason": "tool_calls",
        }
    ]
    assert document["usage"]["total_tokens"] == document["usage"]["prompt_tokens"] + 5


@pytest.mark.parametrize("is_counted", [True, False])
async def test_a_streamed_reply_includes_its_usage_only_on_request(*, is_counted: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if is_counted else {}
    async with (
        open_client(ModelServer([{"says": "hello", "pieces": 2}])) as client,
        client.post("chat/completions", json={**CHAT_REQUEST, "stream": True, **options}) as response,
    ):
        lines = [line.removeprefix("data: ") for line in (await response.text()).split("\n\n") if line]

    assert response.content_type == "text/event-stream"
    assert lines.pop() == "[DONE]"
    chunks = [msgspec.json.decode(line) for line in lines]
    assert [choice["delta"].get("content") for chunk in chunks for choice in chunk["choices"]] == [
        "",
        "he",
        "llo",
        None,
    ]
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks if "usage" in chunk] == [2] * is_counted


async def test_scripts_are_chosen_by_model_name_or_given_in_the_prompt() -> None:
    block = '```script\n["ridden"]\n```'
    async with open_client(ModelServer({"m": ["by name"]})) as client:
        by_name = await ask_model(client)
        ridden = await ask_model(client, model="other", messages=[{"role": "developer", "content": block}])
        parts = await ask_model(client, model="other", messages=[{"role": "user", "content": [{"text": block}]}])
        echoed = await ask_model(client, model="other")

    assert (by_name, ridden, parts, echoed) == ("by name", "ridden", "ridden", "ok: hi")


# Anthropic's messages

MESSAGES_REQUEST: dict[str, Any] = {**CHAT_REQUEST, "max_tokens": 100}


def parse_events(stream: str) -> list[dict[str, Any]]:
    """Return the data of the events, whose names equal their types."""
    found = []
    for event in stream.split("\n\n")[:-1]:
        name, data = event.split("\n")
        found.append(msgspec.json.decode(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


async def test_a_whole_message_has_its_blocks_its_reason_and_its_usage() -> None:
    spent = {"input_tokens": 11, "output_tokens": 7, "cached_tokens": 4}
    calls = [{"name": "look", "arguments": {"at": 1}}]
    script = [{"says": "hello", "reasoning": "hm", "calls": calls, "usage": spent}]
    async with open_client(ModelServer(script)) as client, client.post("messages", json=MESSAGES_REQUEST) as response:
        document = await response.json()

    assert response.content_type == "application/json"
    assert (document["type"], document["role"], document["model"]) == ("message", "assistant", "m")
    assert document["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "signed-by-the-script"},
        {"type": "text", "text": "hello"},
        {"type": "tool_use", "id": "call-0-0", "name": "look", "input": {"at": 1}},
    ]
    assert document["stop_reason"] == "tool_use"
    assert document["usage"] == {
        "input_tokens": 7,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 7,
    }


async def test_a_streamed_message_comes_in_blocks() -> None:
    script = [{"says": "hello", "pieces": 2, "reasoning": "hm", "calls": [{"name": "look", "arguments": {"at": 1}}]}]
    async with (
        open_client(ModelServer(script)) as client,
        client.post("messages", json={**MESSAGES_REQUEST, "stream": True}) as response,
    ):
        said = parse_events(await response.text())

    assert response.content_type == "text/event-stream"
    assert [event["type"].removeprefix("content_block_") for event in said] == (
        "message_start ping start delta delta stop start delta delta stop start delta delta delta stop "
        "message_delta message_stop"
    ).split()
    assert [event["index"] for event in said if "index" in event] == [0] * 4 + [1] * 4 + [2] * 5
    assert said[0]["message"]["content"] == []
    deltas = [event["delta"] for event in said if event["type"] == "content_block_delta"]
    assert [next(value for key, value in delta.items() if key != "type") for delta in deltas] == [
        "hm",
        "signed-by-the-script",
        "he",
        "llo",
        "",
        '{"at":1',
        "}",
    ]
    assert said[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert said[-2]["usage"]["output_tokens"] == said[0]["message"]["usage"]["output_tokens"] + 4


async def test_prompts_and_tool_results_may_come_in_blocks() -> None:
    block = '```script\n["one", "two"]\n```'
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": block}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "here"}]},
                {"type": "tool_result", "tool_use_id": "2"},
                {"type": "image", "source": {}},
                {"type": "text", "text": "well?", "cache_control": {"type": "ephemeral"}},
            ],
        },
    ]
    server = ModelServer()
    system = [{"type": "text", "text": "You are a."}, {"type": "text", "text": "Be kind."}]
    async with (
        open_client(server) as client,
        client.post("messages", json={**MESSAGES_REQUEST, "messages": messages, "system": system}) as response,
    ):
        document = await response.json()

    assert document["content"] == [{"type": "text", "text": "two"}]
    [received] = server.calls
    assert received.call.system == "You are a.\n\nBe kind."
    assert [(message.role, message.text, message.answers) for message in received.call.messages[2:]] == [
        ("tool", "here", "1"),
        ("tool", "", "2"),
        ("user", "well?", ""),
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (529, "overloaded_error"),
    ],
)
async def test_errors_have_the_types_of_their_statuses(status: int, kind: str) -> None:
    script = [{"fails": {"status": status, "retry_after": 2}}]
    async with open_client(ModelServer(script)) as client, client.post("messages", json=MESSAGES_REQUEST) as response:
        document = await response.json()

    assert (response.status, response.headers["Retry-After"]) == (status, "2")
    message = "error simulated by the script"
    assert (document["type"], document["error"]) == ("error", {"type": kind, "message": message})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-api-key": "wrong"}, 403),
        ({"x-api-key": "right"}, 200),
        ({"Authorization": "Bearer right"}, 200),
        ({"x-api-key": "wrong", "Authorization": "Bearer right"}, 403),
    ],
)
async def test_the_key_is_read_from_either_header_of_this_api(headers: dict[str, str], status: int) -> None:
    async with (
        open_client(ModelServer(api_key="right")) as client,
        client.post("messages", json=MESSAGES_REQUEST, headers=headers) as response,
    ):
        await response.read()

    assert response.status == status


async def test_a_whole_message_may_break_off_or_be_garbled() -> None:
    calls = [{"name": "look", "arguments": {"at": 1}}]
    scripts: dict[str, list[Any]] = {
        "half": [{"says": "x", "half": True}],
        "bad": [{"says": "x", "garbled": True}],
        "odd": [{"calls": calls, "garbled": True}],
    }
    async with open_client(ModelServer(scripts)) as client:
        async with client.post("messages", json={**MESSAGES_REQUEST, "model": "half"}) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        async with client.post("messages", json={**MESSAGES_REQUEST, "model": "bad"}) as response:
            with pytest.raises(msgspec.DecodeError):
                msgspec.json.decode(await response.read())
        async with client.post("messages", json={**MESSAGES_REQUEST, "model": "odd"}) as response:
            document = await response.json()

    assert document["content"][0]["input"] == '{"at":1'


# Both


async def test_the_list_of_models_names_those_with_a_script() -> None:
    async with open_client(ModelServer({"small": ["x"], "large": ["y"]})) as client, client.get("models") as response:
        document = await response.json()

    assert [model["id"] for model in document["data"]] == ["small", "large"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "chat/completions", b"", 404),
        ("POST", "elsewhere", b"{}", 404),
        ("POST", "chat/completions", b"{", 400),
        ("POST", "chat/completions", b'{"model": "m"}', 400),
        ("POST", "chat/completions", b"\xff", 400),
        ("GET", "messages", b"", 404),
        ("POST", "messages", b"{", 400),
        ("POST", "messages", b'{"model": "m", "messages": []}', 400),
    ],
)
async def test_invalid_calls_are_refused_and_not_counted(method: str, path: str, body: bytes, status: int) -> None:
    server = ModelServer()
    async with open_client(server) as client, client.request(method, path, data=body) as response:
        document = await response.json()

    assert response.status == status
    assert document["error"]["message"]
    assert server.calls == []


async def test_a_call_beyond_the_end_of_the_script_is_a_client_error() -> None:
    past = [*CHAT_REQUEST["messages"], {"role": "assistant", "content": "one"}]
    asked = {**CHAT_REQUEST, "messages": past}
    async with open_client(ModelServer(["one"])) as client, client.post("chat/completions", json=asked) as response:
        document = await response.json()

    assert response.status == 400
    assert "the script of m has no more steps" in document["error"]["message"]


async def test_calls_are_counted_by_their_key_and_calls_without_one_by_their_content() -> None:
    server = ModelServer([{"says": "x", "fails": {"times": 1}}])
    statuses = []
    async with open_client(server) as client:
        for key, text in [("one", "hi"), ("two", "hi"), ("one", "hi"), ("", "hi"), ("", "ho"), ("", "hi")]:
            headers = {"Idempotency-Key": key} if key else {}
            asked = {**CHAT_REQUEST, "messages": [{"role": "user", "content": text}]}
            async with client.post("chat/completions", json=asked, headers=headers) as response:
                statuses.append(response.status)

    assert statuses == [500, 500, 200, 500, 500, 200]
    assert [server.count(key) for key in ("one", "two", "")] == [2, 1, 3]


@pytest.mark.parametrize("wait", [None, 2, 0.5])
async def test_a_failure_has_retry_after_only_if_the_script_gives_it(wait: float | None) -> None:
    script = [{"fails": {"status": 429, "retry_after": wait}}]
    async with (
        open_client(ModelServer(script)) as client,
        client.post("chat/completions", json=CHAT_REQUEST) as response,
    ):
        await response.read()

    assert response.status == 429
    assert response.headers.get("Retry-After") == (None if wait is None else f"{wait:g}")


async def test_a_whole_reply_may_break_off_or_be_garbled() -> None:
    async with open_client(
        ModelServer({"half": [{"says": "x", "half": True}], "bad": [{"says": "x", "garbled": True}]})
    ) as client:
        async with client.post("chat/completions", json={**CHAT_REQUEST, "model": "half"}) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        async with client.post("chat/completions", json={**CHAT_REQUEST, "model": "bad"}) as response:
            with pytest.raises(msgspec.DecodeError):
                msgspec.json.decode(await response.read())


async def test_calls_in_flight_are_counted_and_can_be_waited_for() -> None:
    server = ModelServer([{"silent": True}])
    async with open_client(server) as client:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask_model, client)
            await server.wait_calls(3)
            assert (server.in_flight, len(server.calls)) == (3, 3)
            group.cancel_scope.cancel()
        await server.wait_idle()

    assert (server.in_flight, server.most_in_flight) == (0, 3)


async def test_latency_passes_before_every_reply() -> None:
    async with open_client(ModelServer("x", latency=0.05)) as client:
        started = anyio.current_time()
        await ask_model(client)

        assert anyio.current_time() - started >= 0.05


async def send_packets(server: ModelServer, *packets: bytes) -> bytes:
    """Return everything received on one connection until the server closes it."""
    port = int(server.url.split(":")[2].removesuffix("/v1"))
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for packet in packets:
            await stream.send(packet)
        await stream.send_eof()
        return b"".join([data async for data in stream])


def encode_request(text: str) -> bytes:
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": text}]})
    return b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_requests_may_come_in_any_packets_and_before_the_last_one_is_answered() -> None:
    stream = encode_request("first") + encode_request("second") + encode_request("third")
    async with ModelServer(latency=0.001) as server:
        port = int(server.url.split(":")[2].removesuffix("/v1"))
        async with await anyio.connect_tcp("127.0.0.1", port) as connection:
            for n in range(0, len(stream), 7):
                await connection.send(stream[n : n + 7])
            received = BufferedByteReceiveStream(connection)
            for text in (b"first", b"second", b"third"):
                reply = await received.receive_until(b"}}}", 10_000)

                assert b"ok: " + text in reply


@pytest.mark.parametrize(
    "packet",
    [
        b"what is this\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"\xff\xff \r\n\r\n",
        b"x" * (LONGEST_HEAD + 1),
    ],
)
async def test_malformed_requests_are_refused_and_the_connection_is_closed(packet: bytes) -> None:
    async with ModelServer() as server:
        assert (await send_packets(server, packet)).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_leaving_the_block_closes_all_connections() -> None:
    async with ModelServer([{"silent": True}]) as server:
        port = int(server.url.split(":")[2].removesuffix("/v1"))
        connection = await anyio.connect_tcp("127.0.0.1", port)
        await connection.send(encode_request("hi"))
        await server.wait_calls(1)

    async with connection:
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await connection.receive()
    assert server.in_flight == 0


@asynccontextmanager
async def start_program(*options: str) -> AsyncIterator[tuple[anyio.abc.Process, aiohttp.ClientSession]]:
    """Start the server as a program, with a client for it."""
    command = [sys.executable, "-m", "podium.testing.model_server", *options]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1000)
        listening, url = line.decode().rsplit(" ", 1)
        assert listening == "listening on"
        async with aiohttp.ClientSession(base_url=url + "/") as client:
            yield process, client


async def test_the_program_logs_every_call_and_exits_on_sigterm(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    async with start_program("--says", "hello", "--pieces", "2", "--latency", "0.001", "--log", str(log)) as (
        process,
        client,
    ):
        said_first = await ask_model(client)
        async with client.post("chat/completions", json=CHAT_REQUEST, headers={"Idempotency-Key": "k"}) as response:
            await response.read()
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(40):
            status = await process.wait()

    lines = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
    assert said_first == "hello"
    assert [(line["key"], line["model"], line["stream"]) for line in lines] == [("", "m", False), ("k", "m", False)]
    assert status == 0


async def test_a_restarted_program_appends_to_the_log_of_a_killed_one(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"

    for _ in range(2):
        async with start_program("--log", str(log)) as (process, client):
            async with client.post("chat/completions", json=CHAT_REQUEST, headers={"Idempotency-Key": "k"}) as response:
                assert (await response.json())["choices"][0]["message"]["content"] == "ok: hi"
            process.kill()
            await process.wait()

    counts = Counter(msgspec.json.decode(line)["key"] for line in log.read_bytes().splitlines())
    assert counts == {"k": 2}
