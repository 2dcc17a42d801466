"""A worker process: it works on one run, in its own checkout, for as long as its commander is there.

What it needs to begin comes over its standard input and the wire, the keys of its models among it; its
environment has none. It ends with its commander, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

import anyio
import msgspec
from anyio import CancelScope, create_task_group
from msgspec import Struct

from ..app import App
from ..runs.run_handle import Run
from ..setup.settings import Settings
from ..values.errors import Mistake, PodiumError, first_error
from ..values.event import (
    ActionBegan,
    Decision,
    Entry,
    ModelReplied,
    PermissionAnswered,
    PermissionAsked,
    QuestionAsked,
    RunStarted,
    ToolAnswered,
    ToolCalled,
    TurnStarted,
    WorkCommitted,
    WorkerSent,
)
from ..values.result import Result
from ..views.worker_state import SENT
from .current_rules import LONGEST_SHOWN
from .wire.frame import TooLong
from .wire.line_socket import Gone
from .wire.link import Link
from .wire.wire_message import (
    Abort,
    Approve,
    ApprovePattern,
    Cancel,
    Deny,
    Handshake,
    InjectContext,
    Order,
    Pause,
    PermissionRequest,
    PermissionResponse,
    Report,
    Resume,
    StatusUpdate,
    TaskComplete,
    TaskError,
)
from .wire.worker_connection import connect

DONE, INTERRUPTED, TROUBLE = 0, 3, 1
"""How the process ends: its run has come to rest, can be resumed, or could not be worked on."""

PR_SET_PDEATHSIG = 1


class Hello(Struct, frozen=True, kw_only=True):
    """The first line of a worker's standard input."""

    socket: str
    run: str
    token: str
    parent: int
    task: str = ""
    worktree: str = ""
    branch: str = ""
    model: str = ""
    engine: str = ""


class Config(Struct, frozen=True, kw_only=True):
    """What the commander gives a worker that it let in."""

    root: str
    base: str = ""
    is_attended: bool = True
    is_reader: bool = False
    environ: dict[str, str] = {}


def main() -> int:
    """Work on the run that standard input names."""
    try:
        hello = msgspec.json.decode(sys.stdin.buffer.readline(), type=Hello)
    except msgspec.MsgspecError as error:
        sys.stderr.write(f"podium: whoever started this worker has not said what to do: {error}\n")
        return TROUBLE
    end_with(hello.parent)
    try:
        # Not uvloop, although it may be there: it copies this process for each program that is started, and a worker
        # starts many programs and has few connections.
        return anyio.run(worked, hello)
    except PodiumError as error:
        sys.stderr.write(f"podium: {error}\n")
        return TROUBLE


def end_with(parent: int) -> None:
    """Let the system end this process when its parent is gone, whatever it is doing then."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(INTERRUPTED)


async def worked(hello: Hello) -> int:
    """Come to the commander, work, and say how it went."""
    handshake = Handshake(
        worker=hello.run,
        token=hello.token,
        task=hello.task,
        worktree=hello.worktree,
        branch=hello.branch,
        model=hello.model,
        engine=hello.engine,
    )
    try:
        async with connect(Path(hello.socket), handshake) as link:
            config = msgspec.convert(await link.accepted(), Config)
            return await _worked(hello.run, config, link)
    except Gone:
        return INTERRUPTED


async def _worked(run: str, config: Config, link: Link[Order, Report]) -> int:
    environ = {**os.environ, **config.environ}
    # Nobody may be there for hours: what a worker asks waits until somebody is.
    # A reader only reads, with all of its team, whatever mode the person's settings name.
    mode = "plan" if config.is_reader else None
    settings = Settings.load(environ, repo=Path(config.root), approval_seconds=inf, permission_mode=mode)
    with CancelScope() as working:
        async with App(settings, environ=environ) as app, app.resume(run, is_attended=config.is_attended) as work:
            work.place(config.base)
            async with create_task_group() as beside:
                beside.start_soon(_heed_signals, working)
                beside.start_soon(_until_trouble, partial(_obey, link, work), working)
                beside.start_soon(_until_trouble, partial(_tell, link, work), working)
                result = await work.result()
                beside.cancel_scope.cancel()
            await _say_goodbye(link, result, await app.entries(run))
            return INTERRUPTED if result.outcome == "interrupted" else DONE
    return INTERRUPTED


async def _until_trouble(work: Callable[[], Awaitable[bool]], working: CancelScope) -> None:
    """Do it; where the commander is gone, or that fails, the work is interrupted, and stays resumable."""
    try:
        if await work():
            return
    except PodiumError as error:
        sys.stderr.write(f"podium: {error}\n")
    working.cancel()


async def _heed_signals(working: CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            working.cancel()


# What the commander says


async def _obey(link: Link[Order, Report], run: Run) -> bool:
    """Do what the commander says, until it is gone: False, since there is nobody to work for then."""
    async for order in link:
        match order:
            case PermissionResponse():
                decision, comment, rule = _decided(order)
                if order.request_id in run.open_requests:
                    await run.answer(order.request_id, decision, by="commander", comment=comment, rule=rule)
            case Cancel():
                with suppress(Mistake):  # it may have ended just now
                    await run.stop(by=order.reason or "commander")
            case Pause():
                with suppress(Mistake):
                    await run.pause(by="commander")
            case InjectContext():
                files = "".join(f"\n- {name}" for name in order.files)
                await run.send(f"{order.text}\n\nFiles to look at:{files}" if files else order.text)
            case Resume():
                pass  # a worker that is paused has ended; another one goes on
    return False


def _decided(response: PermissionResponse) -> tuple[Decision, str, str]:
    match response.result:
        case Approve(scope=scope):
            return scope, "", ""
        case ApprovePattern(rule=rule):
            return "always", "", rule
        case Deny(comment=comment):
            return "deny", comment, ""
        case Abort():
            return "abort", "", ""


# What the commander is told


async def _tell(link: Link[Order, Report], run: Run) -> bool:
    """Report what happens on the timeline, as it happens; True when all of it is told."""
    tokens = 0
    async for entry in run.entries():
        if isinstance(entry.event, ModelReplied):
            tokens += entry.event.usage.tokens
        if (report := reported(entry, tokens)) is not None:
            await link.send(report)
        if isinstance(entry.event, PermissionAsked) and entry.event.id in run.open_requests:
            # What is too large for the wire is on the timeline, where a person decides on it.
            with suppress(TooLong):
                await link.send(requested(entry.event))
    return True


def reported(entry: Entry, tokens: int) -> StatusUpdate | None:
    """What an entry says about a worker's state; None where that is nothing new."""
    match entry.event:
        case RunStarted():
            return StatusUpdate(state="starting")
        case TurnStarted() | ToolAnswered() | PermissionAnswered():
            return StatusUpdate(state="thinking", tokens=tokens)
        case ToolCalled() as event:
            return StatusUpdate(state="tool_call", tool=event.action.tool, tokens=tokens)
        case ActionBegan() as event:
            return StatusUpdate(state="tool_call", tool=event.action.tool, tokens=tokens)
        case WorkerSent():
            return StatusUpdate(state="tool_call", tool=SENT, tokens=tokens)
        case PermissionAsked() as event:
            return StatusUpdate(state="waiting_permission", tool=event.action.tool, tokens=tokens)
        case QuestionAsked():
            return StatusUpdate(state="waiting_permission", tokens=tokens, message="a question")
    return None


def requested(asked: PermissionAsked) -> PermissionRequest:
    """A request for permission as it goes over the wire."""
    return PermissionRequest(
        id=asked.id,
        action=asked.action,
        reason=asked.reason,
        shown=asked.shown[:LONGEST_SHOWN],
        always=asked.always,
        denied=asked.denied,
    )


async def _say_goodbye(link: Link[Order, Report], result: Result, entries: list[Entry]) -> None:
    """Tell how it ended. Who is gone by now reads it on the timeline."""
    if result.outcome in ("paused", "interrupted"):
        return
    committed = next((entry.event for entry in reversed(entries) if isinstance(entry.event, WorkCommitted)), None)
    usage = result.usage
    try:
        if result.error is not None:
            await link.send(TaskError(message=result.error, code=result.outcome))
        await link.send(
            TaskComplete(
                success=result.succeeded,
                response=result.text[:LONGEST_SHOWN],
                tool_calls=usage.tool_calls,
                tokens=usage.tokens,
                cost=usage.usd,
                duration=usage.seconds,
                branch="" if committed is None else committed.branch,
                commits=() if committed is None else committed.commits,
                files_changed=() if committed is None else committed.files,
            )
        )
    except Gone:
        pass


def environment(environ: Mapping[str, str], secret: frozenset[str]) -> dict[str, str]:
    """The environment of a worker process: that of its commander, without what is secret."""
    return {name: value for name, value in environ.items() if name not in secret}


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BaseExceptionGroup as group:
        sys.stderr.write(f"podium: {first_error(group)!r}\n")
        sys.exit(TROUBLE)
