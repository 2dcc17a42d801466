"""Connect workers to their commander, and authenticate them.

A connection must start with a handshake that contains a single-use token made for one worker. After that, the
connection acts only for that worker, whatever its messages say.
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
from .line_socket import BadFrame, ConnectionClosed, LineStream, read_peer_uid
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
"""How long to wait if the operating system cannot accept another connection."""


def _ignore_error(*_: object) -> None:
    """Ignore the error."""


# The worker's end


@asynccontextmanager
async def connect_to_commander(
    path: Path, handshake: Handshake, *, limits: LinkLimits = DEFAULT_LIMITS, on_bad: OnBadFrame = _ignore_error
) -> AsyncIterator[Link[Order, Report]]:
    """Open a worker's link to the commander at `path`. Raise ConnectionClosed if the commander cannot be reached.

    When the block starts, the handshake has been sent but not answered yet.
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
            raise ConnectionClosed(
                f"{path} belongs to another user's process; a worker connects only to a process of the same user"
            )
    except OSError as error:
        connection.close()
        why = error.strerror or str(error) or "it is not accepting connections"
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
            # The listener's queue is full, and the operating system does not report when there is room again.
            await sleep(RETRY_SECONDS)


# The commander's end


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedWorker:
    """A worker that is expected to connect, and the configuration to send it."""

    worker: str
    config: Mapping[str, Any]


class WorkerTokens:
    """The workers that are expected to connect, each with a single-use token."""

    def __init__(self) -> None:
        self._expected: dict[bytes, ExpectedWorker] = {}

    def issue_token(self, worker: str, config: Mapping[str, Any]) -> str:
        """Return a new token for a worker, and invalidate its earlier token, if any."""
        self.revoke_token(worker)
        token = secrets.token_urlsafe(32)
        self._expected[token.encode()] = ExpectedWorker(worker=worker, config=config)
        return token

    def revoke_token(self, worker: str) -> None:
        """Invalidate a worker's token."""
        self._expected = {token: expected for token, expected in self._expected.items() if expected.worker != worker}

    def redeem_token(self, token: str) -> ExpectedWorker | None:
        """Invalidate a token, and return the worker it belongs to. Return None if the token is not valid."""
        given = token.encode()
        # Every token is compared in full, so that the timing reveals nothing.
        found = [expected for expected in self._expected if compare_digest(given, expected)]
        return self._expected.pop(found[0]) if found else None


HandleWorker = Callable[[Link[Report, Order], Handshake], Awaitable[None]]
"""Handles an accepted worker. The handshake contains the name of the worker that the token was issued for."""

OnConnectionError = Callable[[str, PodiumError], None]
"""Called with the worker's name, or an empty string if it is not known, and with the error."""


async def serve_workers(
    listener: socket.socket,
    tokens: WorkerTokens,
    handle: HandleWorker,
    *,
    limits: LinkLimits = DEFAULT_LIMITS,
    on_error: OnConnectionError = _ignore_error,
) -> None:
    """Accept workers and handle them concurrently, until cancelled.

    A worker's connection is closed when `handle` returns. It is not an error if the worker disconnects earlier.
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
                # A real worker sends its handshake immediately, so drop the connection that has waited longest.
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
            # Probably too many files are open. Try again later, because another connection may have closed by then.
            await sleep(RETRY_SECONDS)


async def _complete_handshake(
    stream: LineStream, user: int | None, tokens: WorkerTokens, limits: LinkLimits
) -> Handshake:
    """Authenticate a worker, answer its handshake and return the handshake.

    Raise HandshakeRejected if the handshake is rejected, and ConnectionClosed if the connection closes first.
    """
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
    """Read a worker's handshake, and raise HandshakeRejected if it is not valid.

    Return the handshake and the worker's configuration. In the returned handshake, `worker` is the name for which the
    token was issued, whatever name the worker sent.
    """
    if user not in (os.getuid(), None):
        raise HandshakeRejected("the connection is from another user; a commander accepts only its own user's workers")
    try:
        with fail_after(limits.handshake):
            line = await stream.read_line()
        message = decode_from_worker(unwrap_line(line))
    except TimeoutError:
        raise HandshakeRejected(f"no handshake within {limits.handshake:g} s") from None
    except BadFrame as error:
        raise HandshakeRejected(f"the first message was not a handshake: {error}") from None
    if not isinstance(message, Handshake):
        raise HandshakeRejected("the first message was not a handshake")
    expected = tokens.redeem_token(message.token)
    if expected is None:
        raise HandshakeRejected("unknown token; each worker has its own token, which can be used only once")
    return structs.replace(message, worker=expected.worker, token=""), expected.config
