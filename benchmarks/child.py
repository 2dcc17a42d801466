"""The child's side of a measurement: a long-lived process that returns samples on request, one line of JSON each.

Everything that is compared runs in such a process, so that all are measured alike. Peers import this module
in their own environments, so it needs only the standard library.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

Job = Callable[[dict[str, Any]], Awaitable[dict[str, float]]]
Call = Callable[[], Awaitable[str]]
Open = Callable[[str], AbstractAsyncContextManager[Call]]
"""Takes the address of a model server, and opens a block in which calling the model returns its reply."""

REQUEST = "Say something about the sea."
PROMPT = "You are a poet."
MODEL = "loopback"

SAMPLING_SECONDS = 0.02


def serve(**jobs: Job) -> None:
    """Report that this process is ready, then answer requests until there are no more."""
    # Output printed by a package must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    asyncio.run(_serve(answers, jobs))


async def _serve(answers: Any, jobs: dict[str, Job]) -> None:
    requests = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    answers.write(_encode_line({}))
    while line := await requests.readline():
        request = json.loads(line)
        try:
            answer: dict[str, Any] = await jobs[request.pop("job")](request)
        except Exception:
            answer = {"trouble": traceback.format_exc()}
        answers.write(_encode_line(answer))


def _encode_line(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


class Clock:
    """Measures a block: wall clock time, and processor time of all threads of this process."""

    def __enter__(self) -> Clock:
        gc.collect()
        self._cpu = time.process_time()
        self._wall = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self._wall
        self.cpu = time.process_time() - self._cpu

    def as_sample(self, count: int, **rest: float) -> dict[str, float]:
        """Return the time as a sample, for one of `count` operations."""
        return {"wall": self.wall / count, "cpu": self.cpu / count, **rest}


def make_calls_job(open_: Open) -> Job:
    """Make the job that calls the model: `waves` times `at_once` calls, on a new client that is warmed up.

    The time is that of one wave. A call that returns anything but `reply` counts as failed, as does one that raises.
    """

    async def job(request: dict[str, Any]) -> dict[str, float]:
        async with open_(request["url"]) as call:
            wave = _Wave(call, reply=request["reply"], at_once=request["at_once"])
            for _ in range(request["warm_up"]):
                await call()
            with Clock() as clock:
                for _ in range(request["waves"]):
                    await wave.run()
        if wave.failed:
            print(f"{wave.failed} calls failed, the first with: {wave.trouble}", file=sys.stderr)
        return clock.as_sample(request["waves"], failed=wave.failed)

    return job


def make_memory_job(open_: Open) -> Job:
    """Make the job that measures memory per active call: resident memory while all calls wait, compared to before."""

    async def job(request: dict[str, Any]) -> dict[str, float]:
        async with open_(request["url"]) as call:
            wave = _Wave(call, reply=request["reply"], at_once=request["at_once"])
            for _ in range(request["warm_up"]):
                await call()
            gc.collect()
            before = most = resident_set_size()
            with Clock() as clock:
                async with asyncio.TaskGroup() as group:
                    group.create_task(wave.run())
                    while not wave.answered:
                        most = max(most, resident_set_size())
                        await asyncio.sleep(SAMPLING_SECONDS)
        return clock.as_sample(1, failed=wave.failed, memory=(most - before) / request["at_once"])

    return job


class _Wave:
    """Calls that are made at once, and their outcomes."""

    def __init__(self, call: Call, *, reply: str, at_once: int) -> None:
        self.answered = 0
        self.failed = 0
        self.trouble = ""
        self._call = call
        self._reply = reply
        self._at_once = at_once

    async def run(self) -> None:
        if self._at_once == 1:
            await self._make_call()
            return
        async with asyncio.TaskGroup() as group:
            for _ in range(self._at_once):
                group.create_task(self._make_call())

    async def _make_call(self) -> None:
        try:
            said = await self._call()
        except Exception as error:
            said, self.trouble = "", self.trouble or repr(error)
        self.answered += 1
        if said != self._reply:
            self.failed += 1
            self.trouble = self.trouble or f"the reply was {said!r}"


def resident_set_size() -> int:
    """Return the resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
