"""The wire: how a worker comes to its commander, and how it is let in.

Whoever connects has to say first who it is, with the token that was made for it and counts once. From
then on the connection speaks for that worker and no other, whatever its messages say.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hmac import compare_digest
from pathlib import Path
from typing import Any

from anyio import CancelScope, create_task_group, fail_after, sleep, wait_readable
from msgspec import structs

from ...values.errors import PodiumError
from .frame import BadFrame
from .line_socket import ConnectionClosed, LineStream, read_peer_uid
from .link import (
    DEFAULT_LIMITS,
    HandshakeRejected,
    Link,
    LinkLimits,
    OnBadFrame,
    encode_line,
    open_commander_link,
    open_worker_link,
    unwrap_line,
)
from .wire_message import Handshake, HandshakeAck, Order, Report, decode_from_worker

RETRY_SECONDS = 0.02
"""How long to wait where the system has no room for a connection just now."""


def _ignore_error(*_: object) -> None:
    """Nobody wants to know."""


# The worker's end


@asynccontextmanager
async def connect_to_commander(
    path: Path, handshake: Handshake, *, limits: LinkLimits = DEFAULT_LIMITS, on_bad: OnBadFrame = _ignore_error
) -> AsyncIterator[Link[Order, Report]]:
    """A worker's link to the commander that listens at `path`. Raises Gone where there is none.

    The handshake is on its way when the block begins, and not answered yet.
    """
    stream = LineStream(await _open_connection(path, limits), longest=limits.frame)
    async with open_worker_link(stream, limits=limits, on_bad=on_bad) as link:
        await stream.write_line(encode_line(handshake, limits), within=limits.handshake)
        yield link


async def _open_connection(path: Path, limits: LinkLimits) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with fail_after(limits.handshake):
            await _connect_with_retries(connection, path)
        if read_peer_uid(connection) not in (os.getuid(), None):
            raise ConnectionClosed(f"{path} is held by another user's process; a worker talks to its own user's only")
    except OSError as error:
        connection.close()
        why = error.strerror or str(error) or "it takes no connections"
        raise ConnectionClosed(f"no commander can be reached at {path}: {why}") from error
    except BaseException:
        connection.close()
        raise
    return connection


async def _connect_with_retries(connection: socket.socket, path: Path) -> None:
    while True:
        try:
            connection.connect(str(path))
            return
        except BlockingIOError:
            # Its queue is full, and the system does not tell when there is room again.
            await sleep(RETRY_SECONDS)


# The commander's end


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedWorker:
    """A worker that is expected, and what it is given to begin with."""

    worker: str
    config: Mapping[str, Any]


class WorkerTokens:
    """The workers that are expected, each with a token that counts once."""

    def __init__(self) -> None:
        self._expected: dict[bytes, ExpectedWorker] = {}

    def issue_token(self, worker: str, config: Mapping[str, Any]) -> str:
        """The token with which this worker may come. One that it was given before no longer counts."""
        self.revoke_token(worker)
        token = secrets.token_urlsafe(32)
        self._expected[token.encode()] = ExpectedWorker(worker=worker, config=config)
        return token

    def revoke_token(self, worker: str) -> None:
        """Expect it no longer."""
        self._expected = {token: expected for token, expected in self._expected.items() if expected.worker != worker}

    def redeem_token(self, token: str) -> ExpectedWorker | None:
        """Who comes with this token; None where it is nobody's. It counts no more."""
        given = token.encode()
        # All are compared, and each in full, so that the time it takes tells nothing.
        found = [expected for expected in self._expected if compare_digest(given, expected)]
        return self._expected.pop(found[0]) if found else None


HandleWorker = Callable[[Link[Report, Order], Handshake], Awaitable[None]]
"""What is done with a worker that was let in. Its handshake names the worker that the token was made for."""

OnConnectionError = Callable[[str, PodiumError], None]
"""Who is told of bad lines and refused connections, with the worker's name where that is known."""


async def serve_workers(
    listener: socket.socket,
    tokens: WorkerTokens,
    handle: HandleWorker,
    *,
    limits: LinkLimits = DEFAULT_LIMITS,
    on_error: OnConnectionError = _ignore_error,
) -> None:
    """Let workers in as they come, and handle each of them beside the others, until cancelled.

    A worker's connection ends with `handle`. That it was lost before is no error here.
    """
    listener.setblocking(False)
    unauthenticated: list[CancelScope] = []

    async def handle_connection(connection: socket.socket) -> None:
        stream = LineStream(connection, longest=limits.frame)
        handshake: Handshake | None = None
        try:
            with CancelScope() as handshake_scope:
                unauthenticated.append(handshake_scope)
                try:
                    handshake = await _complete_handshake(stream, read_peer_uid(connection), tokens, limits)
                finally:
                    unauthenticated.remove(handshake_scope)
            if handshake is not None:
                on_bad = partial(on_error, handshake.worker)
                async with open_commander_link(stream, limits=limits, on_bad=on_bad) as link:
                    await handle(link, handshake)
        except HandshakeRejected as error:
            on_error("", error)
        except ConnectionClosed:
            pass
        finally:
            stream.close()

    async with create_task_group() as group:
        while True:
            connection = await _accept_connection(listener)
            if len(unauthenticated) >= limits.unauthenticated:
                # Who is in earnest says at once who it is, so the one that has waited longest goes.
                unauthenticated[0].cancel()
            group.start_soon(handle_connection, connection)


async def _accept_connection(listener: socket.socket) -> socket.socket:
    while True:
        await wait_readable(listener)
        try:
            return listener.accept()[0]
        except (BlockingIOError, ConnectionError):
            continue
        except OSError:
            # No more files may be open; there is room again when a connection ends.
            await sleep(RETRY_SECONDS)


async def _complete_handshake(
    stream: LineStream, user: int | None, tokens: WorkerTokens, limits: LinkLimits
) -> Handshake:
    """The handshake of a worker that was let in and told so. Raises Rejected to whom it was refused, and Gone."""
    try:
        handshake, config = await _verify_handshake(stream, user, tokens, limits)
    except HandshakeRejected as error:
        await stream.write_line(
            encode_line(HandshakeAck(accepted=False, error=str(error)), limits), within=limits.handshake
        )
        raise
    await stream.write_line(
        encode_line(HandshakeAck(accepted=True, config=dict(config)), limits), within=limits.handshake
    )
    return handshake


async def _verify_handshake(
    stream: LineStream, user: int | None, tokens: WorkerTokens, limits: LinkLimits
) -> tuple[Handshake, Mapping[str, Any]]:
    """The handshake, with the name that the token stands for and without the token; and what the worker is given."""
    if user not in (os.getuid(), None):
        raise HandshakeRejected(
            "the connection comes from another user; a commander talks to its own user's workers only"
        )
    try:
        with fail_after(limits.handshake):
            line = await stream.read_line()
        message = decode_from_worker(unwrap_line(line))
    except TimeoutError:
        raise HandshakeRejected(f"no handshake came within {limits.handshake:g} s") from None
    except BadFrame as error:
        raise HandshakeRejected(f"no handshake came first: {error}") from None
    if not isinstance(message, Handshake):
        raise HandshakeRejected("no handshake came first: another message did")
    expected = tokens.redeem_token(message.token)
    if expected is None:
        raise HandshakeRejected("the token is nobody's; every worker has its own, and it counts once")
    return structs.replace(message, worker=expected.worker, token=""), expected.config
