"""Show the screen of `podium status --watch`: requests and runs, details of the selected line, and keys to answer."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from time import monotonic
from typing import ClassVar

from anyio import sleep, to_thread, wait_readable
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from ...runs.overview import Overview, OverviewReader, RunStatus
from ...store.sqlite.closed_requests import as_answered_error
from ...store.sqlite.open_requests import OpenRequest, answer_request
from ...store.wakeup import WakeupSocket, ensure_socket_folder
from ...values.errors import PodiumError
from ...values.event import Decision, PermissionAnswered, PermissionAsked
from ...values.plain_text import format_count
from ...views.request_text import escape_hidden_text
from ..commands.approvals import format_request
from .answer_report import get_username
from .overview_text import NOTHING, format_statuses, format_waiting
from .text import escape_for_terminal, format_usage

REFRESH_SECONDS = 0.25
"""The minimum time between two updates, however often runs write to the store."""
AGE_SECONDS = 5.0
GUARD_SECONDS = 0.5
"""A key pressed sooner than this after a request appears does not answer it: it was probably typed by accident."""
HEADINGS = ("Needs you", "Working", "Finished")


class StatusScreen(App[None]):
    """A screen with the overview of a store. It is updated until the user closes it."""

    TITLE = "podium"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    OptionList { height: 1fr; border: none; padding: 0 1; }
    #details { height: 1fr; border-top: solid $secondary; padding: 0 1; }
    #totals { height: 1; padding: 0 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('once')", "approve"),
        Binding("n", "answer('deny')", "deny"),
        Binding("space", "scroll_details", "more"),
        Binding("r", "refresh", "refresh"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, store: Path) -> None:
        super().__init__()
        self._store = store
        self._reader = OverviewReader(store)
        self._overview = Overview()
        self._message = ""
        self._shown: list[str] = []
        self._details_id = ""
        self._selected_at = 0.0
        """When the details of the selected line appeared."""

    def compose(self) -> ComposeResult:
        yield OptionList()
        with VerticalScroll(id="details"):
            yield Static(id="text", markup=False)
        yield Static(id="totals", markup=False)
        yield Footer()

    async def on_mount(self) -> None:
        await self.action_refresh()
        # Ages and durations change even if nothing is written.
        self.set_interval(AGE_SECONDS, self.action_refresh)
        self.run_worker(self._follow_store())

    async def _follow_store(self) -> None:
        """Refresh the overview whenever a process has written to the store."""
        wakeup = WakeupSocket(ensure_socket_folder(self._store), "follower")
        try:
            while True:
                await wait_readable(wakeup)
                await sleep(REFRESH_SECONDS)
                wakeup.drain()
                await self.action_refresh()
        finally:
            wakeup.close()

    async def action_refresh(self) -> None:
        """Read the overview again and show it. The selected line stays selected."""
        self._overview = await to_thread.run_sync(partial(self._reader.load, now=time.time()))
        self._show_list()
        self._show_details()
        runs = format_count(len(self._overview.active), "active run")
        totals = f"{runs}: {format_usage(self._overview.usage)}"
        self.query_one("#totals", Static).update(f"{totals}  {self._message}".rstrip())

    def _show_list(self) -> None:
        options = self._make_options()
        lines = [f"{option.id}{option.prompt}" for option in options]
        if lines == self._shown:
            return
        self._shown = lines
        listed = self.query_one(OptionList)
        chosen = self._selected_id()
        listed.clear_options()
        listed.add_options(options)
        places = {option.id: place for place, option in enumerate(options) if not option.disabled}
        if chosen in places:
            listed.highlighted = places[chosen]
        elif places:
            listed.highlighted = next(iter(places.values()))

    def _make_options(self) -> list[Option]:
        overview, now = self._overview, time.time()
        options: list[Option] = []
        waiting = zip(overview.waiting, format_waiting(overview.waiting, now=now), strict=True)
        parts: dict[str, list[tuple[str, str]]] = {
            "Needs you": [(one.asked.id, line) for one, line in waiting],
            "Working": [(one.id, "\n".join(format_statuses([one]))) for one in overview.active],
            "Finished": [(one.id, format_statuses([one])[0]) for one in overview.ended],
        }
        for heading in HEADINGS:
            rows = parts[heading]
            options.append(Option(Text(f"{heading} ({len(rows)})", style="bold"), disabled=True))
            options += [Option(Text(f"  {line}"), id=id) for id, line in rows]
            if not rows:
                options.append(Option(Text(f"  {NOTHING[heading]}", style="dim"), disabled=True))
        return options

    def on_option_list_option_highlighted(self) -> None:
        self._show_details()

    def _show_details(self) -> None:
        request, run = self._selected_request(), self._selected_run()
        if request is not None:
            text = escape_hidden_text(format_request(request))
        elif run is not None:
            text = _describe_run(run)
        else:
            text = ""
        self.query_one("#text", Static).update(Text(text))
        if self._selected_id() != self._details_id:
            self._details_id, self._selected_at = self._selected_id(), monotonic()
            self.query_one("#details", VerticalScroll).scroll_home(animate=False)

    def action_scroll_details(self) -> None:
        """Scroll down in the details."""
        self.query_one("#details", VerticalScroll).scroll_page_down(animate=False)

    def _explain_hasty_answer(self) -> str:
        """Return why the selected request cannot be answered yet, or an empty string if it can."""
        if monotonic() - self._selected_at < GUARD_SECONDS:
            return "the request has only just appeared; press the key again"
        details = self.query_one("#details", VerticalScroll)
        is_read = details.scroll_y >= details.max_scroll_y
        return "" if is_read else "the request continues below; press space to read it first"

    def _selected_id(self) -> str:
        listed = self.query_one(OptionList)
        if listed.highlighted is None or listed.highlighted >= listed.option_count:
            return ""
        return listed.get_option_at_index(listed.highlighted).id or ""

    def _selected_request(self) -> OpenRequest | None:
        chosen = self._selected_id()
        return next((one for one in self._overview.waiting if one.asked.id == chosen), None)

    def _selected_run(self) -> RunStatus | None:
        chosen = self._selected_id()
        runs = (*self._overview.active, *self._overview.ended)
        return next((one for one in runs if one.id == chosen), None)

    async def action_answer(self, decision: Decision) -> None:
        """Approve or deny the selected request. For a question, show the command that answers it."""
        one = self._selected_request()
        if one is None:
            self._message = "select a request first"
        elif why := self._explain_hasty_answer():
            self._message = why
        else:
            self._message = await to_thread.run_sync(partial(_submit, self._store, one, decision))
        await self.action_refresh()


def _submit(store: Path, one: OpenRequest, decision: Decision) -> str:
    """Answer a permission request, and return a message for the user. For a question, return the command to use."""
    if not isinstance(one.asked, PermissionAsked):
        return f"answer it with: podium answer {one.asked.id} TEXT"
    given = PermissionAnswered(
        id=one.asked.id, decision=decision, by=get_username(), at=time.time(), channel="terminal"
    )
    try:
        counts = answer_request(store, one, given)
    except PodiumError as error:
        return str(error)
    if counts != given:
        return str(as_answered_error(counts))
    return f"{one.asked.id} is {'approved' if given.is_allowed else 'denied'}"


def _describe_run(run: RunStatus) -> str:
    lines = [
        f"run {run.id} of {run.agent}: {run.state}",
        f"request: {run.request}",
        f"used: {format_usage(run.usage)}",
        f"podium show {run.id} shows its tree, and podium logs {run.id} -f follows it",
    ]
    if run.steps is not None:
        lines.insert(2, f"plan: {run.steps.done} of {run.steps.total} steps done; podium plan {run.id} shows it")
    return escape_for_terminal("\n".join(lines))
