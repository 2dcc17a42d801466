"""Start the fork server, which loads the code that workers need and then forks workers for its commander."""

from __future__ import annotations

import gc
import os
import socket
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from ..app import App
from ..engines.model import model_prices
from ..engines.model.providers import LOCAL, PROVIDERS, REHEARSAL
from ..files.settings import Settings
from ..values.agent import Agent
from ..values.errors import PodiumError
from ..values.team_modes import MODES
from ..workers.fork_server import ForkServer
from ..workers.worker_process import exit_with_parent
from ..workspace.sandbox import seccomp
from .worker import main as worker_main

PRELOADED_MODULES = (
    "aiohttp",
    "podium.files.settings_reading",
    "podium.engines.model.http_wire",
    "podium.policy.shell_command",
    "podium.workers.local_placement",
    "podium.store.worktree_ledger",
    "podium.tools.toolset",
    "podium.runs.assembly.sandbox_choice",
    "podium.workers.work_commit",
    "podium.workspace.sandbox.bubblewrap",
    "podium.workspace.sandbox.self_test",
    "podium.workspace.worktrees.worktree",
    *(f"podium.engines.model.{wire}_wire" for wire in sorted({one.wire for one in PROVIDERS.values()} - {LOCAL})),
    *(f"podium.patterns.{mode}" for mode in MODES),
)
"""Modules that nearly every worker needs, and that are otherwise imported on demand."""


def main() -> int:
    """Fork workers on request until the commander has exited."""
    exit_with_parent(int(sys.argv[1]))
    connection = socket.socket(fileno=os.dup(0))
    _preload_worker_code()
    with suppress(ConnectionError):
        ForkServer(connection, worker_main).serve()
    return 0


def _preload_worker_code() -> None:
    """Load the code and data that nearly every worker needs, so that workers do not load them after the fork."""
    for module in PRELOADED_MODULES:
        import_module(module)
    model_prices.load_prices()
    # Anything that fails here also fails in the worker, which reports it.
    with suppress(PodiumError, OSError), TemporaryDirectory() as home:
        seccomp.compile_filter()
        Path(home, "config.yaml").write_text(f"model: {REHEARSAL}\n", encoding="utf-8")
        anyio.run(_run_rehearsal, home)
    # Memory pages stay shared longer if the garbage collector does not write to them.
    # There is no collection before this: it would take 40 ms and free almost nothing.
    gc.freeze()


async def _run_rehearsal(home: str) -> None:
    """Execute a run without a real model, before the first fork.

    Workers then inherit the objects that a run creates lazily.
    """
    environ = {"PODIUM_HOME": home}
    async with App(Settings.load(environ), environ=environ) as app:
        await app.run(Agent(name="worker", prompt="Rehearse."), "Rehearse.")


if __name__ == "__main__":
    sys.exit(main())
