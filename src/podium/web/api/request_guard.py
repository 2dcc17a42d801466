"""Reject HTTP requests that are not allowed, before they reach a route.

A request is rejected if it has the wrong host or no valid token, is too large, or comes from another site's page. So is
a request whose path can be read in two ways: the guard and the router must see the same path.

A browser lets any page send requests to the loopback address, and an attacker's domain can resolve to that address.
So the `Host` must be one that this server accepts, and requests from pages with other origins are rejected.
Authentication is a bearer token in a header, which a browser never adds by itself, unlike a cookie.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from .access_tokens import TokenFile
from .problem import encode_problem, error_headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 8 * 1024 * 1024
OPEN_PATHS = frozenset({"/", "/health", "/api/login"})
"""The paths that need no token: the page, the health check and signing in. The page's own files are added to them."""

PLAIN_PATH = re.compile(rb"/|(?:/(?:[A-Za-z0-9._~!$&'()*+,=:@-]|%[0-9A-Fa-f]{2})+)+/?")
ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")

ODD_PATH = (
    "the path of the request can be read in more than one way; "
    "send it without empty or dot segments, encoded slashes and control characters"
)
TWO_LENGTHS = "a request with Transfer-Encoding has no Content-Length; proxies and servers differ in where it ends"
NO_TOKEN = "no valid token; open the address that podium serve prints, or send the header Authorization: Bearer TOKEN"

SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class RequestGuard:
    """An ASGI middleware around the whole server."""

    def __init__(
        self,
        app: AsgiApp,
        tokens: TokenFile,
        hosts: Collection[str],
        *,
        page_files: Collection[str] = (),
        public_names: Collection[str] = (),
        is_tls: bool = False,
    ) -> None:
        self._app = app
        self._open_paths = OPEN_PATHS.union(page_files)
        self._tokens = tokens
        self._public_names = frozenset(name.lower() for name in public_names)
        self._hosts = frozenset(host.lower() for host in hosts) | self._public_names
        self._scheme = "https" if is_tls else "http"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # WebSockets are not offered. The stream is plain HTTP, so the rules below apply to it.
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path = read_plain_path(scope.get("raw_path") or b"")
        scope["path"] = path or "/"
        scope["raw_path"], scope["root_path"] = quote(scope["path"]).encode(), ""
        if path is None:
            await _send_problem(send, scope, HTTPStatus.BAD_REQUEST, ODD_PATH)
            return
        if "transfer-encoding" in headers and "content-length" in headers:
            # What follows on this connection may be a part of this request, so nothing more is read from it.
            await _send_problem(send, scope, HTTPStatus.BAD_REQUEST, TWO_LENGTHS, closes=True)
            return
        if (refusal := self._find_refusal(scope, headers)) is not None:
            await _send_problem(send, scope, *refusal)
            return
        if path not in self._open_paths:
            token = self._tokens.find_token(_bearer_of(headers))
            if token is None:
                await _send_problem(send, scope, HTTPStatus.UNAUTHORIZED, NO_TOKEN)
                return
            scope.setdefault("state", {})["token"] = token
        await self._app(scope, _limit_body(receive), _add_headers(send))

    def _find_refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[HTTPStatus, str] | None:
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            return HTTPStatus.FORBIDDEN, f"this server does not serve the host {host[:100]!r}, only {known}"
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None and origin.lower() not in self._list_origins(host):
            return HTTPStatus.FORBIDDEN, f"requests from pages at {origin[:100]!r} are not allowed"
        # A link on another page is allowed to open the dashboard, which shows nothing until the user signs in.
        is_opening = scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not (is_opening and scope["path"] in self._open_paths):
            return HTTPStatus.FORBIDDEN, "requests from pages on other sites are not allowed"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the content length must be a number up to {LARGEST_BODY:,}"
        return None

    def _list_origins(self, host: str) -> tuple[str, ...]:
        """Return the origins that this server's own page can have at `host`.

        If `host` is the public name of a reverse proxy, both the http and the https origin are returned.
        """
        return (f"https://{host}", f"http://{host}") if host in self._public_names else (f"{self._scheme}://{host}",)


def read_plain_path(raw: bytes) -> str | None:
    """Return the decoded path of a request without a slash at its end, or None if the path can be read in two ways.

    Servers, proxies and routers differ in what they make of empty and dot segments, encoded slashes, backslashes, path
    parameters, paths that are encoded twice and control characters. None of these is in a path that a client of this
    server needs.
    """
    if PLAIN_PATH.fullmatch(raw) is None:
        return None
    segments: list[str] = []
    for one in raw.strip(b"/").split(b"/"):
        try:
            segment = unquote_to_bytes(one).decode()
        except UnicodeDecodeError:
            return None
        if segment in (".", "..") or not segment.isprintable() or set("/\\") & set(segment) or ENCODED.search(segment):
            return None
        segments.append(segment)
    return f"/{'/'.join(segments)}"


def _bearer_of(headers: dict[str, str]) -> str:
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def _limit_body(receive: Receive) -> Receive:
    """Return a `receive` function that reports a disconnect once the body is too large.

    This also limits requests that do not declare a content length.
    """
    read = 0

    async def receive_limited() -> Message:
        nonlocal read
        message = await receive()
        if message["type"] == "http.request":
            read += len(message["body"])
            if read > LARGEST_BODY:
                return {"type": "http.disconnect"}
        return message

    return receive_limited


def _add_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
        await send(message)

    return send_with_headers


async def _send_problem(send: Send, scope: Scope, status: HTTPStatus, detail: str, *, closes: bool = False) -> None:
    error = encode_problem(status, detail, path=scope["path"])
    headers = [*error_headers(error), *SECURITY_HEADERS]
    if status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    if closes:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": error.body, "more_body": False})
