"""Start a program in the sandbox, and forward connections on the sandbox's own loopback to the relay outside.

Usage: python -I -S _forwarder_program.py DESCRIPTOR PORT,PORT… PROGRAM ARGUMENT…

This program runs inside the sandbox and uses only the standard library. DESCRIPTOR is its end of a socket pair; the
other end belongs to the relay. The program listens on one port for each service, tells the relay that it is ready,
waits for permission to start, and forks: one process becomes PROGRAM, which does not inherit the descriptor, and the
other forwards connections until the relay closes the socket pair. The relay does not trust this program: whatever runs
in the sandbox can replace it, so the relay checks every frame.

Each connection is a stream of frames. A frame has a kind, the number of its stream and a payload. Only the sandbox
opens streams. Each side sends at most WINDOW bytes of data on a stream before the other side allows more, so that
neither a slow reader nor many streams exhaust memory or block another stream.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
from collections.abc import Iterator

HEADER = struct.Struct("!BII")
CREDIT = struct.Struct("!I")
READY, OPEN, DATA, END, RESET, GRANT = range(6)
"""The kinds of frames.

The sandbox sends READY when it is ready, and the relay replies with READY to let the program start. OPEN opens a
stream, DATA contains data, END means that no more data follows, RESET closes the stream, and GRANT lets the other side
send more data.
"""
LARGEST_PAYLOAD = 64 * 1024
WINDOW = 256 * 1024
MOST_CONNECTIONS = 256
"""The maximum number of connections that are forwarded at the same time. Other connections wait."""
HIGHEST_STREAM = 2**32 - 1
BACKLOG = 512
CHUNK = 64 * 1024
LARGEST_OUTPUT = 512 * 1024
"""While at least this many bytes are waiting to be sent to the relay, nothing more is read from connections."""


class InvalidFrame(Exception):
    """The other side sent a frame that the protocol does not allow."""


class FrameDecoder:
    """Splits received bytes into frames. An invalid header raises InvalidFrame before the payload has arrived."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield the kind, the stream and the payload of each complete frame."""
        self._data += data
        start = 0
        try:
            while len(self._data) - start >= HEADER.size:
                kind, stream, length = HEADER.unpack_from(self._data, start)
                if kind > GRANT or length > LARGEST_PAYLOAD:
                    raise InvalidFrame(f"a frame of kind {kind} with {length} bytes is not allowed")
                end = start + HEADER.size + length
                if len(self._data) < end:
                    return
                payload = bytes(self._data[start + HEADER.size : end])
                start = end
                yield kind, stream, payload
        finally:
            del self._data[:start]


def encode_frame(kind: int, stream: int = 0, payload: bytes | memoryview = b"") -> bytes:
    """Return an encoded frame."""
    return b"".join((HEADER.pack(kind, stream, len(payload)), payload))


class Connection:
    """A connection from the sandboxed program, and the stream that it belongs to."""

    def __init__(self, connection: socket.socket, stream: int) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.stream = stream
        self.output = bytearray()
        self.send_window = WINDOW
        """How many bytes may be sent to the relay."""
        self.consumed = 0
        """How many bytes have been passed to the client since the last GRANT frame. GRANT lets the relay send more."""
        self.has_sent_end = False
        self.has_received_end = False
        self.is_shut = False


class Forwarder:
    """Forwards connections over the socket pair, in one thread."""

    def __init__(self, pair: socket.socket, listeners: list[socket.socket]) -> None:
        self._pair = pair
        self._listeners = listeners
        self._selector = selectors.DefaultSelector()
        self._decoder = FrameDecoder()
        self._connections: dict[int, Connection] = {}
        self._output = bytearray()
        self._last_stream = 0
        self._is_accepting = False
        pair.setblocking(False)
        self._selector.register(pair, selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Forward connections until the relay closes the socket pair."""
        while True:
            self._update_interest()
            for key, events in self._selector.select():
                if key.fileobj is self._pair:
                    if events & selectors.EVENT_READ and not self._receive_frames():
                        return
                elif isinstance(key.data, int):
                    self._accept_connection(key.fileobj, key.data)  # type: ignore[arg-type]  # a listener
                else:
                    self._handle_connection(key.data, events)
            self._flush_pair()

    def _update_interest(self) -> None:
        """Register the sockets with the selector, for exactly the events that can be handled now."""
        can_accept = len(self._connections) < MOST_CONNECTIONS
        if can_accept != self._is_accepting:
            self._is_accepting = can_accept
            for service, listener in enumerate(self._listeners):
                if can_accept:
                    self._selector.register(listener, selectors.EVENT_READ, service)
                else:
                    self._selector.unregister(listener)
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._output else 0)
        self._selector.modify(self._pair, wanted, None)
        can_read = len(self._output) < LARGEST_OUTPUT
        for one in self._connections.values():
            events = selectors.EVENT_READ if can_read and one.send_window and not one.has_sent_end else 0
            events |= selectors.EVENT_WRITE if one.output else 0
            self._set_interest(one, events)

    def _set_interest(self, one: Connection, events: int) -> None:
        known = self._selector.get_map().get(one.socket)
        if known is None:
            if events:
                self._selector.register(one.socket, events, one)
        elif not events:
            self._selector.unregister(one.socket)
        elif known.events != events:
            self._selector.modify(one.socket, events, one)

    def _accept_connection(self, listener: socket.socket, service: int) -> None:
        try:
            accepted, _ = listener.accept()
        except OSError:
            return
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._last_stream += 1
        self._connections[self._last_stream] = Connection(accepted, self._last_stream)
        self._output += encode_frame(OPEN, self._last_stream, bytes((service,)))

    def _handle_connection(self, one: Connection, events: int) -> None:
        if events & selectors.EVENT_READ and one.stream in self._connections:
            self._read_connection(one)
        if events & selectors.EVENT_WRITE and one.stream in self._connections:
            self._write_connection(one)

    def _read_connection(self, one: Connection) -> None:
        try:
            data = one.socket.recv(min(CHUNK, one.send_window))
        except BlockingIOError:
            return
        except OSError:
            self._reset(one)
            return
        one.send_window -= len(data)
        one.has_sent_end = not data
        self._output += encode_frame(DATA if data else END, one.stream, data)
        self._close_if_done(one)

    def _write_connection(self, one: Connection) -> None:
        try:
            sent = one.socket.send(one.output)
        except BlockingIOError:
            return
        except OSError:
            self._reset(one)
            return
        del one.output[:sent]
        one.consumed += sent
        if one.consumed >= WINDOW // 2:
            self._output += encode_frame(GRANT, one.stream, CREDIT.pack(one.consumed))
            one.consumed = 0
        self._close_if_done(one)

    def _receive_frames(self) -> bool:
        """Handle the frames that the relay has sent. Return whether the socket pair is still open."""
        try:
            data = self._pair.recv(CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for kind, stream, payload in self._decoder.feed(data):
            one = self._connections.get(stream)
            if one is None:
                continue
            if kind == DATA:
                one.output += payload
                self._write_connection(one)
            elif kind == END:
                one.has_received_end = True
                self._close_if_done(one)
            elif kind == RESET and one.has_received_end:
                one.has_sent_end = True
                self._close_if_done(one)
            elif kind == RESET:
                self._drop(one)
            elif kind == GRANT:
                one.send_window += CREDIT.unpack(payload)[0]
        return bool(data)

    def _close_if_done(self, one: Connection) -> None:
        """Signal end-of-file to the client once all data from the relay has been sent to the client.

        If the client has also ended its side, close the connection instead.
        """
        if not one.has_received_end or one.output:
            return
        if one.has_sent_end:
            self._drop(one)
        elif not one.is_shut:
            one.is_shut = True
            try:
                one.socket.shutdown(socket.SHUT_WR)
            except OSError:
                self._reset(one)

    def _reset(self, one: Connection) -> None:
        self._output += encode_frame(RESET, one.stream)
        self._drop(one)

    def _drop(self, one: Connection) -> None:
        if self._connections.pop(one.stream, None) is not None:
            self._set_interest(one, 0)
            one.socket.close()

    def _flush_pair(self) -> None:
        while self._output:
            try:
                sent = self._pair.send(self._output)
            except BlockingIOError:
                return
            except OSError:
                self._output.clear()
                return
            del self._output[:sent]


def main(descriptor: int, ports: list[int], argv: list[str]) -> None:
    """Listen, wait for permission to start, then run `argv` in this process and the forwarder in another."""
    pair = socket.socket(fileno=descriptor)
    pair.set_inheritable(False)
    listeners = [socket.create_server(("127.0.0.1", port), backlog=BACKLOG) for port in ports]
    pair.sendall(encode_frame(READY))
    if not pair.recv(HEADER.size):
        return  # Podium was killed in the meantime
    if os.fork() == 0:
        run_forwarder(pair, listeners)
    os.setsid()
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"{argv[0]} cannot be started: {error.strerror}\n")
        os._exit(126 if isinstance(error, PermissionError) else 127)


def run_forwarder(pair: socket.socket, listeners: list[socket.socket]) -> None:
    """Forward connections until the relay closes the socket pair, and then exit.

    The inherited stdin, stdout and stderr belong to the program, so this process replaces its copies with /dev/null.
    """
    empty = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(empty, stream)
    for listener in listeners:
        listener.setblocking(False)
    try:
        Forwarder(pair, listeners).serve()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(port) for port in sys.argv[2].split(",") if port], sys.argv[3:])
