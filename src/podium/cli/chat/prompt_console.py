"""Implement a console with a prompt that stays at the bottom of the terminal while output scrolls above it.

The prompt for a permission request reads a single key. It waits until the line is empty and no key has been pressed
for a moment, so that a key typed as part of a message never counts as an answer.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio import Queue
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import click
from anyio import current_time, move_on_after, sleep
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.vt100 import Vt100_Output

from ...system.owned_files import make_private_folder
from ..output.agent_text import format_agent_text
from ..output.request_prompt import PAUSE_SECONDS
from ..output.text import escape_for_terminal, format_duration
from .reply_printer import wrap_line

QUIET_SECONDS = 0.5
MENU_ROWS = 6
MOST_PARTIAL_ROWS = 12
TICK_SECONDS = 0.5
ENTER = ("\r", "\n")

CompletionSource = Callable[[str], Iterable[str]]
"""Returns the completions for the last word of a line."""


class PromptConsole:
    """A console that reads lines at the bottom of the terminal and prints output above them."""

    can_render = True

    def __init__(self, *, history: Path, completions: CompletionSource, interrupt: Callable[[], object]) -> None:
        self._stdout = sys.stdout
        self._name = ""
        self._hint = ""
        self._activity, self._since = "", 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._mode: Literal["talk", "key", "line"] = "talk"
        self._has_open_request = False
        self._is_answering = False
        self._restored = ""
        """A line to put back into the input."""
        self._keys: Queue[str] = Queue()
        self._answers: Queue[str] = Queue()
        self._last_key = 0.0
        self._history = ChatHistory(history, is_kept=lambda: self._mode == "talk")
        output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
        # Do not request the cursor position: the terminal's reply could arrive among typed keys, or never.
        output.enable_cpr = False
        self._session: PromptSession[str] = PromptSession(
            self._format_prompt,
            history=self._history,
            completer=LineCompleter(completions),
            complete_in_thread=True,
            complete_while_typing=False,
            reserve_space_for_menu=MENU_ROWS,
            key_bindings=self._make_key_bindings(interrupt),
            erase_when_done=True,
            output=output,
        )
        self._session.app.key_processor.before_key_press += self._record_key_time

    def __enter__(self) -> Self:
        # Stay in raw mode even between two lines, so that the terminal never handles Ctrl-C or Ctrl-D itself.
        self._raw = self._session.input.raw_mode()
        self._raw.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.show_activity("")
        self._raw.__exit__(exc_type, exc, traceback)

    # Messages

    async def read_message(self) -> str | None:
        while True:
            line, self._restored = self._restored, ""
            try:
                said = await self._session.prompt_async(default=line, handle_sigint=False, set_exception_handler=False)
            except EOFError:
                return None
            if self._mode == "line":
                self._answers.put_nowait(said)
                continue
            if said.strip():
                self.print_line(f"> {said}")
            return said

    def print_line(self, text: str) -> None:
        self._print_above(escape_for_terminal(text))

    def print_agent_text(self, text: str) -> None:
        self._print_above(format_agent_text(text, self._stdout))

    def _print_above(self, text: str) -> None:
        """Print text above the prompt. Untrusted control characters must already be escaped."""
        app = self._session.app
        if app.is_running:
            # run_in_terminal is not used: it briefly enables the terminal's line editing, which swallows a Ctrl-D.
            app.renderer.erase()
        click.echo(text.replace("\n", "\r\n") + "\r\n", file=self._stdout, nl=False)
        app.invalidate()

    def show_partial_text(self, text: str) -> None:
        size = self._session.output.get_size()
        most = max(1, min(MOST_PARTIAL_ROWS, size.rows - MENU_ROWS - 3))
        # Only the end is processed: the text may be long, and this is called often.
        shown = escape_for_terminal(text.rstrip("\n")[-most * size.columns :]).split("\n")
        self._hint = "\n".join([part for line in shown for part in wrap_line(line, size.columns)][-most:])
        self._session.app.invalidate()

    def show_activity(self, activity: str) -> None:
        self._activity, self._since = escape_for_terminal(activity), time.monotonic()
        self._redraw_while_busy()

    def _redraw_while_busy(self) -> None:
        """Redraw the prompt. While an activity is in progress, also schedule the next redraw."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = (
            asyncio.get_running_loop().call_later(TICK_SECONDS, self._redraw_while_busy) if self._activity else None
        )
        self._session.app.invalidate()

    def show_prompt(self, name: str) -> None:
        self._name = escape_for_terminal(name)
        self._session.app.invalidate()

    def restore_line(self, text: str) -> None:
        self._restored = f"{self._restored} {text}".strip()
        self._insert_restored_line()

    def _insert_restored_line(self) -> None:
        """Put a restored line into the input if the prompt for messages is shown."""
        if self._restored and self._mode == "talk" and self._session.app.is_running:
            typed = self._session.default_buffer.text
            self._session.default_buffer.document = Document(f"{self._restored} {typed}".rstrip())
            self._restored = ""

    def clear_line(self) -> None:
        self._session.default_buffer.reset()

    def clear_screen(self) -> None:
        self._session.app.renderer.clear()

    def _format_prompt(self) -> StyleAndTextTuples:
        above: StyleAndTextTuples = [("", f"{self._hint}\n")] if self._hint else []
        if self._activity:
            above.append(("", f"({self._activity}, {format_duration(time.monotonic() - self._since)})\n"))
        match self._mode:
            case "key":
                return [*above, ("bold", "your key> ")]
            case "line":
                return [*above, ("bold", "your answer> ")]
        if self._has_open_request and self._session.default_buffer.text:
            above.append(("", "(a request is waiting for your answer; send or clear this line first)\n"))
        return [*above, ("bold", f"{self._name}> ")]

    # Answers

    def discard_input(self) -> None:
        self._keys = Queue()
        self._is_answering = False

    async def read_key(self) -> str:
        async with self._capture_answer("key"):
            return await self._keys.get()

    async def discard_line(self) -> None:
        async with self._capture_answer("key"):
            with move_on_after(PAUSE_SECONDS) as pause:
                while await self._keys.get() not in ENTER:
                    pause.deadline = current_time() + PAUSE_SECONDS

    async def read_line(self) -> str:
        async with self._capture_answer("line"):
            return await self._answers.get()

    @asynccontextmanager
    async def _capture_answer(self, mode: Literal["key", "line"]) -> AsyncIterator[None]:
        """Treat input during the block as an answer. Before the first answer to a request, wait until typing stops."""
        self._has_open_request = True
        try:
            if not self._is_answering:
                await self._wait_for_quiet()
                self._session.output.bell()
            self._is_answering, self._mode = True, mode
            self._session.app.invalidate()
            yield
        finally:
            self._mode, self._has_open_request = "talk", False
            self._insert_restored_line()
            self._session.app.invalidate()

    async def _wait_for_quiet(self) -> None:
        while self._session.default_buffer.text or time.monotonic() - self._last_key < QUIET_SECONDS:
            self._session.app.invalidate()
            await sleep(QUIET_SECONDS / 10)

    def _record_key_time(self, _: object) -> None:
        self._last_key = time.monotonic()

    def _make_key_bindings(self, interrupt: Callable[[], object]) -> KeyBindings:
        bindings = KeyBindings()
        wants_key = Condition(lambda: self._mode == "key")
        is_asked = Condition(lambda: self._mode != "talk")

        @bindings.add(Keys.Any, filter=wants_key, eager=True)
        def _(event: KeyPressEvent) -> None:
            # Pasted text is not a key press, whatever its first character is.
            if event.key_sequence[0].key != Keys.BracketedPaste:
                self._keys.put_nowait(event.data)

        @bindings.add("escape", filter=is_asked, eager=True)
        @bindings.add("c-c", eager=True)
        def _(event: KeyPressEvent) -> None:
            interrupt()

        return bindings


class LineCompleter(Completer):
    """Completes the last word of a line."""

    def __init__(self, completions: CompletionSource) -> None:
        self._completions = completions

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        line = document.text_before_cursor
        begun = line.rpartition(" ")[2]
        for word in self._completions(line):
            if word.startswith(begun):
                yield Completion(escape_for_terminal(word), start_position=-len(begun))


class ChatHistory(FileHistory):
    """The history of entered lines, in a file that only its owner can read. Answers to requests are not saved."""

    def __init__(self, path: Path, *, is_kept: Callable[[], bool]) -> None:
        make_private_folder(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        path.chmod(0o600)
        self._is_kept = is_kept
        super().__init__(str(path))

    def append_string(self, string: str) -> None:
        if self._is_kept():
            super().append_string(string)
