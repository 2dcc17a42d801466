"""The filtering proxy: commands reach the hosts that were granted, and refusals are reported."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from podium.workspace.relay.host_grant import HostGrant
from podium.workspace.relay.host_proxy import open_host_proxy

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@asynccontextmanager
async def listen(serve: object) -> AsyncIterator[int]:
    async def serve_and_close(stream: SocketStream) -> None:
        async with stream:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await serve(stream)  # type: ignore[operator]

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve_and_close)
        yield listener.extra(SocketAttribute.local_port)
        group.cancel_scope.cancel()


class Server:
    """A server that remembers the requests it received, and answers each with the same bytes."""

    def __init__(self, answer: bytes = HELLO) -> None:
        self.received: list[bytes] = []
        self._answer = answer

    async def serve(self, stream: SocketStream) -> None:
        while True:
            self.received.append(await stream.receive())
            await stream.send(self._answer)


async def ask_proxy(grants: list[HostGrant], request: bytes, reports: list[str], then: bytes = b"") -> bytes:
    """Send a request to a proxy, then more bytes once it answers, and return everything it sent."""
    async with open_host_proxy(grants, report=reports.append) as proxy, listen(proxy) as port:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(request)
            data = await stream.receive()
            if then:
                await stream.send(then)
                data += await stream.receive()
            await stream.send_eof()
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    data += await stream.receive()
            return data


async def test_plain_http_reaches_a_granted_host_with_the_host_that_was_checked() -> None:
    server, reports = Server(), list[str]()
    async with listen(server.serve) as port:
        request = f"GET http://127.0.0.1:{port}/a?b=c HTTP/1.1\r\nHost: evil.test\r\nProxy-Connection: x\r\n\r\n"
        answer = await ask_proxy([HostGrant.parse(f"127.0.0.1:{port}")], request.encode(), reports)

    assert answer.endswith(b"hello")
    (received,) = server.received
    assert received.startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{port}".encode() in received
    assert b"evil" not in received
    assert b"Proxy" not in received
    assert reports == []


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        b"not HTTP at all\r\n\r\n",
    ],
)
async def test_an_invalid_answer_of_a_server_ends_the_connection(answer: bytes) -> None:
    async with listen(Server(answer).serve) as port:
        request = f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        async with open_host_proxy([HostGrant.parse(f"127.0.0.1:{port}")]) as proxy, listen(proxy) as proxy_port:
            async with await anyio.connect_tcp("127.0.0.1", proxy_port) as stream:
                await stream.send(request)
                with anyio.fail_after(10), contextlib.suppress(anyio.EndOfStream):
                    while True:
                        assert b"HTTP/1.1 200" not in await stream.receive()


async def test_a_tunnel_carries_any_bytes_both_ways() -> None:
    server, reports = Server(), list[str]()
    async with listen(server.serve) as port:
        request = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
        grants = [HostGrant.parse(f"127.0.0.1:{port}")]
        answer = await ask_proxy(grants, request.encode(), reports, then=b"SSH-2.0\x16\x03")

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(HELLO)
    assert server.received == [b"SSH-2.0\x16\x03"]


async def test_bytes_sent_with_the_connect_request_are_passed_on() -> None:
    server = Server()
    async with listen(server.serve) as port:
        request = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\nearly"
        await ask_proxy([HostGrant.parse(f"127.0.0.1:{port}")], request.encode(), [])

    assert server.received == [b"early"]


REFUSED = {
    "another host": "CONNECT 127.0.0.1:{port}",
    "another form of the host": "CONNECT 127.1:{port}",
    "a number": "CONNECT 2130706433:{port}",
    "IPv6": "CONNECT [::ffff:127.0.0.1]:{port}",
    "a zero byte": "CONNECT 127.0.0.1%00.ok.test:{port}",
    "user information": "CONNECT ok.test@127.0.0.1:{port}",
    "no port": "CONNECT ok.test",
    "plain HTTP to another host": "GET http://127.0.0.1:{port}/",
    "user information in an address": "GET http://ok.test@127.0.0.1:{port}/",
    "another scheme": "GET https://127.0.0.1:{port}/",
    "a backslash": "GET http://ok.test\\@127.0.0.1:{port}/",
    "a question mark": "GET http://ok.test?@127.0.0.1:{port}/",
    "a hash": "GET http://ok.test#@127.0.0.1:{port}/",
    "a path only": "GET /",
}


@pytest.mark.parametrize("line", REFUSED.values(), ids=REFUSED.keys())
async def test_what_was_not_granted_is_refused_and_reported(line: str) -> None:
    server, reports = Server(), list[str]()
    async with listen(server.serve) as port:
        request = f"{line.format(port=port)} HTTP/1.1\r\nHost: ok.test\r\n\r\n"
        grants = [HostGrant.parse("ok.test"), HostGrant.parse(f"ok.test:{port}")]
        answer = await ask_proxy(grants, request.encode(), reports)

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert server.received == []
    assert len(reports) == 1
    assert reports[0].startswith("A program in the sandbox was refused a connection to ")


@pytest.mark.parametrize("line", ["CONNECT localhost:{port}", "GET http://localhost:{port}/"])
async def test_a_name_with_a_private_address_is_refused(line: str) -> None:
    server, reports = Server(), list[str]()
    async with listen(server.serve) as port:
        request = f"{line.format(port=port)} HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await ask_proxy([HostGrant(host="localhost", ports=(port,))], request.encode(), reports)

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert server.received == []
    assert "is not public" in reports[0]


async def test_a_host_that_does_not_answer_is_an_error_and_no_refusal() -> None:
    reports: list[str] = []
    async with listen(Server().serve) as port:
        pass  # now nothing listens there

    request = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    answer = await ask_proxy([HostGrant.parse(f"127.0.0.1:{port}")], request, reports)

    assert answer.startswith(b"HTTP/1.1 502 ")
    assert reports == []


async def test_a_host_is_reported_once_and_a_flood_of_hosts_is_cut_off() -> None:
    reports: list[str] = []
    async with open_host_proxy([], report=reports.append) as proxy, listen(proxy) as port:
        for number in (*range(40), *range(40)):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(f"CONNECT host{number}.test:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                assert (await stream.receive()).startswith(b"HTTP/1.1 403 ")

    assert len(reports) == len(set(reports)) == 20


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST http://ok.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET http://ok.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET http://ok.test/ HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET  http://ok.test/ HTTP/1.1\r\n\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET http://ok.test/ HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_http_that_can_be_read_in_two_ways_is_refused(request_bytes: bytes) -> None:
    answer = await ask_proxy([HostGrant.parse("127.0.0.1:9")], request_bytes, [])

    assert answer.startswith(b"HTTP/1.1 4")
