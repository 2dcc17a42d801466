"""A tunnel to a granted host carries no TLS connection to another server at the same address."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import anyio
import pytest
from anyio import to_thread
from anyio.abc import SocketAttribute, SocketStream

from podium.web.certificate import load_certificate
from podium.workspace.relay.host_grant import DEFAULT_PORTS, HostGrant
from podium.workspace.relay.host_proxy import HelloFilter, HelloRefused, open_host_proxy, parse_client_hello

GRANT = HostGrant(host="localhost", ports=DEFAULT_PORTS, is_private=True)


def make_hello(name: str | None) -> bytes:
    """Return the ClientHello of a real client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(coming, going, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return going.read()


def divide(hello: bytes, size: int) -> bytes:
    """Return the same message in records of `size` bytes."""
    body = hello[5:]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(hello[:3] + len(part).to_bytes(2, "big") + part for part in parts)


def pass_through(data: bytes, *, host: str = "ok.test", is_number: bool = False, step: int = 0) -> bytes:
    hello = HelloFilter(host, must_be_tls=True, is_number=is_number)
    step = step or len(data)
    return b"".join(hello.take(data[at : at + step]) for at in range(0, len(data), step))


@pytest.mark.parametrize("size", [1, 3, 100, 16_000])
@pytest.mark.parametrize("step", [1, 7, 0])
def test_a_handshake_for_the_host_passes_however_it_is_divided(size: int, step: int) -> None:
    data = divide(make_hello("OK.test"), size)

    assert pass_through(data, step=step) == data


@pytest.mark.parametrize("size", [1, 16_000])
@pytest.mark.parametrize("name", ["evil.test", "ok.test.evil.test", "evil-ok.test", "sub.ok.test", None])
def test_a_handshake_for_another_server_is_refused_however_it_is_divided(name: str | None, size: int) -> None:
    with pytest.raises(HelloRefused):
        pass_through(divide(make_hello(name), size))


def test_an_address_without_a_name_passes_and_a_name_at_it_does_not() -> None:
    assert pass_through(make_hello(None), host="127.0.0.1", is_number=True)
    with pytest.raises(HelloRefused):
        pass_through(make_hello("evil.test"), host="127.0.0.1", is_number=True)


def test_a_second_hello_for_another_server_is_refused() -> None:
    changed = bytes((20, 3, 3, 0, 1, 1))

    assert pass_through(make_hello("ok.test") + changed + make_hello("ok.test"))
    with pytest.raises(HelloRefused):
        pass_through(make_hello("ok.test") + changed + make_hello("evil.test"))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff\x01",
        b"\x16\x02\x00\x00\x04\x01\x00\x00\x00",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
        b"\x80\x2e\x01\x03\x01",
    ],
)
def test_what_is_no_handshake_is_refused(data: bytes) -> None:
    with pytest.raises(HelloRefused):
        pass_through(data)


def test_a_handshake_that_could_be_read_in_two_ways_is_refused() -> None:
    hello = make_hello("ok.test")
    name = b"\x00\x00\x00\x0c\x00\x0a\x00\x00\x07ok.test"
    at = hello.index(name)
    twice = hello[:at] + name + b"\x00\x00\x00\x0e\x00\x0c\x00\x00\x09evil.test" + hello[at + len(name) :]
    added = len(twice) - len(hello)

    def grow(data: bytes, where: int, width: int) -> bytes:
        size = int.from_bytes(data[where : where + width], "big") + added
        return data[:where] + size.to_bytes(width, "big") + data[where + width :]

    session = 5 + 4 + 2 + 32
    ciphers = session + 1 + hello[session]
    methods = ciphers + 2 + int.from_bytes(hello[ciphers : ciphers + 2], "big")
    extensions = methods + 1 + hello[methods]
    whole = grow(grow(grow(twice, 3, 2), 6, 3), extensions, 2)

    with pytest.raises(ValueError, match="several server names"):
        parse_client_hello(whole)


def test_a_hello_that_never_ends_is_refused() -> None:
    hello = HelloFilter("ok.test", must_be_tls=True, is_number=False)

    with pytest.raises(HelloRefused):
        for _ in range(100):
            hello.take(b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + b"a" * (0x4000 - 4))


def test_another_protocol_passes_on_a_port_that_was_granted_for_it() -> None:
    hello = HelloFilter("ok.test", must_be_tls=False, is_number=False)

    assert hello.take(b"SSH-2.0-x\r\n") == b"SSH-2.0-x\r\n"
    assert hello.take(b"\x16\x03") == b"\x16\x03"


@contextmanager
def serve_tls(home: Path) -> Iterator[int]:
    """Echo a few bytes over TLS to each of two clients, and yield the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(load_certificate(home, ["localhost"]).file)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def echo() -> None:
            for _ in range(2):
                with (
                    listener.accept()[0] as plain,
                    context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as secured,
                    contextlib.suppress(OSError),
                ):
                    secured.do_handshake()
                    secured.sendall(secured.recv(5))

        thread = Thread(target=echo)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def call_through(proxy: int, host: str, port: int, name: str) -> bytes:
    """Open a tunnel, shake hands for a server of this name in it, and return what the server echoes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", proxy), timeout=10) as plain:
        plain.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert plain.recv(4096).startswith(b"HTTP/1.1 200")
        with context.wrap_socket(plain, server_hostname=name, do_handshake_on_connect=False) as secured:
            secured.do_handshake()
            secured.sendall(b"hello")
            return secured.recv(5)


async def test_a_real_client_reaches_the_granted_host_and_no_other_behind_it(tmp_path: Path) -> None:
    reports: list[str] = []
    with serve_tls(tmp_path) as port:
        grant = HostGrant(host="localhost", ports=(port,), is_private=True)
        async with (
            open_host_proxy([grant], report=reports.append) as serve,
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):

            async def serve_and_close(stream: SocketStream) -> None:
                async with stream:
                    await serve(stream)

            group.start_soon(listener.serve, serve_and_close)
            proxy = listener.extra(SocketAttribute.local_port)

            answer = await to_thread.run_sync(call_through, proxy, "localhost", port, "localhost")
            with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
                await to_thread.run_sync(call_through, proxy, "localhost", port, "evil.test")
            group.cancel_scope.cancel()

    assert answer == b"hello"
    assert len(reports) == 1
    assert "names another server, 'evil.test'" in reports[0]
