"""Two peers exchange messages over real pipes. Where a test is about bad manners, one side writes raw bytes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio import Event, create_task_group, sleep_forever

from podium.system import json_rpc
from podium.system.json_rpc import METHOD_NOT_FOUND, ConnectionEnded, JsonRpcPeer, Params, RpcError
from podium.system.line_stream import DescriptorStream


@contextmanager
def pipe_pair() -> Iterator[tuple[DescriptorStream, DescriptorStream, list[int]]]:
    """Yield two streams that are connected by pipes, and the descriptors of the second one."""
    to_second, from_first = os.pipe()
    to_first, from_second = os.pipe()
    descriptors = [to_second, from_second]
    try:
        yield DescriptorStream(to_first, from_first), DescriptorStream(to_second, from_second), descriptors
    finally:
        for one in (to_first, from_first, *descriptors):
            os.close(one)


class OtherSide:
    """The other side of a connection: the lines that it received, and raw writes."""

    def __init__(self, stream: DescriptorStream, descriptors: list[int]) -> None:
        self._stream = stream
        self._descriptors = descriptors
        self._unread = b""

    async def write(self, *lines: bytes) -> None:
        await self._stream.write(b"".join(line + b"\n" for line in lines))

    async def send(self, *messages: object) -> None:
        await self.write(*map(msgspec.json.encode, messages))

    async def receive(self) -> Any:
        while b"\n" not in self._unread:
            self._unread += await self._stream.read()
        line, _, self._unread = self._unread.partition(b"\n")
        return msgspec.json.decode(line)

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


class Desk:
    """Handles requests and notifications, and keeps what arrived."""

    def __init__(self) -> None:
        self.notified: list[Params] = []
        self.junk: list[bytes] = []
        self.waiting = Event()
        self.released = Event()

    async def handle_request(self, method: str, params: Params) -> Any:
        match method:
            case "double":
                return {"is": params["number"] * 2}
            case "wait":
                self.waiting.set()
                await self.released.wait()
                return "released"
        raise RpcError(METHOD_NOT_FOUND, f"no method {method}", {"known": ["double"]})

    async def handle_notification(self, method: str, params: Params) -> None:
        self.notified.append(params)


@asynccontextmanager
async def raw_connection(desk: Desk) -> AsyncIterator[tuple[JsonRpcPeer, OtherSide]]:
    with pipe_pair() as (own, other, descriptors):
        peer = JsonRpcPeer(
            own.read,
            own.write,
            on_request=desk.handle_request,
            on_notification=desk.handle_notification,
            on_junk=desk.junk.append,
        )
        async with create_task_group() as group:
            group.start_soon(peer.run)
            yield peer, OtherSide(other, descriptors)
            group.cancel_scope.cancel()


async def test_both_sides_call_each_other_at_the_same_time() -> None:
    desk = Desk()
    with pipe_pair() as (one, other, _):
        client = JsonRpcPeer(one.read, one.write, on_request=desk.handle_request)

        async def ask_back(method: str, params: Params) -> Any:
            return await agent.call("double", {"number": params["number"] + 1})

        agent = JsonRpcPeer(other.read, other.write, on_request=ask_back)
        async with create_task_group() as group:
            group.start_soon(client.run)
            group.start_soon(agent.run)
            answer = await client.call("plan", {"number": 20})
            group.cancel_scope.cancel()

    assert answer == {"is": 42}


async def test_an_error_has_the_other_sides_code_message_and_data() -> None:
    async with raw_connection(Desk()) as (peer, other):
        async with create_task_group() as group:

            async def answer_with_error() -> None:
                asked = await other.receive()
                await other.send(
                    {"id": asked["id"], "error": {"code": -32603, "message": "Internal error", "data": "x"}}
                )

            group.start_soon(answer_with_error)
            with pytest.raises(RpcError, match="Internal error: x") as caught:
                await peer.call("plan", {})

        await other.send({"jsonrpc": "2.0", "id": "a", "method": "unknown"})
        refused = await other.receive()

    assert caught.value.code == -32603
    assert refused["id"] == "a"
    assert refused["error"] == {"code": -32601, "message": "no method unknown", "data": {"known": ["double"]}}


@pytest.mark.parametrize(
    "junk",
    [
        b"Debugger listening on ws://127.0.0.1",
        b'{"jsonrpc": "2.0", "id": 1, "result":',
        b"[1, 2]",
        b"null",
        b'"text"',
        b"17",
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
    ids=["log line", "half a message", "array", "null", "string", "number", "not UTF-8", "too deep"],
)
async def test_a_line_that_is_no_message_is_skipped(junk: bytes) -> None:
    desk = Desk()
    async with raw_connection(desk) as (_, other):
        await other.write(junk)
        await other.send({"id": 7, "method": "double", "params": {"number": 4}})
        answer = await other.receive()

    assert answer == {"jsonrpc": "2.0", "id": 7, "result": {"is": 8}}
    assert desk.junk == [junk]


async def test_messages_with_unusual_fields_do_not_disturb_the_others() -> None:
    desk = Desk()
    odd = [
        {},
        {"id": 99, "result": "nobody asked"},
        {"method": 5, "id": 1},
        {"method": "note", "params": [1]},
        {"method": "$/cancel_request", "params": {"id": "nobody"}},
    ]
    async with raw_connection(desk) as (_, other):
        await other.send(*odd, {"id": 7, "method": "double", "params": {"number": 4}})
        answer = await other.receive()

    assert answer["result"] == {"is": 8}
    assert desk.notified == [{}]


async def test_messages_are_read_from_a_file(tmp_path: Path) -> None:
    desk, asked = Desk(), {"id": 7, "method": "double", "params": {"number": 4}}
    (tmp_path / "in").write_bytes(msgspec.json.encode({"method": "note", "params": asked}) + b"\n")
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as taken:
        stream = DescriptorStream(given.fileno(), taken.fileno())
        peer = JsonRpcPeer(
            stream.read, stream.write, on_request=desk.handle_request, on_notification=desk.handle_notification
        )
        await peer.run()
        await stream.write(b"done\n")

    assert desk.notified == [asked]
    assert (tmp_path / "out").read_bytes() == b"done\n"


async def test_half_a_surrogate_pair_is_read() -> None:
    desk = Desk()
    async with raw_connection(desk) as (_, other):
        await other.write(b'{"method": "note", "params": {"text": "cut \\ud83d"}}')
        await other.send({"id": 7, "method": "double", "params": {"number": 4}})
        await other.receive()

    assert desk.notified == [{"text": "cut \ud83d"}]


async def test_notifications_are_handled_in_order_and_before_the_response_that_follows_them() -> None:
    desk = Desk()
    counted: list[int] = []
    async with raw_connection(desk) as (peer, other):
        async with create_task_group() as group:

            async def send_updates() -> None:
                asked = await other.receive()
                await other.send(*({"method": "note", "params": {"n": n}} for n in range(20_000)), {"id": asked["id"]})

            group.start_soon(send_updates)
            await peer.call("plan", {})
            counted = [params["n"] for params in desk.notified]

    assert counted == list(range(20_000))


async def test_a_line_of_five_megabytes_arrives_whole_in_both_directions() -> None:
    text = "x" * 5_000_000
    desk = Desk()
    async with raw_connection(desk) as (peer, other):
        async with create_task_group() as group:

            async def echo() -> None:
                asked = await other.receive()
                await other.send({"id": asked["id"], "result": asked["params"]["text"]})

            group.start_soon(echo)
            answer = await peer.call("echo", {"text": text})

    assert answer == text


async def test_a_message_beyond_the_limit_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rpc, "LONGEST_MESSAGE", 100_000)
    async with raw_connection(Desk()) as (peer, other):
        async with create_task_group() as group:
            group.start_soon(other.write, b"x" * 300_000)
            with pytest.raises(ConnectionEnded, match="message longer than 100,000 bytes"):
                await peer.call("plan", {})
            group.cancel_scope.cancel()


async def test_a_waiting_handler_delays_neither_other_requests_nor_notifications() -> None:
    desk = Desk()
    async with raw_connection(desk) as (_, other):
        await other.send({"id": 1, "method": "wait"})
        await other.send({"method": "note", "params": {"n": 1}}, {"id": 2, "method": "double", "params": {"number": 1}})
        first = await other.receive()
        desk.released.set()
        second = await other.receive()

    assert (first["id"], second["id"]) == (2, 1)
    assert desk.notified == [{"n": 1}]


async def test_a_request_can_be_cancelled_by_the_other_side() -> None:
    desk = Desk()
    async with raw_connection(desk) as (_, other):
        await other.send({"id": 1, "method": "wait"})
        await desk.waiting.wait()
        await other.send({"method": "$/cancel_request", "params": {"id": 1}})
        answer = await other.receive()

    assert answer["error"]["code"] == -32800


async def test_open_and_later_calls_fail_when_the_other_side_goes_away() -> None:
    async with raw_connection(Desk()) as (peer, other):
        async with create_task_group() as group:

            async def leave() -> None:
                await other.receive()
                other.close()

            group.start_soon(leave)
            with pytest.raises(ConnectionEnded, match="closed the connection"):
                await peer.call("plan", {})
        with pytest.raises(ConnectionEnded, match="closed the connection"):
            await peer.notify("note", {})


async def test_the_end_of_the_connection_cancels_the_handlers() -> None:
    cancelled = Event()
    with pipe_pair() as (own, other, descriptors):
        started = Event()

        async def wait_for_ever(method: str, params: Params) -> Any:
            started.set()
            try:
                await sleep_forever()
            finally:
                cancelled.set()

        peer, far = JsonRpcPeer(own.read, own.write, on_request=wait_for_ever), OtherSide(other, descriptors)
        async with create_task_group() as group:
            group.start_soon(peer.run)
            await far.send({"id": 1, "method": "wait"})
            await started.wait()
            far.close()

    assert cancelled.is_set()
