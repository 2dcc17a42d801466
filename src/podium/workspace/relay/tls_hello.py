"""Check that a client in a tunnel asks, in its TLS handshake, for the host that the tunnel was granted for.

Many hosts can share one address. The server name in the first message of the handshake (the ClientHello) selects one of
them, and is not encrypted.
"""

from __future__ import annotations

from dataclasses import dataclass

HANDSHAKE, CHANGE_CIPHER_SPEC, CLIENT_HELLO = 22, 20, 1
SERVER_NAME = 0
LARGEST_RECORD = 16 * 1024
LARGEST_HELLO = 64 * 1024
UNRECOGNIZED_NAME = bytes((21, 3, 1, 0, 2, 2, 112))
"""The TLS alert that tells a client that the server name was refused."""


class HelloRefused(Exception):
    """The client did not begin as it must. The message continues a sentence that names the host."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    """The server name that a client asks for, or None, and how many bytes its message took."""

    name: str | None
    size: int


class HelloFilter:
    """Passes on what a client sends after its handshake was found to name the host.

    If `must_be_tls` is false, a client that does not begin with a handshake can send anything. `is_number` says that
    the host is an IP address, which has no server name.
    """

    def __init__(self, host: str, *, must_be_tls: bool, is_number: bool) -> None:
        self._host = host
        self._must_be_tls = must_be_tls
        self._is_number = is_number
        self._held = b""
        self._is_open = False
        self.has_passed = not must_be_tls
        """Whether the client can be sent an answer."""

    def take(self, data: bytes) -> bytes:
        """Return the bytes that can be passed on now. Raise HelloRefused if the client asks for another host."""
        if self._is_open:
            return data
        self._held += data
        passed, is_second = b"", self.has_passed and self._must_be_tls
        while self._held and not self._is_open:
            size = self._measure_next(is_second=is_second)
            if size == 0:
                break
            passed, self._held = passed + self._held[:size], self._held[size:]
            self.has_passed = is_second = self._must_be_tls = True
        return passed

    def _measure_next(self, *, is_second: bool) -> int:
        """Return how many bytes can be passed on, or 0 if more must arrive before that is known."""
        held = self._held
        if is_second and held[0] == CHANGE_CIPHER_SPEC:
            size = 5 + int.from_bytes(held[3:5], "big")
            return size if len(held) >= max(5, size) else 0
        if held[0] != HANDSHAKE:
            if not is_second and self._must_be_tls:
                raise HelloRefused("what was sent is not TLS, which this port needs")
            return self._open()
        if is_second:
            # A server can ask for a second ClientHello. Anything else is the rest of the handshake.
            if len(held) < 11:
                return 0
            if held[5] != CLIENT_HELLO or held[9] != 3:
                return self._open()
        try:
            hello = parse_client_hello(held)
        except ValueError:
            raise HelloRefused("its TLS handshake cannot be read") from None
        if hello is None:
            return 0
        self._require_name(hello.name)
        return hello.size

    def _open(self) -> int:
        self._is_open = True
        return len(self._held)

    def _require_name(self, name: str | None) -> None:
        if name is None and self._is_number:
            return
        if name is None:
            raise HelloRefused("its TLS handshake names no server")
        if name.lower().removesuffix(".") != self._host:
            raise HelloRefused(f"its TLS handshake names another server, {name[:100]!a}")


def parse_client_hello(data: bytes) -> ClientHello | None:
    """Return the ClientHello at the start of a stream, or None if it is incomplete.

    The message can be spread over several records. Raise ValueError if it is no ClientHello, is too long, or could be
    read in two ways.
    """
    message, at = b"", 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        head = data[at : at + 5]
        size = int.from_bytes(head[3:5], "big")
        if (head[:1] and head[0] != HANDSHAKE) or (head[1:2] and head[1] != 3) or size > LARGEST_RECORD:
            raise ValueError("not a record of a TLS handshake")
        if len(head) == 5 and size == 0:
            raise ValueError("an empty record")
        if (message and message[0] != CLIENT_HELLO) or int.from_bytes(message[1:4], "big") > LARGEST_HELLO:
            raise ValueError("not a ClientHello")
        if len(head) < 5 or len(data) < at + 5 + size:
            if len(data) > LARGEST_HELLO + LARGEST_RECORD:
                raise ValueError("too long")
            return None
        message, at = message + data[at + 5 : at + 5 + size], at + 5 + size
        if len(data) > 4 * LARGEST_HELLO:
            raise ValueError("too long")
    if message[0] != CLIENT_HELLO or len(message) != 4 + int.from_bytes(message[1:4], "big"):
        raise ValueError("not a ClientHello alone")
    return ClientHello(_find_server_name(message[4:]), at)


class _Reader:
    """Reads fields from the start of bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        if len(self.data) < size:
            raise ValueError("a field is cut off")
        found, self.data = self.data[:size], self.data[size:]
        return found

    def take_vector(self, width: int) -> bytes:
        """Return a field with its length before it."""
        return self.take(int.from_bytes(self.take(width), "big"))


def _find_server_name(body: bytes) -> str | None:
    hello = _Reader(body)
    hello.take(2 + 32)
    hello.take_vector(1)
    hello.take_vector(2)
    hello.take_vector(1)
    if not hello.data:
        return None
    extensions = _Reader(hello.take_vector(2))
    if hello.data:
        raise ValueError("there is something after the extensions")
    names: list[bytes] = []
    while extensions.data:
        kind, content = int.from_bytes(extensions.take(2), "big"), _Reader(extensions.take_vector(2))
        if kind == SERVER_NAME:
            listed = _Reader(content.take_vector(2))
            if content.data or listed.take(1) != b"\0":
                raise ValueError("not a host name")
            names.append(listed.take_vector(2))
            if listed.data:
                raise ValueError("several server names")
    if len(names) > 1:
        raise ValueError("several server names")
    return names[0].decode("ascii") if names else None
