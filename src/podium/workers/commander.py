"""Run the commander, a background process that supervises the workers of a store.

There is at most one commander per store. It is started when a task is delegated, a worker is resumed or a schedule is
added, and exits when there is no more work, no active schedule and no run that waits for a provider's limit to reset.
Its decisions are based only on the timelines of its workers' runs, the index of workers, the schedules and the
settings. If it dies, its workers exit, and the next commander resumes their runs.
"""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
from anyio import CancelScope, Lock, create_task_group, move_on_after, to_thread, wait_readable
from anyio.abc import TaskGroup
from msgspec import structs

from ..core.clock import CHECK_SECONDS
from ..engines.model.providers import find_key_names
from ..runs.notifier import Notifier
from ..runs.runs import Runs
from ..store.reader import RunSummary, StoreReader
from ..store.run_leases import OwnerId
from ..store.wakeup import Wakeup, open_wakeup, send_wakeup
from ..store.worker_index import WorkerIndex
from ..values.actor import PODIUM
from ..values.errors import OutsideFailed, PodiumError, RunHeld, RunOver
from ..values.event import Noticed, RunStarted
from ..values.plain_text import escape_unprintable
from ..views.run_phase import is_startable
from .active_worker import ActiveWorker
from .commander_socket import bind_socket, commander_socket_path
from .provider_keys import KeyReceiver, finish_delivery
from .request_answers import RequestAnswers
from .settings_cache import SettingsCache
from .spawner import ForkedProcess, FreshProcess, open_spawner
from .unfinished_workers import load_unfinished_workers, was_paused_by
from .wire.line_socket import ConnectionClosed
from .wire.link import DEFAULT_LIMITS, Link, LinkLimits
from .wire.wire_message import Cancel, Handshake, Order, Report, stamp_message
from .wire.worker_connection import WorkerTokens, serve_workers
from .work_push import LAST_PUSH_SECONDS
from .work_takeover import remove_pushed_clone
from .worker_checkout import ensure_checkouts, record_checkout_size
from .worker_notifications import WorkerLogs, WorkerNotifications
from .worker_process import EXIT_RUN_HELD, ProcessEnding, StartupMessage, WorkerConfig, describe_exit, without_secrets

POLL_SECONDS = 1.0
"""How often to check whether another process has released a worker's run. A release sends no wakeup."""

GRACE_SECONDS = 1.0
"""How long a worker has to exit before it gets SIGTERM, and how long it has after that before it gets SIGKILL."""

INTERRUPT_SECONDS = LAST_PUSH_SECONDS + 2
"""How long a host waits for a worker that it interrupts."""

Schedule = Callable[[Wakeup, TaskGroup], Awaitable[None]]
"""Starts workers in the task group until there is no more work. The wakeup signals that there may be new work."""


class Timetable(Protocol):
    """Starts runs at set times."""

    async def fire_due(self) -> float | None:
        """Start the due runs. Return the seconds to wait before the next call, or None if no run is planned."""
        ...

    async def has_plans(self) -> bool:
        """Return whether runs are planned."""
        ...


def _find_shorter_wait(until_due: float | None, wakeups: Iterable[float]) -> float | None:
    """Return how many seconds to wait until the next schedule or run is due, or None if there is nothing to wait for.

    The wait is limited, because the clock can jump.
    """
    first = min(wakeups, default=None)
    if first is None:
        return until_due
    seconds = min(max(first - time.time(), 0.0), CHECK_SECONDS)
    return seconds if until_due is None else min(seconds, until_due)


class Commander:
    """Supervises the workers of one store.

    On a host of a fleet, it supervises the workers whose runs the host has claimed, and `host_owner` is the id that
    the host and its workers use to own runs. Without a `timetable`, it starts no runs at set times.
    """

    def __init__(
        self,
        runs: Runs,
        environ: Mapping[str, str],
        notifier: Notifier,
        *,
        delivery_run: str = "",
        limits: LinkLimits = DEFAULT_LIMITS,
        host_owner: OwnerId | None = None,
        timetable: Timetable | None = None,
    ) -> None:
        self._runs = runs
        self._environ = environ
        self._limits = limits
        self._host_owner = host_owner
        self._store = runs.settings.store
        self._worker_index = WorkerIndex(self._store)
        self._settings_cache = SettingsCache(environ)
        self._worker_tokens = WorkerTokens()
        self._key_receiver = KeyReceiver(self._store)
        self._delivery_run = delivery_run
        self._active_workers: dict[str, ActiveWorker] = {}
        self.abandoned_runs: set[str] = set()
        """Runs that can neither continue nor be ended. They must not block other runs."""
        self._shared_checkout_lock = Lock()
        self._socket = commander_socket_path(self._store)
        self._logs = WorkerLogs(runs.settings.home)
        self._notifications = WorkerNotifications(self._store, notifier, self._logs)
        self._request_answers = RequestAnswers(
            self._store, self._settings_cache, self._logs, self._notifications, is_host=host_owner is not None
        )
        self._timetable = timetable

    async def run_until_done(self) -> None:
        """Run workers until there is no more work. Raise SocketInUse if another commander is running."""
        await self.serve(self._schedule_until_done)

    async def serve(self, schedule: Schedule) -> None:
        """Serve the workers that `schedule` starts, until it returns. Raise SocketInUse if a commander is running."""
        self._logs.make_folder()
        with bind_socket(self._socket) as listener:
            wakeup = open_wakeup(self._store, "owner")
            self._key_receiver.open()
            if self._delivery_run:
                finish_delivery(self._store, self._delivery_run)
            try:
                without_keys = without_secrets(self._environ, find_key_names(self._environ))
                async with open_spawner(without_keys) as self._spawner, create_task_group() as group:
                    if self._host_owner is not None:
                        group.start_soon(self._spawner.warm_up)
                    group.start_soon(self._request_answers.deadlines.enforce_forever)
                    group.start_soon(self._key_receiver.receive_forever)
                    group.start_soon(
                        partial(
                            serve_workers,
                            listener,
                            self._worker_tokens,
                            self._handle_connection,
                            limits=self._limits,
                            on_error=self._log_connection_error,
                        )
                    )
                    await schedule(wakeup, group)
                    group.cancel_scope.cancel()
            finally:
                self._key_receiver.close()
                wakeup.close()
                # Killed processes leave their wakeup sockets behind; sending a wakeup removes them.
                for kind in ("owner", "follower"):
                    send_wakeup(self._store, kind)

    async def _schedule_until_done(self, wakeup: Wakeup, group: TaskGroup) -> None:
        while True:
            wakeup.drain()
            self._request_answers.deadlines.recheck()
            until_due = None if self._timetable is None else await self._timetable.fire_due()
            # A scan may miss a worker that ends during the scan; the worker sends a wakeup, and the next scan sees it.
            active = frozenset(self._active_workers)
            unfinished = await to_thread.run_sync(
                partial(load_unfinished_workers, self._store, ours=active, excluded=self.abandoned_runs)
            )
            most, within = self._read_worker_limit(), {root: self._read_worker_limit(root) for root in unfinished.roots}
            plan = unfinished.plan_starts(running=active, most=most, within=within)
            for run in unfinished.stop_requested:
                await self._stop_worker(run, group)
            for run, why in plan.unstartable:
                await self._end_run(run, partial(self._runs.fail, run, why, by=PODIUM))
                await self._notifications.notify_end(run)
            if plan.start:
                group.start_soon(self._spawner.warm_up)
            for run in plan.start:
                if run not in unfinished.stop_requested:
                    started, home = unfinished.started[run], self._runs.settings.home
                    worker = self._active_workers[run] = ActiveWorker.from_run_started(run, started, home)
                    group.start_soon(self._supervise_then_wake, worker, wakeup)
            if plan.unstartable or unfinished.stop_requested - active:
                continue  # other workers may be waiting for these outcomes
            until_due = _find_shorter_wait(until_due, unfinished.wakeups.values())
            if not active and not self._active_workers and not unfinished.has_taken_runs and until_due is None:
                return
            if not self._active_workers:
                self._spawner.stop_idle_fork_server()
            with move_on_after(POLL_SECONDS if unfinished.has_taken_runs else until_due):
                await wait_readable(wakeup)

    def _read_worker_limit(self, root: str = "") -> int:
        """Return the current limit on workers that run at once, in the repository `root` or, by default, in total."""
        try:
            return self._settings_cache.get_settings(root).workers
        except PodiumError:
            return self._runs.settings.workers  # the workers in that repository report this error

    async def recheck_deadlines(self, wakeup: Wakeup) -> None:
        """Check the deadlines of open requests again after each wakeup, until cancelled."""
        while True:
            await wait_readable(wakeup)
            wakeup.drain()
            if self._request_answers.deadlines.has_requests:
                self._request_answers.deadlines.recheck()

    # One worker

    async def run_claimed_worker(self, run: str, started: RunStarted) -> str:
        """Run the worker of a run that this host has claimed, until the run ends, pauses or is interrupted.

        If this machine turns out to be unable to work on the run, return the reason; otherwise, return an empty string.
        """
        worker = ActiveWorker.from_run_started(run, started, self._runs.settings.home)
        self._active_workers[run] = worker
        await self._supervise_worker(worker)
        return worker.refusal

    async def _supervise_then_wake(self, worker: ActiveWorker, wakeup: Wakeup) -> None:
        try:
            await self._supervise_worker(worker)
        finally:
            wakeup.wake()

    async def _supervise_worker(self, worker: ActiveWorker) -> None:
        """Run a worker until it ends, restart it if it crashes, and then notify the user and clean up."""
        try:
            await self._run_isolated(worker)
            await self._notifications.notify_end(worker.run)
        finally:
            del self._active_workers[worker.run]
            if not worker.needs_keys_again:
                self._key_receiver.discard_keys(worker.run)
            worker.finished.set()

    async def _run_isolated(self, worker: ActiveWorker) -> None:
        """Run a worker until it ends. If an internal error occurs, only this worker fails."""
        try:
            await self._run_with_restarts(worker)
            for checkout in worker.checkouts:
                await record_checkout_size(self._store, checkout)
            with suppress(PodiumError):  # a clone that is not removed only takes up disk space
                await remove_pushed_clone(self._runs, worker.run, worker.worker_task)
        except Exception as error:  # isolation boundary: an error in one worker must not affect the others
            self._logs.write_line(worker.run, f"the commander could not continue this worker: {error!r}")
            if self._host_owner is not None:
                worker.refusal = f"its checkout could not be prepared or its process failed: {error}"
                return
            await self._end_run(
                worker.run,
                partial(
                    self._runs.fail,
                    worker.run,
                    f"the commander could not continue this worker: {error}",
                    by=PODIUM,
                ),
            )

    async def _run_with_restarts(self, worker: ActiveWorker) -> None:
        try:
            with worker.checkout_scope:
                # If several workers share a checkout, the first worker creates it and the others find it.
                async with self._shared_checkout_lock if worker.worker_task.is_shared else nullcontext():
                    worker.checkouts = await ensure_checkouts(self._runs, self._environ, worker.run, worker.worker_task)
                await self._key_receiver.wait_for_keys(worker.run)
        except PodiumError as error:
            if self._host_owner is not None:
                worker.refusal = str(error)
            else:
                await self._end_run(worker.run, partial(self._runs.fail, worker.run, str(error), by=PODIUM))
            return
        if worker.checkout_scope.cancelled_caught:
            await self._end_run(worker.run, partial(self._runs.end_stopped, worker.run, by=PODIUM))
            return
        crashes = 0
        while crashes <= worker.worker_task.max_restarts:
            ending = await self._run_process_once(worker)
            # This waits while the store's server cannot be reached.
            summary = await to_thread.run_sync(self._read_summary, worker.run)
            if not ending.how or not is_startable(summary.last.event, now=time.time()):
                worker.needs_keys_again = not ending.how and not summary.is_over and summary.phase != "paused"
                return
            if worker.is_ending:
                await self._end_run(worker.run, partial(self._runs.end_stopped, worker.run, by=PODIUM))
                return
            if ending.is_refused:
                why = self._logs.read_tail(worker.run)
                if self._host_owner is not None:
                    worker.refusal = why
                else:
                    reason = Noticed(text=why)
                    await self._end_run(worker.run, partial(self._runs.pause, worker.run, reason, by=PODIUM))
                return
            self._logs.write_line(worker.run, f"{ending.how} (attempt {crashes + 1})")
            if ending.is_crash:
                crashes += 1
            elif self._host_owner is not None:
                return  # this host hands the run back, and a host that can reach the store continues it
        why = f"{ending.how}: {self._logs.read_tail(worker.run)}"
        await self._end_run(worker.run, partial(self._runs.fail, worker.run, why, by=PODIUM))

    async def _run_process_once(self, worker: ActiveWorker) -> ProcessEnding:
        """Run a worker's process once. Return how it ended, or why it could not be started.

        Return an empty description if the process paused its run, even if somebody has resumed the run since, or if
        another process owns the run. Neither is a crash; the next scan handles the run.
        """
        try:
            process = await self._run_process(worker)
        except OutsideFailed as error:
            if not error.retryable:
                raise
            return ProcessEnding(str(error))
        if process.returncode == EXIT_RUN_HELD:
            return ProcessEnding("")
        if await to_thread.run_sync(was_paused_by, self._store, worker.run, process.pid):
            return ProcessEnding("")
        return describe_exit(process.returncode)

    async def _run_process(self, worker: ActiveWorker) -> ForkedProcess | FreshProcess:
        """Run a worker's process and return it once it has exited. Raise OutsideFailed if it cannot be started."""
        config = WorkerConfig(
            task=worker.worker_task.with_bases(one.base for one in worker.checkouts),
            environ=self._collect_keys(worker.run),
            owner=self._host_owner,
        )
        token = self._worker_tokens.issue_token(worker.run, msgspec.to_builtins(config))

        def make_input_line(parent: int) -> str:
            # A message has an id and a time even before it is sent.
            own = structs.replace(worker.handshake, token=token)
            handshake = stamp_message(own, id=secrets.token_hex(8), timestamp=time.time_ns() // 1_000_000)
            message = StartupMessage(socket=str(self._socket), parent=parent, handshake=handshake)
            return msgspec.json.encode(message).decode()

        log = self._logs.log_path(worker.run)
        process = worker.process = await self._spawner.spawn(
            make_input_line, log=log, folder=Path(worker.worker_task.root)
        )
        try:
            await process.wait()
            return process
        finally:
            worker.process = worker.link = None
            self._worker_tokens.revoke_token(worker.run)
            if self._host_owner is not None and process.returncode is None:
                # The work continues on another host, so the worker pushes its files and releases its run.
                with move_on_after(INTERRUPT_SECONDS, shield=True):
                    await process.kill(signal.SIGTERM)
                    await process.wait()
            with CancelScope(shield=True), move_on_after(GRACE_SECONDS * 2, shield=True):
                await process.kill(signal.SIGKILL)
                await process.wait()

    async def _stop_worker(self, run: str, group: TaskGroup) -> None:
        """Stop a worker. If it is not active, end its run."""
        worker = self._active_workers.get(run)
        if worker is None:
            await self._end_run(run, partial(self._runs.end_stopped, run, by=PODIUM))
        elif not worker.is_ending:
            worker.is_ending = True
            group.start_soon(self._terminate_worker, worker)

    async def _terminate_worker(self, worker: ActiveWorker) -> None:
        """Ask a worker to exit. If it does not, send SIGTERM and then SIGKILL to its process group."""
        worker.checkout_scope.cancel()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with move_on_after(GRACE_SECONDS):
                if worker.link is not None and sign == signal.SIGTERM:
                    with suppress(ConnectionClosed):
                        await worker.link.send(Cancel(reason="stopped"))
                await worker.finished.wait()
                return
            if worker.process is not None:
                await worker.process.kill(sign)

    async def _end_run(self, run: str, how: Callable[[], object]) -> None:
        """End a run that no process is working on. `how` is the function that ends it.

        Do nothing if another process has claimed the run or if the run has already ended.
        """
        self._key_receiver.discard_keys(run)
        try:
            with suppress(RunHeld, RunOver):
                await how()  # type: ignore[misc] # partial hides that `how` is a coroutine function
        except PodiumError as error:
            self._logs.write_line(run, f"the run could not be ended: {error}")
            self.abandoned_runs.add(run)
        with suppress(PodiumError):
            if (await to_thread.run_sync(self._read_summary, run)).is_over:
                await to_thread.run_sync(self._worker_index.mark_closed, run)

    def _read_summary(self, run: str) -> RunSummary:
        with StoreReader(self._store) as reader:
            return reader.read_summary(run)

    # Connections from workers

    async def _handle_connection(self, link: Link[Report, Order], handshake: Handshake) -> None:
        worker = self._active_workers.get(handshake.worker)
        if worker is None:
            return
        worker.link = link
        try:
            async for report in link:
                await self._request_answers.handle_request(worker, report.request)
        finally:
            self._request_answers.deadlines.discard_requests(worker.run)
            # A worker whose connection is closed is either exiting or hanging. A hanging worker is killed and counts as
            # crashed. This is checked only now, because a worker can connect before `process` is set, and may have been
            # restarted since.
            if worker.link is link and worker.process is not None:
                await self._wait_or_kill(worker, worker.process, link.end_reason)

    async def _wait_or_kill(self, worker: ActiveWorker, process: ForkedProcess | FreshProcess, why: str) -> None:
        with CancelScope(shield=True):
            with move_on_after(GRACE_SECONDS):
                await process.wait()
            if process.returncode is None:
                self._logs.write_line(worker.run, f"connection lost: {why}")
                await process.kill(signal.SIGKILL)

    # Keys and errors

    def _collect_keys(self, run: str) -> dict[str, str]:
        own = {name: self._environ[name] for name in find_key_names(self._environ) if name in self._environ}
        return own | self._key_receiver.get_keys(run)

    def _log_connection_error(self, worker: str, error: PodiumError) -> None:
        sys.stderr.write(f"{worker or 'unknown peer'}: {escape_unprintable(str(error))}\n")
