"""The commander: one background process for each store, which has workers do what was delegated.

It is started when there is work and ends when there is none. What it decides by is on the timelines of its
workers' runs and in the list of who was hired; when it dies its workers end, and the next one goes on from there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from math import inf
from pathlib import Path

import anyio
import msgspec
from anyio import CancelScope, Lock, create_task_group, move_on_after, to_thread, wait_readable
from anyio.abc import TaskGroup

from ..app import KEY_NAMES, App
from ..setup.settings import Settings
from ..store.sqlite.reader import Reader
from ..store.sqlite.worker_index import Crew
from ..store.wakeup import Bell, bell_folder, ring_once
from ..values.errors import OutsideFailed, PodiumError, RunHeld, RunOver, first_error
from ..values.plain_text import plain
from .active_worker import Worker
from .answer_deadlines import Deadlines
from .commander_socket import Held, bind, socket_path
from .current_rules import cleared
from .key_promise import keep
from .provider_keys import PATIENCE_SECONDS, Keyring, hand_over
from .settings_cache import Latest
from .spawner import Child, Spawned, nursery
from .unfinished_workers import has_work, look, resting, was_paused_by
from .wire.line_socket import Gone
from .wire.link import STANDARD, Limits, Link
from .wire.wire_message import (
    Cancel,
    Deny,
    Handshake,
    Log,
    Order,
    PermissionRequest,
    PermissionResponse,
    Report,
    StatusUpdate,
    TaskComplete,
    moved,
)
from .wire.worker_connection import Welcome, serve
from .worker_checkout import placed, weighed
from .worker_logs import Logs
from .worker_process import Config, Hello, environment
from .worker_queue import Rest

LOOK_SECONDS = 1.0
"""How often to look whether somebody else has let go of a worker's run; they do not tell."""

HAND_OVER_SECONDS = 0.05
"""How long to leave another commander that is just starting, or ending, before it is tried again."""

GRACE_SECONDS = 1.0
"""How long a worker that is told to end may take before it is terminated, and then before it is killed."""


class Commander:
    """The workers of one store, from their hiring to their end."""

    def __init__(self, app: App, environ: Mapping[str, str], *, promised: str = "", limits: Limits = STANDARD) -> None:
        self._app = app
        self._environ = environ
        self._limits = limits
        self._store = app.settings.store
        self._crew = Crew(self._store)
        self._latest = Latest(environ)
        self._deadlines = Deadlines(self._store)
        self._welcome = Welcome()
        self._keyring = Keyring(self._store)
        self._promised = promised
        self._at_work: dict[str, Worker] = {}
        self.given_up: set[str] = set()
        """The runs that can neither go on nor be ended: others are not kept waiting by them."""
        self._together = Lock()
        self._socket = socket_path(self._store)
        self._logs = Logs(app.settings.home)

    async def command(self) -> None:
        """Work until nothing is left to do. Raises Held where another commander does."""
        self._logs.make()
        with bind(self._socket) as listener:
            bell = Bell(bell_folder(self._store), "owner")
            self._keyring.open()
            if self._promised:
                keep(self._store, self._promised)
            try:
                without_keys = environment(self._environ, KEY_NAMES)
                async with nursery(without_keys) as self._nursery, create_task_group() as group:
                    group.start_soon(self._nursery.warm)
                    group.start_soon(self._deadlines.keep)
                    group.start_soon(self._keyring.keep)
                    group.start_soon(
                        partial(
                            serve,
                            listener,
                            self._welcome,
                            self._handle,
                            limits=self._limits,
                            on_trouble=self._note_trouble,
                        )
                    )
                    await self._until_done(bell, group)
                    group.cancel_scope.cancel()
            finally:
                self._keyring.close()
                bell.close()
                # Whoever was killed here has left its bells behind; ringing takes them down.
                for kind in ("owner", "follower"):
                    ring_once(bell_folder(self._store), kind)

    async def _until_done(self, bell: Bell, group: TaskGroup) -> None:
        while True:
            bell.hush()
            self._deadlines.look_again()
            # Who ends during the look is seen as it was before; it rings, and is seen as it is by the next one.
            at_work = frozenset(self._at_work)
            outlook = await to_thread.run_sync(partial(look, self._store, ours=at_work, but=self.given_up))
            most, within = self._places(), {root: self._places(root) for root in outlook.roots}
            next_steps = outlook.steps(running=at_work, most=most, within=within)
            for run in outlook.stopped:
                await self._stop(run, group)
            for run, why in next_steps.doomed:
                await self._end(run, partial(self._app.fail, run, why))
            for run in next_steps.start:
                if run not in outlook.stopped:
                    worker = self._at_work[run] = Worker.of(run, outlook.started[run])
                    group.start_soon(self._tended, worker, bell)
            if next_steps.doomed or outlook.stopped - at_work:
                continue  # what became of them may be what others wait for
            if not at_work and not self._at_work and not outlook.is_taken:
                return
            with move_on_after(LOOK_SECONDS if outlook.is_taken else None):
                await wait_readable(bell)

    def _places(self, root: str = "") -> int:
        """How many may be at work at once, in all or in a repository, as the settings say by now."""
        try:
            return self._latest.settings(root).workers
        except PodiumError:
            return self._app.settings.workers  # no reason to stop: who works there is told what is wrong

    # One worker

    async def _tended(self, worker: Worker, bell: Bell) -> None:
        """A worker from its checkout to its end; one that crashes is started again, so often as it may be."""
        try:
            await self._tend(worker)
            await weighed(self._store, worker.checkout)
        except Exception as error:  # the edge of one worker: its trouble is not the others'
            self._logs.note(worker.run, f"its commander could not go on with it: {error!r}")
            await self._end(worker.run, partial(self._app.fail, worker.run, f"its commander broke: {error}"))
        finally:
            del self._at_work[worker.run]
            self._keyring.forget(worker.run)
            worker.over.set()
            bell.ring()

    async def _tend(self, worker: Worker) -> None:
        try:
            with worker.placing:
                # Of those that share a checkout one makes it, and the others find it.
                async with self._together if worker.errand.is_shared else nullcontext():
                    worker.checkout = await placed(self._app, self._environ, worker.run, worker.errand)
                await self._keyring.wait_for(worker.run)
        except PodiumError as error:
            await self._end(worker.run, partial(self._app.fail, worker.run, str(error)))
            return
        if worker.placing.cancelled_caught:
            await self._end(worker.run, partial(self._app.stop, worker.run))
            return
        for attempt in range(worker.errand.max_restarts + 1):
            how = await self._worked(worker)
            if not how or await to_thread.run_sync(self._rest_of, worker.run) != "open":
                return
            if worker.is_ending:
                await self._end(worker.run, partial(self._app.stop, worker.run))
                return
            self._logs.note(worker.run, f"{how} (start {attempt + 1})")
        why = f"{how}: {self._logs.tail(worker.run)}"
        await self._end(worker.run, partial(self._app.fail, worker.run, why))

    async def _worked(self, worker: Worker) -> str:
        """One process of a worker, from its start to its end; how it crashed, and nothing where it has paused its run.

        Such a run may be open by now, because somebody goes on with it: that is for the next look, and no crash.
        """
        try:
            process = await self._exited(worker)
        except OutsideFailed as error:
            if not error.retryable:
                raise
            return str(error)
        if await to_thread.run_sync(was_paused_by, self._store, worker.run, process.pid):
            return ""
        return f"process exited with code {process.returncode}"

    async def _exited(self, worker: Worker) -> Child | Spawned:
        """A process of a worker, once it has ended. Raises OutsideFailed where there is none."""
        base = "" if worker.checkout is None else worker.checkout.base
        config = Config(
            root=worker.errand.root,
            base=base,
            is_attended=not worker.errand.is_unattended,
            is_reader=worker.errand.is_reader,
            environ=self._secrets(worker.run),
        )
        token = self._welcome.expect(worker.run, msgspec.to_builtins(config))

        def line_for(parent: int) -> str:
            hello = Hello(
                socket=str(self._socket),
                run=worker.run,
                token=token,
                parent=parent,
                task=worker.task[:200],
                worktree=worker.errand.path,
                branch=worker.errand.branch,
                model=worker.model,
                engine=worker.engine,
            )
            return msgspec.json.encode(hello).decode()

        log = self._logs.of(worker.run)
        process = worker.process = await self._nursery.born(line_for, log=log, folder=Path(worker.errand.root))
        try:
            await process.wait()
            return process
        finally:
            worker.process = worker.link = None
            self._welcome.forget(worker.run)
            with CancelScope(shield=True), move_on_after(GRACE_SECONDS * 2, shield=True):
                await process.kill(signal.SIGKILL)
                await process.wait()

    async def _stop(self, run: str, group: TaskGroup) -> None:
        """End a worker that somebody wants to end, whether it works or waits."""
        worker = self._at_work.get(run)
        if worker is None:
            await self._end(run, partial(self._app.stop, run))
        elif not worker.is_ending:
            worker.is_ending = True
            group.start_soon(self._ended, worker)

    async def _ended(self, worker: Worker) -> None:
        """Ask a worker to end, then terminate it, then kill it, with all that it started."""
        worker.placing.cancel()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with move_on_after(GRACE_SECONDS):
                if worker.link is not None and sign == signal.SIGTERM:
                    with suppress(Gone):
                        await worker.link.send(Cancel(reason="stopped"))
                await worker.over.wait()
                return
            if worker.process is not None:
                await worker.process.kill(sign)

    async def _end(self, run: str, how: Callable[[], object]) -> None:
        """End a run that nobody works on. One that somebody took meanwhile, or that is over, is left to itself."""
        try:
            with suppress(RunHeld, RunOver):
                await how()  # type: ignore[misc] # partial hides that it is a coroutine function
        except PodiumError as error:
            self._logs.note(run, f"it could not be ended: {error}")
            self.given_up.add(run)
        with suppress(PodiumError):
            if await to_thread.run_sync(self._rest_of, run) not in ("open", "paused"):
                await to_thread.run_sync(self._crew.dismiss, run)

    def _rest_of(self, run: str) -> Rest:
        with Reader(self._store) as reader:
            return resting(reader.summary(run).last)

    # What workers say

    async def _handle(self, link: Link[Report, Order], handshake: Handshake) -> None:
        worker = self._at_work.get(handshake.worker)
        if worker is None:
            return
        worker.link = link
        try:
            async for report in link:
                await self._hear(worker, report, link)
        finally:
            self._deadlines.forget(worker.run)
            # One that says nothing any more is at its end, or hangs; then it is ended, and counts as crashed.
            # Asked only now: a worker may come before its birth is told of, and another may be born since.
            if worker.link is link and worker.process is not None:
                await self._bury(worker, worker.process, link.ending)

    async def _bury(self, worker: Worker, process: Child | Spawned, why: str) -> None:
        with CancelScope(shield=True):
            with move_on_after(GRACE_SECONDS):
                await process.wait()
            if process.returncode is None:
                self._logs.note(worker.run, f"it is gone: {why}")
                await process.kill(signal.SIGKILL)

    async def _hear(self, worker: Worker, report: Report, link: Link[Report, Order]) -> None:
        match report:
            case StatusUpdate(state=state):
                worker.state = moved(worker.state, state)
            case TaskComplete(success=success):
                worker.state = moved(worker.state, "complete" if success else "failed")
            case Log(level=level, content=content):
                self._logs.note(worker.run, f"{level}: {content}")
            case PermissionRequest():
                response = self._decided(worker, report)
                if response is not None:
                    await link.send(response)
                else:
                    self._deadlines.expect(
                        report.id,
                        by=worker.run,
                        allowed=partial(self._patience, worker),
                        deny=partial(_denied, link, report.id),
                    )

    def _decided(self, worker: Worker, request: PermissionRequest) -> PermissionResponse | None:
        """What the rules say by now, which may be more than when the worker began; None where a person decides."""
        try:
            settings = self._latest.settings(worker.errand.root)
            return cleared(request, settings, worker.held_to, run=worker.run)
        except PodiumError as error:
            self._logs.note(worker.run, f"the rules cannot be read, so a person decides: {error}")
            return None

    def _patience(self, worker: Worker) -> float:
        try:
            return self._latest.settings(worker.errand.root).approval_seconds
        except PodiumError:
            return inf

    # What is kept

    def _secrets(self, run: str) -> dict[str, str]:
        own = {name: value for name, value in self._environ.items() if name in KEY_NAMES}
        return own | self._keyring.of(run)

    def _note_trouble(self, worker: str, error: PodiumError) -> None:
        sys.stderr.write(f"{worker or 'a stranger'}: {plain(str(error))}\n")


async def _denied(link: Link[Report, Order], request: str, seconds: float) -> None:
    denied = Deny(comment=f"nobody answered within {seconds:g} s")
    await link.send(PermissionResponse(request_id=request, result=denied))


async def commanded(environ: Mapping[str, str], promised: str = "") -> None:
    """Be the commander of the store that the environment names, for as long as there is work.

    Where another is that, it is brought the keys for the run that they were promised for.
    """
    settings = Settings.load(environ)
    async with App(settings, environ=environ) as app:
        # The same all the time: keys may come for a worker that is seen only after the socket was gone.
        commander, is_needed = Commander(app, environ, promised=promised), True
        tried_until = anyio.current_time() + PATIENCE_SECONDS
        while is_needed:
            try:
                await commander.command()
            except Held:
                if not promised or anyio.current_time() > tried_until:
                    return
                if hand_over(settings.store, promised, app.keys):
                    keep(settings.store, promised)
                    return
                await anyio.sleep(HAND_OVER_SECONDS)
                continue
            # Somebody may have hired just before the socket was gone, and found a commander there.
            is_needed = await to_thread.run_sync(has_work, settings.store, commander.given_up)


def main() -> int:
    """Run in the background; end quietly where there is a commander already."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.chdir("/")
    try:
        anyio.run(commanded, dict(os.environ), "".join(sys.argv[1:2]))
    except (PodiumError, ExceptionGroup) as error:
        why = first_error(error)
        sys.stderr.write(f"podium: {why if isinstance(why, PodiumError) else repr(why)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
