"""Fixtures for the dashboard: a real server on a real store, and a real Chromium in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from anyio import sleep
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from podium import Result
from podium.core.timeline import Timeline
from podium.store.mailbox import post_to_mailbox
from podium.store.request_list import OpenRequest, list_open_requests
from podium.store.run_store import RunStore
from podium.testing import make_repository
from podium.values.event import Decision, Event, PermissionAnswered, RunEnded
from podium.values.store_address import StoreAddress
from podium.web.serving import RunningServer, ServeOptions, open_server

from ..studio import Studio

CHROMIUM = "/usr/bin/chromium-headless-shell"
TOO_LONG = 10_000
"""Milliseconds after which a test fails instead of waiting for the page."""

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
WIDE = {"width": 2560, "height": 1200}
PROFILE: dict[str, Any] = {"viewport": DESKTOP, "reduced_motion": "reduce"}

DISABLED_FEATURES = (
    "SpareRendererForSitePerProcess,HttpsUpgrades,Translate,MediaRouter,OptimizationHints,AcceptCHFrame,PaintHolding,"
    "GlobalMediaControls,ImprovedCookieControls,DestroyProfileOnBrowserClose,ThirdPartyStoragePartitioning"
)
"""Features of Chromium that tests do without: a process in reserve for every page, and those that Playwright turns off.

Chromium uses only the last list that it is given, so this one replaces Playwright's.
"""


@dataclass(kw_only=True)
class Site:
    """A server in a thread of its own, and a store whose runs have agents that follow scripts."""

    studio: Studio
    repo: Path
    portal: BlockingPortal
    server: RunningServer
    _runs: list[Future[Any]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def store(self) -> Path:
        store = self.studio.settings.store
        assert isinstance(store, Path)
        return store

    def start_run(self, agent: str, request: str = "go", **options: Any) -> str:
        """Start a run that asks for permission and waits, and return its id. It ends with the server."""
        future, run = self.portal.start_task(self._follow_run, agent, request, options)
        self._runs.append(future)
        return str(run)

    async def _follow_run(
        self, agent: str, request: str, options: dict[str, Any], *, task_status: TaskStatus[str]
    ) -> None:
        lead, chosen = self.studio.agents[agent], {"repo": self.repo, "is_attended": True, **options}
        async with (
            self.studio.app() as app,
            app.start(lead, request, agents=self.studio.agents.values(), **chosen) as run,
        ):
            task_status.started(run.id)
            await run.result()

    def run(self, agent: str, request: str = "go") -> Result:
        """Run an agent to the end."""
        return self.portal.call(self.studio.run, agent, request)

    def write_run(self, run: str, *events: Event | tuple[str, Event], scope: str = "lead") -> None:
        """Write a run entry by entry. An event of another operation comes with its path. No process works on it."""

        async def write() -> None:
            async with RunStore(self.studio.settings.store) as store:
                timeline = Timeline(run, store.begin_run(run))
                for number, one in enumerate(events):
                    path, event = one if isinstance(one, tuple) else (scope, one)
                    own = "" if number == 0 or isinstance(event, RunEnded) else path
                    timeline.append(event, scope=own, operation=own)
                await timeline.wait_written()

        self.portal.call(write)

    def wait_for_events(self, run: str, kind: type[Event], count: int = 1) -> list[Any]:
        """Return a run's events of this kind, as soon as it has so many of them."""

        async def wait() -> list[Any]:
            while len(found := self.studio.events(run, kind)) < count:  # noqa: ASYNC110 - the store is a file
                await sleep(0.02)
            return found

        return self.portal.call(wait)

    def list_requests(self) -> list[OpenRequest]:
        """Return the open requests, oldest first."""
        return list_open_requests(self.store) if self.store.exists() else []

    def answer(self, run: str, id: str, decision: Decision = "once", *, by: str = "ada") -> None:
        """Answer a permission request as somebody at a terminal."""
        given = PermissionAnswered(id=id, decision=decision, by=by, channel="terminal")
        post_to_mailbox(self.store, run, given, ref=id)

    def stop_runs(self) -> None:
        """End the runs that `start_run` started."""
        for future in self._runs:
            future.cancel()
        self._runs.clear()


@contextmanager
def open_site(folder: Path, *, port: int = 0, store: StoreAddress | None = None) -> Iterator[Site]:
    """Serve the store in this folder, with a git repository, until the block ends. Both are created if necessary."""
    repo = folder / "repo"
    make_repository(repo)
    studio = Studio(folder / "home", store=store)
    options = ServeOptions(repo=repo, port=port)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_server(studio.settings, options)) as server,
    ):
        site = Site(studio=studio, repo=repo, portal=portal, server=server)
        try:
            yield site
        finally:
            site.stop_runs()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve one store for all tests of a module."""
    with open_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@dataclass(kw_only=True)
class KeptProfile:
    """A browser profile that one test after the other uses, without the data of the test before.

    One of its pages stays open and shows a picture of the site, so that the process with the site's scripts stays too.
    Opening the dashboard in this profile takes half the processor time of opening it in a new one.
    """

    browser: Browser
    context: BrowserContext | None = None
    _is_in_use: bool = False

    def borrow(self, address: str) -> BrowserContext | None:
        """Return the profile for the site at this address, or None if this test uses it already."""
        if self._is_in_use:
            return None
        self._is_in_use = True
        if self.context is None:
            self.context = self.browser.new_context(**PROFILE)
            self.context.new_page().goto(f"{address}/icon.svg")
        return self.context

    def give_back(self) -> None:
        """Remove what a test left behind in the profile."""
        self._is_in_use = False
        if self.context is None:
            return
        try:
            for number, page in enumerate(self.context.pages):
                page.evaluate("localStorage.clear()")
                if number:
                    page.close()
        except PlaywrightError:
            self.close()

    def close(self) -> None:
        """Close the profile; the next test gets a new one."""
        if self.context is not None:
            self.context.close()
            self.context = None


@dataclass(kw_only=True)
class Visitor:
    """Opens pages in a browser, each as a person of its own, and collects what must never happen in them."""

    browser: Browser
    profile: KeptProfile
    problems: list[str] = field(default_factory=list)

    def open(
        self, site: Site, place: str = "", *, signs_in: bool = True, has_clock: bool = False, **options: Any
    ) -> Page:
        """Open the dashboard in a browser profile without any data, signed in through the printed address.

        `place` is the part of the address after `#`, such as `/approvals`. With `has_clock`, the test can set the time
        with `page.clock`. `options` go to the browser context, such as viewport or color_scheme.
        """
        is_special = has_clock or not options.keys() <= {"viewport", "color_scheme"}
        context = None if is_special else self.profile.borrow(site.address)
        if context is None:
            page = self.browser.new_context(**(PROFILE | options)).new_page()
        else:
            page = context.new_page()
            page.set_viewport_size(options.get("viewport", DESKTOP))
            page.emulate_media(color_scheme=options.get("color_scheme", "light"), reduced_motion="reduce")
        page.context.set_default_timeout(TOO_LONG)
        if has_clock:
            page.clock.install()
        self.watch(page, site.address)
        page.goto(site.server.make_sign_in_address() if signs_in else site.address)
        if signs_in:
            expect(page.locator("#connection")).to_have_text("live")
        if place:
            page.goto(f"{site.address}/#{place}")
        return page

    def watch(self, page: Page, address: str) -> None:
        """Collect console errors, violations of the content security policy, dialogs and requests to other origins."""

        def note_console(message: ConsoleMessage) -> None:
            # The browser reports every response with an error status; those of the API are for the page to show.
            is_reply = message.text.startswith("Failed to load resource") and "/api/" in message.location["url"]
            if message.type in ("error", "warning") and not is_reply:
                self.problems.append(f"console: {message.text} ({message.location['url']})")

        def note_request(url: str) -> None:
            if not url.startswith((f"{address}/", "data:", "blob:")):
                self.problems.append(f"request to {url}")

        page.on("console", note_console)
        page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        page.on("request", lambda request: note_request(request.url))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))


@pytest.fixture(scope="session")
def _browser() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--host-resolver-rules=MAP *.test 127.0.0.1",
                "--process-per-site",
                f"--disable-features={DISABLED_FEATURES}",
            ],
        )
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


@pytest.fixture(scope="module")
def _profile(_browser: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[KeptProfile]:
    browser, loop = _browser
    profile = KeptProfile(browser=browser)
    yield profile
    asyncio._set_running_loop(loop)
    profile.close()
    asyncio._set_running_loop(None)


@pytest.fixture
def visitor(_browser: tuple[Browser, asyncio.AbstractEventLoop], _profile: KeptProfile) -> Iterator[Visitor]:
    """Open pages, and fail the test if anything happened in one that must never happen.

    Playwright's loop counts as running in this thread as long as the browser is open. It is hidden between tests,
    because the async tests of the same session need loops of their own.
    """
    browser, loop = _browser
    asyncio._set_running_loop(loop)
    expect.set_options(timeout=TOO_LONG)
    visitor = Visitor(browser=browser, profile=_profile)
    try:
        yield visitor
        assert visitor.problems == []
    finally:
        _profile.give_back()
        for context in browser.contexts:
            if context is not _profile.context:
                context.close()
        asyncio._set_running_loop(None)


def find_sideways_scroll(page: Page) -> int:
    """Return how many pixels the page can be scrolled sideways."""
    found = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return int(found)
