"""How many frames lie between `podium.run` and the HTTP client.

The stack is read when the HTTP client is called. It is the chain of everything that waits for the call: coroutines,
asynchronous generators, methods, nested functions and lambdas, of whichever package. The client then writes to the
socket in a task of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import podium
from podium.testing import ServedModel, calls

MOST_FRAMES = 18


@contextmanager
def record_stacks() -> Iterator[list[str]]:
    """Record the functions from `podium.run` to the HTTP client, one on each line, for every request."""
    stacks: dict[FrameType, str] = {}

    def trace(frame: FrameType, event: str, _: Any) -> None:
        # A function is also "called" when it goes on after waiting, so only the first call of each frame counts.
        if event == "call" and frame.f_code.co_qualname == "ClientSession._request" and frame not in stacks:
            names: list[str] = []
            at = frame.f_back
            while at is not None and at.f_code is not podium.run.__code__:
                names.insert(0, f"{at.f_globals['__name__']}.{at.f_code.co_qualname}")
                at = at.f_back
            stacks[frame] = "\n".join(["podium.run", *names])

    recorded: list[str] = []
    sys.setprofile(trace)
    try:
        yield recorded
    finally:
        sys.setprofile(None)
        recorded += stacks.values()


async def test_few_frames_lie_between_a_run_and_its_model_calls(model_server: ServedModel) -> None:
    def depth(harbour: str) -> str:
        """How deep the water is in a harbour."""
        return f"{harbour}: 7.5 m"

    model_server.says(calls("depth", harbour="Emden"), "deep enough")

    with record_stacks() as stacks:
        result = await podium.run(podium.Agent(name="pilot", model="openai:m"), "Where can we lie?", tools=[depth])

    assert result.text == "deep enough"
    assert len(stacks) == 2
    assert [stack for stack in stacks if stack.count("\n") >= MOST_FRAMES] == []
