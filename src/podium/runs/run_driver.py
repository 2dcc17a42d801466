"""Driving: working on a run beside whoever watches it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import create_task_group, get_cancelled_exc_class

from ..values.errors import PodiumError
from .run_handle import Run


@asynccontextmanager
async def drive_run(run: Run) -> AsyncIterator[Run]:
    """Work on a run beside the block. Leaving the block stops the run; cancelling it leaves it resumable."""
    trouble: BaseException | None = None
    try:
        async with create_task_group() as group:
            group.start_soon(run.drive)
            try:
                yield run
            except get_cancelled_exc_class():
                raise
            except BaseException as error:
                trouble = error
            try:
                if not run.is_over:
                    await run.stop()
            except PodiumError as error:
                trouble = trouble or error
                group.cancel_scope.cancel()
    finally:
        run.close_followers()
    if trouble is not None:
        raise trouble
