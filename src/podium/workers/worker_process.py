"""Run a worker process, which works on a single run, usually in its own checkout.

The worker gets its configuration, including the keys for its models, on standard input and over the wire; its
environment contains no keys. The worker exits when its commander exits, even if the commander crashes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec
from anyio import CancelScope, create_memory_object_stream, create_task_group
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import Struct

from ..runs.run_handle import Run
from ..store.run_leases import OwnerId
from ..values.actor import Actor
from ..values.errors import LeaseLost, Mistake, PodiumError, StoreUnreachable
from ..values.worker_task import WorkerTask
from .wire.line_socket import ConnectionClosed
from .wire.link import Link
from .wire.wire_message import Handshake, Order, PermissionRequest, Report
from .wire.worker_connection import connect_to_commander

EXIT_DONE, EXIT_INTERRUPTED, EXIT_FAILED, EXIT_STORE_LOST, EXIT_RUN_HELD, EXIT_REFUSED = 0, 3, 1, 4, 5, 6
"""Exit codes, in this order: the run has ended or is paused; the run was interrupted; the worker failed; the store's
server could not be reached or the lease on the run was lost; another process was already working on the run."""

PR_SET_PDEATHSIG = 1


class ProcessEnding(NamedTuple):
    """How a worker's process ended.

    `is_crash` is False if the process lost the store. Only restarts after a crash count towards the limit on restarts.
    `is_refused` is True if entries of the run were changed or lost, or its MCP servers were changed: no process would
    continue it.
    """

    how: str
    is_crash: bool = True
    is_refused: bool = False


def describe_exit(code: int | None) -> ProcessEnding:
    """Return how a process with this exit code ended."""
    return ProcessEnding(
        f"process exited with code {code}", is_crash=code != EXIT_STORE_LOST, is_refused=code == EXIT_REFUSED
    )


class StartupMessage(Struct, frozen=True, kw_only=True):
    """The first line of a worker's standard input: the commander's socket, and the worker's first message to it.

    `parent` is the process that must still be running.
    """

    socket: str
    parent: int
    handshake: Handshake


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """The configuration that the commander sends to an accepted worker.

    `task` contains the paths on this machine and the commits at which the branch starts. `environ` contains the keys
    for the worker's models.
    """

    task: WorkerTask
    environ: dict[str, str] = {}
    owner: OwnerId | None = None
    """The owner id of the host, which the worker uses for its run. None if the worker is not on a host of a fleet."""


def exit_with_parent(parent: int) -> None:
    """Exit if the parent has already exited. On Linux, the kernel also kills this process when the parent exits."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(EXIT_INTERRUPTED)


ResumeRun = Callable[[str, WorkerConfig, Callable[[str], object]], AbstractAsyncContextManager[Run]]
"""Opens the store and resumes a run in it with the commander's configuration.

It calls the given function with the id of each request or question that is waiting for an answer.
"""


async def run_worker(startup_message: StartupMessage, resume_run: ResumeRun) -> int:
    """Connect to the commander, work on the run and return an exit code. The timeline records the run's result."""
    handshake = startup_message.handshake
    try:
        async with connect_to_commander(Path(startup_message.socket), handshake) as link:
            config = msgspec.convert(await link.wait_accepted(), WorkerConfig)
            asked, waiting = create_memory_object_stream[str](inf)
            with asked, waiting:
                return await _work_on_run(link, waiting, resume_run(handshake.worker, config, asked.send_nowait))
    except ConnectionClosed:
        return EXIT_INTERRUPTED


async def _work_on_run(
    link: Link[Order, Report],
    waiting: MemoryObjectReceiveStream[str],
    resuming: AbstractAsyncContextManager[Run],
) -> int:
    with CancelScope() as working:
        async with resuming as run:
            async with create_task_group() as beside:
                beside.start_soon(_cancel_on_signals, working)
                beside.start_soon(_run_or_cancel, partial(_handle_orders, link, run), working)
                beside.start_soon(_run_or_cancel, partial(_send_requests, link, waiting), working)
                result = await run.result()
                beside.cancel_scope.cancel()
            if result.outcome != "interrupted":
                return EXIT_DONE
            return EXIT_STORE_LOST if isinstance(run.error, StoreUnreachable | LeaseLost) else EXIT_INTERRUPTED
    return EXIT_INTERRUPTED


async def _run_or_cancel(work: Callable[[], Awaitable[bool]], working: CancelScope) -> None:
    """Run `work`. If it returns False or fails, cancel the scope `working`; the run stays resumable."""
    try:
        if await work():
            return
    except PodiumError as error:
        sys.stderr.write(f"podium: {error}\n")
    working.cancel()


async def _cancel_on_signals(working: CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            working.cancel()


# Orders from the commander


async def _handle_orders(link: Link[Order, Report], run: Run) -> bool:
    """Stop the run when the commander requests it. When the connection closes, return False, so that the work stops."""
    async for _ in link:
        with suppress(Mistake):  # the run may have just ended
            await run.stop(by=Actor(name="commander", channel="rule"))
    return False


# Requests to the commander


async def _send_requests(link: Link[Order, Report], waiting: MemoryObjectReceiveStream[str]) -> bool:
    """Tell the commander about each request or question that is waiting for an answer, until cancelled."""
    async for id in waiting:
        await link.send(PermissionRequest(request=id))
    return True


def without_secrets(environ: Mapping[str, str], secret: frozenset[str]) -> dict[str, str]:
    """Return the environment variables without those in `secret`."""
    return {name: value for name, value in environ.items() if name not in secret}
