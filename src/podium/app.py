"""Create Podium's components and connect them.

Programs and user interfaces open an `App`, and use it to start, resume and stop runs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from anyio import create_task_group, to_thread
from anyio.abc import TaskGroup

from .core.engine import Engine
from .core.placement import Placement
from .core.timeline import Timeline
from .engines.engine_choice import Engines
from .engines.model.model_prices import PriceCache
from .files.settings import Settings
from .patterns.registry import OnDiscussion, Pattern
from .runs.assembly.agent_sandbox import list_agent_programs
from .runs.assembly.engine_lookup import find_call_options, find_engine
from .runs.assembly.run_assembly import RunParts, TraceRun
from .runs.assembly.telemetry import is_telemetry_on, open_telemetry
from .runs.run_handle import Run
from .runs.run_options import RunOptions
from .runs.run_start import resume_run, start_run
from .runs.run_steering import stop_run
from .runs.runs import Runs
from .store.fault_injection import Fault, parse_fault
from .store.run_leases import OwnerId
from .store.run_store import RunStore
from .system.identity import get_local_actor
from .system.trace_parent import VARIABLE
from .values.agent import Agent, Budget, as_budget
from .values.event import RunStarted
from .values.request import Result
from .values.store_address import PostgresAddress
from .values.usage import Unattended
from .values.worker_task import WorkerTask

if TYPE_CHECKING:
    from .workers.work_push import WorkPush

__all__ = ["App", "RunOptions"]


class App:
    """A Podium instance: one store, its engines, and the runs that this process works on.

    `engines` maps the names that agents use in `engine` to custom engines. `owner` contains the id that
    marks runs as owned by this process, and the duration of its leases; by default, the process gets a new id.
    """

    runs: Runs
    """Creates, claims and ends the store's runs. Available while the App is open."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        engines: Mapping[str, Engine] | None = None,
        environ: Mapping[str, str] = os.environ,
        fault: Fault | None = None,
        owner: OwnerId | None = None,
    ) -> None:
        self.settings = settings or Settings.load(environ)
        self._environ = environ
        self._custom_engines = engines
        self._fault = fault or parse_fault(environ)
        self._owner = owner
        self._exit_stack = AsyncExitStack()

    async def __aenter__(self) -> App:
        async with AsyncExitStack() as opening:
            store = await opening.enter_async_context(
                RunStore(self.settings.store, owner=self._owner, fault=self._fault)
            )
            engines = Engines(
                self.settings.add_provider_addresses(self._environ),
                self._custom_engines,
                find_options=partial(find_call_options, self.settings),
                run_in_background=self._start_in_thread,
                price_cache=PriceCache(self.settings.home / "model-prices.json"),
                home=self.settings.home,
                agent_programs=list_agent_programs(self.settings),
                reserve_call=await self._open_provider_rates(opening),
            )
            self._engines = await opening.enter_async_context(engines)
            self._background_tasks = await opening.enter_async_context(create_task_group())
            parts = RunParts(
                settings=self.settings,
                store=store,
                background_tasks=self._background_tasks,
                environ=self._environ,
                engine_for=self._engine_for,
                make_placement=self._make_placement,
                commit_work=_commit_work,
                make_push=_make_push,
                trace_run=self._open_traces(opening) if is_telemetry_on(self._environ) else None,
            )
            self.runs = Runs(parts)
            self._exit_stack = opening.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._background_tasks.cancel_scope.cancel()
        await self._exit_stack.aclose()

    async def run(self, agent: str | Agent, request: str, *, by: str = "", **options: Unpack[RunOptions]) -> Result:
        """Send a request to an agent and wait for the result.

        `by` is the name of who starts the run, by default the user of this process.
        """
        driver = await self.runs.create(agent, request, options, by=get_local_actor("api", by))
        return await driver.run()

    @asynccontextmanager
    async def start(
        self, agent: str | Agent, request: str, *, by: str = "", **options: Unpack[RunOptions]
    ) -> AsyncIterator[Run]:
        """Send a request to an agent and yield the run. Exiting the block before the run has ended stops the run.

        `by` is the name of who starts the run, by default the user of this process.
        """
        async with start_run(self.runs, agent, request, options, by=get_local_actor("api", by)) as run:
            yield run

    @asynccontextmanager
    async def resume(
        self,
        run: str,
        *,
        by: str = "",
        tools: Sequence[Callable[..., object]] = (),
        patterns: Sequence[Pattern] = (),
        is_attended: bool = False,
        on_discussion: OnDiscussion | None = None,
    ) -> AsyncIterator[Run]:
        """Resume a run that was interrupted or paused, and yield it. Exiting the block before the run ends stops it.

        `by` is the name of who resumes the run, by default the user of this process. `tools` contains the functions
        passed to `start`; `patterns` contains the custom patterns used by the run's agents.
        """
        async with resume_run(
            self.runs,
            run,
            by=get_local_actor("api", by),
            tools=tools,
            patterns=patterns,
            is_attended=is_attended,
            on_discussion=on_discussion,
        ) as resumed:
            yield resumed

    async def fork(
        self,
        run: str,
        *,
        at: str = "",
        request: str = "",
        decide: tuple[str, str] | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        by: str = "",
    ) -> str:
        """Fork `run`: create a run that shares its timeline up to a position. Return the new run's id for `resume`.

        `at` is a snapshot or the sequence number of an entry; by default the last snapshot, or the last entry if there
        is none. `request` is a message to the first agent, and to all members of a collaborating team. `decide` is a
        decision and the option to choose instead; in that case, the default position is just before the decision.
        `budget` changes the run's limits.
        """
        from .runs.run_fork import NewFork, fork_run  # imported here to keep start-up fast: most programs do not fork

        limits = None if budget is None else as_budget(budget)
        decision, option = decide or ("", "")
        new = NewFork(at=at, request=request, decision=decision, option=option, budget=limits)
        return (await fork_run(self.runs, run, new, by=get_local_actor("api", by))).id

    async def retry(
        self, run: str, *, start: str = "", budget: Budget | Mapping[str, float] | None = None, by: str = ""
    ) -> str:
        """Fork an ended run at the point just before it failed or was stopped. Return the new run's id for `resume`.

        If `start` names a plan step or an agent, retry from the start of that step or agent instead.
        """
        from .runs.run_fork import (  # imported here to keep start-up fast: most programs do not retry
            NewRetry,
            retry_run,
        )

        limits = None if budget is None else as_budget(budget)
        new = NewRetry(start=start, budget=limits)
        return (await retry_run(self.runs, run, new, by=get_local_actor("api", by))).id

    async def stop(self, run: str, by: str = "") -> None:
        """Stop a run, even if another process, or no process, is working on it. Its partial results are kept."""
        await stop_run(self.runs, run, by=get_local_actor("api", by))

    def _open_traces(self, resources: AsyncExitStack) -> TraceRun:
        from .runs.run_trace import RunTraces  # imported here to keep start-up fast: traces are rarely recorded

        telemetry = resources.enter_context(open_telemetry(self._environ))
        traces = RunTraces(telemetry.tracers, telemetry.meters, parent=self._environ.get(VARIABLE, ""))
        resources.callback(traces.close)
        return traces.trace_run

    async def _open_provider_rates(self, opening: AsyncExitStack) -> Callable[[str], Awaitable[float]] | None:
        """Return a function that reserves calls within the rate limits shared by all machines, or None for SQLite."""
        if not isinstance(self.settings.store, PostgresAddress):
            return None
        from .fleet.fleet_database import ProviderRates  # imported here because it needs optional packages

        return (await opening.enter_async_context(ProviderRates(self.settings.store))).reserve_call

    def _start_in_thread(self, work: Callable[[], None]) -> None:
        self._background_tasks.start_soon(partial(to_thread.run_sync, work, abandon_on_cancel=True))

    def _engine_for(self, settings: Settings, agent: Agent) -> Engine:
        return find_engine(self._engines, settings, agent, self._environ)

    def _make_placement(
        self, settings: Settings, run: str, started: RunStarted, unattended: Unattended | None
    ) -> Placement:
        # Imported here to keep start-up fast: most runs start no workers.
        from .workers.local_placement import LocalPlacement

        return LocalPlacement(
            self.runs,
            settings,
            run,
            Path(started.repo),
            worker_task=started.errand,
            is_unattended=unattended == "deny",
        )


async def _commit_work(timeline: Timeline, started: RunStarted, settings: Settings, succeeded: bool) -> str:
    # Imported here to keep start-up fast: few runs belong to workers.
    from .workers.work_commit import commit_worker_changes

    return await commit_worker_changes(timeline, started, settings, succeeded=succeeded)


def _make_push(timeline: Timeline, settings: Settings, tasks: TaskGroup, worker_task: WorkerTask) -> WorkPush:
    # Imported here to keep start-up fast: few workers can move between machines.
    from .workers.work_push import WorkPush

    return WorkPush(timeline, settings, tasks, worker_task)
