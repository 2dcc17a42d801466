"""Assemble a run: give its context the engines, tools, rules, hooks and budgets that its settings specify."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

from anyio.abc import TaskGroup

from ..core.budget import Allowance
from ..core.engine import Engine, PastTurn
from ..core.engine_sessions import EngineSessionTasks
from ..core.gate import ActingTool
from ..core.operation import ExecutionPatterns, RunContext
from ..core.placement import Placement
from ..core.run_repository import RunRepository, TeamWork
from ..core.timeline import Timeline
from ..patterns.registry import PATTERNS, Patterns
from ..setup.run_guidance import build_agent_prompt
from ..setup.run_hook_table import make_run_hooks
from ..setup.run_tools import RunTools
from ..setup.settings import Settings
from ..store.run_store import RunLease, RunStore
from ..values.agent import Agent
from ..values.event import Entry, Noticed, RunStarted
from ..values.limits import Unattended
from ..values.request import replace_surrogates
from ..values.worker_task import WorkerTask
from .checkout_saving import CheckoutSaving
from .day_usage import DayUsage, find_repository
from .decision_context import make_repository_decisions
from .run_driver import EndStep, RunDriver
from .squad_inbox import write_decisions, writes_inbox
from .work_location import Push, can_be_pushed, locate_run

EngineFor = Callable[[Settings, Agent], Engine]
CommitWork = Callable[[Timeline, RunStarted, Settings, bool], Awaitable[str]]
"""Commits a worker's changes. The last argument says whether the worker's run succeeded.

Returns an error message if the commit fails, otherwise an empty string.
"""
MakePush = Callable[[Timeline, Settings, TaskGroup, WorkerTask], Push]
"""Returns an object that pushes a worker's files. The pushes run in the given task group."""


TraceRun = Callable[[Entry], Callable[[Entry], None]]
"""Starts a trace of a run from its first entry. Returns a function that is called with each later entry."""

PlaceWorkers = Callable[[Settings, str, RunStarted, Unattended | None], Placement]
"""Returns the placement for a run's workers.

The arguments are the run's settings, its id, its first event, and the policy for requests that nobody answers.
"""


class RunAssembly:
    """Assembles the runs of one open store."""

    def __init__(
        self,
        settings: Settings,
        store: RunStore,
        background_tasks: TaskGroup,
        environ: Mapping[str, str],
        *,
        engine_for: EngineFor,
        make_placement: PlaceWorkers,
        commit_work: CommitWork,
        make_push: MakePush,
        trace_run: TraceRun | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._background_tasks = background_tasks
        self._environ = environ
        self._engine_for = engine_for
        self._make_placement = make_placement
        self._commit_work = commit_work
        self._make_push = make_push
        self._trace_run = trace_run
        self._day_usage = DayUsage(settings.store)
        self._rules = settings.build_rules()
        self._turn_limits = settings.build_turn_limits()

    def build_run(
        self,
        lease: RunLease,
        timeline: Timeline,
        first: Entry,
        settings: Settings,
        *,
        functions: Sequence[ActingTool],
        for_all: int | None = None,
        is_attended: bool,
        patterns: ExecutionPatterns = PATTERNS,
        earlier_turns: tuple[PastTurn, ...] = (),
    ) -> RunDriver:
        """Assemble a run that this process has claimed, and return its driver.

        `first` is the first entry of the run's timeline. `functions` contains the available functions. An agent that
        does not list its tools gets `functions[:for_all]`, which is all functions if `for_all` is None.
        """
        located = locate_run(first, self._settings.home)
        recorded, started = first.started, located.started
        if self._trace_run is not None:
            timeline.listeners.append(self._trace_run(first))
        unattended = None if is_attended else settings.unattended

        def record_notice(text: str) -> None:
            timeline.append(Noticed(text=replace_surrogates(text)), scope="")

        run_tools = self._make_run_tools(
            settings, started, functions, for_all=for_all, unattended=unattended, notice=record_notice
        )
        saving = CheckoutSaving(timeline, started)
        repository = None
        if started.repo:
            place = partial(self._make_placement, settings, timeline.run, started, unattended)
            repository = RunRepository(
                # The same folders on every machine, so that an approval applies wherever the run continues.
                checkouts=tuple(one.path for one in recorded.checkouts),
                make_check_tool=run_tools.make_check_tool,
                save_before_change=saving.save_before,
                get_placement=cache(place),
                get_work=cache(partial(_open_work, Path(started.repo), timeline.run)),
            )
        context = RunContext(
            timeline=timeline,
            agents={agent.name: agent for agent in started.agents},
            patterns=patterns if started.decision is None else Patterns(decision=started.decision),
            engine_for=partial(self._engine_for, settings),
            session_tasks=EngineSessionTasks(self._background_tasks, on_notice=record_notice),
            offer_tools=run_tools.offer_tools,
            repository=repository,
            build_system_prompt=partial(build_agent_prompt, settings, started.guidance),
            decisions=make_repository_decisions(self._settings.store, recorded),
            hooks=make_run_hooks(settings, timeline, started),
            allowance=self._make_allowance(timeline, settings, started),
            rules=self._rules if settings is self._settings else settings.build_rules(),
            mode=settings.permission_mode,
            unattended=unattended,
            turn_limits=self._turn_limits if settings is self._settings else settings.build_turn_limits(),
            earlier_turns=earlier_turns,
        )
        push = self._make_push_for(timeline, started.errand)
        tools = run_tools if push is None else push.push_during(run_tools)
        before_end: dict[str, EndStep] = {}
        if writes_inbox(settings, started):
            before_end["write the decisions to the squad's inbox"] = lambda _: write_decisions(timeline, started)
        if started.errand is not None:
            before_end["commit the changes"] = partial(self._commit_work, timeline, started, self._settings)
        if push is not None:
            before_end["push the files"] = lambda _: push.push()
        before_end["save the checkout"] = lambda _: saving.save_after()
        return RunDriver(self._store, lease, first=located, context=context, tools=tools, before_end=before_end)

    def _make_run_tools(
        self,
        settings: Settings,
        started: RunStarted,
        functions: Sequence[ActingTool],
        *,
        for_all: int | None,
        unattended: Unattended | None,
        notice: Callable[[str], None],
    ) -> RunTools:
        return RunTools(
            settings,
            started.agents,
            checkouts=started.checkouts,
            functions=functions,
            for_all=for_all,
            environ=self._environ,
            unattended=unattended,
            notice=notice,
            guidance=started.guidance,
        )

    def _make_push_for(self, timeline: Timeline, task: WorkerTask | None) -> Push | None:
        """Return an object that pushes a worker's files, or None if the run cannot move to another machine."""
        if task is None or not can_be_pushed(task):
            return None
        return self._make_push(timeline, self._settings, self._background_tasks, task)

    def _make_allowance(self, timeline: Timeline, settings: Settings, started: RunStarted) -> Allowance:
        allowance = Allowance(timeline, "", settings.budget, of="")
        if settings.day_budget is not None or settings.repository_day_budget is not None:
            allowance.explain_day_budget = partial(self._day_usage.explain_used_up, settings, find_repository(started))
        return allowance


def _open_work(directory: Path, run: str) -> TeamWork:
    from ..setup.git_work import GitWork  # imported here to keep start-up fast: most runs do not need it

    return GitWork(directory, run)
