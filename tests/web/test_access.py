"""Who may use the server: hosts, origins, tokens, scopes, codes, and limits on what is sent."""

from __future__ import annotations

import base64
import json
import logging
import posixpath
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote, unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar.utils import normalize_path

from podium.store.store_clients import list_clients
from podium.values.errors import Mistake
from podium.web.api.access_tokens import FILE_NAME, SCOPES, LoginCodes, TokenFile
from podium.web.api.request_guard import LARGEST_BODY, read_plain_path
from podium.web.api.server_log import LOG_CONFIG, EscapingFormatter, report_trouble

from .api_client import ApiClient
from .conftest import Site


def test_the_server_listens_on_the_loopback_address_only(site: Site) -> None:
    port = int(site.address.rpartition(":")[2])
    mine = socket.gethostbyname(socket.gethostname())

    with socket.socket() as other:
        if not mine.startswith("127."):
            assert other.connect_ex((mine, port)) != 0
        assert other.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"Host": "evil.test"}, "does not serve the host 'evil.test'"),
        ({"Host": "127.0.0.1:1"}, "does not serve the host"),
        ({"Origin": "http://evil.test"}, "requests from pages at 'http://evil.test' are not allowed"),
        ({"Origin": "null"}, "requests from pages at 'null' are not allowed"),
        ({"Sec-Fetch-Site": "cross-site"}, "requests from pages on other sites are not allowed"),
        ({"Sec-Fetch-Site": "same-site"}, "requests from pages on other sites are not allowed"),
    ],
)
def test_requests_for_other_hosts_and_from_other_pages_are_refused(
    site: Site, headers: dict[str, str], says: str
) -> None:
    with ApiClient(site) as client:
        for response in (client.get("/api/overview", headers=headers), client.post("/api/runs", headers=headers)):
            assert response.status_code == 403
            assert says in response.json()["detail"]


def test_nothing_but_the_page_and_health_can_be_read_without_a_token(site: Site) -> None:
    with httpx.Client(base_url=site.address) as client:
        assert client.get("/health").json()["status"] == "ok"
        assert client.get("/").status_code == 200
        assert client.get("/app.mjs").status_code == 200
        closed = ("/api/overview", "/api/runs", "/api/events", "/api/schema/openapi.json", "/metrics", "/metrics/")
        for path in (*closed, "/API/overview", "/docs", "/nothing", "/api", "/app.mjs/more", "/health/more"):
            response = client.get(path)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer"), path
            assert response.headers["content-type"] == "application/problem+json"
        assert client.get("/api/runs", headers={"Authorization": "Bearer pod_wrong"}).status_code == 401
        assert client.get("/api/runs", headers={"Authorization": "Basic pod_wrong"}).status_code == 401
        assert "set-cookie" not in client.get("/").headers


def test_a_token_permits_only_what_its_scopes_say(site: Site) -> None:
    with ApiClient(site, scopes=("read",)) as reader:
        assert reader.get("/api/overview").status_code == 200
        refused = reader.post("/api/runs", json={"agent": "answer", "request": "hi"})
        answered = reader.post("/api/requests/x/answer", json={"shown": ""})

    assert (refused.status_code, answered.status_code) == (403, 403)
    assert refused.json()["detail"] == "this needs a token with the scope act; yours has read"


def test_a_code_works_once_and_only_for_a_while(site: Site) -> None:
    code = site.server.make_sign_in_address().rpartition("=")[2]
    with httpx.Client(base_url=site.address) as client:
        given = client.post("/api/login", json={"code": code})
        again = client.post("/api/login", json={"code": code})

    assert given.json()["scopes"] == ["read", "act", "approve"]
    assert again.status_code == 401
    now = [1000.0]
    codes = LoginCodes(clock=lambda: now[0])
    old = codes.create_code(("read",))
    now[0] += 601
    assert codes.redeem_code(old) is None


def test_wrong_codes_keep_only_the_client_that_sent_them_out(site: Site) -> None:
    code = site.server.make_sign_in_address().rpartition("=")[2]
    with (
        httpx.Client(base_url=site.address, transport=httpx.HTTPTransport(local_address="127.0.0.2")) as guesser,
        httpx.Client(base_url=site.address) as person,
    ):
        guessed = [guesser.post("/api/login", json={"code": f"{number}"}).status_code for number in range(20)]
        named = {"X-Forwarded-For": "192.0.2.1", "Forwarded": "for=192.0.2.1"}
        late = [guesser.post("/api/login", json={"code": code}, headers=more) for more in ({}, named)]
        signed_in = person.post("/api/login", json={"code": code})

    assert guessed == [401] * 20
    assert [one.status_code for one in late] == [429, 429]
    assert late[0].json()["detail"] == "this address sent 20 wrong codes in 60 seconds; try again in a minute"
    assert signed_in.status_code == 200


def test_a_client_is_an_ipv4_address_or_an_ipv6_network_for_a_minute() -> None:
    now = [1000.0]
    codes = LoginCodes(clock=lambda: now[0])

    for number in range(20):
        codes.redeem_code("wrong", client=f"2001:db8::{number}")
        codes.redeem_code("wrong", client=("192.0.2.7", "::ffff:192.0.2.7")[number % 2])

    assert codes.is_blocked("2001:db8::ffff")
    assert codes.is_blocked("192.0.2.7")
    assert not codes.is_blocked("2001:db8:0:1::1")
    assert not codes.is_blocked("192.0.2.8")
    now[0] += 61
    assert not codes.is_blocked("2001:db8::ffff")


def test_a_code_cannot_be_guessed_at_any_speed() -> None:
    codes = LoginCodes()
    made = {codes.create_code(("read",)) for _ in range(50)}

    assert len(made) == 50
    assert {len(base64.urlsafe_b64decode(f"{code}{'=' * (-len(code) % 4)}")) >= 16 for code in made} == {True}


def test_a_token_revokes_none_that_may_do_more_than_itself(site: Site) -> None:
    with ApiClient(site) as approver, ApiClient(site, scopes=("read", "act")) as actor, ApiClient(site) as victim:
        refused = actor.delete(f"/api/tokens/{victim.token.id}")
        still = victim.get("/api/session").status_code
        with ApiClient(site, scopes=("read", "act")) as other:
            revoked = actor.delete(f"/api/tokens/{other.token.id}")
        allowed = approver.delete(f"/api/tokens/{victim.token.id}")
        gone = victim.get("/api/session").status_code

    assert (refused.status_code, still) == (403, 200)
    assert refused.json()["detail"].startswith("revoking a token that may approve needs a token with the scope approve")
    assert (revoked.status_code, allowed.status_code, gone) == (200, 200, 401)


def test_only_a_client_that_may_approve_counts_as_one_that_can_answer(site: Site) -> None:
    counts: dict[str, int] = {}
    for scopes in (("read", "act"), SCOPES):
        with (
            ApiClient(site, scopes=scopes) as client,
            client.stream("GET", "/api/events", params={"client": "true"}) as response,
        ):
            assert next(response.iter_bytes()).startswith(b": connected")
            counts[scopes[-1]] = len(list_clients(site.studio.settings.store))

    assert counts == {"act": 0, "approve": 1}


def test_no_text_of_a_client_controls_the_terminal_of_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    text = "GET /\x1b[2J\x9b1A\x07\r\u202e\u200b"
    record = logging.makeLogRecord({"msg": "%s", "args": (text,), "exc_info": None})

    report_trouble(text)
    printed = capsys.readouterr().err
    logged = EscapingFormatter().format(record)

    for shown in (printed, logged):
        assert "GET /" in shown
        assert shown.removesuffix("\n").isprintable()
    assert LOG_CONFIG["formatters"]["escaped"]["()"] is EscapingFormatter


def test_a_revoked_token_is_refused_at_once_also_if_another_process_revoked_it(site: Site) -> None:
    with ApiClient(site) as client:
        assert client.get("/api/overview").status_code == 200
        TokenFile(site.studio.settings.home).revoke_token(client.token.id)

        assert client.get("/api/overview").status_code == 401


def test_the_file_of_tokens_is_private_and_has_no_secret(site: Site) -> None:
    with ApiClient(site) as client:
        file = site.studio.settings.home / FILE_NAME

        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert client.secret not in file.read_text()
        assert client.token.id in file.read_text()
    with pytest.raises(Mistake, match="token 'nobody' not found"):
        TokenFile(site.studio.settings.home).revoke_token("nobody")


def test_every_response_forbids_scripts_frames_and_referrers(site: Site) -> None:
    with ApiClient(site) as client:
        responses = [client.get("/"), client.get("/app.mjs"), client.get("/api/runs"), client.get("/nothing")]
        responses.append(client.get("/", headers={"Host": "evil.test"}))

    for response in responses:
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/..%2f..%2fapp.py", "/%2e%2e/%2e%2e/app.py", "/static/../../app.py", "//etc/passwd"]
)
def test_paths_outside_the_page_are_refused(site: Site, path: str) -> None:
    with socket.create_connection(("127.0.0.1", int(site.address.rpartition(":")[2]))) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {site.address[7:]}\r\nConnection: close\r\n\r\n".encode())
        reply = b"".join(iter(lambda: raw.recv(65536), b""))

    assert reply.startswith(b"HTTP/1.1 400")
    assert b"can be read in more than one way" in reply


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/", "/"),
        (b"/api/runs/", "/api/runs"),
        (b"/api/teams/user%3Areviewers", "/api/teams/user:reviewers"),
        (b"/api/groups/Gr%C3%B6%C3%9Fe%20%231", "/api/groups/Größe #1"),
        (b"/%61pi/runs", "/api/runs"),
        (b"/API/runs", "/API/runs"),
    ],
)
def test_a_path_is_accepted_in_one_spelling_only(raw: bytes, path: str) -> None:
    odd = [
        b"",
        b"*",
        b"//",
        b"/.",
        b"/a/../b",
        b"/a/%2E%2e/b",
        b"/a%2fb",
        b"/a%5Cb",
        b"/a\\b",
        b"/a;b",
        b"/a%0ab",
        b"/a%7f",
    ]
    odd += [
        b"/a%c2%85",
        b"/a%e2%80%ae",
        b"/a%ff",
        b"/a%c0%af",
        b"/a%2",
        b"/a%zz",
        b"/a%252e",
        b"/a#b",
        b"/a b",
        b"/\xc3\xb6",
    ]
    odd += [b"http://h/a", b"a/b", b"h:1", b"/a//", b"/a\0", b"/a\n", b"/%ed%a0%80"]

    assert read_plain_path(raw) == path
    assert {one: read_plain_path(one) for one in odd} == dict.fromkeys(odd)


@given(st.from_regex(rb"(/([a-z.;%\\~]|%[0-9a-fA-F]{2}|%2f|%2e)*){1,4}", fullmatch=True))
def test_what_is_accepted_is_read_alike_by_everybody(raw: bytes) -> None:
    path = read_plain_path(raw)

    if path is not None:
        assert normalize_path(path) == posixpath.normpath(path) == path
        assert path.isprintable()
        assert unquote(path) == path
        assert read_plain_path(quote(path).encode()) == path


def test_bodies_that_are_too_large_broken_or_not_utf_8_get_a_sentence(site: Site) -> None:
    bodies: list[tuple[bytes, int]] = [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"agent": 1, "request": "x"}', 400),
        (b'{"agent": "a", "request": "b", "surprise": 1}', 400),
        (b"null", 400),
    ]
    with ApiClient(site) as client:
        for body, status in bodies:
            response = client.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
            assert response.status_code == status, body[:40]
            assert response.json()["detail"]
    with socket.create_connection(("127.0.0.1", int(site.address.rpartition(":")[2]))) as raw:
        raw.sendall(
            f"POST / HTTP/1.1\r\nHost: {site.address[7:]}\r\nContent-Length: {LARGEST_BODY + 1}\r\n\r\n".encode()
        )
        assert raw.recv(65536).startswith(b"HTTP/1.1 413")

    def pieces() -> Iterator[bytes]:
        for _ in range(LARGEST_BODY // 65536 + 2):
            yield b" " * 65536

    with ApiClient(site) as client:
        with suppress(httpx.TransportError):  # the server may close the connection before it has read everything
            assert client.post("/api/runs", content=pieces()).status_code >= 400
        assert client.get("/api/overview").status_code == 200


def test_half_requests_and_many_connections_leave_the_server_working(site: Site) -> None:
    port = int(site.address.rpartition(":")[2])
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    try:
        for number, one in enumerate(held):
            one.sendall([b"GET /api/", b"\x00\x01\x02", b"POST /api/runs HTTP/1.1\r\nContent-Le", b""][number % 4])
        with ApiClient(site) as client:
            assert client.read("/api/overview")["schema"]
    finally:
        for one in held:
            one.close()


def test_a_websocket_is_refused(site: Site) -> None:
    with ApiClient(site) as client:
        response = client.get(
            "/api/events",
            headers={
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGVzdA==",
                "Origin": "http://evil.test",
            },
        )

    assert response.status_code in (400, 403)


def test_the_token_is_never_in_a_problem(site: Site) -> None:
    with ApiClient(site) as client:
        bodies = [client.get(path).text for path in ("/api/runs/none", "/api/nothing", "/api/requests/none")]

        assert not any(client.secret in json.dumps(body) for body in bodies)
