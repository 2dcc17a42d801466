"""Run a command on a server, and copy its output to this process."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPResponse
from shutil import get_terminal_size
from typing import TextIO

from msgspec import to_builtins

from ...values.errors import OutsideFailed
from ..remote_command import EXIT, STDERR, STDOUT, CallerTerminal, Frame, read_frames
from .server_client import CONNECTION_ERRORS, LostConnection, ServerClient

RETRY_SECONDS = 1.0

Write = Callable[[int, bytes], None]
"""Writes bytes to stream 1 (stdout) or 2 (stderr)."""


class RemoteCall:
    """A command that runs on a server. If it is repeated, output that was already written is skipped."""

    def __init__(self, client: ServerClient, arguments: Sequence[str], *, input: bytes, is_changing: bool) -> None:
        self._client = client
        self._body = {
            "arguments": list(arguments),
            "input": input,
            "terminal": to_builtins(read_terminal()),
        }
        self._headers = {"Idempotency_Key": secrets.token_hex(16)} if is_changing else {}
        self._written = {STDOUT: 0, STDERR: 0}

    def run(self, write: Write) -> int:
        """Run the command on the server, and return its exit code.

        If the connection is lost and the command can be repeated safely, retry once. Raise OutsideFailed if the
        command cannot be repeated or the connection is lost again.
        """
        try:
            return self._copy_output(write)
        except LostConnection:
            if not self._headers and any(self._written.values()):
                raise
        time.sleep(RETRY_SECONDS)
        try:
            return self._copy_output(write)
        except LostConnection as error:
            if not self._headers:
                raise
            raise OutsideFailed(
                f"the connection to {self._client.address} was lost; the command keeps running there"
            ) from error

    def _copy_output(self, write: Write) -> int:
        response = self._client.send("POST", "/api/commands", self._body, **self._headers)
        seen = {STDOUT: 0, STDERR: 0}
        with response:
            for stream, data in _iter_frames(response):
                if stream == EXIT:
                    return int(data)
                new = data[max(self._written[stream] - seen[stream], 0) :]
                seen[stream] += len(data)
                self._written[stream] = max(self._written[stream], seen[stream])
                if new:
                    write(stream, new)
        raise AssertionError("the last frame must be the exit code")


def _iter_frames(response: HTTPResponse) -> Iterator[Frame]:
    frames = read_frames(response.read)
    while True:
        try:
            frame = next(frames)
        except StopIteration:
            return
        except CONNECTION_ERRORS as error:
            raise LostConnection("the connection to the server was lost; try again") from error
        yield frame


def read_terminal() -> CallerTerminal:
    """Return the terminal of this process."""
    size = get_terminal_size()
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return CallerTerminal(
        columns=size.columns,
        lines=size.lines,
        has_stdout=_is_terminal(sys.stdout),
        has_stderr=_is_terminal(sys.stderr),
        name=os.environ.get("TERM", "dumb"),
        is_unicode=encoding.startswith("utf"),
        has_colours=not os.environ.get("NO_COLOR"),
        utc_offset=time.localtime().tm_gmtoff,
    )


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def write_to_stream(stream: int, data: bytes) -> None:
    """Write bytes to this process's standard output or standard error."""
    target = sys.stdout if stream == STDOUT else sys.stderr
    if target is not None:  # a closed stream is None, for example after `podium ps >&-`
        target.buffer.write(data)
        target.flush()
