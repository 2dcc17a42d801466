"""Ask the user at the terminal to answer permission requests and questions from agents, one at a time.

Each request is shown in full, with control characters made visible. Keys typed before the prompt appeared are
discarded, and Enter alone decides nothing. Any other key that is not an answer is ignored, with everything that is
typed after it up to Enter or a pause, so that no character in the middle of a sentence counts as an answer. Esc closes
the prompt and leaves the request open. If a request is answered elsewhere, its prompt closes and the user is notified.
A postponed request is shown again after the others.
"""

from __future__ import annotations

import os
import re
import sys
import time
from asyncio import Event as Flag
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import click
from anyio import CancelScope, move_on_after, sleep, to_thread, wait_readable

from ...core.open_requests import Asked, describe_closing
from ...policy.rule_examples import find_rule_examples
from ...runs.answers import GivenAnswer, NewAnswer, answer_request, get_shown, resolve_choice
from ...system.identity import get_local_actor
from ...values.errors import AlreadyAnswered, Mistake
from ...values.event import (
    Channel,
    Decision,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
)
from ...values.operation_path import parse_agent_name
from ...values.plain_text import format_count
from ...values.store_address import StoreAddress
from ...views.request_text import escape_hidden_text, escape_in_line, format_request_lines
from .request_wrapping import wrap_request
from .run_display import ProgressView
from .text import format_duration

ALWAYS = "p"
KEYS: dict[str, tuple[Decision, str]] = {
    "y": ("once", "once"),
    "r": ("run", "this exact action for the whole run"),
    ALWAYS: ("always", "always"),
    "n": ("deny", "no"),
    "x": ("deny_and_pause", "no, and pause"),
    "a": ("abort", "no, and stop"),
}
LATER = "s"
HELP = "?"
ESC = "\x1b"
KEY_ROWS = (f"yr{ALWAYS}", f"nxa{LATER}{HELP}")
"""The keys in display order: those in the first row allow the action, and those in the second row do not."""
HELP_LINES = {
    "y": "allow it this time; ask again next time",
    "r": "allow this exact action until the run ends",
    ALWAYS: "allow everything that the rule covers, in every run in this repository; examples are shown first",
    "n": "deny it; the agent sees your reason and continues",
    "x": "deny it and pause the run; to continue it, run podium resume RUN",
    "a": "deny it and stop the run",
    LATER: "postpone it until the other requests are answered",
}
"""The description of each key."""
GUARD_SECONDS = 0.5
SEQUENCE_SECONDS = 0.1
"""The maximum time between the characters sent by one key press."""
LONG_SECONDS = 5.0
"""If a request has waited for longer than this, its prompt shows the waiting time."""
NO_ANSWER = "that key is not an answer and is ignored; press one of the keys shown"
PAUSE_SECONDS = 1.0
"""How long nothing must be typed after a key that is not an answer. The rest of a typed sentence has no such pause."""


class Keyboard(Protocol):
    """The source of typed answers."""

    def discard_input(self) -> None:
        """Discard everything that was already typed."""
        ...

    async def read_key(self) -> str:
        """Return the next key."""
        ...

    async def discard_line(self) -> None:
        """Discard the rest of the text that the last key belongs to, up to Enter or a pause."""
        ...

    async def read_line(self) -> str:
        """Return the next line."""
        ...


PromptOutcome = Literal["answered", "later", "open"]
"""The outcome of a prompt: answered, postponed until after the other requests, or left open."""


class QueuedRequest(NamedTuple):
    """A request to show to the user. `worker` is the name of the worker that made it, if any."""

    entry: Entry
    worker: str


class RequestPrompter:
    """Asks the user to answer requests, one at a time, and submits the answers. `view` is suspended during a prompt.

    Requests are printed with `tell`. Each answer records the user's name and `channel`.
    """

    def __init__(
        self,
        view: ProgressView,
        keyboard: Keyboard,
        *,
        home: Path,
        store: StoreAddress,
        tell: Callable[[str], object] | None = None,
        channel: Channel = "terminal",
    ) -> None:
        self._home = home
        self._store = store
        self._view = view
        self._keyboard = keyboard
        self._tell = tell or _print_request
        self._by = get_local_actor(channel)
        self._queue: dict[str, QueuedRequest] = {}
        self._closings: dict[str, str] = {}
        """Descriptions of how withdrawn requests were closed, keyed by request id."""
        self._has_requests = Flag()
        self._current: tuple[str, CancelScope] | None = None

    @property
    def is_asking(self) -> bool:
        """Whether a prompt is open."""
        return self._current is not None

    def handle_entry(self, entry: Entry, worker: str = "") -> None:
        """Handle an entry from a run or a worker."""
        match entry.event:
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                self._queue[id] = QueuedRequest(entry, worker)
                self._has_requests.set()
            case PermissionAnswered() | QuestionAnswered() as answered:
                self.withdraw_request(answered.id, describe_closing(answered))

    def withdraw_request(self, id: str, how: str) -> None:
        """Withdraw a request that no longer needs an answer. `how` says how it was closed."""
        self._queue.pop(id, None)
        self._closings[id] = how
        if self._current is not None and self._current[0] == id:
            self._current[1].cancel()

    def leave_open(self) -> None:
        """Close the current prompt and leave its request open."""
        if self._current is not None:
            self._current[1].cancel()

    async def serve_requests(self) -> None:
        """Ask the user about requests as they arrive, until cancelled."""
        while True:
            await self._has_requests.wait()
            self._has_requests.clear()
            while self._queue:
                id, one = next(iter(self._queue.items()))
                outcome: PromptOutcome = "open"
                with self._view.suspend(), CancelScope() as scope:
                    self._current = id, scope
                    outcome = await self._prompt_for(one)
                self._current = None
                self._queue.pop(id, None)
                if outcome == "later" and self._queue:
                    self._queue[id] = one
                elif outcome != "answered":
                    self._tell(self._explain_withdrawal(id))

    def _explain_withdrawal(self, id: str) -> str:
        """Return why a prompt closed without an answer."""
        if id not in self._closings:
            return f"{id} stays open; see podium approvals."
        return f"{id} {self._closings[id]}."

    async def _prompt_for(self, one: QueuedRequest) -> PromptOutcome:
        """Show a request and submit the answer, if there is one."""
        self._keyboard.discard_input()
        entry, others = one.entry, len(self._queue) - 1
        match entry.event:
            case PermissionAsked() as asked:
                self._tell(format_permission_request(entry, asked, one.worker, others=others, now=time.time()))
                key = await self._read_decision_key(asked)
                while key == ALWAYS and not await self._confirm_rule(asked):
                    key = await self._read_decision_key(asked)
                if key in (LATER, ESC):
                    return "later" if key == LATER else "open"
                await self._submit_decision(entry.run, asked, key)
            case QuestionAsked() as asked:
                self._tell(f"{format_question(entry, asked, one.worker, others=others)}\nYour answer:")
                await self._submit(entry.run, asked, NewAnswer(shown=asked.digest, text=await self._read_answer(asked)))
        return "answered"

    async def _read_answer(self, asked: QuestionAsked) -> str:
        """Return the first line that answers the question."""
        while True:
            try:
                return resolve_choice(asked, (await self._keyboard.read_line()).strip())
            except Mistake as error:
                self._tell(f"{error}\nYour answer:")

    async def _read_decision_key(self, asked: PermissionAsked) -> str:
        """Return the first key that answers the request, postpones it or leaves it open."""
        offered = _list_answer_keys(asked)
        while True:
            # Ignore input from a key that is still held down after the last answer, and the rest of pasted text.
            await sleep(GUARD_SECONDS)
            self._keyboard.discard_input()
            rows = ("  ".join(f"[{key}] {offered[key]}" for key in row if key in offered) for row in KEY_ROWS)
            self._tell("\n".join([f"Allow {escape_in_line(asked.action.tool)} ({asked.id})?", *rows]))
            while not _is_printable_key(key := (await self._keyboard.read_key()).lower()) and key != ESC:
                pass
            if key == ESC or (key in offered and key != HELP):
                return key
            if key == HELP:
                self._tell(_format_key_help(offered))
            else:
                self._tell(NO_ANSWER)
                await self._keyboard.discard_line()

    async def _confirm_rule(self, asked: PermissionAsked) -> bool:
        """Show the rule that would be saved, with examples, and return whether the user confirms it."""
        await sleep(GUARD_SECONDS)
        self._keyboard.discard_input()
        self._tell(_format_rule_question(asked))
        while not _is_printable_key(key := (await self._keyboard.read_key()).lower()) and key != ESC:
            pass
        return key == "y"

    async def _submit_decision(self, run: str, asked: PermissionAsked, key: str) -> None:
        decision, words = KEYS[key]
        comment = ""
        if decision in ("deny", "deny_and_pause"):
            self._tell("Reason for the agent (press Enter for none):")
            comment = (await self._keyboard.read_line()).strip()
        self._tell(f"{words}.")
        answer = NewAnswer(shown=get_shown(asked), decision=decision, comment=comment)
        given = await self._submit(run, asked, answer)
        if decision == "always" and given is not None and given.saved is None:
            self._tell("This run has no repository, so the rule applies only for the rest of this run.")

    async def _submit(self, run: str, asked: Asked, answer: NewAnswer) -> GivenAnswer | None:
        """Submit an answer. Return None if somebody else has already answered."""
        submit = partial(answer_request, self._store, run, asked, answer, by=self._by, home=self._home)
        try:
            return await to_thread.run_sync(submit)
        except AlreadyAnswered:
            self._tell(f"{asked.id} was already answered elsewhere.")
            return None


def format_asker(entry: Entry, worker: str) -> str:
    """Return the name of the agent that asks, with the name of its worker, if any."""
    return f"{parse_agent_name(entry.operation)} on {worker}" if worker else parse_agent_name(entry.operation)


def format_permission_request(
    entry: Entry, asked: PermissionAsked, worker: str = "", *, now: float, others: int = 0
) -> str:
    """Return the full description of an action that needs the user's permission."""
    action, waited = asked.action, now - entry.at
    since = f", waiting {format_duration(waited)}" if waited >= LONG_SECONDS else ""
    return "\n".join(
        [
            *_format_queue_length(others),
            f"{format_asker(entry, worker)} asks for permission ({asked.id}){since}: {escape_in_line(action.tool)}",
            *format_request_lines(asked),
        ]
    )


def _list_answer_keys(asked: PermissionAsked) -> dict[str, str]:
    """Return the keys that apply to a request, with their labels."""
    answers = {key: words for key, (_, words) in KEYS.items() if key != ALWAYS or asked.always}
    return answers | {LATER: "later", HELP: "help"}


def _format_key_help(offered: Mapping[str, str]) -> str:
    """Return the help for the offered keys, one line each."""
    lines = [f"  {key}    {HELP_LINES[key]}" for row in KEY_ROWS for key in row if key in offered and key in HELP_LINES]
    return "\n".join([*lines, "  Esc  leave it open; see podium approvals"])


def _is_printable_key(key: str) -> bool:
    """Return whether a key is a printable character, unlike Enter and the arrow keys."""
    return bool(key) and key.isprintable()


def format_question(entry: Entry, asked: QuestionAsked, worker: str = "", *, others: int = 0) -> str:
    """Return a question with the text that it refers to, if any, and its numbered choices."""
    choices = [f"  {number}. {choice}" for number, choice in enumerate(asked.choices, 1)]
    asks = f"{format_asker(entry, worker)} asks ({asked.id}): {asked.text}"
    return "\n".join([*_format_queue_length(others), *_format_shown(asked), asks, *choices])


def _format_shown(asked: QuestionAsked) -> list[str]:
    """Return the plan, decision or review that a question refers to. Each line is marked as text from agents."""
    return [f"  │ {line}" for line in asked.shown.splitlines()] if asked.shown else []


def _format_queue_length(others: int) -> list[str]:
    """Return a blank line and, if other requests are waiting, their number."""
    return ["", f"[{format_count(others, 'more request')} after this one]"] if others else [""]


def _print_request(text: str) -> None:
    """Print text to standard error, wrapped and with control characters escaped."""
    click.echo(wrap_request(escape_hidden_text(text)), err=True)


_ENTER = re.compile(r"[\r\n]")
_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|[^\[O])", re.DOTALL)
"""Matches the escape sequence of a key that is not a character, such as an arrow key, or of a character with Alt.

Every sequence must be read as one key. prompt_toolkit is not used here, because it parses an unknown sequence, such as
a focus report, as Esc followed by single characters. Esc would close the prompt, and a character could be taken as the
answer.
"""


class TerminalKeyboard:
    """The keyboard of a real terminal."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._typed = ""

    def discard_input(self) -> None:
        import termios  # imported here, because it is not available on every system

        self._typed = ""
        termios.tcflush(self._input, termios.TCIFLUSH)

    async def read_key(self) -> str:
        with self._cbreak_mode():
            # One key can send several characters, and pasted text arrives all at once.
            await self._read_input()
            if not self._typed.startswith(ESC):
                return self._typed[:1]
            await self._read_sequence()
            if not self._typed.strip(ESC):
                return ESC
            # If a sequence is incomplete, return its second character: it is not Esc, so it does not close the prompt.
            return "" if _SEQUENCE.match(self._typed) else self._typed[1]

    async def discard_line(self) -> None:
        with self._cbreak_mode():
            while self._typed and not _ENTER.search(self._typed):
                self._typed = ""
                with move_on_after(PAUSE_SECONDS):
                    await self._read_input()

    async def _read_input(self) -> None:
        await wait_readable(self._input)
        self._typed = os.read(self._input, 4096).decode(errors="replace")

    async def _read_sequence(self) -> None:
        """Read the rest of an escape sequence."""
        is_more = True
        while is_more and not _SEQUENCE.match(self._typed):
            begun, is_more = self._typed, False
            with move_on_after(SEQUENCE_SECONDS):
                await self._read_input()
                begun, is_more = begun + self._typed, bool(self._typed)
            self._typed = begun

    async def read_line(self) -> str:
        await wait_readable(self._input)
        return os.read(self._input, 65536).decode(errors="replace")

    @contextmanager
    def _cbreak_mode(self) -> Iterator[None]:
        import termios
        import tty

        before = termios.tcgetattr(self._input)
        tty.setcbreak(self._input, termios.TCSANOW)
        try:
            yield
        finally:
            termios.tcsetattr(self._input, termios.TCSANOW, before)


def _format_rule_question(asked: PermissionAsked) -> str:
    """Return the text that asks whether to save a rule, with examples and the keys for the answer."""
    examples = find_rule_examples(asked.always, asked.action)
    return "\n".join(
        [
            f"Save the rule {escape_in_line(asked.always)}? Everything that it matches will be allowed without asking.",
            *_format_examples("It allows, for example:", examples.covered),
            *_format_examples("It does not allow, for example:", examples.not_covered),
            "[y] save the rule and allow this action  [n] back",
        ]
    )


def _format_examples(title: str, examples: Sequence[str]) -> list[str]:
    return [f"  {title}", *(f"    {escape_in_line(example)}" for example in examples)] if examples else []
