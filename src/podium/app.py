"""The wiring: which real parts make a running product, and the calls that every surface makes.

This is the one place that builds them. Whoever uses Podium, from a program or through a surface,
opens an App and starts, resumes or stops runs with it.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import TypedDict, Unpack

from anyio import CancelScope, create_task_group, to_thread
from msgspec import structs

from . import __version__
from .config.model_role import resolve_models
from .core.budget import Allowance
from .core.earlier_runs import read_earlier_run
from .core.engine import Engine, PastTurn
from .core.engine_sessions import EngineSessionTasks
from .core.gate import ActingTool
from .core.operation import ExecutionPatterns, RunContext
from .core.placement import Placement
from .core.redaction import Redaction
from .core.timeline import Timeline
from .engines.engine_choice import Engines
from .engines.model.provider_traffic import ProviderThrottle
from .engines.model.providers import PROVIDERS
from .patterns.discuss import Discussion
from .patterns.registry import PATTERNS, Patterns, find_pattern
from .runs.run_driver import drive_run
from .runs.run_handle import Run
from .setup.preflight import apply_run_mode, require_not_ended, require_repository, validate_request
from .setup.run_agents import RunAgents, extract_functions
from .setup.run_tools import RunTools
from .setup.settings import Settings
from .store.fault import Fault, parse_fault
from .store.sqlite.mailbox import post_to_mailbox
from .store.sqlite.reader import RunSummary, StoreReader
from .store.sqlite.store import SqliteLease, SqliteStore
from .store.sqlite.worker_index import build_worker_insert
from .store.wakeup import ensure_socket_folder, send_wakeup
from .system.locations import find_repo
from .values.agent import Agent, Budget, Mode, as_budget
from .values.errors import Mistake, RunHeld, RunOver, StoreFailed
from .values.event import Entry, Noticed, RunResumed, RunStarted, StopAsked, decode_entry
from .values.limits import Unattended
from .values.request import Request, replace_surrogates
from .values.result import Result
from .values.worker_task import WorkerTask

KEY_NAMES = frozenset(provider.key_name for provider in PROVIDERS.values() if provider.key_name is not None)
ADDRESS_NAMES = frozenset(
    name for provider in PROVIDERS.values() for name in (provider.url_name, provider.host_name) if name is not None
)
BYPASS_NOTICE = "Permissions are bypassed: what no rule denies is done without asking."


class RunOptions(TypedDict, total=False):
    """What may be given with a request.

    `repo` is the repository to work in; `agents` are those built in code that the first one refers to,
    `tools` functions that agents may call, and `is_attended` says that somebody follows the run and
    answers what agents ask. `mode` is how the first agent's team works, whatever its file says; an agent
    without a team may `reflect` alone. `max_iterations` bounds that. `on_discussion` is called with each
    discussion as it begins. `after` is an earlier run, whose conversation this one goes on with.
    """

    repo: str | Path | None
    agents: Iterable[Agent]
    tools: Sequence[Callable[..., object]]
    budget: Budget | Mapping[str, float] | None
    is_attended: bool
    mode: Mode | None
    max_iterations: int | None
    on_discussion: Callable[[Discussion], object] | None
    after: str


class App:
    """A running Podium: one store, its engines, and the runs that this process works on.

    `engines` are engines of your own, by the name that an agent's `engine` gives.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        engines: Mapping[str, Engine] | None = None,
        environ: Mapping[str, str] = os.environ,
        fault: Fault | None = None,
    ) -> None:
        self.settings = settings or Settings.load(environ)
        self._environ = environ
        self._custom_engines = engines
        self._fault = fault or parse_fault(environ)
        self._exit_stack = AsyncExitStack()
        self._redaction = Redaction.from_environment(environ, KEY_NAMES)
        self._run_agents = RunAgents(self.settings, self._redaction, self._engine_for)
        self._settings_record = self.settings.to_record()
        self._rules = self.settings.build_rules()
        self._turn_limits = self.settings.build_turn_limits()

    async def __aenter__(self) -> App:
        async with AsyncExitStack() as opening:
            self._store = await opening.enter_async_context(SqliteStore(self.settings.store, fault=self._fault))
            environ = self.settings.add_provider_addresses(self._environ)
            engines = Engines(
                environ,
                self._custom_engines,
                make_throttle=partial(provider_traffic_limits, self.settings),
                run_in_background=self._start_in_thread,
            )
            self._engines = await opening.enter_async_context(engines)
            self._background_tasks = await opening.enter_async_context(create_task_group())
            self._exit_stack = opening.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._background_tasks.cancel_scope.cancel()
        await self._exit_stack.aclose()

    def _start_in_thread(self, work: Callable[[], None]) -> None:
        self._background_tasks.start_soon(partial(to_thread.run_sync, work, abandon_on_cancel=True))

    # The calls

    async def run(self, agent: str | Agent, request: str, **options: Unpack[RunOptions]) -> Result:
        """Give a request to an agent and wait for what comes of it."""
        earlier_turns = await self._load_earlier_turns(options.get("after", ""))
        return await self._create_run(agent, request, earlier_turns=earlier_turns, **options).drive()

    @asynccontextmanager
    async def start(self, agent: str | Agent, request: str, **options: Unpack[RunOptions]) -> AsyncIterator[Run]:
        """Give a request to an agent and watch. Leaving the block before the end stops the run."""
        earlier_turns = await self._load_earlier_turns(options.get("after", ""))
        async with drive_run(self._create_run(agent, request, earlier_turns=earlier_turns, **options)) as run:
            yield run

    @asynccontextmanager
    async def resume(
        self,
        run: str,
        *,
        tools: Sequence[Callable[..., object]] = (),
        is_attended: bool = False,
        on_discussion: Callable[[Discussion], object] | None = None,
    ) -> AsyncIterator[Run]:
        """Go on with a run that was interrupted or paused, where it was left."""
        started = await self._read_run_start(run)
        self._run_agents.check_agents(started.agents, self.settings.with_record(started.settings))
        patterns = PATTERNS if on_discussion is None else Patterns(on_discussion)
        claimed = await self._take_over_run(
            run, functions=_wrap_functions(tools), is_attended=is_attended, patterns=patterns
        )
        async with drive_run(claimed) as resumed:
            yield resumed

    async def enqueue_worker_run(
        self,
        agent: str | Agent,
        request: str,
        worker_task: WorkerTask,
        *,
        run: str = "",
        settings: Settings | None = None,
        **options: Unpack[RunOptions],
    ) -> str:
        """Write down a request for a worker, which another process will work on; the id of its run.

        `run` is an id that was chosen before; where there is a run with it already, nothing is done. `settings` are
        those that it works with, where they are not this Podium's.
        """
        if run and await self.has_run(run):
            return run
        from .workers.provider_keys import send_keys  # here, because most runs are no worker's

        created = self._create_run(agent, request, worker_task=worker_task, id=run, settings=settings, **options)
        # Not to be cut short: what is written down and not let go of could be worked on by nobody.
        with CancelScope(shield=True):
            await to_thread.run_sync(send_keys, self.settings.store, created.id, self.provider_variables)
            await created.release()
        send_wakeup(ensure_socket_folder(self.settings.store), "owner")
        return created.id

    @property
    def provider_variables(self) -> dict[str, str]:
        """What models are called with here: variables with keys and addresses."""
        # Each, also where it is not set: no key may go to the address that another shell has given.
        return {name: self._environ.get(name, "") for name in KEY_NAMES | ADDRESS_NAMES}

    async def has_run(self, run: str) -> bool:
        """Whether there is a run with this id."""
        return bool(await self._store.read_rows(run))

    async def read_entries(self, run: str) -> list[Entry]:
        """A run's timeline as it stands."""
        return [decode_entry(row.line) for row in await self._store.read_rows(run)]

    async def fail_run(self, run: str, why: str) -> None:
        """End a run that nobody works on and that cannot go on."""
        await self._read_run_start(run)
        claimed = await self._take_over_run(run)
        await claimed.record_failure(why)

    async def pause_run(self, run: str) -> None:
        """Pause a run that nobody works on: it goes on only when it is named. Raises RunHeld where somebody does."""
        await self._read_run_start(run)
        claimed = await self._take_over_run(run)
        await claimed.record_pause()

    async def stop(self, run: str, by: str = "") -> None:
        """End a run with what there is, whoever works on it; where nobody does, it is ended here."""
        await self._read_run_start(run)
        await to_thread.run_sync(partial(post_to_mailbox, self.settings.store, run, StopAsked(by=by)))
        try:
            claimed = await self._take_over_run(run)
        except (RunHeld, RunOver):  # whoever works on it has heard, and may be through by now
            return
        result = await claimed.drive()
        if result.outcome == "interrupted":
            raise StoreFailed(f"run {run} could not be ended: {result.error}")

    # How they are made

    def _create_run(
        self,
        agent: str | Agent,
        request: str,
        *,
        repo: str | Path | None = None,
        agents: Iterable[Agent] = (),
        tools: Sequence[Callable[..., object]] = (),
        budget: Budget | Mapping[str, float] | None = None,
        is_attended: bool = False,
        mode: Mode | None = None,
        max_iterations: int | None = None,
        on_discussion: Callable[[Discussion], object] | None = None,
        worker_task: WorkerTask | None = None,
        id: str = "",
        settings: Settings | None = None,
        after: str = "",
        earlier_turns: tuple[PastTurn, ...] = (),
    ) -> Run:
        validate_request(request)
        place = None if repo is None else find_repo(Path(repo))
        settings = settings or self.settings
        settings = settings if budget is None else structs.replace(settings, budget=as_budget(budget))
        first, *others = map(extract_functions, (agent, *agents))
        team, notices = self._run_agents.select_agents(
            first.agent, tuple(one.agent for one in others if isinstance(one.agent, Agent)), place
        )
        if mode is not None or max_iterations is not None:
            team = (apply_run_mode(team[0], mode, max_iterations), *team[1:])
        find_pattern(team[0])
        require_repository(team, place)
        own = [function for one in (first, *others) for function in one.functions if function not in tools]
        functions = _wrap_functions(tuple(dict.fromkeys((*tools, *own))))
        self._run_agents.check_budget(settings.budget, team, settings)
        started = RunStarted(
            agent=team[0].name,
            request=Request(text=self._redaction.redact_text(request)),
            agents=team,
            settings=self._settings_record if settings is self.settings else settings.to_record(),
            repo=_choose_directory(place, worker_task),
            version=__version__,
            errand=worker_task,
            after=after,
        )
        bypass_notices = [BYPASS_NOTICE] if settings.permission_mode == "bypass" else []
        lease, timeline, begun = self._write_run_start(started, id, (*settings.notices, *notices, *bypass_notices))
        patterns = PATTERNS if on_discussion is None else Patterns(on_discussion)
        return self._build_run(
            lease,
            timeline,
            begun,
            settings,
            functions=functions,
            for_all=len(tools),
            is_attended=is_attended,
            patterns=patterns,
            earlier_turns=earlier_turns,
        )

    def _write_run_start(
        self, started: RunStarted, id: str, notices: Iterable[str]
    ) -> tuple[SqliteLease, Timeline, Entry]:
        """A new run on its timeline, with what the person should know about it."""
        id = id or secrets.token_hex(6)
        lease = self._store.begin_run(id, None if started.errand is None else build_worker_insert(id, started.errand))
        timeline = Timeline(lease.run, lease, redaction=self._redaction)
        begun = timeline.append(started, scope="")
        for notice in notices:
            timeline.append(Noticed(text=notice), scope="")
        return lease, timeline, begun

    async def _read_run_start(self, run: str) -> RunStarted:
        """How a run began; raises Mistake when it has ended."""

        def read_summary() -> RunSummary:
            with StoreReader(self.settings.store) as reader:
                return reader.read_summary(run)

        summary = await to_thread.run_sync(read_summary)
        require_not_ended(run, summary.last)
        assert isinstance(summary.first.event, RunStarted)
        return summary.first.event

    async def _take_over_run(
        self,
        id: str,
        *,
        functions: Sequence[ActingTool] = (),
        is_attended: bool = False,
        patterns: ExecutionPatterns = PATTERNS,
    ) -> Run:
        lease = await self._store.claim_run(id)
        try:
            rows = await self._store.read_rows(id)
            require_not_ended(id, decode_entry(rows[-1].line))
            first = decode_entry(rows[0].line)
            started = first.event
            assert isinstance(started, RunStarted)
            timeline = Timeline(id, lease, redaction=self._redaction)
            timeline.load(rows)
            settings = self.settings.with_record(started.settings)
            earlier_turns = await self._load_earlier_turns(started.after)
            run = self._build_run(
                lease,
                timeline,
                first,
                settings,
                functions=functions,
                is_attended=is_attended,
                patterns=patterns,
                earlier_turns=earlier_turns,
            )
            # Letters first: a pause that was asked for before the run is resumed is over with that.
            self._store.deliver_mail(lease)
            timeline.append(RunResumed(host=socket.gethostname(), pid=os.getpid()), scope="")
            if settings.permission_mode == "bypass":
                timeline.append(Noticed(text=BYPASS_NOTICE), scope="")
            await timeline.wait_written()
        except BaseException:
            self._store.release_run(lease)
            raise
        return run

    async def _load_earlier_turns(self, run: str) -> tuple[PastTurn, ...]:
        """What was said in a run and in those that it went on from, the first of them first."""
        turns: list[PastTurn] = []
        while run:
            if not (rows := await self._store.read_rows(run)):
                raise Mistake(f"there is no run {run!r} to go on from; podium ps lists those there are")
            earlier = read_earlier_run(rows)
            turns[:0], run = earlier.turns, earlier.after
        return tuple(turns)

    def _build_run(
        self,
        lease: SqliteLease,
        timeline: Timeline,
        first: Entry,
        settings: Settings,
        *,
        functions: Sequence[ActingTool],
        for_all: int | None = None,
        is_attended: bool,
        patterns: ExecutionPatterns = PATTERNS,
        earlier_turns: tuple[PastTurn, ...] = (),
    ) -> Run:
        started = first.event
        assert isinstance(started, RunStarted)

        unattended = None if is_attended else settings.unattended

        def record_notice(text: str) -> None:
            timeline.append(Noticed(text=replace_surrogates(text)), scope="")

        run_tools = RunTools(
            settings,
            started.agents,
            directory=Path(started.repo) if started.repo else None,
            functions=functions,
            for_all=for_all,
            environ=self._environ,
            unattended=unattended,
            notice=record_notice,
        )
        context = RunContext(
            timeline=timeline,
            agents={agent.name: agent for agent in started.agents},
            patterns=patterns,
            engine_for=partial(self._engine_for, settings),
            session_tasks=EngineSessionTasks(self._background_tasks, on_notice=record_notice),
            offer_tools=run_tools.offer_tools,
            make_check_tool=run_tools.make_check_tool if started.repo else None,
            get_placement=cache(partial(self._build_placement, settings, timeline.run, started, unattended))
            if started.repo
            else None,
            build_system_prompt=settings.build_system_prompt,
            allowance=Allowance(timeline, "", settings.budget, of=""),
            rules=self._rules if settings is self.settings else settings.build_rules(),
            mode=settings.permission_mode,
            directory=started.repo,
            unattended=unattended,
            turn_limits=self._turn_limits if settings is self.settings else settings.build_turn_limits(),
            earlier_turns=earlier_turns,
        )
        before_end = None if started.errand is None else partial(self._commit_work, timeline, started)
        return Run(self._store, lease, first=first, context=context, tools=run_tools, before_end=before_end)

    def _build_placement(
        self, settings: Settings, run: str, started: RunStarted, unattended: Unattended | None
    ) -> Placement:
        from .workers.local_placement import (
            LocalPlacement,  # here, because most runs send nobody, and it needs this module
        )

        return LocalPlacement(
            self, settings, run, Path(started.repo), worker_task=started.errand, is_unattended=unattended == "deny"
        )

    async def _commit_work(self, timeline: Timeline, started: RunStarted, succeeded: bool) -> str:
        from .workers.work_commit import commit_worker_changes  # here, because most runs are no worker's

        return await commit_worker_changes(timeline, started, self.settings, succeeded=succeeded)

    def _engine_for(self, settings: Settings, agent: Agent) -> Engine:
        named = ("" if agent.model == "inherit" else agent.model) or settings.model
        wanted = resolve_models(named, settings.models).models if named else ()
        default = resolve_models(settings.model, settings.models).models[0] if settings.model else ""
        return self._engines.for_agent(agent, wanted, model=default, url=settings.base_url)


def _choose_directory(repo: Path | None, worker_task: WorkerTask | None) -> str:
    if worker_task is not None:
        return worker_task.path
    return "" if repo is None else str(repo)


def _wrap_functions(tools: Sequence[Callable[..., object]]) -> tuple[ActingTool, ...]:
    if not tools:
        return ()
    from .tools.toolset import function_tools  # here, because most runs have no use for it

    return function_tools(tools)


def provider_traffic_limits(settings: Settings, provider: str) -> ProviderThrottle:
    """The limits that the settings give for a provider."""
    limits = settings.providers.get(provider)
    if limits is None:
        return ProviderThrottle()
    return ProviderThrottle(
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        concurrent=limits.concurrent,
    )
