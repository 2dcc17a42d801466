"""A run in a real terminal, with the page beside it: both show its requests, and one answer counts for both."""

from __future__ import annotations

import os
import re

import pytest
from playwright.sync_api import expect

from podium.values.event import PermissionAnswered

from ..cli.conftest import Desk
from ..cli.test_terminal import Terminal
from .conftest import PHONE, Site, Visitor


@pytest.fixture
def desk(site: Site) -> Desk:
    """Return the site's repository and home as a place in which `podium` is called."""
    settings = site.studio.settings
    own = {"PODIUM_HOME": str(settings.home), "PODIUM_STORE": str(settings.store)}
    return Desk(repo=site.repo, home=settings.home, environment={**os.environ, **own})


def test_a_request_is_answered_at_the_terminal_or_in_the_page_and_disappears_in_both(
    site: Site, visitor: Visitor, desk: Desk
) -> None:
    writes = [{"name": "write_file", "arguments": {"path": name, "content": "x\n"}} for name in ("a.txt", "b.txt")]
    desk.write_agent("writer", *({"calls": [one]} for one in writes), {"says": "The end."}, tools=["Write"])
    page, phone = visitor.open(site, "/approvals"), visitor.open(site, "/now", viewport=PHONE)
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()

    terminal = Terminal(desk, "run", "writer", "go")
    terminal.wait_for("[y] once")
    request = page.get_by_role("region", name="The whole request")
    expect(request).to_contain_text("a.txt")
    expect(phone.get_by_role("link", name=re.compile("a.txt"))).to_be_visible()
    terminal.process.send("y")

    expect(page.get_by_text(re.compile(r"Approved once by \S+ \(terminal\), \d+s ago"))).to_be_visible()
    expect(phone.get_by_role("link", name=re.compile("b.txt"))).to_be_visible()
    expect(phone.get_by_role("link", name=re.compile("a.txt"))).to_have_count(0)
    terminal.wait_until(lambda lines: any("path: b.txt" in line for line in lines))
    phone.get_by_role("link", name=re.compile("b.txt")).click()
    phone.locator(".end").scroll_into_view_if_needed()
    phone.get_by_role("button", name="Approve once").click()

    expect(phone.get_by_text("Approved once: write_file b.txt.")).to_be_visible()
    assert terminal.wait_exit() == 0
    assert any(re.search(r"was answered by \S+ \(page\)", line) for line in terminal.lines)
    assert [(site.repo / name).read_text() for name in ("a.txt", "b.txt")] == ["x\n", "x\n"]
    answers = site.wait_for_events(desk.run_id(), PermissionAnswered, count=2)
    assert [(one.decision, one.channel) for one in answers] == [("once", "terminal"), ("once", "page")]
    expect(page.get_by_text(re.compile(r"by \S+ \((terminal|page)\)"))).to_be_visible()
    assert site.list_requests() == []
