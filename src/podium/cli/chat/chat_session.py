"""A chat: a person and an agent, line by line.

Every line is a run of its own, which goes on with the conversation of the one before it; so each is
in the lists, can be looked into, and survives this process. What is said while an agent works goes
to that agent; what it did not hear becomes the next line.
"""

from __future__ import annotations

import shutil
from asyncio import Event as Flag
from asyncio import Lock
from collections.abc import Callable
from pathlib import Path

from anyio import create_task_group, to_thread
from anyio.abc import TaskGroup

from ...app import App
from ...roster.discovery import load
from ...runs.inbox import Letters, Watch
from ...runs.run_handle import Run
from ...setup.settings import Settings
from ...values.errors import Mistake, PodiumError, first_error
from ...values.event import Entry, MessageReceived, MessagesDelivered, PermissionAsked, QuestionAsked
from ...values.result import Result
from ...values.usage import NOTHING, Usage
from ..terminal import exit_codes
from ..terminal.measure import counted, span, used
from ..terminal.outcome_text import parts_told
from ..terminal.request_prompt import BY, Asking, harmless
from ..terminal.run_display import Nothing
from .chat_output import Voice
from .console import Console
from .slash_commands import arguments, called, help_lines, in_place, named


class Chat:
    """A person and an agent. `settings` are read anew for each line, so that what was allowed for good holds."""

    def __init__(self, console: Console, *, agent: str, place: Path, settings: Callable[[], Settings]) -> None:
        self.code = exit_codes.GOAL_MET
        self._console = console
        self._agent = agent
        self._place = place
        self._settings = settings
        held = settings()
        self._home = held.home
        self._letters = Letters(held.store)
        self._asking = Asking(
            self._letters, Nothing(), console, home=held.home, tell=lambda text: console.tell(harmless(text))
        )
        self._watch = Watch(held.store, self._asking, self._letters)
        self._one_at_a_time = Lock()
        self._last = ""
        """The run whose conversation goes on."""
        self._said: list[str] = []
        """What the person has said and no agent was given yet."""
        self._is_said = Flag()
        self._turn: Turn | None = None
        self._is_leaving = False
        self._runs = 0
        self._usage: Usage = NOTHING
        self._notices: set[str] = set()
        self._group: TaskGroup | None = None

    async def hold(self) -> None:
        """Talk until the person leaves."""
        async with create_task_group() as group:
            self._group = group
            group.start_soon(self._asking.attend)
            group.start_soon(self._watch.keep)
            group.start_soon(self._work)
            while (line := await self._console.read()) is not None:
                self._is_leaving = False
                await self._take(line)
            group.cancel_scope.cancel()
        if self._turn is not None and self._turn.run is not None:
            self._console.tell(f"interrupted; go on with: podium resume {self._turn.run.id}")

    def interrupt(self) -> None:
        """What Ctrl-C does: leave a request open, then stop the turn, then leave."""
        if self._asking.is_asking:
            self._asking.leave()
        elif self._turn is not None and not self._turn.is_stopping:
            self._console.tell("  stopping; Ctrl-C again leaves at once")
            assert self._group is not None
            self._group.start_soon(self._turn.stop)
        elif self._turn is None and not self._is_leaving:
            self._is_leaving = True
            self._console.tell("  Ctrl-C again, or Ctrl-D, leaves")
        else:
            self.leave(exit_codes.SIGNALLED + 2)

    def leave(self, code: int = exit_codes.GOAL_MET) -> None:
        """End the chat; what is under way stays resumable."""
        self.code = code
        if self._group is not None:
            self._group.cancel_scope.cancel()

    # Lines

    async def _take(self, line: str) -> None:
        text = line.strip()
        if text.startswith("/") and not text.startswith("//"):
            assert self._group is not None
            self._group.start_soon(self._obey, text)
        elif text:
            words = text[1:] if text.startswith("//") else text
            if self._turn is None or not await self._turn.hear(words):
                self._give(words)
        elif self._turn is None:
            self._console.ready(self._agent)

    def _give(self, text: str) -> None:
        self._said.append(text)
        self._is_said.set()

    async def _work(self) -> None:
        """One turn after the other, for ever."""
        while True:
            self._console.ready(self._agent)
            await self._is_said.wait()
            self._is_said.clear()
            while self._said:
                text, self._said = "\n\n".join(self._said), []
                self._turn = Turn(self._console, self._asking, self._letters)
                try:
                    await self._answered(self._turn, text)
                except Exception as error:
                    found = first_error(error)
                    if not isinstance(found, PodiumError):
                        raise
                    self._console.tell(f"podium: {found}")
                unheard, self._turn = self._turn.unheard, None
                self._said[:0] = unheard

    async def _answered(self, turn: Turn, text: str) -> None:
        voice = Voice(self._console, columns=lambda: shutil.get_terminal_size().columns, known=self._notices)
        async with App(self._settings()) as app:
            start = app.start(self._agent, text, repo=self._place, is_attended=True, after=self._last)
            async with start as run:
                result = await turn.followed(run, voice)
        self._last = result.run_id
        self._runs += 1
        self._usage += result.usage
        for words in told(result, voice):
            self._console.tell(words)

    # Commands

    async def _obey(self, line: str) -> None:
        """Do what a slash command asks for."""
        name, _, rest = line[1:].partition(" ")
        try:
            async with self._one_at_a_time:
                await self._do(name, rest.strip())
        except PodiumError as error:
            self._console.tell(f"podium: {error}")
        if self._turn is None:
            self._console.ready(self._agent)

    async def _do(self, name: str, rest: str) -> None:
        slash = named(name)
        match name:
            case "help":
                self._console.tell("\n".join(help_lines()))
                return
            case "clear":
                self._last = ""
                self._console.clear()
                self._console.tell("  what was said before is forgotten; the runs stay")
                return
            case "quit":
                self.leave()
                return
            case "agent":
                await self._talk_to(rest)
                return
            case "cost" if not rest:
                self._console.tell(f"this chat: {counted(self._runs, 'run')}, {used(self._usage)}")
        words = arguments(slash, rest, place=self._place)
        self._console.tell(await to_thread.run_sync(called, words))

    async def _talk_to(self, name: str) -> None:
        if not name:
            self._console.tell(await to_thread.run_sync(called, in_place(["agents"], self._place)))
            return
        load(self._place, self._home).team(name)
        self._agent = name
        self._console.tell(f"  {name} goes on with the conversation; /clear begins anew")


class Turn:
    """One line and what comes of it."""

    def __init__(self, console: Console, asking: Asking, letters: Letters) -> None:
        self.run: Run | None = None
        self.is_stopping = False
        self._console = console
        self._asking = asking
        self._letters = letters
        self._asked: set[str] = set()
        self._sent: list[str] = []
        self._received: dict[str, str] = {}

    @property
    def unheard(self) -> list[str]:
        """What was said meanwhile and the agent has not heard."""
        return [*self._received.values(), *self._sent]

    async def followed(self, run: Run, voice: Voice) -> Result:
        """What came of the run, after all of it was shown."""
        self.run = run
        if self.is_stopping:
            await run.stop(by=BY)
        with run.entries() as entries:
            async for entry in entries:
                self._note(entry)
                voice.hear(entry)
        voice.end()
        for id in self._asked:
            self._asking.withdraw(id, "podium")
        return await run.result()

    async def hear(self, text: str) -> bool:
        """Say something to the agent while it works; False where it cannot hear it."""
        if self.run is None or self.run.is_over or self.is_stopping:
            return False
        self._sent.append(text)
        try:
            await self.run.send(text, by=BY)
        except Mistake:
            return True  # its end came first, so it is among what was not heard
        self._console.tell("  it is heard at the next step")
        return True

    async def stop(self) -> None:
        """End the run with what there is."""
        self.is_stopping = True
        if self.run is not None and not self.run.is_over:
            await self.run.stop(by=BY)

    def _note(self, entry: Entry) -> None:
        match entry.event:
            case MessageReceived(id=id, by=by) if by == BY and self._sent:
                self._received[id] = self._sent.pop(0)
            case MessagesDelivered(ids=ids):
                for id in ids:
                    self._received.pop(id, None)
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                self._asked.add(id)
                self._letters.expect(id, entry.run)
        self._asking.hear(entry)


def told(result: Result, voice: Voice) -> list[str]:
    """What there is to say at the end of a turn."""
    facts = f"  {span(result.usage.seconds)}, {used(result.usage)}"
    match result.outcome:
        case "succeeded":
            return [facts]
        case "paused":
            return [f"  paused; podium resume {result.run_id} goes on with it"]
    parts = [] if voice.has_spoken else parts_told(result.parts)
    why = result.error or f"the run was {result.outcome}"
    return [*parts, f"podium: {why}" if result.outcome != "cancelled" else "  stopped", facts]
