"""A commander whose workers are simulated: `python -m benchmarks.children.podium_commander FOLDER`.

It starts no processes. It receives and decides on messages from workers like any other commander.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from podium import App, Settings
from podium.runs.notifier import open_notifier
from podium.values.worker_task import WorkerTask
from podium.workers.active_worker import ActiveWorker
from podium.workers.commander import Commander
from podium.workers.commander_socket import bind_socket, commander_socket_path
from podium.workers.wire.wire_message import Handshake
from podium.workers.wire.worker_connection import ExpectedWorker, WorkerTokens, serve_workers

from ..permission_requests import RULES, WORKER


async def main(folder: Path) -> None:
    """Serve until the process is ended."""
    home = folder / "home"
    home.mkdir()
    (home / "config.yaml").write_text(RULES)
    environ = {"PODIUM_HOME": str(home)}
    async with (
        App(Settings.load(environ), environ=environ) as app,
        open_notifier(tuple, home=home, tell=print) as notifier,
    ):
        commander = Commander(app.runs, environ, notifier)
        commander._active_workers[WORKER] = ActiveWorker(
            run=WORKER,
            worker_task=WorkerTask(root=str(folder), path=str(folder)),
            handshake=Handshake(worker=WORKER, token=""),
        )
        path = commander_socket_path(app.settings.store)
        with bind_socket(path) as listener:
            print(f"listening on {path}", flush=True)
            await serve_workers(listener, AnyWorkerTokens(), commander._handle_connection)


class AnyWorkerTokens(WorkerTokens):
    """Accepts every connection as the worker."""

    def redeem_token(self, token: str) -> ExpectedWorker | None:
        return ExpectedWorker(worker=WORKER, config={})


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
