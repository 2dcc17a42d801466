"""Run a chat between a user and an agent.

Every message starts a new run that continues the conversation from the previous run. Therefore, each message is listed
as a run, can be inspected, and is not lost when this process exits. A message that the user sends during a run is
delivered to the run's first agent; if the run ends before the agent receives it, the message starts the next run.
"""

from __future__ import annotations

import shutil
from asyncio import Event as Flag
from asyncio import Lock
from collections.abc import Callable
from pathlib import Path

from anyio import create_task_group, to_thread
from anyio.abc import TaskGroup

from ...app import App, RunOptions
from ...files.discovery import load_roster
from ...files.settings import Settings
from ...runs.queries.request_details import RequestListeners, WorkerRequestWatcher
from ...runs.run_handle import Run
from ...runs.run_notifications import RunNotices
from ...runs.run_start import start_run
from ...system.identity import get_local_actor
from ...values.errors import Mistake, PodiumError, find_first_error
from ...values.event import Entry, MessageReceived, MessagesDelivered, PermissionAsked, QuestionAsked
from ...values.plain_text import format_count
from ...values.request import Result
from ...values.usage import NO_USAGE, Usage
from ...views.request_text import escape_hidden_text
from ..output import exit_codes
from ..output.agent_text import AgentText, format_parts
from ..output.request_prompt import RequestPrompter
from ..output.request_wrapping import wrap_request
from ..output.run_display import SilentView
from ..output.terminal_notifier import open_run_notices
from ..output.text import format_duration, format_usage
from .chat_output import TranscriptPrinter
from .console import ChatConsole
from .slash_commands import (
    add_repo_option,
    build_arguments,
    capture_podium_output,
    find_slash_command,
    format_slash_help,
)


class ChatSession:
    """A chat with an agent. `settings` is called for each message, so that new allow rules take effect."""

    def __init__(self, console: ChatConsole, *, agent: str, place: Path, settings: Callable[[], Settings]) -> None:
        self.code = exit_codes.GOAL_MET
        self._console = console
        self._agent = agent
        self._place = place
        self._settings = settings
        current = settings()
        self._home = current.home
        self._store = current.store
        self._prompter = RequestPrompter(
            SilentView(),
            console,
            home=current.home,
            store=current.store,
            tell=lambda text: console.print_line(wrap_request(escape_hidden_text(text))),
            channel="chat",
        )
        self._one_at_a_time = Lock()
        self._last_run = ""
        """The run whose conversation the next message continues."""
        self._queue: list[str] = []
        """The messages that the next turn starts with."""
        self._has_messages = Flag()
        self._turn: ChatTurn | None = None
        self._is_leaving = False
        self._runs = 0
        self._usage: Usage = NO_USAGE
        self._notices: set[str] = set()
        self._group: TaskGroup | None = None

    async def run_until_exit(self) -> None:
        """Chat until the user exits."""
        opening = open_run_notices(self._settings(), is_shown=True, tell=self._console.print_line)
        async with opening as notices, create_task_group() as group:
            self._group = group
            listeners = RequestListeners(self._prompter, notices)
            watcher = WorkerRequestWatcher(self._store, listeners)
            group.start_soon(self._prompter.serve_requests)
            group.start_soon(watcher.watch_requests)
            group.start_soon(self._run_turns, notices)
            while (line := await self._console.read_message()) is not None:
                self._is_leaving = False
                await self._handle_line(line)
            group.cancel_scope.cancel()
        if self._turn is not None and self._turn.run is not None:
            self._console.print_line(f"interrupted; continue with: podium resume {self._turn.run.id}")

    def handle_interrupt(self) -> None:
        """Handle Ctrl-C: close the current prompt without an answer or, if no prompt is open, stop the turn.

        Between turns, clear the line. While a turn is being stopped, or after the line has been cleared, exit.
        """
        if self._prompter.is_asking:
            self._prompter.leave_open()
        elif self._turn is not None and not self._turn.is_stopping:
            self._console.print_line("  stopping; press Ctrl-C again to exit immediately")
            assert self._group is not None
            self._group.start_soon(self._turn.stop_run)
        elif self._turn is None and not self._is_leaving:
            self._is_leaving = True
            self._console.clear_line()
            self._console.print_line("  press Ctrl-C again or Ctrl-D to exit")
        else:
            self.exit_chat(exit_codes.SIGNALLED + 2)

    def exit_chat(self, code: int = exit_codes.GOAL_MET) -> None:
        """End the chat. An active run can be resumed later."""
        self.code = code
        if self._group is not None:
            self._group.cancel_scope.cancel()

    # Lines

    async def _handle_line(self, line: str) -> None:
        text = line.strip()
        if text.startswith("/") and not text.startswith("//"):
            assert self._group is not None
            self._group.start_soon(self._run_slash_command, text)
        elif text:
            words = text[1:] if text.startswith("//") else text
            if self._turn is None or not await self._turn.send_message(words):
                self._queue_message(words)
        elif self._turn is None:
            self._console.show_prompt(self._agent)

    def _queue_message(self, text: str) -> None:
        self._queue.append(text)
        self._has_messages.set()

    async def _run_turns(self, notices: RunNotices) -> None:
        """Run one turn after another, until cancelled."""
        while True:
            self._console.show_prompt(self._agent)
            await self._has_messages.wait()
            self._has_messages.clear()
            while self._queue:
                text, self._queue = "\n\n".join(self._queue), []
                self._turn = ChatTurn(self._console, self._prompter, notices)
                try:
                    await self._run_turn(self._turn, text)
                except Exception as error:
                    found = find_first_error(error)
                    if not isinstance(found, PodiumError):
                        raise
                    self._console.print_line(f"podium: {found}")
                turn, self._turn = self._turn, None
                if turn.is_stopping and turn.pending_messages:
                    self._console.restore_line(" ".join(turn.pending_messages))
                else:
                    self._queue[:0] = turn.pending_messages

    async def _run_turn(self, turn: ChatTurn, text: str) -> None:
        printer = TranscriptPrinter(
            self._console, columns=lambda: shutil.get_terminal_size().columns, known=self._notices
        )
        async with App(self._settings()) as app:
            options: RunOptions = {"repo": self._place, "is_attended": True, "after": self._last_run}
            async with start_run(app.runs, self._agent, text, options, by=get_local_actor("chat")) as run:
                result = await turn.follow_run(run, printer)
        self._last_run = result.run_id
        self._runs += 1
        self._usage += result.usage
        for words in _format_turn_end(result, printer):
            if isinstance(words, AgentText):
                self._console.print_agent_text(words)
            else:
                self._console.print_line(words)

    # Commands

    async def _run_slash_command(self, line: str) -> None:
        """Run a slash command and print its output."""
        name, _, rest = line[1:].partition(" ")
        try:
            async with self._one_at_a_time:
                await self._dispatch_slash_command(name, rest.strip())
        except PodiumError as error:
            self._console.print_line(f"podium: {error}")
        if self._turn is None:
            self._console.show_prompt(self._agent)

    async def _dispatch_slash_command(self, name: str, rest: str) -> None:
        slash = find_slash_command(name)
        match name:
            case "help":
                self._console.print_line("\n".join(format_slash_help()))
                return
            case "clear":
                self._last_run = ""
                self._console.clear_screen()
                self._console.print_line("  started a new conversation; the earlier runs are kept")
                return
            case "quit":
                self.exit_chat()
                return
            case "agent":
                await self._switch_agent(rest)
                return
            case "cost" if not rest:
                self._console.print_line(f"this chat: {format_count(self._runs, 'run')}, {format_usage(self._usage)}")
        words = build_arguments(slash, rest, place=self._place)
        self._console.print_line(await to_thread.run_sync(capture_podium_output, words))

    async def _switch_agent(self, name: str) -> None:
        if not name:
            self._console.print_line(
                await to_thread.run_sync(capture_podium_output, add_repo_option(["agents"], self._place))
            )
            return
        load_roster(self._place, self._home).resolve_team(name)
        self._agent = name
        self._console.print_line(f"  {name} continues the conversation; type /clear to start a new one")


class ChatTurn:
    """One message and the run that answers it."""

    def __init__(
        self,
        console: ChatConsole,
        prompter: RequestPrompter,
        notices: RunNotices,
    ) -> None:
        self.run: Run | None = None
        self.is_stopping = False
        self._console = console
        self._prompter = prompter
        self._by = get_local_actor("chat")
        self._notices = notices
        self._request_ids: set[str] = set()
        self._sent: list[str] = []
        self._received: dict[str, str] = {}

    @property
    def pending_messages(self) -> list[str]:
        """The messages that the user sent during the turn and that the agent has not received yet."""
        return [*self._received.values(), *self._sent]

    async def follow_run(self, run: Run, printer: TranscriptPrinter) -> Result:
        """Show the run until it ends and return its result."""
        self.run = run
        if self.is_stopping:
            await run.stop(by=self._by)
        with run.entries() as entries:
            async for entry in entries:
                self._track_entry(entry)
                printer.handle_entry(entry)
        printer.finish_transcript()
        for id in self._request_ids:
            self._prompter.withdraw_request(id, "was closed, because the run ended")
        self._notices.report_error(run)
        return await run.result()

    async def send_message(self, text: str) -> bool:
        """Send a message to the agent during the turn. Return False if it must wait for the next turn."""
        if self.run is None or self.run.is_over or self.is_stopping:
            return False
        self._sent.append(text)
        try:
            await self.run.send(text, by=self._by)
        except Mistake:
            return True  # the run has ended, so the message stays pending
        self._console.print_line("  the agent will receive your message at its next step")
        return True

    async def stop_run(self) -> None:
        """Stop the run and keep its partial results."""
        self.is_stopping = True
        if self.run is not None and not self.run.is_over:
            await self.run.stop(by=self._by)

    def _track_entry(self, entry: Entry) -> None:
        match entry.event:
            case MessageReceived(id=id, channel="chat") if self._sent:
                self._received[id] = self._sent.pop(0)
            case MessagesDelivered(ids=ids):
                for id in ids:
                    self._received.pop(id, None)
            case PermissionAsked() | QuestionAsked() as asked:
                self._request_ids.add(asked.id)
        self._prompter.handle_entry(entry)
        self._notices.handle_run_entry(entry)


def _format_turn_end(result: Result, printer: TranscriptPrinter) -> list[str]:
    """Return the lines to print at the end of a turn."""
    facts = f"  {format_duration(result.usage.seconds)}, {format_usage(result.usage)}"
    match result.outcome:
        case "succeeded":
            return [facts]
        case "paused":
            return [f"  paused; continue with: podium resume {result.run_id}"]
    parts = [] if printer.has_streamed else format_parts(result.parts)
    why = printer.shorten_error(result.error or f"the run was {result.outcome}")
    return [*parts, f"podium: {why}" if result.outcome != "cancelled" else "  stopped", facts]
