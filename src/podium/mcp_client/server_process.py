"""The process of an MCP server that is a program, with its stdio transport.

The process runs in its own process group, exchanges messages line by line, and is stopped when its
block ends. Unlike the SDK's stdio transport, this one reports how the program ended and its last
output, leaves no process of the group behind even if the program itself exits in time, and limits
how much it reads.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE

from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    create_memory_object_stream,
    create_task_group,
    current_time,
    move_on_after,
    open_process,
    sleep,
)
from anyio.abc import ByteReceiveStream, Process
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from ..values.plain_text import escape_unprintable

LONGEST_MESSAGE = 16 * 1024 * 1024
KEPT_OUTPUT_BYTES = 4096
SHOWN_OUTPUT_CHARACTERS = 400
REAP_SECONDS = 2.0
ORPHAN_REAP_SECONDS = 0.3
POLL_SECONDS = 0.01


class ServerProcess:
    """A running server program, its message streams, and its exit reason and last output."""

    def __init__(self, process: Process, *, on_disconnect: Callable[[], None]) -> None:
        self._process = process
        self._on_disconnect = on_disconnect
        self._output_tail = bytearray()
        self._to_session, self.read_stream = create_memory_object_stream[SessionMessage | Exception](0)
        self.write_stream, self._from_session = create_memory_object_stream[SessionMessage](0)

    @property
    def exit_reason(self) -> str:
        """How the program ended."""
        code = self._process.returncode
        if code is None:
            return "it closed its output"
        return f"it was ended by {signal.Signals(-code).name}" if code < 0 else f"it exited with code {code}"

    @property
    def last_output(self) -> str:
        text = escape_unprintable(self._output_tail.decode(errors="replace").strip())
        return text if len(text) <= SHOWN_OUTPUT_CHARACTERS else f"…{text[-SHOWN_OUTPUT_CHARACTERS:]}"

    async def forward_messages(self) -> None:
        """Forward the program's messages until its output ends. A line that is not a message is kept as output."""
        assert self._process.stdout is not None
        async with self._to_session:
            async for line in _iterate_lines(self._process.stdout):
                if line is None:
                    self._keep_output(f"[a message over {LONGEST_MESSAGE:,} bytes]".encode())
                    break
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    self._keep_output(line + b"\n")
                    continue
                try:
                    await self._to_session.send(SessionMessage(message))
                except BrokenResourceError:
                    break
        self._on_disconnect()

    async def send_messages(self) -> None:
        """Send the session's messages to the program."""
        assert self._process.stdin is not None
        async with self._from_session:
            with suppress(BrokenResourceError, ClosedResourceError, OSError):
                async for told in self._from_session:
                    line = told.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await self._process.stdin.send(line.encode() + b"\n")
                return
        self._on_disconnect()

    async def read_stderr(self) -> None:
        """Read stderr and keep its end."""
        assert self._process.stderr is not None
        with suppress(BrokenResourceError, ClosedResourceError, OSError):
            async for chunk in self._process.stderr:
                self._keep_output(chunk)

    async def stop(self, grace: float) -> None:
        """Stop the program and its process group: close stdin, send SIGTERM, then SIGKILL. Every wait is bounded."""
        process = self._process
        assert process.stdin is not None
        with suppress(BrokenResourceError, ClosedResourceError, OSError):
            await process.stdin.aclose()
        await _wait_until(self._has_ended, grace)
        if _signal_group(process.pid, signal.SIGTERM):
            await _wait_until(self._is_group_empty, grace)
            if _signal_group(process.pid, signal.SIGKILL):
                # The processes are dead, but stay in the process table if no init process reaps orphans.
                await _wait_until(self._is_group_empty, ORPHAN_REAP_SECONDS)
        await _wait_until(self._has_ended, REAP_SECONDS)

    def close(self) -> None:
        """Close all ends of the message streams."""
        for stream in (self._to_session, self.read_stream, self.write_stream, self._from_session):
            stream.close()

    def _keep_output(self, output: bytes) -> None:
        self._output_tail += output
        del self._output_tail[:-KEPT_OUTPUT_BYTES]

    def _has_ended(self) -> bool:
        # Waiting for the process would also wait for its pipes, which a child process may keep open.
        return self._process.returncode is not None

    def _is_group_empty(self) -> bool:
        return not _signal_group(self._process.pid, 0)


@asynccontextmanager
async def launch_server_process(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    directory: Path | None,
    grace: float,
    on_disconnect: Callable[[], None],
) -> AsyncIterator[ServerProcess]:
    """Run a program for the duration of the block. `on_disconnect` is called when its input or output closes."""
    with CancelScope(shield=True):
        # If this were cancelled, a process could be running that we do not know of.
        process = await open_process(
            command, env=env, cwd=directory, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
    program = ServerProcess(process, on_disconnect=on_disconnect)
    async with create_task_group() as group:
        for task in (program.forward_messages, program.send_messages, program.read_stderr):
            group.start_soon(task)
        try:
            yield program
        finally:
            with CancelScope(shield=True):
                await program.stop(grace)
                program.close()
                with move_on_after(REAP_SECONDS):
                    await process.aclose()
            group.cancel_scope.cancel()


async def _iterate_lines(stream: ByteReceiveStream) -> AsyncIterator[bytes | None]:
    """Yield complete lines that are not blank, or None for a line that is too long."""
    buffer, searched = bytearray(), 0
    with suppress(BrokenResourceError, ClosedResourceError, OSError):
        async for chunk in stream:
            buffer += chunk
            while (end := buffer.find(b"\n", searched)) >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                searched = 0
                if line.strip():
                    yield line
            searched = len(buffer)
            if searched > LONGEST_MESSAGE:
                yield None


async def _wait_until(is_so: Callable[[], bool], seconds: float) -> None:
    until = current_time() + seconds
    while not is_so() and current_time() < until:  # noqa: ASYNC110 -- the system sends no event for an empty group
        await sleep(POLL_SECONDS)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group and return whether the group has any process."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
