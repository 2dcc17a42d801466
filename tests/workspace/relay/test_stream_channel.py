"""The outer end of a sandbox's pair: streams with back-pressure, and nothing that a hostile program can break."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream
from hypothesis import given, settings
from hypothesis import strategies as st

from podium.workspace.relay._forwarder_program import (
    CREDIT,
    DATA,
    END,
    GRANT,
    HEADER,
    LARGEST_PAYLOAD,
    OPEN,
    READY,
    RESET,
    WINDOW,
    FrameDecoder,
    encode_frame,
)
from podium.workspace.relay.stream_channel import MOST_STREAMS, StreamChannel


@dataclass
class Inside:
    """The inner end of a pair, driven by the test."""

    pair: socket.socket
    reports: list[str] = field(default_factory=list)
    decoder: FrameDecoder = field(default_factory=FrameDecoder)
    frames: list[tuple[int, int, bytes]] = field(default_factory=list)

    async def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self.pair.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self.pair)

    async def next_frame(self) -> tuple[int, int, bytes] | None:
        """Return the next frame; None if the pair was closed."""
        while not self.frames:
            await anyio.wait_readable(self.pair)
            try:
                data = self.pair.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.frames += self.decoder.feed(data)
        return self.frames.pop(0)

    async def expect_closed(self) -> None:
        with anyio.fail_after(5):
            while await self.next_frame() is not None:
                pass


async def echo(stream: ByteStream) -> None:
    async for data in stream:
        await stream.send(data)


async def wait_forever(stream: ByteStream) -> None:
    await anyio.sleep_forever()


@asynccontextmanager
async def open_channel(*services: Callable[[ByteStream], object]) -> AsyncIterator[Inside]:
    outer, inner = socket.socketpair()
    inner.setblocking(False)
    inside = Inside(inner)
    channel = StreamChannel(outer, services, report=inside.reports.append)  # type: ignore[arg-type]
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(channel.serve)
            with inner:
                yield inside
            # With the inner end closed, the channel ends by itself.


async def test_a_program_is_allowed_to_start_once_it_is_ready() -> None:
    async with open_channel(echo) as inside:
        await inside.send(encode_frame(READY))

        assert await inside.next_frame() == (READY, 0, b"")


async def test_a_stream_carries_bytes_both_ways_and_ends() -> None:
    async with open_channel(echo) as inside:
        await inside.send(encode_frame(OPEN, 1, b"\0") + encode_frame(DATA, 1, b"hello") + encode_frame(END, 1))

        assert await inside.next_frame() == (DATA, 1, b"hello")
        assert await inside.next_frame() == (END, 1, b"")
    assert inside.reports == []


async def test_a_reader_that_stops_holds_its_own_stream_only() -> None:
    async def send_much(stream: ByteStream) -> None:
        for _ in range(64):
            await stream.send(bytes(LARGEST_PAYLOAD))

    async with open_channel(send_much, echo) as inside:
        await inside.send(encode_frame(OPEN, 1, b"\0"))
        received = 0
        while received < WINDOW:
            frame = await inside.next_frame()
            assert frame is not None
            received += len(frame[2])

        await inside.send(encode_frame(OPEN, 2, b"\1") + encode_frame(DATA, 2, b"other") + encode_frame(END, 2))
        assert await inside.next_frame() == (DATA, 2, b"other")
        assert await inside.next_frame() == (END, 2, b"")

        await inside.send(encode_frame(GRANT, 1, CREDIT.pack(1000)))
        assert await inside.next_frame() == (DATA, 1, bytes(1000))


async def test_a_slow_service_lets_the_sandbox_send_no_more_than_the_window() -> None:
    async with open_channel(wait_forever) as inside:
        await inside.send(encode_frame(OPEN, 1, b"\0"))
        for _ in range(WINDOW // LARGEST_PAYLOAD):
            await inside.send(encode_frame(DATA, 1, bytes(LARGEST_PAYLOAD)))
        assert inside.reports == []

        await inside.send(encode_frame(DATA, 1, b"x"))
        await inside.expect_closed()

    assert "sent invalid data" in inside.reports[0]


FORGED = {
    "an unknown kind": HEADER.pack(77, 1, 0),
    "a payload over the limit": HEADER.pack(DATA, 1, LARGEST_PAYLOAD + 1),
    "data without a stream": encode_frame(DATA, 9, b"x"),
    "stream 0": encode_frame(OPEN, 0, b"\0"),
    "a service that does not exist": encode_frame(OPEN, 2, b"\7"),
    "an open frame without a service": encode_frame(OPEN, 2),
    "a stream opened twice": encode_frame(OPEN, 1, b"\0"),
    "a window that grows without data": encode_frame(GRANT, 1, CREDIT.pack(2**32 - 1)),
    "a credit of the wrong size": encode_frame(GRANT, 1, b"\0"),
    "data after the end": encode_frame(END, 1) + encode_frame(DATA, 1, b"x"),
    "text": b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
async def test_a_forged_frame_closes_the_pair_and_is_reported(forged: bytes) -> None:
    async with open_channel(wait_forever) as inside:
        await inside.send(encode_frame(OPEN, 1, b"\0") + forged)

        await inside.expect_closed()

    assert len(inside.reports) == 1


@given(st.binary(max_size=400))
@settings(max_examples=60, deadline=None)
def test_no_bytes_from_inside_do_more_than_close_the_pair(data: bytes) -> None:
    async def send_bytes() -> None:
        async with open_channel(echo) as inside:
            await inside.send(encode_frame(OPEN, 1, b"\0") + data)

    anyio.run(send_bytes)


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_descriptors_that_are_sent_do_not_arrive() -> None:
    reading, writing = os.pipe()
    async with open_channel(echo) as inside:
        before = count_descriptors()
        frame = encode_frame(OPEN, 1, b"\0") + encode_frame(DATA, 1, b"x")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [writing] * 100))]

        inside.pair.sendmsg([frame], rights)
        assert await inside.next_frame() == (DATA, 1, b"x")

        assert count_descriptors() == before
        os.close(writing)
        assert os.read(reading, 1) == b""  # nobody else holds the writing end
    os.close(reading)


async def test_more_streams_than_allowed_are_closed_at_once() -> None:
    async with open_channel(wait_forever) as inside:
        for number in range(1, MOST_STREAMS + 2):
            await inside.send(encode_frame(OPEN, number, b"\0"))

        assert await inside.next_frame() == (RESET, MOST_STREAMS + 1, b"")
    assert inside.reports == []


async def test_a_stream_that_the_sandbox_closes_stops_what_served_it() -> None:
    stopped = anyio.Event()

    async def wait_until_stopped(stream: ByteStream) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with open_channel(wait_until_stopped) as inside:
        await inside.send(encode_frame(OPEN, 1, b"\0") + encode_frame(RESET, 1))

        await stopped.wait()


async def test_a_service_that_fails_ends_its_own_stream_only() -> None:
    async def fail(stream: ByteStream) -> None:
        raise ValueError("no such luck")

    async with open_channel(fail, echo) as inside:
        await inside.send(encode_frame(OPEN, 1, b"\0") + encode_frame(END, 1))
        assert await inside.next_frame() == (END, 1, b"")

        await inside.send(encode_frame(OPEN, 2, b"\1") + encode_frame(DATA, 2, b"x"))
        assert await inside.next_frame() == (DATA, 2, b"x")

    assert inside.reports == ["A connection from the sandbox failed: ValueError: no such luck."]


async def test_a_flood_of_opened_and_closed_streams_is_not_read_while_nobody_reads_the_answers() -> None:
    async def answer(stream: ByteStream) -> None:
        await stream.send(bytes(10_000))

    async with open_channel(answer) as inside:
        for number in range(1, 100_000):
            with anyio.move_on_after(0.3) as waiting:
                await inside.send(encode_frame(OPEN, number, b"\0") + encode_frame(END, number))
            if waiting.cancelled_caught:
                break

    assert waiting.cancelled_caught
    assert inside.reports == []
