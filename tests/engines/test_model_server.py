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
from podium.testing.model_server import LONGEST_HEAD

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def served(server: ModelServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with server, aiohttp.ClientSession(base_url=server.url + "/") as client:
        yield client


async def said(client: aiohttp.ClientSession, **more: Any) -> str:
    async with client.post("chat/completions", json={**ASKED, **more}) as response:
        document = await response.json()
        return str(document["choices"][0]["message"]["content"])


async def test_a_whole_reply_has_its_message_its_reason_and_its_usage() -> None:
    script = [{"says": "hello", "reasoning": "hm", "calls": [{"name": "look", "arguments": {"at": 1}}]}]
    async with served(ModelServer(script)) as client, client.post("chat/completions", json=ASKED) as response:
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
async def test_a_streamed_reply_tells_its_usage_to_those_who_asked_for_it(*, is_counted: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if is_counted else {}
    async with (
        served(ModelServer([{"says": "hello", "pieces": 2}])) as client,
        client.post("chat/completions", json={**ASKED, "stream": True, **options}) as response,
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


async def test_scripts_go_by_the_name_of_the_model_or_ride_in_the_prompt() -> None:
    block = '```script\n["ridden"]\n```'
    async with served(ModelServer({"m": ["by name"]})) as client:
        by_name = await said(client)
        ridden = await said(client, model="other", messages=[{"role": "developer", "content": block}])
        parts = await said(client, model="other", messages=[{"role": "user", "content": [{"text": block}]}])
        echoed = await said(client, model="other")

    assert (by_name, ridden, parts, echoed) == ("by name", "ridden", "ridden", "ok: hi")


async def test_the_list_of_models_names_those_with_a_script() -> None:
    async with served(ModelServer({"small": ["x"], "large": ["y"]})) as client, client.get("models") as response:
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
    ],
)
async def test_what_is_no_call_is_turned_away_and_not_counted(method: str, path: str, body: bytes, status: int) -> None:
    server = ModelServer()
    async with served(server) as client, client.request(method, path, data=body) as response:
        document = await response.json()

    assert response.status == status
    assert document["error"]["message"]
    assert server.calls == []


async def test_a_script_that_is_over_is_the_callers_mistake() -> None:
    past = [*ASKED["messages"], {"role": "assistant", "content": "one"}]
    asked = {**ASKED, "messages": past}
    async with served(ModelServer(["one"])) as client, client.post("chat/completions", json=asked) as response:
        document = await response.json()

    assert response.status == 400
    assert "the script of m is over" in document["error"]["message"]


async def test_calls_are_counted_by_their_key_and_those_without_are_told_apart_by_what_they_ask() -> None:
    server = ModelServer([{"says": "x", "fails": {"times": 1}}])
    statuses = []
    async with served(server) as client:
        for key, text in [("one", "hi"), ("two", "hi"), ("one", "hi"), ("", "hi"), ("", "ho"), ("", "hi")]:
            headers = {"Idempotency-Key": key} if key else {}
            asked = {**ASKED, "messages": [{"role": "user", "content": text}]}
            async with client.post("chat/completions", json=asked, headers=headers) as response:
                statuses.append(response.status)

    assert statuses == [500, 500, 200, 500, 500, 200]
    assert [server.count(key) for key in ("one", "two", "")] == [2, 1, 3]


@pytest.mark.parametrize("wait", [None, 2, 0.5])
async def test_a_failure_tells_when_to_come_back_only_if_the_script_does(wait: float | None) -> None:
    script = [{"fails": {"status": 429, "retry_after": wait}}]
    async with served(ModelServer(script)) as client, client.post("chat/completions", json=ASKED) as response:
        await response.read()

    assert response.status == 429
    assert response.headers.get("Retry-After") == (None if wait is None else f"{wait:g}")


async def test_a_whole_reply_may_break_off_or_be_garbled() -> None:
    async with served(
        ModelServer({"half": [{"says": "x", "half": True}], "bad": [{"says": "x", "garbled": True}]})
    ) as client:
        async with client.post("chat/completions", json={**ASKED, "model": "half"}) as response:
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
        async with client.post("chat/completions", json={**ASKED, "model": "bad"}) as response:
            with pytest.raises(msgspec.DecodeError):
                msgspec.json.decode(await response.read())


async def test_calls_in_flight_are_counted_and_can_be_waited_for() -> None:
    server = ModelServer([{"silent": True}])
    async with served(server) as client:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(said, client)
            await server.wait_calls(3)
            assert (server.in_flight, len(server.calls)) == (3, 3)
            group.cancel_scope.cancel()
        await server.wait_idle()

    assert (server.in_flight, server.most_in_flight) == (0, 3)


async def test_latency_passes_before_every_reply() -> None:
    async with served(ModelServer("x", latency=0.05)) as client:
        started = anyio.current_time()
        await said(client)

        assert anyio.current_time() - started >= 0.05


async def send(server: ModelServer, *packets: bytes) -> bytes:
    """What comes back on one connection until the server closes it."""
    port = int(server.url.split(":")[2].removesuffix("/v1"))
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for packet in packets:
            await stream.send(packet)
        await stream.send_eof()
        return b"".join([data async for data in stream])


def request(text: str) -> bytes:
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": text}]})
    return b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_requests_may_come_in_any_packets_and_before_the_last_one_is_answered() -> None:
    stream = request("first") + request("second") + request("third")
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
async def test_what_is_no_request_is_refused_and_hung_up_on(packet: bytes) -> None:
    async with ModelServer() as server:
        assert (await send(server, packet)).startswith(b"HTTP/1.1 400 Bad Request\r\n")


async def test_leaving_the_block_hangs_up_on_everybody() -> None:
    async with ModelServer([{"silent": True}]) as server:
        port = int(server.url.split(":")[2].removesuffix("/v1"))
        connection = await anyio.connect_tcp("127.0.0.1", port)
        await connection.send(request("hi"))
        await server.wait_calls(1)

    async with connection:
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await connection.receive()
    assert server.in_flight == 0


@asynccontextmanager
async def program(*options: str) -> AsyncIterator[tuple[anyio.abc.Process, aiohttp.ClientSession]]:
    """The server as a program, and a client for it."""
    command = [sys.executable, "-m", "podium.testing.model_server", *options]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1000)
        listening, url = line.decode().rsplit(" ", 1)
        assert listening == "listening on"
        async with aiohttp.ClientSession(base_url=url + "/") as client:
            yield process, client


async def test_the_program_logs_every_call_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    async with program("--says", "hello", "--pieces", "2", "--latency", "0.001", "--log", str(log)) as (
        process,
        client,
    ):
        said_first = await said(client)
        async with client.post("chat/completions", json=ASKED, headers={"Idempotency-Key": "k"}) as response:
            await response.read()
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(10):
            status = await process.wait()

    lines = [msgspec.json.decode(line) for line in log.read_bytes().splitlines()]
    assert said_first == "hello"
    assert [(line["key"], line["model"], line["stream"]) for line in lines] == [("", "m", False), ("k", "m", False)]
    assert status == 0


async def test_the_log_of_a_program_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"

    for _ in range(2):
        async with program("--log", str(log)) as (process, client):
            async with client.post("chat/completions", json=ASKED, headers={"Idempotency-Key": "k"}) as response:
                assert (await response.json())["choices"][0]["message"]["content"] == "ok: hi"
            process.kill()
            await process.wait()

    counts = Counter(msgspec.json.decode(line)["key"] for line in log.read_bytes().splitlines())
    assert counts == {"k": 2}
