"""A worker lab with real workers, and `podium` called there from the command line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio import to_thread
from click.testing import CliRunner
from click.testing import Result as Said

from podium.cli.root import podium

from ..workers.worker_lab import WorkerLab, open_worker_lab


@asynccontextmanager
async def open_lab() -> AsyncIterator[WorkerLab]:
    """Open a worker lab; every process that was started in it ends with the block."""
    async with open_worker_lab(WorkerLab) as lab:
        yield lab


async def invoke_podium(lab: WorkerLab, *arguments: str, **variables: str) -> Said:
    """Call podium in this process, while its model server keeps answering."""
    return await to_thread.run_sync(lambda: CliRunner().invoke(podium, arguments, env={**lab.environ, **variables}))


async def invoke_podium_json(lab: WorkerLab, *arguments: str) -> Any:
    """Return a command's JSON output."""
    said = await invoke_podium(lab, *arguments, "--json")
    assert said.exit_code == 0, said.stderr
    return json.loads(said.stdout)
