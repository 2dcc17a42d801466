"""Timelines to measure with: the event that is appended, and a long run to resume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from podium.core.journal_rows import JournalRow
from podium.core.scope import Scope
from podium.core.timeline import Timeline
from podium.store.run_store import RunStore
from podium.values.action import Action
from podium.values.agent import Agent
from podium.values.event import (
    Event,
    ModelReplied,
    RunStarted,
    TextStreamed,
    ToolAnswered,
    ToolCalled,
    ToolUse,
    TurnEnded,
    TurnStarted,
)
from podium.values.request import Request
from podium.values.usage import Usage

SENTENCE = "The sea keeps no records and forgives no debts, and still the boats go out each morning. "
STREAMED = TextStreamed(text=SENTENCE * 2)
"""The event that the append row appends; stored as a row, it has about 400 bytes."""


class MemoryLease:
    """A lease that keeps its rows in memory."""

    epoch = 1

    def __init__(self) -> None:
        self.rows: list[JournalRow] = []

    def append(self, row: JournalRow, *, survives_power_loss: bool, mail: int | None) -> None:
        self.rows.append(row)

    async def wait_written(self, *, is_alone: bool = True) -> None:
        return


async def write_long_run(store: Path, run: str, *, events: int) -> None:
    """Write a run of this many events: turns of an agent that streams text and uses a tool."""
    async with RunStore(store) as opened:
        timeline = Timeline(run, opened.begin_run(run))
        agent = Agent(name="poet", prompt="You are a poet.")
        timeline.append(RunStarted(agent="poet", request=Request(text="write"), agents=(agent,)), scope="")
        session = Scope(timeline, "poet", operation="poet", digest="0" * 16)
        while timeline.seq < events:
            turn = session.next_child("turn")
            for event in _turn_events(run):
                if timeline.seq == events:
                    break
                _record_event(turn, event)
            await timeline.wait_written()


def _record_event(turn: Scope, event: Event) -> None:
    match event:
        case TextStreamed():
            turn.record_each_time(event)
        case ModelReplied():
            turn.next_child("call").record_outcome(event)
        case TurnEnded():
            turn.record_outcome(event)
        case _:
            turn.record(event)


def _turn_events(run: str) -> Iterator[Event]:
    """Return the ten events of a turn."""
    use = ToolUse(id="call-1", name="read", arguments={"path": "src/sea.py"})
    spent = Usage(input_tokens=900, output_tokens=80, calls=1)
    yield TurnStarted(agent="poet", engine="openai:loopback", prompt=SENTENCE)
    yield TextStreamed(text=SENTENCE)
    yield ModelReplied(model="loopback", text=SENTENCE, calls=(use,), stop="tool_calls", usage=spent)
    yield ToolCalled(id=use.id, action=Action(run=run, agent="poet", tool=use.name, arguments=use.arguments))
    yield ToolAnswered(id=use.id, text=SENTENCE * 10)
    for _ in range(3):
        yield STREAMED
    yield ModelReplied(model="loopback", text=SENTENCE * 6, stop="stop", usage=spent)
    yield TurnEnded(outcome="succeeded", text=SENTENCE * 6, calls=(use,))
