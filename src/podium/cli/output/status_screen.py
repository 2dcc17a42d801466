"""Show the screen of `podium status --watch`: requests, runs and details. Requests are answered with keys.

An answer to a plan, decision or review contains the digest of the text that was shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import ClassVar, Literal, NamedTuple, NoReturn

from anyio import sleep, to_thread, wait_readable
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from ...runs.answers import NewAnswer, answer_request, get_shown, resolve_choice
from ...runs.queries.overview import Overview, OverviewReader, OverviewRow
from ...store.request_list import OpenRequest
from ...store.wakeup import open_wakeup
from ...system.identity import get_local_actor
from ...values.errors import Mistake, PodiumError
from ...values.event import PermissionAnswered, PermissionAsked, QuestionAsked
from ...values.plain_text import format_count, truncate_text
from ...values.store_address import StoreAddress
from ...views.request_text import escape_hidden_text
from ..commands.approvals import format_request
from .overview_text import NOTHING, format_statuses, format_waiting
from .request_wrapping import wrap_request
from .text import escape_for_terminal, format_usage

MOST_KEYS = 9
"""The number of choices that can be selected with a single key."""


REFRESH_SECONDS = 0.25
"""The minimum time between two updates, however often runs write to the store."""
AGE_SECONDS = 5.0
GUARD_SECONDS = 0.5
"""A key pressed sooner than this after a request appears does not answer it: it was probably typed by accident."""
HEADINGS = ("Needs you", "Working", "Finished")
SELECT_FIRST = "select a request first"


class TypedAnswer(NamedTuple):
    """An answer that the user is typing: the request as it was shown, the purpose of the text, and the start time."""

    request: OpenRequest
    asked: QuestionAsked
    purpose: Literal["note", "answer"]
    since: float


class StatusScreen(App[None]):
    """A screen with the overview of a store. It is updated until the user closes it."""

    TITLE = "podium"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    OptionList { height: 1fr; border: none; padding: 0 1; }
    #details { height: 1fr; border-top: solid $secondary; padding: 0 1; }
    #typed { display: none; }
    #totals { height: auto; max-height: 3; padding: 0 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "approve", "approve"),
        Binding("n", "reject", "reject"),
        Binding("a", "type_answer", "answer"),
        *(Binding(str(number), f"choose({number})", show=False) for number in range(1, MOST_KEYS + 1)),
        Binding("escape", "leave_open", show=False),
        Binding("space", "scroll_details", "more"),
        Binding("r", "refresh", "refresh"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, store: StoreAddress, *, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._store = store
        self._reader = OverviewReader(store)
        self._clock = clock
        self._overview = Overview()
        self._message = ""
        self._shown: list[str] = []
        self._details_id = ""
        self._selected_at = 0.0
        """When the details of the selected line appeared."""
        self._shown_request: OpenRequest | None = None
        """The request whose details are shown."""
        self._typed: TypedAnswer | None = None

    def compose(self) -> ComposeResult:
        yield OptionList()
        with VerticalScroll(id="details"):
            yield Static(id="text", markup=False)
        yield Input(id="typed")
        yield Static(id="totals", markup=False)
        yield Footer()

    async def on_mount(self) -> None:
        await self.action_refresh()
        # Ages and durations change even if nothing is written.
        self.set_interval(AGE_SECONDS, self.action_refresh)
        self.run_worker(self._follow_store())

    async def _follow_store(self) -> None:
        """Refresh the overview whenever a process has written to the store."""
        wakeup = open_wakeup(self._store, "follower")
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
            "Working": [(one.id, "\n".join(format_statuses([one], now=now))) for one in overview.active],
            "Finished": [(one.id, format_statuses([one], now=now)[0]) for one in overview.ended],
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
            shown = escape_hidden_text(f"{format_request(request)}\n\n{_describe_keys(request)}")
            text = wrap_request(shown, self.query_one("#text", Static).content_size.width)
        elif run is not None:
            text = _describe_run(run)
        else:
            text = ""
        self.query_one("#text", Static).update(Text(text))
        self._shown_request = request
        if self._selected_id() != self._details_id:
            self._details_id, self._selected_at = self._selected_id(), self._clock()
            self.query_one("#details", VerticalScroll).scroll_home(animate=False)

    def action_scroll_details(self) -> None:
        """Scroll down in the details."""
        self.query_one("#details", VerticalScroll).scroll_page_down(animate=False)

    def _explain_hasty_answer(self) -> str:
        """Return why the selected request cannot be answered yet, or an empty string if it can."""
        if self._selected_id() != self._details_id:
            return "another line is selected; press the key again"
        if self._clock() - self._selected_at < GUARD_SECONDS:
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

    def _selected_run(self) -> OverviewRow | None:
        chosen = self._selected_id()
        runs = (*self._overview.active, *self._overview.ended)
        return next((one for one in runs if one.id == chosen), None)

    # Answers

    async def action_approve(self) -> None:
        """Approve the request that is shown."""
        await self._answer(lambda one: _make_approval(one) if has_verdict(one) else _explain_keys(one))

    async def action_reject(self) -> None:
        """Deny the permission request that is shown, or ask for a note to reject a plan or a review."""
        one = self._shown_request
        if one is not None and isinstance(one.asked, QuestionAsked) and has_verdict(one):
            await self._open_input("note", "What should change? Enter sends your note, Esc leaves the request open")
        else:
            await self._answer(lambda one: make_denial(one) if has_verdict(one) else _explain_keys(one))

    async def action_choose(self, number: int) -> None:
        """Answer the displayed question by selecting the choice with this number."""
        await self._answer(
            lambda one: make_choice(one.asked, number) if isinstance(one.asked, QuestionAsked) else _explain_keys(one)
        )

    async def action_type_answer(self) -> None:
        """Let the user type an answer to the question that is shown."""
        await self._open_input("answer", "Type your answer. Enter sends it, Esc leaves the request open")

    async def _answer(self, make: Callable[[OpenRequest], NewAnswer]) -> None:
        """Submit an answer to the request that is shown, unless the key came too early."""
        one = self._shown_request
        if one is None or (why := self._explain_hasty_answer()):
            await self._show_message(SELECT_FIRST if one is None else why)
            return
        await self._submit(one, make)

    async def _submit(self, one: OpenRequest, make: Callable[[OpenRequest], NewAnswer]) -> bool:
        """Submit an answer and show the result. Return False if `make` raises Mistake."""
        try:
            given = make(one)
        except Mistake as error:
            await self._show_message(str(error))
            return False
        await self._show_message(await to_thread.run_sync(partial(_submit_on_screen, self._store, one, given)))
        return True

    async def _open_input(self, purpose: Literal["note", "answer"], hint: str) -> None:
        """Open the input line for the request that is shown.

        Show a message instead if no request is shown, or if the request cannot be answered yet or not with text.
        """
        one = self._shown_request
        if one is None or (why := self._explain_hasty_answer()):
            await self._show_message(SELECT_FIRST if one is None else why)
        elif isinstance(one.asked, PermissionAsked):
            await self._show_message(_describe_keys(one))
        else:
            self._typed = TypedAnswer(one, one.asked, purpose, self._clock())
            line = self.query_one("#typed", Input)
            line.value, line.placeholder, line.display = "", hint, True
            line.focus()

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Submit the typed answer. The line stays open if the text is not a valid answer."""
        typed = self._typed
        if typed is None:
            return
        if self._clock() - typed.since < GUARD_SECONDS:
            await self._show_message("the input line has only just opened; press Enter again to send your text")
            return
        make = _make_rejection if typed.purpose == "note" else _make_typed_answer
        if await self._submit(typed.request, lambda _: make(typed.asked, event.value)):
            self._close_input()

    async def action_leave_open(self) -> None:
        """Close the input line without an answer."""
        if self._typed is not None:
            id = self._typed.asked.id
            self._close_input()
            await self._show_message(f"{id} stays open")

    def _close_input(self) -> None:
        self._typed = None
        self.query_one("#typed", Input).display = False
        self.query_one(OptionList).focus()

    async def _show_message(self, message: str) -> None:
        self._message = message
        await self.action_refresh()


def _explain_keys(one: OpenRequest) -> NoReturn:
    """Raise a Mistake that tells the user which keys answer a request."""
    raise Mistake(_describe_keys(one))


def _describe_run(run: OverviewRow) -> str:
    lines = [
        f"run {run.id} of {run.agent}: {run.state}",
        f"request: {run.request}",
        f"used: {format_usage(run.usage)}",
        f"run podium show {run.id} to see its tree, or podium logs {run.id} -f to follow it",
    ]
    if run.steps is not None:
        lines.insert(2, f"plan: {run.steps.done} of {run.steps.total} steps done; run podium plan {run.id} to see it")
    return escape_for_terminal("\n".join(lines))


def _describe_keys(one: OpenRequest) -> str:
    """Describe which keys answer a request."""
    asked = one.asked
    if isinstance(asked, PermissionAsked):
        return "y approves it, n denies it"
    if asked.kind == "plan":
        return f"y approves the plan, n sends it back with a note; run podium plan {one.summary.id} --edit to change it"
    if asked.kind == "review":
        return "y accepts the step, n rejects it with a note"
    if not asked.choices:
        return 'press "a" to type an answer'
    what = "an answer" if asked.kind == "question" else "a choice"
    return f'press the number of a choice, or press "a" to type {what}'


def has_verdict(one: OpenRequest) -> bool:
    """Return whether a request is answered by approving or rejecting it, not with a choice or free text."""
    return isinstance(one.asked, PermissionAsked) or one.asked.kind in ("plan", "review")


def _make_approval(one: OpenRequest) -> NewAnswer:
    """Return the answer that approves a request."""
    if isinstance(one.asked, PermissionAsked):
        return NewAnswer(shown=get_shown(one.asked), decision="once")
    return _make_answer(one.asked, one.asked.choices[0])


def make_denial(one: OpenRequest) -> NewAnswer:
    """Return the answer that denies a permission request."""
    return NewAnswer(shown=get_shown(one.asked), decision="deny")


def _make_rejection(asked: QuestionAsked, note: str) -> NewAnswer:
    """Return the answer that rejects a plan or a review with a note.

    Raise Mistake if the note would count as an approval.
    """
    approval, rejection = asked.choices[:2]
    words = note.strip()
    if words.casefold() == approval.casefold():
        raise Mistake(
            f"{truncate_text(words)!r} would be taken as an approval; describe what has to change, or press Esc and "
            "then y to approve"
        )
    return _make_answer(asked, words or rejection)


def _make_typed_answer(asked: QuestionAsked, text: str) -> NewAnswer:
    """Return the answer for typed text or for the number of a choice. Raise Mistake if it is not valid."""
    if not text.strip():
        raise Mistake("the answer is empty; type an answer, or press Esc to leave the request open")
    return _make_answer(asked, resolve_choice(asked, text.strip()))


def make_choice(asked: QuestionAsked, number: int) -> NewAnswer:
    """Return the answer for the choice with this number. Raise Mistake if the question has no such choice."""
    if not asked.choices:
        raise Mistake(f'{asked.id} has no choices; press "a" to type an answer')
    return _make_answer(asked, resolve_choice(asked, str(number)))


def _make_answer(asked: QuestionAsked, text: str) -> NewAnswer:
    return NewAnswer(shown=get_shown(asked), text=text)


def _submit_on_screen(store: StoreAddress, one: OpenRequest, answer: NewAnswer) -> str:
    """Submit an answer, and return the message to show."""
    try:
        # No key saves a rule, so no home is needed.
        given = answer_request(store, one.summary.id, one.asked, answer, by=get_local_actor("terminal"), home=None)
    except PodiumError as error:
        return str(error)
    if isinstance(given.answered, PermissionAnswered):
        return f"{one.asked.id} is {'approved' if given.answered.is_allowed else 'denied'}"
    return f"{one.asked.id} is answered: {truncate_text(' '.join(given.answered.text.split()), 40)}"
