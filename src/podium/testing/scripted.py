"""Agents that say what a test tells them, run by the real product.

The roster, the patterns, the loop, the store and recovery are the real ones; only the model is
played. Agents come from the test itself, from the repository or from Podium, by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
from msgspec import structs

from ..app import App
from ..cli.terminal.entry_text import line
from ..engines.model.model_caller import Model, Retry, free
from ..engines.model.model_wire import Call, Heard
from ..engines.model.provider_traffic import Traffic
from ..engines.model.tool_loop import ModelEngine
from ..engines.script import Move, Moves, play
from ..roster.discovery import load
from ..setup.settings import Settings
from ..store.fault import refusal_after
from ..store.sqlite.reader import Reader
from ..store.sqlite.schema import connect
from ..values.agent import Agent
from ..values.errors import Mistake, OutsideFailed, PodiumError
from ..values.event import Entry, Event, RunStarted, kind
from ..values.limits import Patience
from ..values.result import Result
from .script_queue import Cast

SILENCE = 10.0
"""How many seconds a turn, or a person who is asked, may be silent: neither should hold up a suite for minutes."""

E = TypeVar("E", bound=Event)


class Scripted:
    """Agents, what they say, the runs they make, and what became of all that.

    `repo` is where agents are looked for that the test does not make; `workspace` is where runs work,
    an empty folder unless the test fills it. `patience` may be replaced before a run. `told` gets the
    timeline of every run, for people.
    """

    def __init__(
        self, settings: Settings, *, repo: Path, workspace: Path, told: Callable[[str], None] | None = None
    ) -> None:
        self.repo = repo
        self.workspace = workspace
        self.patience = Patience(thinking=SILENCE, used_tools=SILENCE, resumed=SILENCE, approval=SILENCE)
        self.calls: list[Call] = []
        """Every call of a model, as it was made."""
        self._settings = settings
        self._told = told
        self._made: dict[str, Agent] = {}
        self._known: dict[str, Agent] = {}
        self._cast = Cast(otherwise=self._speechless)

    # Who says what

    def agent(self, name: str, *, says: Moves = "ok", **keys: Any) -> Agent:
        """An agent that says this, one move for each call of its model; `keys` are those of `podium.Agent`."""
        self._made[name] = Agent(name=name, **keys)
        self._cast.give(name, says)
        return self._made[name]

    def says(self, agent: str, *moves: Any) -> None:
        """What an agent says that has a file in the repository, or was made before."""
        self._cast.give(agent, moves)

    # Running them

    def run(
        self, agent: str | Agent, request: str, *, agents: Iterable[Agent] = (), dies_after: int | None = None
    ) -> Result:
        """Give a request to an agent and wait for what comes of it.

        With `dies_after` nothing is written after so many entries, as if the process had been
        killed there: the run is `interrupted` and can be resumed.
        """
        __tracebackhide__ = True
        return _waited("run", partial(self.arun, agent, request, agents=agents, dies_after=dies_after))

    async def arun(
        self, agent: str | Agent, request: str, *, agents: Iterable[Agent] = (), dies_after: int | None = None
    ) -> Result:
        """The same as `run`, in an async test."""
        team = self._team(agent, agents)
        # Agents that are named by their place, as builtin:answer is, are for the roster to find again.
        given = [one for one in team if ":" not in one.name]
        async with self._app(team, dies_after) as app:
            result = await app.run(team[0].name, request, repo=self.workspace, agents=given)
        return self._ended(result, dies_after)

    def resume(self, run: str | Result, *, dies_after: int | None = None) -> Result:
        """Go on with a run that was interrupted, and wait for what comes of it."""
        __tracebackhide__ = True
        return _waited("resume", partial(self.aresume, run, dies_after=dies_after))

    async def aresume(self, run: str | Result, *, dies_after: int | None = None) -> Result:
        """The same as `resume`, in an async test."""
        started = self.entries(run)[0].event
        assert isinstance(started, RunStarted)
        async with self._app(started.agents, dies_after) as app, app.resume(_id(run)) as resumed:
            result = await resumed.result()
        return self._ended(result, dies_after)

    # What became of it

    def heard(self, agent: str) -> list[str]:
        """What an agent was told, call by call: its prompts, and what its tools answered."""
        __tracebackhide__ = True
        if agent not in self._known and agent not in self._made:
            there_are = ", ".join(sorted({*self._known, *self._made})) or "none yet"
            raise Mistake(f"no run had an agent {agent!r} that could have heard anything; the agents are: {there_are}")
        return [call.messages[-1].text for call in self.calls if call.agent == agent]

    def entries(self, run: str | Result) -> list[Entry]:
        """The timeline of a run."""
        with Reader(self._settings.store) as reader:
            reader.summary(_id(run))
            return reader.entries(_id(run))

    def events(self, run: str | Result, kind: type[E]) -> list[E]:
        """What happened in a run that is of this kind, such as `podium.values.event.HandedOff`."""
        return [entry.event for entry in self.entries(run) if isinstance(entry.event, kind)]

    def kinds(self, run: str | Result) -> list[str]:
        """What happened in a run, by the names that the documentation has for it."""
        return [kind(entry.event) for entry in self.entries(run)]

    # How it is done

    def stream(self, call: Call) -> AsyncGenerator[Heard, None]:
        """Speak for a model; the loop asks for this."""
        self.calls.append(call)
        return play(self._cast.cue, call)

    def _team(self, agent: str | Agent, others: Iterable[Agent]) -> tuple[Agent, ...]:
        """The agent and everyone it needs; every script must belong to somebody."""
        given = [*others, agent] if isinstance(agent, Agent) else [*others]
        self._made |= {one.name: one for one in given}
        roster = load(self.repo, self._settings.home)
        for name in self._cast.agents:
            if name not in self._made:
                roster.get(name)
        team = roster.team(agent.name if isinstance(agent, Agent) else agent, extra=self._made.values())
        self._known |= {one.name: one for one in team}
        return team

    def _app(self, agents: Iterable[Agent], dies_after: int | None) -> App:
        """A product in which the script speaks for every engine that the agents name."""
        time = _SkippedTime()
        traffic = Traffic(clock=time.now, sleep=time.sleep, jitter=lambda: 1.0)
        model = Model(wire=self, priced=free, traffic=traffic)
        engine = ModelEngine(model, name="scripted", retry=Retry(sleep=time.sleep, jitter=lambda: 1.0))
        return App(
            structs.replace(self._settings, patience=self.patience, approval_seconds=self.patience.approval),
            engines={agent.engine: engine for agent in agents},
            fault=None if dies_after is None else refusal_after(dies_after),
        )

    def _speechless(self, call: Call) -> Move:
        scripts = ", ".join(sorted(self._cast.agents)) or "nobody"
        raise OutsideFailed(
            f"it was asked, and no script says what it answers; there are scripts for {scripts}, "
            f'and scripted.says("{call.agent}", ...) gives it one'
        )

    def _ended(self, result: Result, dies_after: int | None) -> Result:
        if dies_after is not None and result.outcome == "interrupted":
            self._bury(result.run_id)
        if self._told is not None:
            lines = [said for entry in self.entries(result) if (said := line(entry)) is not None]
            if result.outcome == "interrupted":
                lines.append(f"run {result.run_id}: interrupted: {result.error}")
            self._told("\n".join(lines))
        return result

    def _bury(self, run: str) -> None:
        """Let the owner of a run be gone. One that is killed is seen to be; this one lives on as the test."""
        with closing(connect(self._settings.store, create=False)) as connection:
            connection.execute("DELETE FROM owner WHERE id = (SELECT owner FROM run WHERE id = ?)", (run,))


class _SkippedTime:
    """Time that passes only where somebody waits for it, and then at once."""

    def __init__(self) -> None:
        self._passed = 0.0

    def now(self) -> float:
        return self._passed

    async def sleep(self, seconds: float) -> None:
        self._passed += seconds


def _id(run: str | Result) -> str:
    return run if isinstance(run, str) else run.run_id


def _waited(name: str, work: Callable[[], Awaitable[Result]]) -> Result:
    __tracebackhide__ = True  # pytest points at the test's own line
    if _is_in_a_loop():
        raise Mistake(
            f"scripted.{name} is for plain tests and would block this async one; await scripted.a{name} instead"
        )
    try:
        return anyio.run(work)
    except PodiumError as error:
        # It says in one sentence what to do about it; the frames below would only bury that.
        raise error.with_traceback(None) from None


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
