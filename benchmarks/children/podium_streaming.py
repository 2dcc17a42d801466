"""Podium receiving streamed replies durably, and how late the pieces reach the session and the timeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from podium import Agent, App, Settings
from podium.core.engine import Engine, EngineSession, EngineSessionSpec, Piece, Text
from podium.core.scope import Scope
from podium.engines.engine_choice import Engines
from podium.store.reader import StoreReader
from podium.values.event import ModelReplied, TextStreamed

from ..child import MODEL, PROMPT, REQUEST
from ..stream import Call, See, StreamingJobs, piece_ages

MODEL_NAME = f"openai:{MODEL}"


class WatchedEngine:
    """An engine that checks every piece on its way to the session."""

    def __init__(self, engine: Engine, see: See) -> None:
        self.name = engine.name
        self._engine = engine
        self._see = see

    @asynccontextmanager
    async def open(self, spec: EngineSessionSpec) -> AsyncIterator[EngineSession]:
        async with self._engine.open(spec) as session:
            yield WatchedSession(session, self._see)


class WatchedSession:
    """One of its sessions."""

    def __init__(self, session: EngineSession, see: See) -> None:
        self.is_restored = session.is_restored
        self._session = session
        self._see = see

    def ask(self, prompt: str, turn: Scope) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
        return self._ask_watched(prompt, turn)

    @asynccontextmanager
    async def _ask_watched(self, prompt: str, turn: Scope) -> AsyncIterator[AsyncIterator[Piece]]:
        async with self._session.ask(prompt, turn) as pieces:
            yield self._watch_pieces(pieces)

    async def _watch_pieces(self, pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
        async for piece in pieces:
            if isinstance(piece, Text):
                self._see(piece.text)
            yield piece


@asynccontextmanager
async def open_caller(url: str, see: See | None) -> AsyncIterator[Call]:
    agent = Agent(name="poet", prompt=PROMPT, engine="model" if see is None else "watched")
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory()))
        settings = Settings.load({}, home=home, model=MODEL_NAME, base_url=url)
        extra_engines: dict[str, Engine] = {}
        if see is not None:
            engines = await stack.enter_async_context(Engines({}))
            poet = Agent(name="poet", prompt=PROMPT)
            extra_engines["watched"] = WatchedEngine(
                engines.for_agent(poet, (MODEL_NAME,), model=MODEL_NAME, url=url), see
            )
        app = await stack.enter_async_context(App(settings, engines=extra_engines, environ={}))
        runs: list[str] = []

        async def call() -> str:
            result = await app.run(agent, REQUEST)
            runs.append(result.run_id)
            return result.text if result.succeeded else f"{result.outcome}: {result.error}"

        yield call

        if see is not None:
            with StoreReader(settings.store) as reader:
                for run in runs:
                    streaming.late["on the timeline"] += timeline_lateness(reader, run)


def timeline_lateness(reader: StoreReader, run: str) -> list[float]:
    """Return how old a reply's pieces were when they reached the timeline, the last ones with the whole reply."""
    late: list[float] = []
    for entry in reader.read_entries(run):
        match entry.event:
            case TextStreamed(text=text):
                late += piece_ages(text, entry.at)
            case ModelReplied(text=text):
                late += piece_ages(text, entry.at)[len(late) :]
    return late


streaming = StreamingJobs(open_caller)
streaming.late["on the timeline"] = []

if __name__ == "__main__":
    streaming.serve()
