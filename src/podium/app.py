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
from .config.model_role import resolved
from .core.budget import Allowance
from .core.earlier_runs import recalled
from .core.engine import Engine, Past
from .core.engine_sessions import Keeper
from .core.gate import Acting
from .core.operation import Engagement, Ways
from .core.placement import Placement
from .core.redaction import Redaction
from .core.timeline import Timeline
from .engines.engine_choice import Engines
from .engines.model.provider_traffic import Traffic
from .engines.model.providers import PROVIDERS
from .patterns.discuss import Discussion
from .patterns.registry import PATTERNS, Patterns, way_of
from .runs.run_driver import driven
from .runs.run_handle import Run
from .setup.preflight import must_be_a_request, must_have_a_repository, must_not_have_ended, reshaped
from .setup.run_agents import Casting, named
from .setup.run_tools import Outfit
from .setup.settings import Settings
from .store.fault import Fault, fault_from
from .store.sqlite.mailbox import post
from .store.sqlite.reader import Reader, Summary
from .store.sqlite.store import SqliteLease, SqliteStore
from .store.sqlite.worker_index import hiring
from .store.wakeup import bell_folder, ring_once
from .system.locations import find_repo
from .values.agent import Agent, Budget, Mode, as_budget
from .values.errors import Mistake, RunHeld, RunOver, StoreFailed
from .values.event import Entry, Noticed, RunResumed, RunStarted, StopAsked, decode
from .values.limits import Unattended
from .values.request import Request, readable
from .values.result import Result
from .values.worker_task import Errand

KEY_NAMES = frozenset(provider.key_name for provider in PROVIDERS.values() if provider.key_name is not None)
ADDRESS_NAMES = frozenset(
    name for provider in PROVIDERS.values() for name in (provider.url_name, provider.host_name) if name is not None
)
BYPASSED = "Permissions are bypassed: what no rule denies is done without asking."


class Given(TypedDict, total=False):
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
        self._given = engines
        self._fault = fault or fault_from(environ)
        self._open = AsyncExitStack()
        self._redaction = Redaction.of(environ, KEY_NAMES)
        self._casting = Casting(self.settings, self._redaction, self._engine_for)
        self._recorded = self.settings.recorded()
        self._rules = self.settings.rules()
        self._patience = self.settings.whole_patience()

    async def __aenter__(self) -> App:
        async with AsyncExitStack() as opening:
            self._store = await opening.enter_async_context(SqliteStore(self.settings.store, fault=self._fault))
            environ = self.settings.addresses(self._environ)
            engines = Engines(environ, self._given, traffic=partial(traffic_of, self.settings), beside=self._do_beside)
            self._engines = await opening.enter_async_context(engines)
            self._minds = await opening.enter_async_context(create_task_group())
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._minds.cancel_scope.cancel()
        await self._open.aclose()

    def _do_beside(self, work: Callable[[], None]) -> None:
        self._minds.start_soon(partial(to_thread.run_sync, work, abandon_on_cancel=True))

    # The calls

    async def run(self, agent: str | Agent, request: str, **given: Unpack[Given]) -> Result:
        """Give a request to an agent and wait for what comes of it."""
        past = await self._remembered(given.get("after", ""))
        return await self._begin(agent, request, past=past, **given).drive()

    @asynccontextmanager
    async def start(self, agent: str | Agent, request: str, **given: Unpack[Given]) -> AsyncIterator[Run]:
        """Give a request to an agent and watch. Leaving the block before the end stops the run."""
        past = await self._remembered(given.get("after", ""))
        async with driven(self._begin(agent, request, past=past, **given)) as run:
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
        started = await self._started(run)
        self._casting.checked(started.agents, self.settings.as_recorded(started.settings))
        ways = PATTERNS if on_discussion is None else Patterns(on_discussion)
        taken = await self._taken_over(run, functions=_functions(tools), is_attended=is_attended, ways=ways)
        async with driven(taken) as resumed:
            yield resumed

    async def enqueue(
        self,
        agent: str | Agent,
        request: str,
        errand: Errand,
        *,
        run: str = "",
        settings: Settings | None = None,
        **given: Unpack[Given],
    ) -> str:
        """Write down a request for a worker, which another process will work on; the id of its run.

        `run` is an id that was chosen before; where there is a run with it already, nothing is done. `settings` are
        those that it works with, where they are not this Podium's.
        """
        if run and await self.is_known(run):
            return run
        from .workers.provider_keys import hand_over  # here, because most runs are no worker's

        begun = self._begin(agent, request, errand=errand, id=run, settings=settings, **given)
        # Not to be cut short: what is written down and not let go of could be worked on by nobody.
        with CancelScope(shield=True):
            await to_thread.run_sync(hand_over, self.settings.store, begun.id, self.keys)
            await begun.left()
        ring_once(bell_folder(self.settings.store), "owner")
        return begun.id

    @property
    def keys(self) -> dict[str, str]:
        """What models are called with here: variables with keys and addresses."""
        # Each, also where it is not set: no key may go to the address that another shell has given.
        return {name: self._environ.get(name, "") for name in KEY_NAMES | ADDRESS_NAMES}

    async def is_known(self, run: str) -> bool:
        """Whether there is a run with this id."""
        return bool(await self._store.rows(run))

    async def entries(self, run: str) -> list[Entry]:
        """A run's timeline as it stands."""
        return [decode(row.line) for row in await self._store.rows(run)]

    async def fail(self, run: str, why: str) -> None:
        """End a run that nobody works on and that cannot go on."""
        await self._started(run)
        taken = await self._taken_over(run)
        await taken.fail(why)

    async def rest(self, run: str) -> None:
        """Pause a run that nobody works on: it goes on only when it is named. Raises RunHeld where somebody does."""
        await self._started(run)
        taken = await self._taken_over(run)
        await taken.rest()

    async def stop(self, run: str, by: str = "") -> None:
        """End a run with what there is, whoever works on it; where nobody does, it is ended here."""
        await self._started(run)
        await to_thread.run_sync(partial(post, self.settings.store, run, StopAsked(by=by)))
        try:
            taken = await self._taken_over(run)
        except (RunHeld, RunOver):  # whoever works on it has heard, and may be through by now
            return
        result = await taken.drive()
        if result.outcome == "interrupted":
            raise StoreFailed(f"run {run} could not be ended: {result.error}")

    # How they are made

    def _begin(
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
        errand: Errand | None = None,
        id: str = "",
        settings: Settings | None = None,
        after: str = "",
        past: tuple[Past, ...] = (),
    ) -> Run:
        must_be_a_request(request)
        place = None if repo is None else find_repo(Path(repo))
        settings = settings or self.settings
        settings = settings if budget is None else structs.replace(settings, budget=as_budget(budget))
        first, *others = map(named, (agent, *agents))
        team, notices = self._casting.cast(
            first.agent, tuple(one.agent for one in others if isinstance(one.agent, Agent)), place
        )
        if mode is not None or max_iterations is not None:
            team = (reshaped(team[0], mode, max_iterations), *team[1:])
        way_of(team[0])
        must_have_a_repository(team, place)
        own = [function for one in (first, *others) for function in one.functions if function not in tools]
        functions = _functions(tuple(dict.fromkeys((*tools, *own))))
        self._casting.must_be_kept(settings.budget, team, settings)
        started = RunStarted(
            agent=team[0].name,
            request=Request(text=self._redaction.text(request)),
            agents=team,
            settings=self._recorded if settings is self.settings else settings.recorded(),
            repo=_workplace(place, errand),
            version=__version__,
            errand=errand,
            after=after,
        )
        bypassed = [BYPASSED] if settings.permission_mode == "bypass" else []
        lease, timeline, begun = self._written(started, id, (*settings.notices, *notices, *bypassed))
        ways = PATTERNS if on_discussion is None else Patterns(on_discussion)
        return self._run(
            lease,
            timeline,
            begun,
            settings,
            functions=functions,
            for_all=len(tools),
            is_attended=is_attended,
            ways=ways,
            past=past,
        )

    def _written(self, started: RunStarted, id: str, notices: Iterable[str]) -> tuple[SqliteLease, Timeline, Entry]:
        """A new run on its timeline, with what the person should know about it."""
        id = id or secrets.token_hex(6)
        lease = self._store.begin(id, None if started.errand is None else hiring(id, started.errand))
        timeline = Timeline(lease.run, lease, redaction=self._redaction)
        begun = timeline.append(started, scope="")
        for notice in notices:
            timeline.append(Noticed(text=notice), scope="")
        return lease, timeline, begun

    async def _started(self, run: str) -> RunStarted:
        """How a run began; raises Mistake when it has ended."""

        def look() -> Summary:
            with Reader(self.settings.store) as reader:
                return reader.summary(run)

        summary = await to_thread.run_sync(look)
        must_not_have_ended(run, summary.last)
        assert isinstance(summary.first.event, RunStarted)
        return summary.first.event

    async def _taken_over(
        self, id: str, *, functions: Sequence[Acting] = (), is_attended: bool = False, ways: Ways = PATTERNS
    ) -> Run:
        lease = await self._store.claim(id)
        try:
            rows = await self._store.rows(id)
            must_not_have_ended(id, decode(rows[-1].line))
            first = decode(rows[0].line)
            started = first.event
            assert isinstance(started, RunStarted)
            timeline = Timeline(id, lease, redaction=self._redaction)
            timeline.load(rows)
            settings = self.settings.as_recorded(started.settings)
            past = await self._remembered(started.after)
            run = self._run(
                lease, timeline, first, settings, functions=functions, is_attended=is_attended, ways=ways, past=past
            )
            # Letters first: a pause that was asked for before the run is resumed is over with that.
            self._store.collect_mail(lease)
            timeline.append(RunResumed(host=socket.gethostname(), pid=os.getpid()), scope="")
            if settings.permission_mode == "bypass":
                timeline.append(Noticed(text=BYPASSED), scope="")
            await timeline.settled()
        except BaseException:
            self._store.release(lease)
            raise
        return run

    async def _remembered(self, run: str) -> tuple[Past, ...]:
        """What was said in a run and in those that it went on from, the first of them first."""
        said: list[Past] = []
        while run:
            if not (rows := await self._store.rows(run)):
                raise Mistake(f"there is no run {run!r} to go on from; podium ps lists those there are")
            earlier = recalled(rows)
            said[:0], run = earlier.past, earlier.after
        return tuple(said)

    def _run(
        self,
        lease: SqliteLease,
        timeline: Timeline,
        first: Entry,
        settings: Settings,
        *,
        functions: Sequence[Acting],
        for_all: int | None = None,
        is_attended: bool,
        ways: Ways = PATTERNS,
        past: tuple[Past, ...] = (),
    ) -> Run:
        started = first.event
        assert isinstance(started, RunStarted)

        unattended = None if is_attended else settings.unattended

        def notice(text: str) -> None:
            timeline.append(Noticed(text=readable(text)), scope="")

        outfit = Outfit(
            settings,
            started.agents,
            directory=Path(started.repo) if started.repo else None,
            functions=functions,
            for_all=for_all,
            environ=self._environ,
            unattended=unattended,
            notice=notice,
        )
        engagement = Engagement(
            timeline=timeline,
            agents={agent.name: agent for agent in started.agents},
            ways=ways,
            engine_for=partial(self._engine_for, settings),
            keeper=Keeper(self._minds, noticed=notice),
            offer=outfit.offer,
            checking=outfit.checking if started.repo else None,
            placing=cache(partial(self._sending, settings, timeline.run, started, unattended))
            if started.repo
            else None,
            briefing=settings.briefing,
            allowance=Allowance(timeline, "", settings.budget, of=""),
            rules=self._rules if settings is self.settings else settings.rules(),
            mode=settings.permission_mode,
            directory=started.repo,
            unattended=unattended,
            patience=self._patience if settings is self.settings else settings.whole_patience(),
            past=past,
        )
        closing = None if started.errand is None else partial(self._brought_home, timeline, started)
        return Run(self._store, lease, first=first, engagement=engagement, outfit=outfit, closing=closing)

    def _sending(self, settings: Settings, run: str, started: RunStarted, unattended: Unattended | None) -> Placement:
        from .workers.local_placement import Sending  # here, because most runs send nobody, and it needs this module

        return Sending(
            self, settings, run, Path(started.repo), errand=started.errand, is_unattended=unattended == "deny"
        )

    async def _brought_home(self, timeline: Timeline, started: RunStarted, succeeded: bool) -> str:
        from .workers.work_commit import returned  # here, because most runs are no worker's

        return await returned(timeline, started, self.settings, succeeded=succeeded)

    def _engine_for(self, settings: Settings, agent: Agent) -> Engine:
        named = ("" if agent.model == "inherit" else agent.model) or settings.model
        wanted = resolved(named, settings.models).models if named else ()
        default = resolved(settings.model, settings.models).models[0] if settings.model else ""
        return self._engines.for_agent(agent, wanted, model=default, url=settings.base_url)


def _workplace(repo: Path | None, errand: Errand | None) -> str:
    if errand is not None:
        return errand.path
    return "" if repo is None else str(repo)


def _functions(tools: Sequence[Callable[..., object]]) -> tuple[Acting, ...]:
    if not tools:
        return ()
    from .tools.toolset import function_tools  # here, because most runs have no use for it

    return function_tools(tools)


def traffic_of(settings: Settings, provider: str) -> Traffic:
    """The limits that the settings give for a provider."""
    limits = settings.providers.get(provider)
    if limits is None:
        return Traffic()
    return Traffic(
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        concurrent=limits.concurrent,
    )
