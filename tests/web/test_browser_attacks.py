"""Attacks on the dashboard from other pages, in a real browser: nothing changes, and nothing is read."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from playwright.sync_api import Browser, Page

from podium import Agent
from podium.store.reader import StoreReader
from podium.values.action import Action
from podium.values.event import PermissionAsked, RunStarted
from podium.values.request import Request

from .conftest import Site, Visitor

STARTED = RunStarted(agent="lead", request=Request(text="Ship it"), agents=(Agent(name="lead"),))


class AttackerHandler(BaseHTTPRequestHandler):
    """Serves whatever page the test wants, and keeps the headers that a browser sends."""

    page: ClassVar[str] = ""
    headers_seen: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        self.headers_seen.append(dict(self.headers))
        body = self.page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def attacker() -> Iterator[int]:
    """Serve an attacker's page on another port of this machine, and return the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), AttackerHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def bare_page(_browser: tuple[Browser, asyncio.AbstractEventLoop], visitor: Visitor) -> Page:
    """Open a page that nobody watches: an attacker's page has errors."""
    context = visitor.browser.new_context()
    context.set_default_timeout(10_000)
    return context.new_page()


def ask(site: Site, run: str) -> str:
    """Write a run that waits for a permission, and return the id of the request."""
    id = f"req-{run}"
    action = Action(run=run, agent="lead", tool="bash", arguments={"command": "rm -rf /"}, directory=str(site.repo))
    site.write_run(run, STARTED, PermissionAsked(id=id, action=action, reason="no rule allows it"))
    return id


def count_mail(site: Site, run: str) -> int:
    with StoreReader(site.store) as reader:
        return len(reader.read_mailbox_refs(run))


ATTEMPT = """async () => {
  const results = {};
  const attempt = async (name, make) => {
    try { const r = await make(); results[name] = `${r.type} ${r.status}`; }
    catch (error) { results[name] = `error`; }
  };
  const target = %s;
  const body = JSON.stringify({shown: "x", decision: "once"});
  await attempt("read", () => fetch(target + "/api/overview"));
  await attempt("no-cors", () => fetch(target + "/api/requests/%s/answer", {method: "POST", mode: "no-cors", body}));
  await attempt("cors", () => fetch(target + "/api/requests/%s/answer", {method: "POST", body,
    headers: {"Content-Type": "application/json", "Authorization": "Bearer guess"}}));
  results.socket = await new Promise((done) => {
    const socket = new WebSocket(target.replace("http", "ws") + "/api/events");
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
  });
  return results;
}"""


@pytest.mark.parametrize("origin", ["127.0.0.1", "attacker.test"])
def test_a_page_of_another_origin_can_neither_read_nor_answer(
    site: Site, attacker: int, bare_page: Page, origin: str
) -> None:
    run = f"cross-{origin.partition('.')[0]}"
    id = ask(site, run)
    AttackerHandler.page = "<p>free tokens</p>"
    bare_page.goto(f"http://{origin}:{attacker}/")

    found = bare_page.evaluate(ATTEMPT % (json.dumps(site.address), id, id))

    assert found == {"read": "error", "no-cors": "error", "cors": "error", "socket": "refused"}
    assert count_mail(site, run) == 0


def test_a_name_that_resolves_to_this_machine_gets_nothing(site: Site, bare_page: Page) -> None:
    id = ask(site, "rebinding")
    address = site.address.replace("127.0.0.1", "evil.test")

    replied = bare_page.goto(f"{address}/")

    assert replied is not None
    assert replied.status == 403
    found = bare_page.evaluate(ATTEMPT % (json.dumps(address), id, id))
    assert found["read"] == "basic 403"
    assert found["cors"] == "basic 403"
    assert found["socket"] == "refused"
    assert count_mail(site, "rebinding") == 0


def test_a_form_of_another_page_changes_nothing_and_the_page_cannot_be_framed(
    site: Site, attacker: int, bare_page: Page
) -> None:
    id = ask(site, "form")
    AttackerHandler.page = f"""
      <form id=f method=post enctype=text/plain action="{site.address}/api/requests/{id}/answer">
        <input name='{{"shown":"' value='","decision":"once"}}'></form>
      <iframe id=i src="{site.address}/"></iframe>"""
    bare_page.goto(f"http://attacker.test:{attacker}/")

    framed = bare_page.frames[-1].evaluate("document.body ? document.body.innerText : ''")
    with bare_page.expect_navigation():
        bare_page.evaluate("document.getElementById('f').submit()")

    assert "Needs you" not in framed
    assert "not allowed" in bare_page.content()
    assert count_mail(site, "form") == 0


def test_the_sign_in_leaves_no_cookie_no_code_in_the_history_and_no_referrer(
    site: Site, attacker: int, visitor: Visitor
) -> None:
    page = visitor.open(site)
    AttackerHandler.headers_seen.clear()

    assert "code=" not in page.url
    assert page.context.cookies() == []
    assert page.evaluate("sessionStorage.length") == 1
    assert page.evaluate("localStorage.length") == 0
    other = page.context.new_page()
    AttackerHandler.page = "<p>hello</p>"
    other.goto(f"http://127.0.0.1:{attacker}/")
    seen = AttackerHandler.headers_seen[0]
    assert "Cookie" not in seen
    assert "Referer" not in seen
    assert other.evaluate("sessionStorage.length + localStorage.length") == 0


def test_an_artifact_is_downloaded_and_never_shown(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site)

    headers = page.evaluate(
        """async () => {
          const token = sessionStorage.getItem("podium-token");
          const reply = await fetch("/api/artifacts/none", {headers: {Authorization: `Bearer ${token}`}});
          return Object.fromEntries(reply.headers);
        }"""
    )

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-type"] == "application/problem+json"
