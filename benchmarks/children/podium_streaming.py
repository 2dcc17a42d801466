"""Podium hearing streams, all of it durable; and how late the pieces are with the session and on the timeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from podium import Agent, App, Settings
from podium.core.engine import Engine, EngineSession, EngineSessionSpec, Piece, Text
from podium.core.scope import Scope
from podium.engines.engine_choice import Engines
from podium.store.sqlite.reader import StoreReader
from podium.values.event import ModelReplied, TextStreamed

from ..child import MODEL, PROMPT, REQUEST
from ..stream import Call, See, Streaming, ages

WANTED = f"openai:{MODEL}"


class Watched:
    """An engine whose every piece is looked at on its way to the session."""

    def __init__(self, engine: Engine, see: See) -> None:
        self.name = engine.name
        self._engine = engine
        self._see = see

    @asynccontextmanager
    async def open(self, spec: EngineSessionSpec) -> AsyncIterator[EngineSession]:
        async with self._engine.open(spec) as mind:
            yield WatchedMind(mind, self._see)


class WatchedMind:
    """One of its minds."""

    def __init__(self, mind: EngineSession, see: See) -> None:
        self.is_restored = mind.is_restored
        self._mind = mind
        self._see = see

    def ask(self, prompt: str, turn: Scope) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
        return self._asked(prompt, turn)

    @asynccontextmanager
    async def _asked(self, prompt: str, turn: Scope) -> AsyncIterator[AsyncIterator[Piece]]:
        async with self._mind.ask(prompt, turn) as pieces:
            yield self._looked_at(pieces)

    async def _looked_at(self, pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
        async for piece in pieces:
            if isinstance(piece, Text):
                self._see(piece.text)
            yield piece


@asynccontextmanager
async def opened(url: str, see: See | None) -> AsyncIterator[Call]:
    agent = Agent(name="poet", prompt=PROMPT, engine="model" if see is None else "watched")
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory()))
        settings = Settings.load({}, home=home, model=WANTED, base_url=url)
        given: dict[str, Engine] = {}
        if see is not None:
            engines = await stack.enter_async_context(Engines({}))
            poet = Agent(name="poet", prompt=PROMPT)
            given["watched"] = Watched(engines.for_agent(poet, (WANTED,), model=WANTED, url=url), see)
        app = await stack.enter_async_context(App(settings, engines=given, environ={}))
        runs: list[str] = []

        async def call() -> str:
            result = await app.run(agent, REQUEST)
            runs.append(result.run_id)
            return result.text if result.succeeded else f"{result.outcome}: {result.error}"

        yield call

        if see is not None:
            with StoreReader(settings.store) as reader:
                for run in runs:
                    streaming.late["on the timeline"] += landed(reader, run)


def landed(reader: StoreReader, run: str) -> list[float]:
    """How old the pieces of a reply were when they were put on the timeline, its last ones with the whole reply."""
    late: list[float] = []
    for entry in reader.read_entries(run):
        match entry.event:
            case TextStreamed(text=text):
                late += ages(text, entry.at)
            case ModelReplied(text=text):
                late += ages(text, entry.at)[len(late) :]
    return late


streaming = Streaming(opened)
streaming.late["on the timeline"] = []

if __name__ == "__main__":
    streaming.serve()
