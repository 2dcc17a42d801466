"""Every route of the API needs the scope that the OpenAPI document declares, however its path is spelled.

The routes are read from the document itself, so a new route is covered as soon as it exists.
"""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from podium.testing import calls
from podium.values.actor import AccessScope
from podium.values.event import PermissionAsked
from podium.web.api.access_tokens import SCOPES

from ..protocols.conftest import write_agent
from . import screen_data as data
from .api_client import ApiClient
from .conftest import Site, open_site

OPEN = {"/health", "/api/login"}
"""The documented routes that need no token."""

TOKENS: dict[str, tuple[AccessScope, ...]] = {
    "none": (),
    "read": ("read",),
    "act": ("read", "act"),
    "approve": ("read", "act", "approve"),
}


class Route(NamedTuple):
    """A route of the document. `scope` is empty if it needs no token."""

    method: str
    path: str
    scope: str

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(kw_only=True)
class Target:
    """A server, and everything that its routes can act on: a waiting run, a worker's branch, a token, a group."""

    site: Site
    run: str
    request: PermissionAsked
    victim: str
    merge: dict[str, str]
    canary: Path
    secrets: dict[str, str]

    def fill(self, path: str) -> str:
        """Return a route's path with things that exist."""
        names = {"{request_id}": self.request.id, "{token_id}": self.victim, "{target}": self.run, "{name}": "greeter"}
        run = "da01" if path.startswith("/api/workers/") else self.run
        for name, value in (names | {"{run}": run, "{seq}": "1", "{digest}": "0" * 64, "{decision_id}": "d1"}).items():
            path = path.replace(name, value)
        return path

    def bodies(self) -> dict[str, Any]:
        """Return for every route that acts a body that would have an effect."""
        touch = f"touch {self.canary}"
        message = {"message": {"messageId": "m1", "parts": [{"text": "Hi"}]}}
        new_run = {"agent": "greeter", "request": "Hi"}
        chat = {"model": "greeter", "messages": [{"role": "user", "content": "Hi"}]}
        return {
            "POST /api/login": {"code": "no code of this server"},
            "POST /api/session/end": {},
            "DELETE /api/tokens/{token_id}": None,
            "POST /api/requests/{request_id}/answer": {"shown": self.request.action.id, "decision": "once"},
            "POST /api/runs": new_run,
            "POST /api/runs/{run}/messages": {"text": "Be quick"},
            "POST /api/runs/{run}/pause": None,
            "POST /api/runs/{run}/resume": None,
            "POST /api/runs/{run}/stop": None,
            "POST /api/runs/{run}/budget": {"tokens": 5},
            "POST /api/runs/{run}/fork": {"at": "1", "request": "Again"},
            "POST /api/runs/{run}/retry": {},
            "POST /api/runs/{run}/group": {"group": "new"},
            "POST /api/teams": {"name": "planted", "members": ["implementer", "challenger"], "agreed": True},
            "POST /api/workers": {"branch": "feat/planted", "task": "Do it", "agent": "greeter"},
            "POST /api/merges": {"branches": ["feat/canary"], "checks": [touch]},
            "POST /api/merges/apply": self.merge,
            "POST /api/workers/{run}/review": {"note": "Change it"},
            "POST /api/workers/{run}/merges": {"shown": "", "files": [], "checks": [touch]},
            "POST /api/groups/{target}": {"name": "planted", "pinned": True},
            "POST /api/notifications": {"words": ["bell", "title"]},
            "POST /api/notifications/test": None,
            "POST /v1/chat/completions": chat,
            "POST /a2a/{name}": {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message},
        }

    def read_state(self) -> dict[str, Any]:
        """Return everything that a request could change, apart from times at which tokens and processes were seen."""
        home, repo = self.site.studio.settings.home, self.site.repo
        with closing(sqlite3.connect(self.site.store)) as store:
            tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {name: sorted(map(repr, store.execute(f"SELECT * FROM {name}"))) for name in tables}
        rows = {name: found for name, found in rows.items() if name not in ("owner", "answering_client")}
        tokens = {one.id for one in self.site.server.context.tokens.list_tokens()}
        settings = {str(path): path.read_bytes() for path in home.rglob("*.yaml")}
        refs = data.git(repo, "for-each-ref"), data.git(repo, "status", "--porcelain", "--ignored")
        return {**rows, "tokens": tokens, "settings": settings, "refs": refs, "canary": self.canary.exists()}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("routes")
    with open_site(folder) as site:
        write_agent(site.repo, "greeter", "Hello.")
        data.git(site.repo, "symbolic-ref", "HEAD", "refs/heads/main")
        data.git(site.repo, "add", "-A")
        data.git(site.repo, "commit", "-qm", "Agents")
        data.make_branch(site.repo, "feat/canary", {"new.txt": "new\n"})
        data.write_worker(site, "da01", "feat/canary", "Do it", change=(1, 0))
        site.studio.agent("asker", says=(calls("bash", command="touch done.txt"), "done"), tools=("bash",))
        run = site.start_run("asker")
        [request] = site.wait_for_events(run, PermissionAsked)
        tokens = site.server.context.tokens
        secrets = {name: tokens.create_token(name, scopes)[0] for name, scopes in TOKENS.items() if scopes}
        _, victim = tokens.create_token("victim", SCOPES)
        tip = data.git(site.repo, "rev-parse", "feat/canary")
        merge = {
            "target": data.git(site.repo, "branch", "--show-current"),
            "base": data.git(site.repo, "rev-parse", "HEAD"),
            "commit": tip,
            "tree": data.git(site.repo, "rev-parse", f"{tip}^{{tree}}"),
        }
        yield Target(
            site=site,
            run=run,
            request=request,
            victim=victim.id,
            merge=merge,
            canary=folder / "canary",
            secrets=secrets,
        )


def read_routes(site: Site) -> list[Route]:
    """Return the routes of the server's own OpenAPI document."""
    with ApiClient(site) as client:
        document = client.read("/api/schema/openapi.json")
    return [
        Route(method.upper(), path, operation.get("security", [{"token": [""]}])[0]["token"][0])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def find_untyped(document: dict[str, Any]) -> Iterator[str]:
    """Yield the JSON responses under /api whose content is not described, and the errors that are no `Problem`."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                name, content = f"{method.upper()} {path} {status}", response["content"]
                if not path.startswith("/api/"):
                    continue
                if int(status) >= 400:
                    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
                    if content != {"application/problem+json": problem}:
                        yield name
                elif "application/json" in content:
                    schema = content["application/json"]["schema"]
                    for one in schema.get("oneOf", [schema]):
                        found = document["components"]["schemas"].get(one.get("$ref", "").rpartition("/")[2], {})
                        if not found.get("properties"):
                            yield name


class RawClient:
    """Sends requests byte by byte as they are given: other clients would put their paths into normal form."""

    def __init__(self, site: Site) -> None:
        self._host = site.address.partition("//")[2]
        self._connection: socket.socket | None = None

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, method: str, path: bytes, *, secret: str = "", body: bytes = b"", header: bytes = b"") -> int:
        """Send a request and return its status."""
        if self._connection is None:
            name, _, port = self._host.partition(":")
            self._connection = socket.create_connection((name, int(port)), timeout=20)
        lines = [b"%s %s HTTP/1.1" % (method.encode(), path), b"Host: " + self._host.encode()]
        lines += [b"Authorization: Bearer " + secret.encode()] if secret else []
        lines += [header] if header else []
        lines += [b"Content-Type: application/json", b"Content-Length: %d" % len(body), b"", body]
        self._connection.sendall(b"\r\n".join(lines))
        received = b""
        while b"\r\n\r\n" not in received:
            received += (piece := self._connection.recv(65536))
            assert piece, received
        head, _, rest = received.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if b"content-length" not in fields or fields.get(b"connection") == b"close":
            self.close()  # a stream, which may never end
            return int(head.split()[1])
        while len(rest) < int(fields[b"content-length"]):
            rest += self._connection.recv(65536)
        return int(head.split()[1])


def spell_oddly(path: str) -> Iterator[bytes]:
    """Yield other spellings of a path, each of which some server, proxy or router takes for the path itself."""
    first, _, rest = path[1:].partition("/")
    rest = rest or first
    yield f"/{path}".encode()
    yield f"/.{path}".encode()
    yield f"/x/..{path}".encode()
    yield f"/%2e{path}".encode()
    yield f"/{path[1:].replace('/', '%2f')}/%2f".encode()
    yield f"{path}//".encode()
    yield f"/{first};v=1/{rest}".encode()
    yield f"/{first}\\{rest}".encode()
    yield f"{path}%00".encode()
    yield f"{path}%1b[31m".encode().replace(b"[", b"%5b")
    yield f"/{first}/%252e/{rest}".encode()
    yield f"http://127.0.0.1{path}".encode()


def encode_body(body: object) -> bytes:
    return b"" if body is None else json.dumps(body).encode()


def test_every_response_of_the_api_has_a_type_and_every_error_is_a_problem(target: Target) -> None:
    with ApiClient(target.site) as client:
        document = client.read("/api/schema/openapi.json")

    assert list(find_untyped(document)) == []


def test_every_route_declares_a_scope_and_every_route_that_acts_is_tried(target: Target) -> None:
    routes = read_routes(target.site)

    assert {route.path for route in routes if not route.scope} == OPEN
    assert {route.scope for route in routes} == {"", *SCOPES}
    assert {route.name for route in routes if route.method != "GET"} == target.bodies().keys()


def test_a_token_reaches_only_the_routes_of_its_scopes_and_no_odd_spelling_reaches_any(
    target: Target, capfd: pytest.CaptureFixture[str]
) -> None:
    routes, bodies, before = read_routes(target.site), target.bodies(), target.read_state()
    wrong: list[str] = []
    with RawClient(target.site) as client:
        for route in routes:
            path, body = target.fill(route.path), encode_body(bodies.get(route.name))
            for name, scopes in TOKENS.items():
                secret = target.secrets.get(name, "")
                if route.scope and route.scope not in scopes:
                    status = client.send(route.method, path.encode(), secret=secret, body=body)
                    if status != (403 if scopes else 401):
                        wrong.append(f"{route.name} with {name}: {status}")
                for odd in spell_oddly(path):
                    if (status := client.send(route.method, odd, secret=secret, body=body)) != 400:
                        wrong.append(f"{route.method} {odd!r} with {name}: {status}")
        # This one is open to every token; what it does is decided by what the body asks for.
        body = encode_body(bodies["POST /a2a/{name}"])
        client.send("POST", b"/a2a/greeter", secret=target.secrets["read"], body=body)
        client.close()

    assert wrong == []
    assert target.read_state() == before
    assert capfd.readouterr().err == ""


def test_a_token_of_the_declared_scope_reaches_the_route(target: Target) -> None:
    refused: list[str] = []
    with RawClient(target.site) as client:
        for route in read_routes(target.site):
            # Things that do not exist and a body that is no JSON, so that nothing is done.
            path = route.path.replace("{", "").replace("}", "")
            for name, scopes in TOKENS.items():
                if route.scope not in ("", *scopes) or route.path in ("/api/session/end", "/api/login"):
                    continue
                # A slash at the end is the one other spelling that is understood.
                spelling = f"{path}/" if name == "approve" else path
                status = client.send(route.method, spelling.encode(), secret=target.secrets.get(name, ""), body=b"{")
                if status in (401, 403, 405) or status >= 500:
                    refused.append(f"{route.name} with {name}: {status}")

    assert refused == []
    assert not target.canary.exists()


def test_what_was_refused_to_others_is_done_for_the_right_token(target: Target) -> None:
    tried = {
        "POST /api/groups/{target}": "act",
        "POST /api/runs/{run}/messages": "act",
        "POST /api/teams": "approve",
        "POST /api/notifications": "approve",
        "POST /api/merges/apply": "approve",
        "DELETE /api/tokens/{token_id}": "approve",
        "POST /api/requests/{request_id}/answer": "approve",
    }
    bodies = target.bodies()

    with RawClient(target.site) as client:
        for name, token in tried.items():
            method, _, path = name.partition(" ")
            body, secret = encode_body(bodies[name]), target.secrets[token]
            assert client.send(method, target.fill(path).encode(), secret=secret, body=body) in (200, 201), name
