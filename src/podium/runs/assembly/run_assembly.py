"""Assemble runs: give the context of each the engines, tools, rules, hooks and budgets that its settings specify."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Protocol

from anyio import to_thread
from anyio.abc import TaskGroup
from msgspec import structs

from ...core.budget import Allowance
from ...core.decision_state import DECISION_EVENTS
from ...core.engine import Engine, PastTurn
from ...core.engine_sessions import EngineSessionTasks
from ...core.gate import ActingTool, SavedRules
from ...core.operation import ExecutionPatterns, RunContext
from ...core.placement import Placement
from ...core.redaction import Redaction
from ...core.run_repository import RunRepository, TeamWork
from ...core.timeline import Timeline
from ...files.settings import Settings
from ...patterns.registry import PATTERNS, Patterns
from ...policy import Rules
from ...store.mailbox import post_to_mailbox
from ...store.run_store import RunLease, RunStore
from ...values.agent import Agent
from ...values.errors import PodiumError
from ...values.event import Entry, MessageAcknowledged, MessageReceived, Noticed, RunStarted
from ...values.plain_text import join_words
from ...values.request import replace_surrogates
from ...values.store_address import PostgresAddress
from ...values.usage import TurnLimits, Unattended
from ...values.worker_task import WorkerTask
from ...views.decision_record import collect_decisions
from ..driver import EndStep, RunDriver
from ..queries.repository_decisions import make_repository_decisions
from .checkout_saving import CheckoutSaving
from .day_usage import DayUsage, find_repository
from .run_guidance import build_agent_prompt
from .run_hook_table import make_run_hooks
from .run_tools import RunTools


class Push(Protocol):
    """Pushes a worker's files to its remote."""

    def push_during(self, tools: AbstractAsyncContextManager[object]) -> AbstractAsyncContextManager[object]:
        """Return a context manager that opens `tools` and, while they are open, pushes the files after every step."""
        ...

    async def push(self) -> None:
        """Push the current files, and record the result."""
        ...


class StoreLinks:
    """The links of a run whose lease this process holds. Requests that wait for an answer go to `report_waiting`."""

    def __init__(
        self, store: RunStore, lease: RunLease, *, report_waiting: Callable[[str], object] | None = None
    ) -> None:
        self._store = store
        self._lease = lease
        self._report_waiting = report_waiting

    def read_attachment(self, digest: str) -> bytes | None:
        return self._store.read_attachment(self._lease.run, digest)

    def store_artifact(self, digest: str, data: bytes) -> None:
        self._store.store_artifact(self._lease, digest, data)

    async def acknowledge(self, messages: Iterable[MessageReceived], *, is_delivered: bool = True) -> None:
        for message in messages:
            if message.sender:
                receipt = MessageAcknowledged(id=message.id, to=message.to, is_delivered=is_delivered)
                with suppress(PodiumError):  # the run continues without the receipt; the store reports its failure
                    send = partial(post_to_mailbox, self._store.path, message.sender, receipt)
                    await to_thread.run_sync(partial(send, ref=f"receipt:{message.id}"))

    def report_waiting(self, request: str) -> None:
        if self._report_waiting is not None:
            self._report_waiting(request)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnParts:
    """What the program that works on a run brings to it.

    An agent that does not list its tools gets `functions[:for_all]`, which is all functions if `for_all` is None.
    `report_waiting` is called with the id of each request or question that is waiting for an answer, and
    `read_saved_rules` returns the rules that the user has saved since the run started. With `parks_at_limits`, the
    program stops working on the run while all its agents wait for providers' limits to reset.
    """

    functions: Sequence[ActingTool] = ()
    for_all: int | None = None
    patterns: ExecutionPatterns = PATTERNS
    is_attended: bool = False
    report_waiting: Callable[[str], object] | None = None
    read_saved_rules: Callable[[], Awaitable[tuple[str, ...]]] | None = None
    parks_at_limits: bool = False


@dataclass(frozen=True, kw_only=True)
class RunParts:
    """The parts that the runs of one open store share. The composition root chooses them."""

    settings: Settings
    store: RunStore
    background_tasks: TaskGroup
    environ: Mapping[str, str]
    engine_for: EngineFor
    make_placement: PlaceWorkers
    commit_work: CommitWork
    make_push: MakePush
    trace_run: TraceRun | None = None

    @cached_property
    def _day_usage(self) -> DayUsage:
        return DayUsage(self.settings.store)

    @cached_property
    def _rules(self) -> Rules:
        return self.settings.build_rules()

    @cached_property
    def _turn_limits(self) -> TurnLimits:
        return self.settings.build_turn_limits()

    def open_timeline(
        self, lease: RunLease, redaction: Redaction, own: OwnParts, *, first: Entry | None = None
    ) -> Timeline:
        """Return the timeline of a run that this process has claimed, or has created if there is no `first` entry."""
        return Timeline(
            lease.run,
            lease,
            redaction=redaction,
            links=StoreLinks(self.store, lease, report_waiting=own.report_waiting),
            listeners=() if self.trace_run is None else (_make_tracer(self.trace_run, first),),
            has_foreign_entries=first is not None and isinstance(self.settings.store, PostgresAddress),
            parks_at_limits=own.parks_at_limits,
        )

    def build_driver(
        self,
        lease: RunLease,
        timeline: Timeline,
        first: Entry,
        settings: Settings,
        own: OwnParts,
        *,
        earlier_turns: tuple[PastTurn, ...] = (),
    ) -> RunDriver:
        """Assemble a run that this process has claimed, and return its driver.

        `first` is the first entry of the run's timeline.
        """
        is_default = settings is self.settings
        located = locate_run(first, self.settings.home)
        recorded, started = first.started, located.started
        unattended = None if own.is_attended else settings.unattended

        def record_notice(text: str) -> None:
            timeline.append(Noticed(text=replace_surrogates(text)), scope="")

        run_tools = self._make_run_tools(settings, started, own, unattended=unattended, notice=record_notice)
        saving = CheckoutSaving(timeline, started)
        context = RunContext(
            timeline=timeline,
            agents={agent.name: agent for agent in started.agents},
            patterns=own.patterns if started.decision is None else Patterns(decision=started.decision),
            engine_for=partial(self.engine_for, settings),
            session_tasks=EngineSessionTasks(self.background_tasks, on_notice=record_notice),
            offer_tools=run_tools.offer_tools,
            repository=self._make_repository(
                recorded, started, settings, timeline.run, run_tools, saving, unattended=unattended
            ),
            build_system_prompt=partial(build_agent_prompt, settings, started.guidance),
            decisions=make_repository_decisions(self.settings.store, recorded),
            hooks=make_run_hooks(settings, timeline, started),
            allowance=self._make_allowance(timeline, settings, started),
            rules=self._rules if is_default else settings.build_rules(),
            saved_rules=SavedRules(own.read_saved_rules),
            mode=settings.permission_mode,
            unattended=unattended,
            turn_limits=self._turn_limits if is_default else settings.build_turn_limits(),
            earlier_turns=earlier_turns,
        )
        push = self._make_push(timeline, started.errand)
        return RunDriver(
            self.store,
            lease,
            first=located,
            context=context,
            tools=run_tools if push is None else push.push_during(run_tools),
            before_end=self._list_end_steps(timeline, settings, started, saving, push),
        )

    def _make_repository(
        self,
        recorded: RunStarted,
        started: RunStarted,
        settings: Settings,
        run: str,
        run_tools: RunTools,
        saving: CheckoutSaving,
        *,
        unattended: Unattended | None,
    ) -> RunRepository | None:
        """Return the repository that a run works in, or None if there is none.

        `recorded` has the paths on the machine where the run started, and `started` those on this machine.
        """
        if not started.repo:
            return None
        return RunRepository(
            # The same folders on every machine, so that an approval applies wherever the run continues.
            checkouts=tuple(one.path for one in recorded.checkouts),
            make_check_tool=run_tools.make_check_tool,
            save_before_change=saving.save_before,
            get_placement=cache(partial(self.make_placement, settings, run, started, unattended)),
            get_work=cache(partial(_open_work, Path(started.repo), run)),
        )

    def _list_end_steps(
        self, timeline: Timeline, settings: Settings, started: RunStarted, saving: CheckoutSaving, push: Push | None
    ) -> dict[str, EndStep]:
        """Return the steps before the run ends, in order and keyed by what they do."""
        steps: dict[str, EndStep] = {}
        if _writes_inbox(settings, started):
            steps["write the decisions to the squad's inbox"] = lambda _: write_decisions(timeline, started)
        if started.errand is not None:
            steps["commit the changes"] = partial(self.commit_work, timeline, started, self.settings)
        if push is not None:
            steps["push the files"] = lambda _: push.push()
        steps["save the checkout"] = lambda _: saving.save_after()
        return steps

    def _make_run_tools(
        self,
        settings: Settings,
        started: RunStarted,
        own: OwnParts,
        *,
        unattended: Unattended | None,
        notice: Callable[[str], None],
    ) -> RunTools:
        return RunTools(
            settings,
            started.agents,
            checkouts=started.checkouts,
            functions=own.functions,
            for_all=own.for_all,
            environ=self.environ,
            unattended=unattended,
            notice=notice,
            guidance=started.guidance,
        )

    def _make_push(self, timeline: Timeline, task: WorkerTask | None) -> Push | None:
        """Return an object that pushes a worker's files, or None if the run cannot move to another machine."""
        if task is None or not _can_be_pushed(task):
            return None
        return self.make_push(timeline, self.settings, self.background_tasks, task)

    def _make_allowance(self, timeline: Timeline, settings: Settings, started: RunStarted) -> Allowance:
        explain = None
        if settings.day_budget is not None or settings.repository_day_budget is not None:
            explain = partial(self._day_usage.explain_used_up, settings, find_repository(started))
        return Allowance(timeline, "", settings.budget, of="", explain_day_budget=explain)


def _make_tracer(trace_run: TraceRun, first: Entry | None) -> Callable[[Entry], None]:
    """Return a function that traces a run. Without `first`, the first entry that it is called with starts the trace."""
    trace = None if first is None else trace_run(first)

    def apply(entry: Entry) -> None:
        nonlocal trace
        if trace is None:
            trace = trace_run(entry)
        else:
            trace(entry)

    return apply


def _open_work(directory: Path, run: str) -> TeamWork:
    from .git_work import GitWork  # imported here to keep start-up fast: most runs do not need it

    return GitWork(directory, run)


def _writes_inbox(settings: Settings, started: RunStarted) -> bool:
    """Return whether the decisions made in a run are written to the squad's inbox."""
    leads = [agent for agent in started.agents if agent.team is not None and _is_from_squad(agent)]
    asked = settings.squad_inbox or any(one.team is not None and one.team.options.get("adr") for one in leads)
    return bool(leads and asked and started.repo)


def _is_from_squad(agent: Agent) -> bool:
    from ...files.squad.squad_folder import LEGACY_SQUAD_FOLDER, SQUAD_FOLDER  # for start-up time: few runs have a team

    return agent.path.split("/")[0] in (SQUAD_FOLDER, LEGACY_SQUAD_FOLDER)


async def write_decisions(timeline: Timeline, started: RunStarted) -> None:
    """Write the decisions made in the run, and record a notice about the new files or about the error."""
    decisions = collect_decisions(timeline.find_entries_below(started.agent, *DECISION_EVENTS))
    if not decisions:
        return
    from ...files.squad.decision_inbox import write_inbox_decisions  # for start-up time: few runs have a squad

    try:
        written = await to_thread.run_sync(partial(write_inbox_decisions, Path(started.repo), decisions))
    except (PodiumError, OSError) as error:
        timeline.append(Noticed(text=f"The decisions were not written to the squad's inbox: {error}"), scope="")
        return
    if written:
        names = join_words([path.name for path in written])
        text = f"Written to the squad's inbox: {names}; run podium decisions merge-inbox to add them to decisions.md."
        timeline.append(Noticed(text=text), scope="")


def locate_run(first: Entry, home: Path) -> Entry:
    """Return the first entry of a run, with its paths replaced by those on this machine.

    If the run cannot move to another machine, the entry is unchanged.
    """
    started = first.event
    if not isinstance(started, RunStarted) or started.errand is None or started.errand.origin is None:
        return first
    from ...workspace.travel.run_location import locate_task  # imported here to keep start-up fast: few runs can move

    task = locate_task(started.errand, first.run, home)
    return structs.replace(first, event=structs.replace(started, errand=task, repo=task.path))


def _can_be_pushed(task: WorkerTask) -> bool:
    """Return whether a worker's files are pushed to a remote, so that another machine can continue the work."""
    return task.has_checkout and task.origin is not None and bool(task.origin.remote)
