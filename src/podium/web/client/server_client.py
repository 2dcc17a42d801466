"""Send HTTP requests to a server, and check the fingerprint of its certificate."""

from __future__ import annotations

import socket
import ssl
from hashlib import sha256
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from ...values.errors import Mistake, OutsideFailed
from .known_servers import KnownServer

SILENCE_SECONDS = 45.0
"""How long to wait for the server, which sends something at least every 15 seconds."""
CONNECTION_ERRORS = (OSError, HTTPException, EOFError)


class LostConnection(OutsideFailed):
    """The connection was lost before the response was complete."""


class ServerClient:
    """Sends requests to one server. Each request uses a new connection, which is closed after the response."""

    def __init__(self, server: KnownServer) -> None:
        self._server = server
        self.address = server.address

    def send(self, method: str, path: str, body: object = None, **headers: str) -> HTTPResponse:
        """Send a request and return the response. An underscore in a header name stands for a dash.

        Raise Mistake or OutsideFailed with the server's message if the response is an error, and OutsideFailed if the
        server cannot be reached.
        """
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._server.token:
            given["Authorization"] = f"Bearer {self._server.token}"
        if body is not None:
            given["Content-Type"] = "application/json"
        given["Connection"] = "close"
        try:
            connection = open_connection(self._server)
        except OSError as error:
            raise as_unreachable(self.address, error) from error
        try:
            connection.request(method, path, None if body is None else msgspec.json.encode(body), given)
            response = connection.getresponse()
            if response.status < 400:
                return response
            with response:
                raise _as_error(self._server, response.status, response.read())
        except CONNECTION_ERRORS as error:
            connection.close()
            raise LostConnection(f"the connection to {self.address} was lost; try again") from error

    def read(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return the JSON of the response."""
        with self.send(method, path, body) as response:
            return msgspec.json.decode(response.read())


def open_connection(server: KnownServer) -> HTTPConnection:
    """Connect to a server. Raise Mistake, before anything is sent, if its certificate is not the expected one."""
    parts = urlsplit(server.address)
    assert parts.hostname is not None
    if parts.scheme == "http":
        connection = HTTPConnection(parts.hostname, parts.port, timeout=SILENCE_SECONDS)
        connection.connect()
        return connection
    context = _trust_any() if server.fingerprint else ssl.create_default_context()
    connection = HTTPSConnection(parts.hostname, parts.port, timeout=SILENCE_SECONDS, context=context)
    connection.connect()
    if server.fingerprint and (found := _read_fingerprint(connection.sock)) != server.fingerprint:
        connection.close()
        raise Mistake(
            f"the certificate of {server.address} has changed: its SHA-256 fingerprint is {found}, not "
            f"{server.fingerprint}; if you know why, sign in again with: podium login {server.address}"
        )
    return connection


class SeenCertificate(NamedTuple):
    """The SHA-256 fingerprint of a server's certificate, and whether this machine already trusts it."""

    fingerprint: str
    is_trusted: bool


def read_certificate(address: str) -> SeenCertificate | None:
    """Return the certificate of a server, or None if connections to it are not encrypted.

    Raise OutsideFailed if the server cannot be reached.
    """
    parts = urlsplit(address)
    if parts.scheme == "http":
        return None
    try:
        with _connect_encrypted(parts, _trust_any()) as encrypted:
            fingerprint = _read_fingerprint(encrypted)
        try:
            _connect_encrypted(parts, ssl.create_default_context()).close()
        except ssl.SSLCertVerificationError:
            return SeenCertificate(fingerprint, is_trusted=False)
    except OSError as error:
        raise as_unreachable(address, error) from error
    return SeenCertificate(fingerprint, is_trusted=True)


def _connect_encrypted(parts: SplitResult, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection((parts.hostname, parts.port or 443), timeout=SILENCE_SECONDS)
    try:
        return context.wrap_socket(plain, server_hostname=parts.hostname)
    except BaseException:
        plain.close()
        raise


def as_unreachable(address: str, error: Exception) -> OutsideFailed:
    """Return the error for a server that does not answer."""
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return OutsideFailed(
        f"cannot reach {address}: {why}; check the address, and that podium serve is running there", retryable=True
    )


def _trust_any() -> ssl.SSLContext:
    """Return an SSL context that accepts any certificate. The callers check the certificate's fingerprint instead."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _read_fingerprint(connected: socket.socket) -> str:
    assert isinstance(connected, ssl.SSLSocket)
    certificate = connected.getpeercert(binary_form=True)
    assert certificate is not None
    return ":".join(f"{byte:02X}" for byte in sha256(certificate).digest())


def _as_error(server: KnownServer, status: int, body: bytes) -> Mistake | OutsideFailed:
    try:
        detail = str(msgspec.json.decode(body)["detail"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        detail = f"{server.address} answered with status {status}; check that podium serve is running there"
    if status == 401 and server.token:
        return Mistake(f"{server.address} does not accept the token; sign in again with: podium login ADDRESS")
    if status == 403:
        return Mistake(f"{detail}; sign in again with: podium login {server.address}")
    return OutsideFailed(detail) if status >= 500 else Mistake(detail)
