"""Run an MCP server as a child process, and exchange messages with it over stdio.

The server runs in its own process group, exchanges one message per line, and is stopped at the end of the `async with`
block. Unlike the SDK's stdio transport, this module reports how the server exited and its last output, stops all
processes of the group even if the server itself exits within the grace period, and limits the size of messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    Event,
    create_memory_object_stream,
    create_task_group,
    move_on_after,
)
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from ..system.child_process import ProcessExit
from ..system.line_stream import iterate_lines
from ..system.process_group import ChildProcess
from ..values.plain_text import escape_unprintable

LONGEST_MESSAGE = 16 * 1024 * 1024
KEPT_OUTPUT_BYTES = 4096
SHOWN_OUTPUT_CHARACTERS = 400
DRAIN_SECONDS = 0.5
"""The maximum time to read output after the server program has stopped. Only a process that has left the process group
can keep the pipe open longer."""


class ServerProcess:
    """A server program, with its message streams, its exit reason and its last output."""

    def __init__(self, process: ChildProcess, *, on_disconnect: Callable[[], None]) -> None:
        self._process = process
        self._on_disconnect = on_disconnect
        self._output_tail = bytearray()
        self._stderr_ended = Event()
        self._to_session, self.read_stream = create_memory_object_stream[SessionMessage | Exception](0)
        self.write_stream, self._from_session = create_memory_object_stream[SessionMessage](0)

    @property
    def exit_reason(self) -> str:
        """Why the server program's output ended: the program exited, was killed by a signal, or closed its output."""
        code = self._process.returncode
        if code is None:
            return "it closed its output"
        return f"it was {ProcessExit(code=code)}" if code < 0 else f"it exited with code {code}"

    @property
    def last_output(self) -> str:
        text = escape_unprintable(self._output_tail.decode(errors="replace").strip())
        return text if len(text) <= SHOWN_OUTPUT_CHARACTERS else f"…{text[-SHOWN_OUTPUT_CHARACTERS:]}"

    async def forward_messages(self) -> None:
        """Forward the server program's messages until its output ends. Other lines are kept as output."""
        async with self._to_session:
            async for line in iterate_lines(self._process.read_stdout, longest=LONGEST_MESSAGE):
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
        """Send the session's messages to the server program."""
        async with self._from_session:
            with suppress(BrokenResourceError, ClosedResourceError):
                async for told in self._from_session:
                    line = told.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await self._process.write_stdin(line.encode() + b"\n")
                return
        self._on_disconnect()

    async def read_stderr(self) -> None:
        """Read stderr until it ends, and keep the last part of it."""
        try:
            while chunk := await self._process.read_stderr():
                self._keep_output(chunk)
        finally:
            self._stderr_ended.set()

    async def stop(self, grace: float) -> None:
        """Stop the server program and its process group, and read the rest of its stderr. Every wait is bounded."""
        await self._process.stop(grace=grace)
        with move_on_after(DRAIN_SECONDS):
            await self._stderr_ended.wait()

    def close(self) -> None:
        """Close all ends of the message streams."""
        for stream in (self._to_session, self.read_stream, self.write_stream, self._from_session):
            stream.close()

    def _keep_output(self, output: bytes) -> None:
        self._output_tail += output
        del self._output_tail[:-KEPT_OUTPUT_BYTES]


@asynccontextmanager
async def launch_server_process(
    opening: AbstractAsyncContextManager[ChildProcess],
    *,
    grace: float,
    on_disconnect: Callable[[], None],
) -> AsyncIterator[ServerProcess]:
    """Run a program for the duration of the block. `on_disconnect` is called when its input or output closes."""
    async with opening as process:
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
                group.cancel_scope.cancel()
