"""Find or start the engine process for a local model. All users of a models folder share its engine processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from anyio import fail_after, sleep, wait_readable

from ...system.child_process import build_environment
from ...system.file_lock import open_file_lock
from ...system.machine_capacity import measure_capacity
from ...system.private_folder import make_private_folder
from ...values.byte_size import format_size
from ...values.errors import DependencyMissing, OutsideFailed
from .engine_state import EngineReport, EngineState, read_engine_state
from .model_folder import ModelFolder

IDLE_SECONDS = 300.0
"""How long an engine stays idle before it exits."""
START_SECONDS = 180.0
"""How long an engine may take to start and load its model."""
POLL_SECONDS = 0.05
MODULE = "podium.engines.local.engine_process"
PASSED_ON = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""The variables that the engine inherits in addition to the usual ones: the locations of its packages and libraries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine:
    """The engine of one model, whether it is running or not."""

    folder: ModelFolder
    name: str
    environ: Mapping[str, str]
    idle_seconds: float = IDLE_SECONDS

    @property
    def state_path(self) -> Path:
        """The file with the address and the token of the running engine."""
        return self.folder.root / "engine" / f"{self.name}.json"

    @property
    def log_path(self) -> Path:
        return self.state_path.with_suffix(".log")

    def find_running(self) -> EngineState | None:
        """Return the state of the engine, or None if it is not running."""
        state = read_engine_state(self.state_path)
        if state is None:
            return None
        # Only a running engine holds this lock: a process id could belong to another program by now.
        with open_file_lock(Path(f"{self.state_path}.lock")) as free:
            return state if free is None else None

    async def ensure_running(self) -> EngineState:
        """Return the state of the engine. If the engine is not running, start it first.

        If several callers do this at the same time, only one of them starts the engine. Raise Mistake if the model is
        not installed, DependencyMissing if a package or a library is missing, and OutsideFailed if the engine cannot be
        started for another reason.
        """
        while True:
            if (state := self.find_running()) is not None:
                return state
            with open_file_lock(Path(f"{self.state_path}.start")) as lock:
                if lock is not None:
                    return self.find_running() or await self._start()
            await sleep(POLL_SECONDS)

    def ask_to_end(self) -> None:
        """Make the engine exit, if it is running, after it has answered its current calls."""
        self.state_path.unlink(missing_ok=True)

    async def _start(self) -> EngineState:
        model = self.folder.get_model(self.name)
        free = measure_capacity(self.folder.root).free_memory
        if model.memory > free:
            raise OutsideFailed(
                f"the local model {self.name} needs {format_size(model.memory)} of memory, but "
                f"only {format_size(free)} is free; close other programs, or use a smaller model"
            )
        self.state_path.unlink(missing_ok=True)  # left behind by an engine that was killed
        arguments = (self.state_path, self.folder.weights_path(self.name), model.served_window, self.idle_seconds)
        report = await run_engine_process(*map(str, arguments), environ=self.environ, log=self.log_path)
        if report.missing:
            raise DependencyMissing(report.missing)
        state = read_engine_state(self.state_path)
        if report.failed or state is None:
            raise OutsideFailed(
                report.failed or f"the local engine was stopped after it loaded {self.name}; see {self.log_path}"
            )
        return state


async def check_library(environ: Mapping[str, str], folder: ModelFolder) -> None:
    """Raise DependencyMissing if local models cannot run because a package or a library is missing.

    Raise OutsideFailed if the check itself fails.
    """
    report = await run_engine_process("--check", environ=environ, log=folder.root / "engine" / "check.log")
    if report.missing or report.failed:
        raise DependencyMissing(report.missing or report.failed)


async def run_engine_process(*arguments: str, environ: Mapping[str, str], log: Path) -> EngineReport:
    """Start an engine process, which may outlive this one, and return its startup report.

    Raise OutsideFailed if there is no valid report within `START_SECONDS`.
    """
    make_private_folder(log.parent)
    reading, writing = os.pipe()
    try:
        try:
            pid = _spawn_engine_process(arguments, environ, output=writing, log=log)
        finally:
            os.close(writing)
        try:
            with fail_after(START_SECONDS):
                return await _read_report(reading, log)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise OutsideFailed(f"the local engine was not ready after {START_SECONDS:g} s; see {log}") from None
    finally:
        os.close(reading)


def _spawn_engine_process(arguments: Sequence[str], environ: Mapping[str, str], *, output: int, log: Path) -> int:
    """Start an engine process in its own session, without provider keys in its environment. Return its process id."""
    pid = os.posix_spawn(
        sys.executable,
        # Without -P, a module in the current folder could shadow one of Podium's.
        [sys.executable, "-P", "-m", MODULE, *arguments],
        build_environment(environ) | {name: environ[name] for name in PASSED_ON if name in environ},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_OPEN, 2, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
        ],
        setsid=True,
    )
    # If the engine ends before this process, this process has to reap it.
    threading.Thread(target=os.waitpid, args=(pid, 0), name="podium-local-engine", daemon=True).start()
    return pid


async def _read_report(descriptor: int, log: Path) -> EngineReport:
    line = b""
    while not line.endswith(b"\n"):
        await wait_readable(descriptor)
        data = os.read(descriptor, 65_536)
        if not data:
            raise OutsideFailed(f"the local engine exited during startup; see {log}")
        line += data
    try:
        # A library may print other lines before the report.
        return msgspec.json.decode(line.splitlines()[-1], type=EngineReport)
    except msgspec.MsgspecError:
        raise OutsideFailed(f"the local engine printed an unexpected line; see {log}") from None
