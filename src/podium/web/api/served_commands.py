"""Commands that clients run on the server's machine, each in its own process.

A read-only command is stopped when its client disconnects. A command that makes changes has an idempotency key: it runs
once and to completion, even if the client disconnects, and the client can fetch the output later with the same key.
"""

from __future__ import annotations

import math
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    Event,
    create_memory_object_stream,
    create_task_group,
    move_on_after,
    to_thread,
)
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from litestar.exceptions import ClientException, ServiceUnavailableException

from ...setup.settings import Settings
from ...store.command_keys import claim_command_key, store_command_reply
from ...system.process_group import ProgramNotStarted, start_process
from ...values.errors import PodiumError
from ...values.store_address import format_store_setting
from ..remote_command import EXIT, HEARTBEAT, STDERR, STDOUT, RemoteCommand, encode_frame
from .server_log import report_trouble

PROGRAM = "podium.cli.remote_main"
HEARTBEAT_SECONDS = 15.0
MOST_COMMANDS = 20
LARGEST_REPLY = 1024 * 1024
"""How much output is stored for a client that repeats a command."""
BUFFERED_FRAMES = 16
SLOW_SECONDS = 30.0
"""How long a command that makes changes waits for its client to read the output.

After that, the output is stored but no longer sent.
"""


class ServedCommands:
    """Runs commands in `repo`, with the server's settings."""

    def __init__(self, settings: Settings, repo: Path, tasks: TaskGroup) -> None:
        self._settings = settings
        self._repo = repo
        self._tasks = tasks
        self._running = 0
        self._finished: dict[str, Event] = {}
        """The events that are set when running commands end, keyed by idempotency key."""

    def run_until_disconnect(self, command: RemoteCommand, may_go_on: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Start a command and return its frames. Stop it if the client disconnects or the client's token is revoked."""
        self._require_capacity()
        scope = CancelScope()
        # The command is started only by the first read of the response: if the response were never sent, nothing would
        # stop the command.
        return _iter_frames(lambda: self._start(command, scope=scope), may_go_on, on_close=scope.cancel)

    async def run_once(self, command: RemoteCommand, key: str) -> AsyncIterator[bytes]:
        """Start a command and return its frames.

        If the command was already started with this idempotency key, return the output of that call instead. Raise
        ClientException if the server stopped while the command was running.
        """
        store, id = self._settings.store, secrets.token_hex(6)
        digest = sha256(msgspec.json.encode(command)).hexdigest()
        if (finished := self._finished.get(key)) is not None:
            return _iter_later(finished, lambda: self._read_reply(key, digest))
        self._require_capacity()
        self._finished[key] = Event()
        try:
            claimed = await to_thread.run_sync(lambda: claim_command_key(store, key, digest, id=id))
            if claimed.reply is not None:
                self._finished.pop(key).set()
                return _iter_bytes(claimed.reply)
            if claimed.id != id:
                raise ClientException(
                    "the server stopped while this command was running; check what it did before you repeat it",
                    status_code=409,
                )
            frames = self._start(command, scope=CancelScope(), key=key)
        except BaseException:
            self._finished.pop(key).set()
            raise
        return _iter_frames(lambda: frames, lambda: True, on_close=lambda: None)

    def _require_capacity(self) -> None:
        if self._running >= MOST_COMMANDS:
            raise ServiceUnavailableException(f"{MOST_COMMANDS} commands are already running; try again later")

    def _start(self, command: RemoteCommand, *, scope: CancelScope, key: str = "") -> MemoryObjectReceiveStream[bytes]:
        sender, frames = create_memory_object_stream[bytes](BUFFERED_FRAMES)
        self._running += 1
        self._tasks.start_soon(self._work_on, command, sender, scope, key)
        return frames

    async def _work_on(
        self, command: RemoteCommand, sender: MemoryObjectSendStream[bytes], scope: CancelScope, key: str
    ) -> None:
        record = bytearray()

        async def emit(frame: bytes) -> None:
            if key and (len(record) < LARGEST_REPLY or frame[0] == EXIT):
                record.extend(frame)
            try:
                with move_on_after(SLOW_SECONDS if key else math.inf) as waiting:
                    await sender.send(frame)
                if waiting.cancelled_caught:
                    sender.close()
            except (BrokenResourceError, ClosedResourceError):  # the client has disconnected or is too slow
                if not key:
                    scope.cancel()

        try:
            with sender, scope:
                environment = build_environment(os.environ, self._settings)
                code = await run_program(command, emit, directory=self._repo, environment=environment)
                await emit(encode_frame(EXIT, str(code).encode()))
                if key:
                    await to_thread.run_sync(store_command_reply, self._settings.store, key, bytes(record))
        except (PodiumError, ProgramNotStarted) as error:
            report_trouble(str(error))
        finally:
            self._running -= 1
            if key:
                self._finished.pop(key).set()

    async def _read_reply(self, key: str, digest: str) -> bytes:
        claimed = await to_thread.run_sync(claim_command_key, self._settings.store, key, digest)
        return claimed.reply or b""


def build_environment(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Return the environment for a command: the server's environment, with variables for the server's home and store.

    PODIUM_DEBUG is removed, and so is PODIUM_SERVER, so that the command does not call another server.
    """
    kept = {name: value for name, value in environ.items() if name not in ("PODIUM_SERVER", "PODIUM_DEBUG")}
    return kept | {"PODIUM_HOME": str(settings.home), "PODIUM_STORE": format_store_setting(settings.store)}


async def run_program(
    command: RemoteCommand,
    emit: Callable[[bytes], Awaitable[None]],
    *,
    directory: Path,
    environment: Mapping[str, str],
) -> int:
    """Run a command until it exits, emit its output as frames, and return its exit code."""
    pipe = subprocess.PIPE
    # Without -P, a module in the repository could shadow one of Podium's.
    process = start_process(
        [sys.executable, "-P", "-m", PROGRAM],
        env=environment,
        directory=directory,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
    )

    async def copy(read: Callable[[], Awaitable[bytes]], stream: int) -> None:
        while chunk := await read():
            await emit(encode_frame(stream, chunk))

    try:
        async with create_task_group() as group:
            group.start_soon(copy, process.read_stdout, STDOUT)
            group.start_soon(copy, process.read_stderr, STDERR)
            with suppress(BrokenResourceError):
                await process.write_stdin(msgspec.json.encode(command))
            await process.close_stdin()
        code = await process.wait()
    finally:
        await process.end()
        process.close()
    return code if code >= 0 else 128 - code


async def _iter_frames(
    open_frames: Callable[[], MemoryObjectReceiveStream[bytes]],
    may_go_on: Callable[[], bool],
    *,
    on_close: Callable[[], None],
) -> AsyncIterator[bytes]:
    """Yield the frames up to the last one, and a heartbeat if nothing happens for a while.

    Stop early if `may_go_on` returns False.
    """
    frames = open_frames()
    try:
        while may_go_on():
            frame = HEARTBEAT
            with move_on_after(HEARTBEAT_SECONDS):
                try:
                    frame = await frames.receive()
                except EndOfStream:
                    return
            yield frame
    finally:
        frames.close()
        on_close()


async def _iter_later(finished: Event, read_reply: Callable[[], Awaitable[bytes]]) -> AsyncIterator[bytes]:
    """Yield heartbeats until a command has finished, and then yield its output."""
    while not finished.is_set():
        with move_on_after(HEARTBEAT_SECONDS):
            await finished.wait()
        yield HEARTBEAT
    yield await read_reply()


async def _iter_bytes(data: bytes) -> AsyncIterator[bytes]:
    yield data
