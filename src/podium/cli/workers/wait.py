"""`podium workers wait`: wait until workers are over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import anyio
import click
from anyio import current_time, move_on_after, to_thread, wait_readable

from ...setup.settings import Settings
from ...store.sqlite.reader import Reader
from ...store.sqlite.worker_index import Crew
from ...store.wakeup import Bell, bell_folder, ring_once
from ...values.errors import OutsideFailed
from ...values.event import SCHEMA, decode
from ...views.worker_state import AT_REST, Course, Word, WorkerState
from ...workers.commander_socket import is_answered, socket_path
from ...workers.worker_queue import Job, Rest, steps
from ..terminal import exit_codes
from ..terminal.say import say
from ..terminal.text import as_json, visible
from .worker_lookup import There, as_object, fields

LOOK_SECONDS = 1.0
COMING_SECONDS = 5.0
"""How long no commander may be there before one is started once more."""
MOST_STARTS = 3

RESTS: Mapping[Word, Rest] = {
    "complete": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    "paused": "paused",
}


@click.command("wait")
@click.argument("branches", metavar="[BRANCH]...", nargs=-1)
@click.option("--timeout", type=click.FloatRange(min=0), help="Seconds to wait at most; then the exit code is 5.")
@as_object
@click.pass_obj
def command(there: There, branches: tuple[str, ...], timeout: float | None, is_json: bool) -> int:
    """Wait until the workers of BRANCH are over; without BRANCH, all of this repository.

    The exit code is 0 when all of them succeeded, and 1 otherwise. Where nobody works on them, a commander is
    started. A paused worker, and one that waits for it, is not waited for. Leaving with Ctrl-C stops no worker.
    """
    named = [there.worker(branch) for branch in branches] or [one for one in there.workers() if not one.is_over]
    if not named:
        say("no worker is at work here; podium workers lists those that are over")
    watch = Watch(there.settings, [worker.run for worker in named])
    try:
        is_late = anyio.run(watch.wait, timeout) if named else False
    finally:
        watch.close()
    ended = watch.wanted_states()
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "timed_out": is_late, "workers": [fields(one) for one in ended]}))
    for worker in ended if not is_json else ():
        click.echo(visible(f"{worker.name}: {worker.state}{f', {worker.why}' if worker.why else ''}"))
    if is_late:
        say(f"not over after {timeout:g} s; they go on in the background")
        return exit_codes.LIMIT
    return exit_codes.GOAL_MET if all(worker.state == "complete" for worker in ended) else exit_codes.GOAL_NOT_MET


class Watch:
    """Some workers, until they are over; and all that they may have to wait for."""

    def __init__(self, settings: Settings, runs: Iterable[str]) -> None:
        self._settings = settings
        self._store = settings.store
        self._wanted = list(dict.fromkeys(runs))
        self._reader = Reader(settings.store) if self._wanted else None
        self._courses: dict[str, Course] = {}
        self._states: dict[str, WorkerState] = {}
        self._told: dict[str, WorkerState] = {}
        self._starts = 0
        self._quiet_since: float | None = None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def wanted_states(self) -> list[WorkerState]:
        """How those that are waited for stand by now."""
        return [self._states[run] for run in self._wanted]

    async def wait(self, timeout: float | None) -> bool:
        """Wait until no more is to be expected of them; whether the time was over before that."""
        folder = bell_folder(self._store)
        bell = Bell(folder, "follower")
        try:
            ring_once(folder, "owner")  # so that they ring back
            self._states = await to_thread.run_sync(self._look)  # however short the time is
            with move_on_after(timeout) as limit:
                while True:
                    bell.hush()
                    self._states = await to_thread.run_sync(self._look)
                    self._tell()
                    if all(worker.is_over or worker.state == "paused" for worker in self.wanted_states()):
                        return False
                    if not self._see_to_a_commander():
                        return False
                    # Entries ring; the death of a process does not, so that it is looked for now and then.
                    with move_on_after(LOOK_SECONDS):
                        await wait_readable(bell)
            return limit.cancelled_caught
        finally:
            bell.close()

    def _look(self) -> dict[str, WorkerState]:
        """How everybody stands who is waited for, is at work, or comes before one of these."""
        assert self._reader is not None
        runs = [*self._wanted, *(hired.run for hired in Crew(self._store).open())]
        states: dict[str, WorkerState] = {}
        while runs:
            if (run := runs.pop(0)) not in states:
                states[run] = self._looked_at(self._reader, run)
                runs += states[run].errand.after
        return states

    def _looked_at(self, reader: Reader, run: str) -> WorkerState:
        known = self._states.get(run)
        if known is not None and known.is_over:
            return known
        owner = reader.summary(run).owner
        course = self._courses.setdefault(run, Course())
        for row in reader.rows(run, course.seq):
            course.apply(decode(row.line))
        return course.state(owner_alive=owner is not None and owner.is_alive)

    def _see_to_a_commander(self) -> bool:
        """Start one where there is work and nobody at it; False where nobody could do any."""
        if not can_go_on(self._states.values()):
            return False
        now = current_time()
        # Who makes a checkout for long has no worker at work meanwhile.
        if any(_is_live(worker) for worker in self._states.values()) or is_answered(socket_path(self._store)):
            self._starts, self._quiet_since = 0, now
        elif self._quiet_since is None or now - self._quiet_since > COMING_SECONDS:
            if self._starts == MOST_STARTS:
                raise OutsideFailed(
                    f"no commander comes up, though it was started {MOST_STARTS} times; logs/commander.log in "
                    "Podium's home may say why"
                )
            from ...workers.delegate import start_commander  # here, because there mostly is one

            start_commander(self._settings)
            self._starts, self._quiet_since = self._starts + 1, now
        return True

    def _tell(self) -> None:
        """Say what is new with those that are waited for, so far as it matters to who waits."""
        is_over = all(worker.is_over for worker in self.wanted_states())
        for run in self._wanted:
            now, was = self._states[run], self._told.get(run)
            self._told[run] = now
            if now.is_over and (is_over or was is None):
                continue  # how it ended is told at the end
            if was is not None and (was.state == now.state or not _matters(was.state, now.state)):
                continue
            tool = f" ({now.tool})" if now.tool else ""
            hint = "; podium approvals shows what it asks" if now.state == "waiting_permission" else ""
            say(f"{now.name}: {now.state}{tool}{hint}")


def can_go_on(workers: Collection[WorkerState]) -> bool:
    """Whether anybody works, could be started now, or has to be told that it never will be."""
    jobs = [Job(worker.run, worker.name, worker.errand.after) for worker in workers if not worker.is_over]
    rest: dict[str, Rest] = {worker.run: RESTS.get(worker.state, "open") for worker in workers}
    live = [worker.run for worker in workers if _is_live(worker)]
    next_steps = steps(jobs, rest=rest, running=live, most=len(jobs) + 1)
    return bool(live or next_steps.start or next_steps.doomed)


def _is_live(worker: WorkerState) -> bool:
    return not worker.is_over and worker.state not in AT_REST


def _matters(was: Word, now: Word) -> bool:
    quiet = {"starting", "idle", "thinking", "tool_call"}
    return now not in quiet or was not in quiet
