"""Asking the person at the terminal: what agents want to do or know, one thing at a time, and the answers.

Whatever is asked is shown in full, with every sign that a terminal would act on made visible. Keys
that were typed before the question stood there do not count, and Enter alone decides nothing. What
somebody answers elsewhere meanwhile is told.
"""

from __future__ import annotations

import os
import re
import sys
import time
from asyncio import Event as Flag
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import click
from anyio import CancelScope, sleep, wait_readable

from ..config.allowed import Allowed, allow
from ..event import Decision, Entry, PermissionAnswered, PermissionAsked, QuestionAnswered, QuestionAsked
from ..live import Run
from .answer import chosen
from .render import agent_of
from .text import as_json, visible
from .view import View

KEYS: dict[str, tuple[Decision, str]] = {
    "y": ("once", "once"),
    "r": ("run", "this very action for the whole run"),
    "p": ("always", "for good"),
    "n": ("deny", "no"),
    "x": ("deny_and_pause", "no, and pause"),
    "a": ("abort", "no, and stop"),
}
BY = "terminal"
GUARD_SECONDS = 0.5
AT_A_GLANCE = 72


class Keyboard(Protocol):
    """Where answers are typed."""

    def forget(self) -> None:
        """Let what was typed so far not count."""
        ...

    async def key(self) -> str:
        """The next key."""
        ...

    async def line(self) -> str:
        """The next line."""
        ...


class Asking:
    """Puts to the person what the agents of a run ask; `view` rests meanwhile."""

    def __init__(self, run: Run, view: View, keyboard: Keyboard, *, home: Path) -> None:
        self._run = run
        self._home = home
        self._view = view
        self._keyboard = keyboard
        self._waiting: dict[str, Entry] = {}
        self._answered_by: dict[str, str] = {}
        self._is_asked = Flag()
        self._current: tuple[str, CancelScope] | None = None

    def hear(self, entry: Entry) -> None:
        """Take in an entry of the run."""
        match entry.event:
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                self._waiting[id] = entry
                self._is_asked.set()
            case PermissionAnswered(id=id, by=by) | QuestionAnswered(id=id, by=by):
                self._waiting.pop(id, None)
                self._answered_by[id] = by
                if self._current is not None and self._current[0] == id:
                    self._current[1].cancel()

    async def attend(self) -> None:
        """Ask whatever there is to ask, for ever."""
        while True:
            await self._is_asked.wait()
            self._is_asked.clear()
            while self._waiting:
                id, entry = next(iter(self._waiting.items()))
                with self._view.at_rest(), CancelScope() as scope:
                    self._current = id, scope
                    await self._ask(entry)
                self._current = None
                if scope.cancelled_caught:
                    by = self._answered_by.get(id, "")
                    say(f"{id}: time is over." if by == "podium" else f"{id} was answered by {by or 'somebody'}.")
                self._waiting.pop(id, None)

    async def _ask(self, entry: Entry) -> None:
        self._keyboard.forget()
        match entry.event:
            case PermissionAsked() as asked:
                say(described(entry, asked))
                # A key that is still held down from the last answer decides nothing.
                await sleep(GUARD_SECONDS)
                self._keyboard.forget()
                say("  ".join(f"[{key}] {words}" for key, (_, words) in keys(asked).items()))
                await self._decide(asked)
            case QuestionAsked() as asked:
                say(questioned(entry, asked))
                text = (await self._keyboard.line()).strip()
                await self._run.reply(asked.id, chosen(asked, text), by=BY)

    async def _decide(self, asked: PermissionAsked) -> None:
        while (key := (await self._keyboard.key()).lower()) not in keys(asked):
            pass
        decision, words = KEYS[key]
        comment = ""
        if decision in ("deny", "deny_and_pause"):
            say("Why not? It is told to the agent. (Enter for no reason)")
            comment = (await self._keyboard.line()).strip()
        say(f"{words}.")
        rule = asked.always if decision == "always" else ""
        if not await self._run.answer(asked.id, decision, by=BY, comment=comment, rule=rule):
            say(f"{asked.id} was answered elsewhere before.")
        elif rule:
            allow(self._home, Allowed(rule=rule, at=time.time(), by=BY, run=self._run.id))


def described(entry: Entry, asked: PermissionAsked) -> str:
    """The whole action, for a person who decides on it."""
    action = asked.action
    lines = [
        "",
        f"{agent_of(entry.operation)} asks for permission ({asked.id}): {action.tool}",
        *(f"  {name}{_size(value)}: {_value(value)}" for name, value in action.arguments.items()),
        f"  in {action.directory or 'no directory'}, because {asked.reason}",
    ]
    if asked.shown:
        lines += ["", *(f"  {line}" for line in asked.shown.split("\n")), ""]
    lines += [f"  {denial}" for denial in asked.denied]
    if asked.always:
        lines.append(f"  for good would mean the rule {asked.always}")
    return "\n".join(lines)


def keys(asked: PermissionAsked) -> dict[str, tuple[Decision, str]]:
    """The keys that answer a request."""
    return {key: answer for key, answer in KEYS.items() if key != "p" or asked.always}


def questioned(entry: Entry, asked: QuestionAsked) -> str:
    """A question, with its choices by number."""
    choices = [f"  {number}. {choice}" for number, choice in enumerate(asked.choices, 1)]
    return "\n".join(["", f"{agent_of(entry.operation)} asks ({asked.id}): {asked.text}", *choices, "Your answer:"])


_SPACES = re.compile(r"(?<=\S) {20,}(?=\S)")
"""So many spaces would move what follows them out of sight."""


def say(text: str) -> None:
    """Show text on the terminal; nothing in it acts there."""
    click.echo(_SPACES.sub(lambda run: f" [{len(run[0])} spaces] ", visible(text)), err=True)


def _size(value: object) -> str:
    """How long a text is, where that is not seen at a glance."""
    return f" ({len(value)} characters)" if isinstance(value, str) and len(value) > AT_A_GLANCE else ""


def _value(value: object) -> str:
    text = value if isinstance(value, str) else as_json(value)
    return text if "\n" not in text else "".join(f"\n    {line}" for line in text.split("\n"))


class Terminal:
    """The keyboard of a real terminal."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()

    def forget(self) -> None:
        import termios  # here, because not every system has it

        termios.tcflush(self._input, termios.TCIFLUSH)

    async def key(self) -> str:
        with self._key_by_key():
            await wait_readable(self._input)
            return os.read(self._input, 16).decode(errors="replace")[:1]

    async def line(self) -> str:
        await wait_readable(self._input)
        return os.read(self._input, 65536).decode(errors="replace")

    @contextmanager
    def _key_by_key(self) -> Iterator[None]:
        import termios
        import tty

        before = termios.tcgetattr(self._input)
        tty.setcbreak(self._input, termios.TCSANOW)
        try:
            yield
        finally:
            termios.tcsetattr(self._input, termios.TCSANOW, before)


def is_attended() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()
