"""Start a run, or resume one, and work on it in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from ..patterns.registry import OnDiscussion, Pattern
from ..values.actor import Actor, act
from ..values.agent import Agent
from .run_handle import Run, drive_run
from .run_options import RunOptions
from .runs import Runs


@act("act")
@asynccontextmanager
async def start_run(
    runs: Runs, agent: str | Agent, request: str, options: RunOptions, *, by: Actor, id: str = ""
) -> AsyncIterator[Run]:
    """Send a request to an agent and yield the run. Exiting the block before the run has ended stops the run.

    `id` is an id chosen in advance.
    """
    async with drive_run(await runs.create(agent, request, options, by=by, id=id), by=by) as run:
        yield run


@act("act")
@asynccontextmanager
async def resume_run(
    runs: Runs,
    run: str,
    *,
    by: Actor,
    tools: Sequence[Callable[..., object]] = (),
    patterns: Sequence[Pattern] = (),
    is_attended: bool = False,
    on_discussion: OnDiscussion | None = None,
) -> AsyncIterator[Run]:
    """Resume a run that was interrupted or paused, and yield it. Exiting the block before the run ends stops it.

    `tools` contains the functions that were passed when the run was started; `patterns` contains the custom patterns
    used by the run's agents.
    """
    claimed = await runs.claim(
        run, by=by, tools=tools, patterns=patterns, is_attended=is_attended, on_discussion=on_discussion
    )
    async with drive_run(claimed, by=by) as resumed:
        yield resumed
