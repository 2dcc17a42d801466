"""Asking the person at the terminal: what agents want to do or know, one thing at a time, and the answers.

Whatever is asked is shown in full, with every sign that a terminal would act on made visible. Keys
that were typed before the question stood there do not count, and Enter alone decides nothing. After any
other key that decides nothing, nothing does up to Enter, so that no letter within a sentence answers.
Esc leaves the question open. What somebody answers elsewhere meanwhile is told. What is put off comes again
after the others that wait.
"""

from __future__ import annotations

import os
import re
import sys
import time
from asyncio import Event as Flag
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import click
from anyio import CancelScope, move_on_after, sleep, wait_readable

from ...config.allowed_rules import AllowedRule, save_allowed_rule
from ...values.errors import Mistake
from ...values.event import Decision, Entry, PermissionAnswered, PermissionAsked, QuestionAnswered, QuestionAsked
from ...values.operation_path import parse_agent_name
from ...values.plain_text import format_count
from ..commands.answer import resolve_choice
from .run_display import ProgressView
from .text import as_json, escape_for_terminal, format_duration

KEYS: dict[str, tuple[Decision, str]] = {
    "y": ("once", "once"),
    "r": ("run", "this very action for the whole run"),
    "p": ("always", "for good"),
    "n": ("deny", "no"),
    "x": ("deny_and_pause", "no, and pause"),
    "a": ("abort", "no, and stop"),
}
LATER = "s"
HELP = "?"
ESC = "\x1b"
KEY_ROWS = ("yrp", f"nxa{LATER}{HELP}")
"""The keys as they are shown: those that allow it, and those that do not."""
HELP_LINES = {
    "y": "allows it now; the next time it is asked again",
    "r": "allows this very action until the run ends",
    "p": "allows all that the rule covers, in every run from now on",
    "n": "refuses it; the agent is told why, and goes on",
    "x": "refuses it, and pauses the run; podium resume goes on with it",
    "a": "refuses it, and stops the run",
    LATER: "puts it off until the others that wait are answered",
}
"""What each key does."""
SANDBOXES = {
    "": "none around this tool",
    "none": "none: the command can do whatever you can, network on",
    "missing": "missing here, so that the command is refused even if you allow it",
    "workspace": "workspace: it can write in the checkout only, network off",
    "read-only": "read-only: it can write nothing, network off",
}
"""What an action's sandbox means."""
BY = "terminal"
GUARD_SECONDS = 0.5
SEQUENCE_SECONDS = 0.1
"""How far apart the signs of one key come at most."""
LONG_SECONDS = 5.0
"""A request that waits for longer tells so."""
AT_A_GLANCE = 72
NO_ANSWER = "that decides nothing; press Enter, then one of the keys"


class Keyboard(Protocol):
    """Where answers are typed."""

    def discard_input(self) -> None:
        """Let what was typed so far not count."""
        ...

    async def read_key(self) -> str:
        """The next key."""
        ...

    async def discard_line(self) -> None:
        """Let what else is typed of the last key's line not count, up to Enter."""
        ...

    async def read_line(self) -> str:
        """The next line."""
        ...


class AnswerReceiver(Protocol):
    """Where answers go, such as a run. Both calls give False where somebody else was faster."""

    async def answer(self, id: str, decision: Decision, *, by: str = "", comment: str = "", rule: str = "") -> bool: ...

    async def reply(self, id: str, text: str, *, by: str = "") -> bool: ...


PromptOutcome = Literal["answered", "later", "open"]
"""What became of a question: it has its answer, comes again after the others, or is left to whoever answers it."""


class QueuedRequest(NamedTuple):
    """What is to be put to the person; `worker` is who asks it from elsewhere."""

    entry: Entry
    worker: str


class RequestPrompter:
    """Puts to the person what agents ask, with `tell`; `view` rests meanwhile."""

    def __init__(
        self,
        receiver: AnswerReceiver,
        view: ProgressView,
        keyboard: Keyboard,
        *,
        home: Path,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        self._receiver = receiver
        self._home = home
        self._view = view
        self._keyboard = keyboard
        self._tell = tell or print_request
        self._queue: dict[str, QueuedRequest] = {}
        self._answered_by: dict[str, str] = {}
        self._has_requests = Flag()
        self._current: tuple[str, CancelScope] | None = None

    @property
    def is_asking(self) -> bool:
        """Whether the person is being asked something."""
        return self._current is not None

    def handle_entry(self, entry: Entry, worker: str = "") -> None:
        """Take in an entry of a run, or of a worker."""
        match entry.event:
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                self._queue[id] = QueuedRequest(entry, worker)
                self._has_requests.set()
            case PermissionAnswered(id=id, by=by) | QuestionAnswered(id=id, by=by):
                self.withdraw_request(id, by)

    def withdraw_request(self, id: str, by: str) -> None:
        """Ask this no longer: it was answered by somebody, or by nobody in time."""
        self._queue.pop(id, None)
        self._answered_by[id] = by
        if self._current is not None and self._current[0] == id:
            self._current[1].cancel()

    def leave_open(self) -> None:
        """Leave what is being asked to whoever answers it later."""
        if self._current is not None:
            self._current[1].cancel()

    async def serve_requests(self) -> None:
        """Ask whatever there is to ask, for ever."""
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
        """Why something is not asked any more that nobody has answered here."""
        if id not in self._answered_by:
            return f"{id} is left open; podium approvals lists it."
        by = self._answered_by[id]
        return f"{id}: time is over." if by == "podium" else f"{id} was answered by {by or 'somebody'}."

    async def _prompt_for(self, one: QueuedRequest) -> PromptOutcome:
        """Ask, and take the answer where there is one."""
        self._keyboard.discard_input()
        entry, others = one.entry, len(self._queue) - 1
        match entry.event:
            case PermissionAsked() as asked:
                self._tell(format_permission_request(entry, asked, one.worker, others=others, now=time.time()))
                key = await self._read_decision_key(list_answer_keys(asked))
                if key in (LATER, ESC):
                    return "later" if key == LATER else "open"
                await self._submit_decision(entry.run, asked, key)
            case QuestionAsked() as asked:
                self._tell(f"{format_question(entry, asked, one.worker, others=others)}\nYour answer:")
                await self._receiver.reply(asked.id, await self._read_answer(asked), by=BY)
        return "answered"

    async def _read_answer(self, asked: QuestionAsked) -> str:
        """The first line that answers a question."""
        while True:
            try:
                return resolve_choice(asked, (await self._keyboard.read_line()).strip())
            except Mistake as error:
                self._tell(f"{error}\nYour answer:")

    async def _read_decision_key(self, offered: Mapping[str, str]) -> str:
        """The first key that answers, puts off or leaves."""
        while True:
            # A key that is still held down from the last answer decides nothing, nor does what follows a pasted line.
            await sleep(GUARD_SECONDS)
            self._keyboard.discard_input()
            self._tell(
                "\n".join("  ".join(f"[{key}] {offered[key]}" for key in row if key in offered) for row in KEY_ROWS)
            )
            while not _is_printable_key(key := (await self._keyboard.read_key()).lower()) and key != ESC:
                pass
            if key == ESC or (key in offered and key != HELP):
                return key
            self._tell(format_key_help(offered) if key == HELP else NO_ANSWER)
            await self._keyboard.discard_line()

    async def _submit_decision(self, run: str, asked: PermissionAsked, key: str) -> None:
        decision, words = KEYS[key]
        comment = ""
        if decision in ("deny", "deny_and_pause"):
            self._tell("Why not? It is told to the agent. (Enter for no reason)")
            comment = (await self._keyboard.read_line()).strip()
        self._tell(f"{words}.")
        rule = asked.always if decision == "always" else ""
        if not await self._receiver.answer(asked.id, decision, by=BY, comment=comment, rule=rule):
            self._tell(f"{asked.id} was answered elsewhere before.")
        elif rule:
            save_allowed_rule(self._home, AllowedRule(rule=rule, at=time.time(), by=BY, run=run))


def format_asker(entry: Entry, worker: str) -> str:
    """Who asks something, with what people call the worker, where it is one."""
    return f"{parse_agent_name(entry.operation)} on {worker}" if worker else parse_agent_name(entry.operation)


def format_permission_request(
    entry: Entry, asked: PermissionAsked, worker: str = "", *, now: float, others: int = 0
) -> str:
    """The whole action, for a person who decides on it."""
    action, waited = asked.action, now - entry.at
    since = f", waiting {format_duration(waited)}" if waited >= LONG_SECONDS else ""
    lines = [
        *_format_queue_length(others),
        f"{format_asker(entry, worker)} asks for permission ({asked.id}){since}: {action.tool}",
        *(f"  {name}{_format_length(value)}: {_format_argument(value)}" for name, value in action.arguments.items()),
        f"  in {action.directory or 'no directory'}, because {asked.reason}",
        f"  sandbox: {SANDBOXES.get(action.sandbox, action.sandbox)}",
    ]
    if asked.shown:
        lines += ["", *(f"  {line}" for line in asked.shown.split("\n")), ""]
    if action.outputs and action.outputs == {path: action.inputs.get(path) for path in action.outputs}:
        lines.append(f"  nothing changes: {', '.join(action.outputs)} holds this already")
    lines += [f"  {denial}" for denial in asked.denied]
    if asked.always:
        lines.append(f"  for good would mean the rule {asked.always}")
    return "\n".join(lines)


def list_answer_keys(asked: PermissionAsked) -> dict[str, str]:
    """The keys that answer a request, put it off or explain themselves, and what they mean."""
    answers = {key: words for key, (_, words) in KEYS.items() if key != "p" or asked.always}
    return answers | {LATER: "later", HELP: "what these do"}


def format_key_help(offered: Mapping[str, str]) -> str:
    """What each key does that is offered, a line each."""
    lines = [f"  {key}    {HELP_LINES[key]}" for row in KEY_ROWS for key in row if key in offered and key in HELP_LINES]
    return "\n".join([*lines, "  Esc  leaves it open, for podium approvals", NO_ANSWER])


def _is_printable_key(key: str) -> bool:
    """Whether a key may begin a sentence, as Enter and the arrows do not."""
    return bool(key) and key.isprintable()


def format_question(entry: Entry, asked: QuestionAsked, worker: str = "", *, others: int = 0) -> str:
    """A question, with its choices by number."""
    choices = [f"  {number}. {choice}" for number, choice in enumerate(asked.choices, 1)]
    return "\n".join(
        [*_format_queue_length(others), f"{format_asker(entry, worker)} asks ({asked.id}): {asked.text}", *choices]
    )


def _format_queue_length(others: int) -> list[str]:
    """How much else waits for an answer, after a line that is free."""
    return ["", f"[{format_count(others, 'more request')} after this one]"] if others else [""]


_SPACES = re.compile(r"(?<=\S) {20,}(?=\S)")
"""So many spaces would move what follows them out of sight."""


def print_request(text: str) -> None:
    """Show text on the terminal; nothing in it acts there."""
    click.echo(escape_hidden_text(text), err=True)


def escape_hidden_text(text: str) -> str:
    """Text in which nothing acts on a terminal, and nothing is out of sight."""
    return _SPACES.sub(lambda run: f" [{len(run[0])} spaces] ", escape_for_terminal(text))


def _format_length(value: object) -> str:
    """How long a text is, where that is not seen at a glance."""
    return f" ({len(value)} characters)" if isinstance(value, str) and len(value) > AT_A_GLANCE else ""


def _format_argument(value: object) -> str:
    text = value if isinstance(value, str) else as_json(value)
    return text if "\n" not in text else "".join(f"\n    {line}" for line in text.split("\n"))


_ENTER = re.compile(r"[\r\n]")
_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|[^\[O])", re.DOTALL)
"""What a key sends that is no sign, such as an arrow, or a sign with Alt."""


class TerminalKeyboard:
    """The keyboard of a real terminal."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._typed = ""

    def discard_input(self) -> None:
        import termios  # here, because not every system has it

        self._typed = ""
        termios.tcflush(self._input, termios.TCIFLUSH)

    async def read_key(self) -> str:
        with self._cbreak_mode():
            # One key may be several signs, and what was pasted comes all at once.
            await self._read_input()
            if not self._typed.startswith(ESC):
                return self._typed[:1]
            await self._read_sequence()
            if not self._typed.strip(ESC):
                return ESC
            # Of half a sequence the second sign is taken, which begins a text that decides nothing.
            return "" if _SEQUENCE.match(self._typed) else self._typed[1]

    async def discard_line(self) -> None:
        with self._cbreak_mode():
            while self._typed and not _ENTER.search(self._typed):
                await self._read_input()

    async def _read_input(self) -> None:
        await wait_readable(self._input)
        self._typed = os.read(self._input, 4096).decode(errors="replace")

    async def _read_sequence(self) -> None:
        """Take what else comes of a sequence that has begun."""
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
