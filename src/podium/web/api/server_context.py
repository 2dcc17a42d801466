"""The objects that routes share: the store, its stream of entries, the tokens, and the runs in the server's process.

New runs do not need the server: the commander starts each of them in a separate process. The commander does not manage
a run that was started in a terminal, so the server takes it over. If the server exits, the run can be resumed again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from anyio import CancelScope, Event, create_task_group, sleep, to_thread
from anyio.abc import TaskGroup
from litestar.exceptions import PermissionDeniedException

from ...app import App
from ...files.settings import Settings
from ...protocols.client_runs import ClientRuns
from ...runs.queries.cost_overview import CostHistoryReader
from ...runs.queries.known_repositories import KnownRepositories, describe_unknown_repository, is_folder
from ...runs.queries.overview import OverviewReader
from ...runs.queries.run_lookup import find_main_folder
from ...runs.queries.run_pages import RunTableReader
from ...runs.queries.watched_runs import RunStates
from ...runs.run_notifications import follow_with_notices
from ...runs.run_start import resume_run
from ...runs.runs import Runs
from ...store.reader import StoreReader
from ...system.identity import get_username
from ...system.locations import find_repo
from ...values.actor import Actor
from ...values.errors import Mistake, PodiumError, find_first_error
from ...values.store_address import StoreAddress
from ...views.worker_state import WorkerState
from ...workers.queries.worker_lookup import load_worker_state
from ...workers.worker_resumption import resume_workers
from .access_tokens import AccessToken, LoginCodes, TokenFile
from .diff_syntax import DiffSyntax
from .entry_hub import EntryHub
from .event_stream import ConnectedClients
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


RETRY_SECONDS = 1.0
"""How long to wait before the store is read again after an error."""


@dataclass(kw_only=True)
class ServerContext:
    """The parts of a server. Attributes that are only declared are set by `open`."""

    settings: Settings
    tokens: TokenFile
    codes: LoginCodes = field(default_factory=LoginCodes)
    repo: Path
    """The repository that the server was started in, the default for new runs."""

    def __post_init__(self) -> None:
        self.user = get_username()
        self.hub = EntryHub(self.settings.store, self.user)
        self.clients = ConnectedClients(self.settings.store)
        self.overview = OverviewReader(self.settings.store)
        self.costs = CostHistoryReader()
        self.run_states = RunStates()
        self.diff_syntax = DiffSyntax()
        self.run_table = RunTableReader(self.settings.store, self.costs)
        self.known_repositories = KnownRepositories(self.settings.store, self.repo)
        self.runs: Runs
        self.served_runs: ServedRuns
        self.client_runs: ClientRuns

    @property
    def store(self) -> StoreAddress:
        return self.settings.store

    def is_valid_token(self, id: str) -> bool:
        """Return whether the token with this id has not been revoked and has not expired."""
        return any(one.id == id for one in self.tokens.list_tokens())

    def find_place(self, repo: str, *, by: AccessToken) -> Path:
        """Return the repository that contains the folder `repo`, or the server's own repository if `repo` is empty.

        Raise Mistake if `repo` is not a folder on this machine, and PermissionDeniedException if it is not in a
        repository that the person already works in, unless the token `by` may approve.
        """
        if not repo:
            return self.repo
        if "approve" not in by.scopes:
            if (found := self.known_repositories.find(repo)) is None:
                raise PermissionDeniedException(describe_unknown_repository(repo))
            return found
        if not is_folder(repo):
            raise Mistake(f"{repo[:200]!r} is not a folder on the server's machine; give the path of a repository")
        return find_repo(Path(repo))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Follow the store and work on runs until the block ends."""
        async with App(self.settings) as app, create_task_group() as tasks:
            self.runs = app.runs
            self.served_runs = ServedRuns(self.settings, tasks)
            self.client_runs = ClientRuns(tasks, by=Actor(name=self.user, channel="openai"), tell=report_trouble)
            tasks.start_soon(self._follow_store)
            try:
                yield
            finally:
                self.clients.close()
                _cancel(tasks)

    async def resume_run(self, run: str, *, by: Actor) -> None:
        """Resume a run. Raise PodiumError on failure.

        A commander resumes a worker's run, and this process resumes any other run.
        """
        workers = await to_thread.run_sync(self._load_worker, run)
        if workers:
            await resume_workers(self.settings, workers, by=by)
        else:
            await self.served_runs.resume(run, by=by)

    def _load_worker(self, run: str) -> list[WorkerState]:
        with StoreReader(self.store) as reader:
            return [load_worker_state(reader, run)] if reader.read_summary(run).is_worker else []

    async def _follow_store(self) -> None:
        """Follow the store. Try again after an error, for example if the store is damaged or being replaced."""
        while True:
            try:
                await self.hub.follow_store()
            except PodiumError as error:
                report_trouble(str(error))
                await sleep(RETRY_SECONDS)


def _cancel(tasks: TaskGroup) -> None:
    scope: CancelScope = tasks.cancel_scope
    scope.cancel()


def load_run_settings(settings: Settings, run: str) -> Settings:
    """Return the settings of the repository that a run works in, or `settings` if the run has no repository."""
    with StoreReader(settings.store) as reader:
        started = reader.read_summary(run).started
    if not started.repo:
        return settings
    return Settings.load(repo=Path(find_main_folder(started)), store=settings.store, home=settings.home)
