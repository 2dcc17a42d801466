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
import time
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from ...system.atomic_file import replace_file
from ...system.file_lock import open_file_lock
from ...values.release import format_install_commands
from .engine_state import EngineReport, EngineState, read_engine_state

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
