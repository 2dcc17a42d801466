"""Work on runs that a client resumes, forks or retries, in the server's own process.

New runs do not need the server: the commander starts each of them in a separate process. The commander does not manage
a run that was started in a terminal, so the server takes it over. If the server exits, the run can be resumed again.
"""

from __future__ import annotations

from pathlib import Path

from anyio import Event, to_thread
from anyio.abc import TaskGroup

from ...app import App
from ...files.settings import Settings
from ...runs.queries.run_lookup import find_main_folder
from ...runs.run_notices import follow_with_notices
from ...runs.run_start import resume_run
from ...store.reader import StoreReader
from ...values.actor import Actor
from ...values.errors import PodiumError, find_first_error
from .server_log import report_trouble


class ServedRuns:
    """Works on runs in the background, each with the settings of its repository."""

    def __init__(self, settings: Settings, tasks: TaskGroup) -> None:
        self._settings = settings
        self._tasks = tasks

    async def resume(self, run: str, *, by: Actor) -> None:
        """Take over a run and work on it in the background. Raise PodiumError if it cannot be taken over."""
        settings = await to_thread.run_sync(load_run_settings, self._settings, run)
        taking = _TakeOver()
        self._tasks.start_soon(self._work_on, settings, run, by, taking)
        await taking.is_done.wait()
        if taking.error is not None:
            raise taking.error

    async def _work_on(self, settings: Settings, run: str, by: Actor, taking: _TakeOver) -> None:
        try:
            async with (
                App(settings) as app,
                resume_run(app.runs, run, by=by, is_attended=True) as resumed,
            ):
                taking.is_done.set()
                await follow_with_notices(settings, resumed, report_trouble)
        except (PodiumError, ExceptionGroup) as error:
            why = find_first_error(error)
            if not taking.is_done.is_set():
                taking.error = why if isinstance(why, PodiumError) else PodiumError(f"cannot resume run {run}: {why!r}")
            else:
                report_trouble(f"run {run}: {why}")
        finally:
            taking.is_done.set()


class _TakeOver:
    """The attempt to take over a run, and the error if it failed."""

    def __init__(self) -> None:
        self.is_done = Event()
        self.error: PodiumError | None = None


def load_run_settings(settings: Settings, run: str) -> Settings:
    """Return the settings of the repository that a run works in, or `settings` if the run has no repository."""
    with StoreReader(settings.store) as reader:
        started = reader.read_summary(run).started
    if not started.repo:
        return settings
    return Settings.load(repo=Path(find_main_folder(started)), store=settings.store, home=settings.home)
