"""A real goose with a scripted model: what is measured of it, whichever program starts it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import anyio

from podium.engines.acp.agent_program import AGENT_PROGRAMS
from podium.engines.model.model_wire import ModelCall
from podium.engines.script import Move, ToolCall
from podium.testing import ModelServer

from .child import Job

GOOSE = AGENT_PROGRAMS["goose"]
REQUEST = "Write the files."
WRITES = 10
"""The number of files that goose writes in one turn, each after a permission request."""

Ask = Callable[[], Coroutine[Any, Any, None]]
OpenGoose = Callable[[str, Path], AbstractAsyncContextManager[Ask]]
"""Takes the address of the model and the folder to work in, and opens a block in which goose can be prompted."""


def find_goose() -> str:
    """Return the goose that `make goose` installed, or else that on the PATH. Raise FileNotFoundError without one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podium-test-agents"
    installed = cache / f"goose-{GOOSE.version}" / "node_modules" / GOOSE.package / GOOSE.binary
    if found := shutil.which(str(installed)) or shutil.which("goose"):
        return found
    raise FileNotFoundError("goose is not installed; run make goose")


class GooseModel:
    """The model's side: the times of the calls with tools, and what it replies. Calls without tools are for titles."""

    def __init__(self, writes: int, *, is_silent: bool = False) -> None:
        self.times: list[float] = []
        self._writes = writes
        self._is_silent = is_silent
        self._called = anyio.Event()

    def reply(self, call: ModelCall) -> Move:
        """Return the next step: write another file, or end the turn."""
        if not call.tools:
            return Move(says="Files")
        self.times.append(perf_counter())
        self._called.set()
        if self._is_silent:
            return Move(silent=True)
        number = len(self.times)
        if number > self._writes:
            return Move(says="Done.")
        return Move(calls=(ToolCall(name="write", arguments={"path": f"{number}.txt", "content": "x"}),))

    async def wait_called(self) -> None:
        """Wait for the first call."""
        await self._called.wait()


@asynccontextmanager
async def _open_model(model: GooseModel) -> AsyncIterator[tuple[str, Path]]:
    with TemporaryDirectory() as folder:
        async with ModelServer(otherwise=model.reply) as server:
            (Path(folder) / "repo").mkdir()
            yield server.url, Path(folder)


def make_start_job(open_goose: OpenGoose) -> Job:
    """Make the job that measures the time from the start of goose to its first model call."""

    async def measure(request: dict[str, Any]) -> dict[str, float]:
        model = GooseModel(0)
        async with _open_model(model) as (url, folder):
            begin = perf_counter()
            async with open_goose(url, folder) as ask:
                await ask()
        return {"wall": model.times[0] - begin}

    return measure


def make_permission_job(open_goose: OpenGoose) -> Job:
    """Make the job that measures the time from a reply with a tool call to the next call: permission and action."""

    async def measure(request: dict[str, Any]) -> dict[str, float]:
        model = GooseModel(WRITES)
        async with _open_model(model) as (url, folder):
            async with open_goose(url, folder) as ask:
                await ask()
            written = len(list((folder / "repo").glob("*.txt")))
        return {"wall": (model.times[-1] - model.times[0]) / WRITES, "failed": WRITES - written}

    return measure


def make_memory_job(open_goose: OpenGoose) -> Job:
    """Make the job that measures the memory of all processes that were started, while goose waits for its model."""

    async def measure(request: dict[str, Any]) -> dict[str, float]:
        model = GooseModel(0, is_silent=True)
        async with (
            _open_model(model) as (url, folder),
            open_goose(url, folder) as ask,
            anyio.create_task_group() as group,
        ):
            group.start_soon(ask)
            await model.wait_called()
            memory = sum(map(read_proportional_size, list_descendants(os.getpid())))
            group.cancel_scope.cancel()
        return {"memory": memory}

    return measure


def list_descendants(pid: int) -> list[int]:
    """Return the ids of the processes that this process has started, directly or not."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *list_descendants(child)]
    return found


def read_proportional_size(pid: int) -> int:
    """Return the memory of a process in bytes, with shared memory divided among the processes that share it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
