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
from .line_socket import Gone, Pipe, peer
from .link import STANDARD, Limits, Link, OnBad, Rejected, commander_end, line_of, whole, worker_end
from .wire_message import Handshake, HandshakeAck, Order, Report, decode_from_worker

RETRY_SECONDS = 0.02
"""How long to wait where the system has no room for a connection just now."""


def _unheard(*_: object) -> None:
    """Nobody wants to know."""


# The worker's end


@asynccontextmanager
async def connect(
    path: Path, handshake: Handshake, *, limits: Limits = STANDARD, on_bad: OnBad = _unheard
) -> AsyncIterator[Link[Order, Report]]:
    """A worker's link to the commander that listens at `path`. Raises Gone where there is none.

    The handshake is on its way when the block begins, and not answered yet.
    """
    pipe = Pipe(await _connected(path, limits), longest=limits.frame)
    async with worker_end(pipe, limits=limits, on_bad=on_bad) as link:
        await pipe.write(line_of(handshake, limits), within=limits.handshake)
        yield link


async def _connected(path: Path, limits: Limits) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        with fail_after(limits.handshake):
            await _reach(connection, path)
        if peer(connection) not in (os.getuid(), None):
            raise Gone(f"{path} is held by another user's process; a worker talks to its own user's only")
    except OSError as error:
        connection.close()
        why = error.strerror or str(error) or "it takes no connections"
        raise Gone(f"no commander can be reached at {path}: {why}") from error
    except BaseException:
        connection.close()
        raise
    return connection


async def _reach(connection: socket.socket, path: Path) -> None:
    while True:
        try:
            connection.connect(str(path))
            return
        except BlockingIOError:
            # Its queue is full, and the system does not tell when there is room again.
            await sleep(RETRY_SECONDS)


# The commander's end


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A worker that is expected, and what it is given to begin with."""

    worker: str
    config: Mapping[str, Any]


class Welcome:
    """The workers that are expected, each with a token that counts once."""

    def __init__(self) -> None:
        self._expected: dict[bytes, Guest] = {}

    def expect(self, worker: str, config: Mapping[str, Any]) -> str:
        """The token with which this worker may come. One that it was given before no longer counts."""
        self.forget(worker)
        token = secrets.token_urlsafe(32)
        self._expected[token.encode()] = Guest(worker=worker, config=config)
        return token

    def forget(self, worker: str) -> None:
        """Expect it no longer."""
        self._expected = {token: guest for token, guest in self._expected.items() if guest.worker != worker}

    def admit(self, token: str) -> Guest | None:
        """Who comes with this token; None where it is nobody's. It counts no more."""
        given = token.encode()
        # All are compared, and each in full, so that the time it takes tells nothing.
        found = [expected for expected in self._expected if compare_digest(given, expected)]
        return self._expected.pop(found[0]) if found else None


Handle = Callable[[Link[Report, Order], Handshake], Awaitable[None]]
"""What is done with a worker that was let in. Its handshake names the worker that the token was made for."""

OnTrouble = Callable[[str, PodiumError], None]
"""Who is told of bad lines and refused connections, with the worker's name where that is known."""


async def serve(
    listener: socket.socket,
    welcome: Welcome,
    handle: Handle,
    *,
    limits: Limits = STANDARD,
    on_trouble: OnTrouble = _unheard,
) -> None:
    """Let workers in as they come, and handle each of them beside the others, until cancelled.

    A worker's connection ends with `handle`. That it was lost before is no error here.
    """
    listener.setblocking(False)
    strangers: list[CancelScope] = []

    async def meet(connection: socket.socket) -> None:
        pipe = Pipe(connection, longest=limits.frame)
        handshake: Handshake | None = None
        try:
            with CancelScope() as meeting:
                strangers.append(meeting)
                try:
                    handshake = await _greeted(pipe, peer(connection), welcome, limits)
                finally:
                    strangers.remove(meeting)
            if handshake is not None:
                on_bad = partial(on_trouble, handshake.worker)
                async with commander_end(pipe, limits=limits, on_bad=on_bad) as link:
                    await handle(link, handshake)
        except Rejected as error:
            on_trouble("", error)
        except Gone:
            pass
        finally:
            pipe.close()

    async with create_task_group() as group:
        while True:
            connection = await _taken(listener)
            if len(strangers) >= limits.strangers:
                # Who is in earnest says at once who it is, so the one that has waited longest goes.
                strangers[0].cancel()
            group.start_soon(meet, connection)


async def _taken(listener: socket.socket) -> socket.socket:
    while True:
        await wait_readable(listener)
        try:
            return listener.accept()[0]
        except (BlockingIOError, ConnectionError):
            continue
        except OSError:
            # No more files may be open; there is room again when a connection ends.
            await sleep(RETRY_SECONDS)


async def _greeted(pipe: Pipe, user: int | None, welcome: Welcome, limits: Limits) -> Handshake:
    """The handshake of a worker that was let in and told so. Raises Rejected to whom it was refused, and Gone."""
    try:
        handshake, config = await _introduced(pipe, user, welcome, limits)
    except Rejected as error:
        await pipe.write(line_of(HandshakeAck(accepted=False, error=str(error)), limits), within=limits.handshake)
        raise
    await pipe.write(line_of(HandshakeAck(accepted=True, config=dict(config)), limits), within=limits.handshake)
    return handshake


async def _introduced(
    pipe: Pipe, user: int | None, welcome: Welcome, limits: Limits
) -> tuple[Handshake, Mapping[str, Any]]:
    """The handshake, with the name that the token stands for and without the token; and what the worker is given."""
    if user not in (os.getuid(), None):
        raise Rejected("the connection comes from another user; a commander talks to its own user's workers only")
    try:
        with fail_after(limits.handshake):
            line = await pipe.line()
        message = decode_from_worker(whole(line))
    except TimeoutError:
        raise Rejected(f"no handshake came within {limits.handshake:g} s") from None
    except BadFrame as error:
        raise Rejected(f"no handshake came first: {error}") from None
    if not isinstance(message, Handshake):
        raise Rejected("no handshake came first: another message did")
    guest = welcome.admit(message.token)
    if guest is None:
        raise Rejected("the token is nobody's; every worker has its own, and it counts once")
    return structs.replace(message, worker=guest.worker, token=""), guest.config
