"""Many tabs of one browser share one stream, and lose nothing when the tab that reads it closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from podium.store.store_clients import list_clients

from .conftest import PROFILE, TOO_LONG, Site, Visitor
from .test_interruptions import read_numbers, write_run

MANY = 8
"""More tabs than the six connections to one server that a browser opens with HTTP/1.1."""

SUSPENDED = 46_000
"""Milliseconds after which the other tabs do not wait any longer for one that passes nothing on."""


@dataclass(kw_only=True)
class Browsing:
    """A browser profile in which every tab is signed in, and a run of which its tabs show the notices."""

    site: Site
    visitor: Visitor
    context: BrowserContext
    run: str
    append: Callable[[int, int], None]

    @property
    def streams(self) -> int:
        return self.site.server.context.hub.streams

    def open_tab(self, place: str = "", *, has_clock: bool = False) -> Page:
        """Open the run, or another place, in a new tab."""
        page = self.context.new_page()
        self.visitor.watch(page, self.site.address)
        if has_clock:
            page.clock.install()
        page.goto(f"{self.site.address}/#{place or f'/run/{self.run}'}")
        expect(page.locator("#connection")).to_have_text("live")
        return page


@pytest.fixture
def browsing(site: Site, visitor: Visitor) -> Iterator[Browsing]:
    context = visitor.browser.new_context(**PROFILE)
    context.set_default_timeout(TOO_LONG)
    secret, token = site.server.context.tokens.create_token("tabs", ("read", "act", "approve"))
    context.add_init_script(f"localStorage.setItem('podium-token', '{secret}')")
    with write_run(site.store, token.id) as append:
        yield Browsing(site=site, visitor=visitor, context=context, run=token.id, append=append)
    context.close()


def expect_numbers(page: Page, last: int) -> None:
    """Wait until a page shows these notices, each once and in order."""
    expect(page.locator("p.notice")).to_have_count(last)
    assert read_numbers(page) == list(range(1, last + 1))


@pytest.mark.parametrize("count", [3, pytest.param(MANY, marks=pytest.mark.slow)])
def test_tabs_share_one_stream_and_another_tab_continues_it_when_its_reader_closes(
    browsing: Browsing, count: int
) -> None:
    browsing.append(1, 2)
    reader = browsing.open_tab("/now")
    others = [browsing.open_tab() for _ in range(count - 1)]
    clients = list_clients(browsing.site.store)

    browsing.append(3, 4)
    for page in others:
        expect_numbers(page, 4)
    assert browsing.streams == 1

    reader.close()
    browsing.append(5, 9)
    for page in others:
        expect_numbers(page, 9)
    browsing.append(10, 12)
    for page in others:
        expect_numbers(page, 12)
        expect(page.locator("#connection")).to_have_text("live")
    assert browsing.streams == 1
    assert list_clients(browsing.site.store) == clients


def test_a_tab_takes_the_stream_from_one_that_stays_silent(browsing: Browsing) -> None:
    reader = browsing.open_tab("/now")
    other = browsing.open_tab(has_clock=True)
    browsing.append(1, 1)
    expect_numbers(other, 1)

    # The browser has suspended the tab that reads: it keeps the lock and passes nothing on.
    reader.evaluate("() => { BroadcastChannel.prototype.postMessage = () => {}; }")
    browsing.append(2, 3)
    other.clock.run_for(SUSPENDED)
    expect_numbers(other, 3)
    browsing.append(4, 4)
    expect_numbers(other, 4)
    expect(reader.locator("#connection")).to_have_text("live")


@pytest.mark.slow
def test_a_browser_without_locks_has_a_stream_for_each_tab(browsing: Browsing) -> None:
    browsing.context.add_init_script("delete Navigator.prototype.locks")
    browsing.append(1, 1)
    first, second = browsing.open_tab(), browsing.open_tab()

    browsing.append(2, 3)

    for page in (first, second):
        expect_numbers(page, 3)
    assert browsing.streams == 2
