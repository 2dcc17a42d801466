"""The page when its server stops answering: it says so, and then shows everything once."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Page, expect

from podium.core.timeline import Timeline
from podium.store.run_store import RunStore
from podium.testing import make_repository
from podium.values.event import Noticed, OperationStarted, RunStarted
from podium.values.request import Request

from .conftest import DESKTOP, TOO_LONG, Visitor
from .test_serve import serve

RUN = "5eee00000000"
MINUTE = 60_000


@contextmanager
def write_run(store: Path, run: str = RUN) -> Iterator[Callable[[int, int], None]]:
    """Begin a run, and yield a function that appends entries with these numbers."""
    request = Request(text="Count")
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(RunStore(store)) as opened,
    ):

        async def begin() -> Timeline:
            timeline = Timeline(run, opened.begin_run(run))
            timeline.append(RunStarted(agent="lead", request=request), scope="", operation="")
            started = OperationStarted(agent="lead", trigger="request", request=request)
            timeline.append(started, scope="lead", operation="lead")
            await timeline.wait_written()
            return timeline

        timeline = portal.call(begin)

        async def write(first: int, last: int) -> None:
            for number in range(first, last + 1):
                timeline.append(Noticed(text=f"number {number}"), scope="lead", operation="lead")
            await timeline.wait_written()

        yield lambda first, last: portal.call(write, first, last)


def read_numbers(page: Page) -> list[int]:
    """Return the numbers in the notices that the page shows, in order."""
    return [int(one) for one in re.findall(r"number (\d+)", " ".join(page.locator("p.notice").all_inner_texts()))]


def test_a_stream_that_is_silent_for_a_minute_is_told_and_then_nothing_is_missing_or_doubled(
    visitor: Visitor, tmp_path: Path
) -> None:
    make_repository(tmp_path)
    (tmp_path / "home").mkdir()
    with (
        write_run(tmp_path / "home" / "podium.db") as append,
        serve(tmp_path) as (printed, server),
    ):
        append(1, 3)
        context = visitor.browser.new_context(viewport=DESKTOP)  # type: ignore[arg-type]
        context.set_default_timeout(TOO_LONG)
        page = context.new_page()
        page.clock.install()
        visitor.watch(page, printed["address"])
        page.goto(printed["sign_in"])
        expect(page.locator("#connection")).to_have_text("live")
        page.goto(f"{printed['address']}/#/run/{RUN}")
        expect(page.locator("p.notice")).to_have_count(3)

        # The server's process is stopped, so that the connection stays open and nothing comes: like a laptop asleep.
        server.send_signal(signal.SIGSTOP)
        try:
            append(4, 6)
            # What the server sent before it was stopped may still arrive, and the minute begins with it.
            for _ in range(3):
                page.clock.run_for(MINUTE)
                if page.locator("#connection").inner_text() != "live":
                    break
            expect(page.locator("#connection")).to_have_text(re.compile(r"reconnecting since \d\d:\d\d:\d\d"))
            assert read_numbers(page) == [1, 2, 3]
        finally:
            server.send_signal(signal.SIGCONT)

        page.clock.run_for(10_000)
        expect(page.locator("#connection")).to_have_text("live")
        append(7, 8)
        expect(page.locator("p.notice")).to_have_count(8)
        assert read_numbers(page) == list(range(1, 9))
        context.close()
