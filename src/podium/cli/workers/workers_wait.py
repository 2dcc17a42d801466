"""`podium workers wait`: wait until workers have ended."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

import anyio
import click
from anyio import current_time, move_on_after, to_thread, wait_readable

from ...files.settings import Settings
from ...runs.queries.team_states import StateReader
from ...store.reader import StoreReader
from ...store.wakeup import open_wakeup, send_wakeup
from ...store.worker_index import WorkerIndex
from ...values.column import encode_rows
from ...values.errors import OutsideFailed
from ...values.event import SCHEMA
from ...values.plain_text import format_utc_time
from ...views.notification import Notification, NotificationEvent
from ...views.worker_state import WorkerRunState, WorkerState, WorkerStatus
from ...workers.commander_socket import commander_socket_path, is_commander_listening
from ...workers.queries.worker_listing import WORKER_COLUMNS, make_worker_rows
from ...workers.queries.worker_lookup import RepoContext
from ...workers.unfinished_workers import plan_worker_starts
from ..output import exit_codes
from ..output.command_options import json_option
from ..output.terminal_notifier import TerminalNotifier, make_terminal_notifier
from ..output.text import as_json, escape_for_terminal, print_to_stderr

POLL_SECONDS = 1.0
COMMANDER_START_SECONDS = 5.0
"""How long to wait for a commander before starting another one."""
MAX_COMMANDER_STARTS = 3

WAITING: WorkerStatus = "waiting_permission"
NOTIFICATION_EVENTS: Mapping[WorkerStatus, NotificationEvent] = {
    WAITING: "needs-input",
    "complete": "finished",
    "failed": "failed",
}


@click.command("wait")
@click.argument("branches", metavar="[BRANCH]...", nargs=-1)
@click.option(
    "--timeout", type=click.FloatRange(min=0), help="Maximum number of seconds to wait; after that, the exit code is 5."
)
@json_option
@click.pass_obj
def workers_wait_command(context: RepoContext, branches: tuple[str, ...], timeout: float | None, is_json: bool) -> int:
    """Wait until the workers on BRANCH have ended; without BRANCH, wait for all workers in this repository.

    The exit code is 0 if all of them succeeded, and 1 otherwise. If no process is working on them, a commander is
    started. The command does not wait for paused workers or workers that depend on them. Ctrl-C stops the wait,
    not the workers.
    """
    named = [context.load_worker(branch) for branch in branches] or [
        one for one in context.load_workers() if not one.is_over
    ]
    if not named:
        print_to_stderr("no active workers; run podium workers to list those that have ended")
    with make_terminal_notifier(context.settings.notify, is_shown=not is_json) as terminal:
        waiter = WorkerWaiter(context.settings, [worker.run for worker in named], terminal)
        try:
            is_late = anyio.run(waiter.wait_until_over, timeout) if named else False
        finally:
            waiter.close()
    ended = waiter.get_wanted_states()
    if is_json:
        items = encode_rows(make_worker_rows(ended, now=time.time()), WORKER_COLUMNS)
        click.echo(as_json({"schema": SCHEMA, "timed_out": is_late, "workers": items}))
    for worker in ended if not is_json else ():
        click.echo(escape_for_terminal(f"{worker.name}: {worker.state}{_explain_end(worker)}"))
    if is_late:
        print_to_stderr(f"timed out after {timeout:g} s; the workers continue in the background")
        return exit_codes.LIMIT
    return exit_codes.GOAL_MET if all(worker.state == "complete" for worker in ended) else exit_codes.GOAL_NOT_MET


def _explain_end(worker: WorkerState) -> str:
    return f", {worker.why}" if worker.why else f", unproved: {worker.unproved}" if worker.unproved else ""


class WorkerWaiter:
    """Waits until workers have ended, and tracks all workers that they may depend on."""

    def __init__(self, settings: Settings, runs: Iterable[str], terminal: TerminalNotifier) -> None:
        self._settings = settings
        self._terminal = terminal
        self._store = settings.store
        self._wanted = list(dict.fromkeys(runs))
        self._reader = StoreReader(settings.store) if self._wanted else None
        self._runs = StateReader(WorkerRunState)
        self._states: dict[str, WorkerState] = {}
        self._reported: dict[str, WorkerState] = {}
        self._starts = 0
        self._quiet_since: float | None = None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def get_wanted_states(self) -> list[WorkerState]:
        """Return the current states of the workers to wait for."""
        return [self._states[run] for run in self._wanted]

    async def wait_until_over(self, timeout: float | None) -> bool:
        """Wait until the workers have ended or can make no more progress. Return whether the timeout expired first."""
        wakeup = open_wakeup(self._store, "follower")
        try:
            send_wakeup(self._store, "owner")  # from now on, the processes that work on runs send wakeups
            self._states = await to_thread.run_sync(self._load_states)  # at least once, however short the timeout
            with move_on_after(timeout) as limit:
                while True:
                    wakeup.drain()
                    self._states = await to_thread.run_sync(self._load_states)
                    self._print_changes()
                    if all(worker.is_over or worker.phase == "paused" for worker in self.get_wanted_states()):
                        return False
                    if not self._ensure_commander():
                        return False
                    # New entries wake this process, but the death of another process does not, so poll.
                    with move_on_after(POLL_SECONDS):
                        await wait_readable(wakeup)
            return limit.cancelled_caught
        finally:
            wakeup.close()

    def _load_states(self) -> dict[str, WorkerState]:
        """Return the states of the workers to wait for, of all open workers, and of their dependencies."""
        assert self._reader is not None
        runs = [*self._wanted, *(row.run for row in WorkerIndex(self._store).list_open())]
        states: dict[str, WorkerState] = {}
        while runs:
            if (run := runs.pop(0)) not in states:
                states[run] = self._load_state(self._reader, run)
                runs += states[run].worker_task.after
        return states

    def _load_state(self, reader: StoreReader, run: str) -> WorkerState:
        known = self._states.get(run)
        if known is not None and known.is_over:
            return known
        lease = reader.read_summary(run).lease
        return self._runs.read(reader, run).build_state(lease, posted=reader.read_mailbox_refs(run))

    def _ensure_commander(self) -> bool:
        """Start a commander if it is needed and not running. Return False if no worker can make progress."""
        if not _can_progress(self._states.values()):
            return False
        now = current_time()
        # A commander that is still creating a checkout has no active worker yet.
        if any(worker.phase == "running" for worker in self._states.values()) or is_commander_listening(
            commander_socket_path(self._store)
        ):
            self._starts, self._quiet_since = 0, now
        elif self._quiet_since is None or now - self._quiet_since > COMMANDER_START_SECONDS:
            if self._starts == MAX_COMMANDER_STARTS:
                raise OutsideFailed(
                    f"the commander did not start after {MAX_COMMANDER_STARTS} attempts; logs/commander.log in "
                    "Podium's home directory may show why"
                )
            from ...workers.delegation import start_commander  # imported here to keep start-up fast: few waits need it

            start_commander(self._settings)
            self._starts, self._quiet_since = self._starts + 1, now
        return True

    def _print_changes(self) -> None:
        """Print the state changes that are worth reporting while waiting."""
        is_over = all(worker.is_over for worker in self.get_wanted_states())
        self._terminal.show_waiting(sum(one.state == WAITING for one in self.get_wanted_states()))
        for run in self._wanted:
            now, was = self._states[run], self._reported.get(run)
            self._reported[run] = now
            if was is not None and was.state != now.state and now.state in NOTIFICATION_EVENTS:
                event = NOTIFICATION_EVENTS[now.state]
                self._terminal.show(Notification(event=event, run=run, at=time.time(), waiting=1))
            if now.is_over and (is_over or was is None):
                continue  # the outcome is printed at the end
            if was is not None and (was.state == now.state or not _is_notable_change(was.state, now.state)):
                continue
            tool = f" ({now.tool})" if now.tool else ""
            hint = "; run podium approvals to see its request" if now.state == WAITING else ""
            if now.wakes_at is not None:
                hint = f"; it continues by itself at {format_utc_time(now.wakes_at)}"
            print_to_stderr(f"{now.name}: {now.state}{tool}{hint}")


def _can_progress(workers: Collection[WorkerState]) -> bool:
    """Return whether the state of any worker can still change.

    This is the case if a worker is active, can be started, is waiting for a limit to reset, or cannot start but
    has not been marked as such yet.
    """
    tasks = {worker.run: worker.worker_task for worker in workers if not worker.is_over}
    phases = {worker.run: worker.phase for worker in workers}
    live = [run for run, phase in phases.items() if phase == "running"]
    plan = plan_worker_starts(tasks, phases=phases, running=live, most=len(tasks) + 1)
    return bool(live or plan.start or plan.unstartable or "waiting" in phases.values())


def _is_notable_change(was: WorkerStatus, now: WorkerStatus) -> bool:
    quiet = {"starting", "idle", "thinking", "tool_call"}
    return now not in quiet or was not in quiet
