"""Run a worker process. The commander starts it, and sends it the run to resume on standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from pathlib import Path

import anyio
import msgspec

from ..app import App
from ..files.settings import Settings
from ..runs.driver import RunDriver
from ..runs.run_handle import Run, drive_run
from ..store.saved_rules import read_rules_for_run
from ..store.store_connection import expect_store
from ..values.actor import PODIUM
from ..values.errors import (
    JournalMismatch,
    LeaseLost,
    PodiumError,
    RunHeld,
    RunIsPaused,
    StoreCorrupt,
    StoreUnreachable,
    find_first_error,
)
from ..values.worker_task import WorkerTask
from ..workers.worker_process import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_REFUSED,
    EXIT_RUN_HELD,
    EXIT_STORE_LOST,
    StartupMessage,
    WorkerConfig,
    exit_with_parent,
    run_worker,
)
from ..workspace.worktrees.worktree_slots import find_slot


@asynccontextmanager
async def resume_run(run: str, config: WorkerConfig, on_waiting: Callable[[str], object]) -> AsyncIterator[Run]:
    """Open the store and resume a worker's run in it.

    `on_waiting` is called with the id of each request or question that is waiting for an answer.
    """
    environ, task = {**os.environ, **config.environ}, config.task
    # A worker's request has no time limit, because the person who answers it may be away for hours.
    # A read-only worker and its whole team stay read-only, whatever mode the settings specify.
    mode = "plan" if task.is_reader else None
    settings = Settings.load(environ, repo=Path(task.root), approval_seconds=inf, permission_mode=mode)
    expect_store(settings.store)
    async with App(settings, environ=environ, owner=config.owner) as app:
        read_rules = partial(anyio.to_thread.run_sync, read_rules_for_run, settings.store, run)
        driver = await app.runs.claim(
            run,
            by=PODIUM,
            is_attended=not task.is_unattended,
            continues_pause=False,
            report_waiting=on_waiting,
            read_saved_rules=None if config.owner is None else read_rules,
            parks_at_limits=True,
        )
        if task.origin is not None and task.has_checkout:
            await _record_machine(app, driver, task)
        else:
            driver.record_checkouts(task)
        if (slot := find_slot(settings.home, Path(task.path), Path(task.root))) is not None:
            # Commands inherit the environment of this process, which works on this run only.
            os.environ.update(slot.variables)
        async with drive_run(driver, by=PODIUM) as resumed:
            yield resumed


async def _record_machine(app: App, driver: RunDriver, task: WorkerTask) -> None:
    """Record the checkout of a run that can move between machines. If the run was moved, record the move too."""
    # Imported here to keep start-up fast: most workers stay on their machine.
    from ..system.identity import read_host_id
    from ..workers.work_takeover import record_move

    host = read_host_id(app.settings.home)
    entries = await app.runs.read_entries(driver.id)
    driver.record_checkouts(task, host=host)
    record_move(driver.timeline, entries, driver.agent, task, host=host)


def main() -> int:
    """Work on the run given on standard input, and return the exit code."""
    try:
        startup_message = msgspec.json.decode(sys.stdin.buffer.readline(), type=StartupMessage)
    except msgspec.MsgspecError as error:
        sys.stderr.write(f"podium: invalid startup message on standard input: {error}\n")
        return EXIT_FAILED
    exit_with_parent(startup_message.parent)
    try:
        # Do not use uvloop, even if it is installed: it forks this process for each program that it starts, and a
        # worker starts many programs and has few connections.
        return anyio.run(run_worker, startup_message, resume_run)
    except RunIsPaused:  # another process paused the run first
        return EXIT_DONE
    except RunHeld:
        return EXIT_RUN_HELD
    except (StoreCorrupt, JournalMismatch) as error:
        sys.stderr.write(f"podium: {error}\n")
        return EXIT_REFUSED
    except PodiumError as error:
        sys.stderr.write(f"podium: {error}\n")
        return EXIT_STORE_LOST if isinstance(error, StoreUnreachable | LeaseLost) else EXIT_FAILED


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BaseExceptionGroup as group:
        sys.stderr.write(f"podium: {find_first_error(group)!r}\n")
        sys.exit(EXIT_FAILED)
