"""Serve one local model to all processes that use the same models folder, until it has been idle for a while.

The server, which comes with `xllamacpp`, offers OpenAI's Chat Completions API on a loopback port. It requires a token,
which is stored only in the state file; only the owner of that file can read it. Calls are answered one at a time, in
order of arrival. The process exits when it has been idle for long enough, when its state file has been removed or
replaced, or on SIGTERM.

Usage: python -m podium.engines.local.engine_process STATE WEIGHTS WINDOW IDLE_SECONDS
       python -m podium.engines.local.engine_process --check
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from anyio import fail_after, sleep, wait_readable
from msgspec import Struct

from ...system.child_process import build_environment
from ...system.file_lock import open_file_lock
from ...system.machine_capacity import measure_capacity
from ...system.owned_files import make_private_folder
from ...system.whole_file import replace_file
from ...values.errors import DependencyMissing, OutsideFailed
from ...values.fleet_job import format_install_commands
from ...values.plain_text import format_size
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


class EngineState(Struct, frozen=True, kw_only=True):
    """A running engine: its process id, its address and the token that it requires."""

    pid: int
    url: str
    token: str


class EngineReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The line that an engine prints at startup. Both fields are empty if the engine is ready.

    `missing` says why the library cannot be loaded; `failed` describes any other failure.
    """

    missing: str = ""
    failed: str = ""


WATCH_SECONDS = 1.0
LOCK_SECONDS = 120.0
"""How long to wait for another engine for the same model that is about to exit but is still answering a call."""
LOCK_POLL_SECONDS = 0.05
LONGEST_REPLY = 2048
"""The token limit for calls that do not set one. Without it, a model that repeats itself would block other calls."""
TEMPERATURE = 0.2
PROMPT_CACHE_MIB = 512
"""The size of the cache for earlier prompts, so that the prompts of alternating agents are not processed again."""
WARNINGS = 2
"""The log level at which only warnings and errors are logged, so that the log contains no prompts."""
_COUNTER = re.compile(r"^llamacpp:(\S+) (\S+)$", re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Serve a model or, with `--check`, only load the library. Return the exit code: 1 if a problem was reported."""
    engine = _load_library()
    if engine is None:
        return 1
    if arguments == ["--check"]:
        _report(EngineReport())
        return 0
    state_path, weights, window, idle_seconds = arguments
    deadline = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < deadline:
        with open_file_lock(Path(f"{state_path}.lock")) as lock:
            if lock is not None:
                return _serve(engine, Path(state_path), weights, int(window), float(idle_seconds))
        time.sleep(LOCK_POLL_SECONDS)
    _report(EngineReport(failed="another process is already serving this model"))
    return 1


def _load_library() -> Any:
    """Return the module that runs models. If it cannot be loaded, report why, and return None."""
    # Set before the import: otherwise threads that wait keep their cores busy, and two runs slow each other down
    # tenfold.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        return import_module("xllamacpp")
    except ModuleNotFoundError:
        _report(
            EngineReport(
                missing=f"local models need the package xllamacpp; install it with {format_install_commands('local')}"
            )
        )
    except ImportError as error:
        hint = "; install libgomp, e.g. with: sudo apt-get install libgomp1" if "libgomp" in str(error) else ""
        _report(EngineReport(missing=f"xllamacpp cannot be loaded: {error}{hint}"))
    return None


def _serve(engine: Any, state_path: Path, weights: str, window: int, idle_seconds: float) -> int:
    token = secrets.token_urlsafe(32)
    try:
        server = engine.Server(_build_parameters(engine, weights, window, token))
    except Exception as error:  # the library raises RuntimeError and other exceptions
        _report(EngineReport(failed=f"xllamacpp cannot load {Path(weights).name}: {error}"))
        return 1
    state = EngineState(pid=os.getpid(), url=f"{server.listening_address}/v1", token=token)
    state_path.unlink(missing_ok=True)  # removed, because replace_file would keep the mode of an existing file
    replace_file(state_path, msgspec.json.encode(state))
    signal.signal(signal.SIGTERM, _exit_in_order)
    _report(EngineReport())
    try:
        _watch_until_idle(server, state_path, state, idle_seconds)
    finally:
        if read_engine_state(state_path) == state:
            state_path.unlink(missing_ok=True)
    # A call that read the state file just before it was removed may still arrive.
    while _read_activity(server)[1]:
        time.sleep(WATCH_SECONDS)
    os._exit(0)  # the library's threads can take a long time to end


def _build_parameters(engine: Any, weights: str, window: int, token: str) -> Any:
    """Return the server's parameters: loopback only, with a token, without the web UI."""
    parameters = engine.CommonParams()
    parameters.model.path = weights
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [token]
    parameters.cors_origins = ""
    parameters.ui = False
    parameters.endpoint_slots = False
    parameters.endpoint_metrics = True
    parameters.offline = True
    parameters.n_ctx = window
    parameters.n_parallel = 1
    parameters.n_predict = LONGEST_REPLY
    parameters.cache_ram_mib = PROMPT_CACHE_MIB
    parameters.sampling.temp = TEMPERATURE
    parameters.verbosity = WARNINGS
    parameters.warmup = False
    threads = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    return parameters


def _watch_until_idle(server: Any, state_path: Path, state: EngineState, idle_seconds: float) -> None:
    """Return when the server has been idle for `idle_seconds`, or when the state file no longer contains `state`."""
    last_count, last_use = 0.0, time.monotonic()
    while time.monotonic() - last_use < idle_seconds:
        time.sleep(min(WATCH_SECONDS, idle_seconds))
        if read_engine_state(state_path) != state:
            return
        count, is_busy = _read_activity(server)
        if is_busy or count != last_count:
            last_count, last_use = count, time.monotonic()


def _read_activity(server: Any) -> tuple[float, bool]:
    """Return a number that grows with every call, and whether a call is waiting or being answered."""
    counters = {name: float(value) for name, value in _COUNTER.findall(str(server.handle_metrics()))}
    is_busy = bool(counters.get("requests_processing") or counters.get("requests_deferred"))
    return counters.get("prompt_tokens_total", 0.0) + counters.get("prompt_tokens_cached_total", 0.0), is_busy


def _exit_in_order(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _report(report: EngineReport) -> None:
    """Print the startup report for the process that started this one."""
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    sys.stdout.flush()


def read_engine_state(path: Path) -> EngineState | None:
    """Return the state in a file, or None if there is no valid file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=EngineState)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
