"""Create, claim and end the runs of one store in this process.

`Runs` writes a new run to the store or claims an existing one, and returns its driver, which works on it.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from anyio import to_thread
from msgspec import structs

from .. import __version__
from ..core.earlier_runs import load_earlier_turns
from ..core.journal_rows import JournalRow
from ..core.redaction import Redaction
from ..core.timeline import Timeline
from ..engines.model.providers import REHEARSAL, find_key_names, read_provider_variables, without_credentials
from ..files.agent_trust import digest_servers, require_same_servers
from ..files.settings import Settings
from ..patterns.registry import OnDiscussion, Pattern, Patterns, find_pattern
from ..store.attachment_rows import build_attachment_copy
from ..store.reader import RunSummary, StoreReader
from ..store.run_integrity import require_intact_run
from ..store.run_store import RunLease
from ..store.sql_connection import Statement
from ..store.worker_index import build_worker_insert
from ..system.identity import read_machine_boot
from ..system.locations import find_repo
from ..values.actor import Actor
from ..values.agent import Agent, Budget
from ..values.errors import Mistake, RunHeld, RunIsPaused, RunOver, RunRefused, StoreFailed
from ..values.event import (
    KINDS,
    Entry,
    MessageReceived,
    Noticed,
    OperationStarted,
    PauseAsked,
    RunPaused,
    RunResumed,
    RunStarted,
    decode_entry,
)
from ..values.fleet_job import FleetJob
from ..values.request import Request
from ..values.worker_task import WorkerTask
from ..views.run_phase import is_startable
from ..workspace.git.stored_credentials import read_stored_credentials
from .assembly.preflight import (
    add_constraints,
    apply_run_mode,
    apply_team_defaults,
    require_not_ended,
    require_repository,
    validate_decision,
    validate_request,
    without_traces,
)
from .assembly.run_agents import RunAgents, extract_functions, index_patterns
from .assembly.run_assembly import OwnParts, RunParts, locate_run
from .assembly.run_guidance import read_guidance
from .assembly.run_hook_table import describe_untrusted_hooks
from .assembly.run_tools import wrap_functions
from .driver import RunDriver
from .late_wakeup import describe_late_wakeup
from .queries.repository_decisions import describe_decisions_in_force
from .run_authority import load_run_start, make_powerless
from .run_options import RunOptions, apply_options, require_known_options

NOTHING_OWN = OwnParts()
BYPASS_NOTICE = (
    "Permissions are bypassed: agents act without asking, "
    "unless an ask rule, a deny rule or a built-in protection applies."
)


class Runs:
    """Creates, claims and ends the runs of one open store, whose `parts` the composition root chooses."""

    def __init__(self, parts: RunParts) -> None:
        self.settings = parts.settings
        self._store = parts.store
        self._environ = parts.environ
        self._engine_for = parts.engine_for
        self._redaction = Redaction.from_environment(parts.environ, find_key_names(parts.environ))
        self._run_agents = RunAgents(parts.settings, parts.environ, self._redaction, parts.engine_for)
        self._settings_record = parts.settings.to_record()
        self._parts = parts

    @property
    def provider_variables(self) -> dict[str, str]:
        """The environment variables that contain the keys and addresses of model providers."""
        return read_provider_variables(self._environ)

    async def create(
        self,
        agent: str | Agent,
        request: str,
        options: RunOptions,
        *,
        by: Actor,
        worker_task: WorkerTask | None = None,
        id: str = "",
        settings: Settings | None = None,
        job: FleetJob | None = None,
        notice: str = "",
    ) -> RunDriver:
        """Write a new run to the store and return its driver. The caller then drives or releases the run.

        `by` is who starts the run. `id` is an id chosen in advance. `settings` replaces the default settings. If
        `job` is given, the run is for the hosts of a fleet. `notice` is added to the run's timeline. Raise Mistake if
        the run cannot start.
        """
        require_known_options(options)
        # A worker's earlier turns are loaded by the process that takes over its run.
        after = options.get("after", "") if worker_task is None else ""
        earlier_turns = await load_earlier_turns(after, self._store.read_rows)
        settings = apply_options(options, settings or self.settings)
        validate_request(request)
        repo = options.get("repo")
        place = None if repo is None else find_repo(Path(repo))
        team, own, notices = self._select_team(agent, options, place, settings)
        if (decision := options.get("decision")) is not None:
            validate_decision(decision, team)
        checkouts = () if worker_task is None else worker_task.checkouts
        guidance, guidance_notices = await read_guidance(place, team, settings, self._redaction, checkouts)
        started = RunStarted(
            agent=team[0].name,
            request=Request(text=self._redaction.redact_text(request)),
            agents=team,
            settings=self._settings_record if settings is self.settings else settings.to_record(),
            repo=worker_task.path if worker_task is not None else str(place or ""),
            version=__version__,
            errand=worker_task,
            after=options.get("after", ""),
            decision=decision,
            decisions="" if place is None else describe_decisions_in_force(self._store, place),
            guidance=guidance,
            servers=digest_servers(team, settings.mcp_servers, worker_task),
            by=by.name,
            channel=by.channel,
        )
        notices += describe_untrusted_hooks(team, place, settings.home)
        notices = [*settings.notices, *notices, *guidance_notices]
        notices += filter(None, (_describe_bypass(settings), notice))
        lease, timeline, begun = self._write_run_start(started, id, notices, own, job=job)
        return self._parts.build_driver(lease, timeline, begun, settings, own, earlier_turns=earlier_turns)

    def _select_team(
        self, agent: str | Agent, options: RunOptions, place: Path | None, settings: Settings
    ) -> tuple[tuple[Agent, ...], OwnParts, list[str]]:
        """Return the agents of a new run, what the program brings to the run, and notices."""
        tools = options.get("tools", ())
        first, *others = map(extract_functions, (agent, *options.get("agents", ())))
        own_patterns = index_patterns(pattern for one in (first, *others) for pattern in one.patterns)
        team, notices = self._run_agents.select_agents(
            first.agent,
            tuple(one.agent for one in others if isinstance(one.agent, Agent)),
            place,
            force_model=options.get("force_model", ""),
            patterns=own_patterns,
        )
        mode, max_iterations = options.get("mode"), options.get("max_iterations")
        if mode is not None or max_iterations is not None:
            team = (apply_run_mode(team[0], mode, max_iterations), *team[1:])
        if constraints := options.get("constraints", ()):
            team = (add_constraints(team[0], constraints), *team[1:])
        team = tuple(map(apply_team_defaults, team))
        if options.get("leaves_no_traces", False):
            team = tuple(map(without_traces, team))
        find_pattern(team[0], own_patterns)
        require_repository(team, place)
        own = [function for one in (first, *others) for function in one.functions if function not in tools]
        for budget in (settings.budget, settings.day_budget, settings.repository_day_budget):
            self._run_agents.check_budget(budget, team, settings)
        parts = OwnParts(
            functions=wrap_functions(tuple(dict.fromkeys((*tools, *own)))),
            for_all=len(tools),
            is_attended=options.get("is_attended", False),
            patterns=Patterns(options.get("on_discussion"), own=own_patterns),
        )
        return team, parts, notices

    async def copy(self, started: RunStarted, entries: Iterable[Entry], *, id: str, source: str) -> None:
        """Write a new run with copies of these entries, in one transaction. A process can then take over the run.

        The attachments of the run `source` are copied too.
        """
        attachments = build_attachment_copy(source, id)
        lease, timeline, _ = self._write_run_start(started, id, (), NOTHING_OWN, beside=attachments)
        for entry in entries:
            timeline.append_copy(entry)
        self._store.release_run(lease)
        await timeline.wait_written()

    def check_budget(self, started: RunStarted, budget: Budget | None) -> None:
        """Raise Mistake if the limits are invalid, or cannot be enforced for the agents of a run."""
        self._run_agents.check_budget(budget, started.agents, self.settings.with_record(started.settings))

    def check_agents(self, started: RunStarted) -> None:
        """Raise Mistake if an agent of a run cannot run on this machine."""
        self._run_agents.check_agents(started.agents, self.settings.with_record(started.settings))

    def find_rehearsed(self, agents: Iterable[Agent], settings: Settings) -> list[str]:
        """Return the names of the agents whose replies would be simulated by the rehearsal engine.

        This is the case, for example, if no model is configured. Agents that cannot run at all are left out.
        """
        found: list[str] = []
        for agent in agents:
            with suppress(Mistake):
                found += [agent.name] if self._engine_for(settings, agent).name == REHEARSAL else []
        return found

    async def claim(
        self,
        id: str,
        *,
        by: Actor,
        tools: Sequence[Callable[..., object]] = (),
        patterns: Sequence[Pattern] = (),
        is_attended: bool = False,
        on_discussion: OnDiscussion | None = None,
        continues_pause: bool = True,
        report_waiting: Callable[[str], object] | None = None,
        read_saved_rules: Callable[[], Awaitable[tuple[str, ...]]] | None = None,
        parks_at_limits: bool = False,
    ) -> RunDriver:
        """Claim a run that was interrupted or paused and return it, ready to be driven. `by` is who resumes it.

        Raise RunOver if the run has ended, RunHeld if a process is working on it, StoreCorrupt if entries were changed
        or lost, and Mistake if its folder is gone. If `continues_pause` is False, raise RunIsPaused for a paused run.
        """
        await self._require_unfinished(id)
        started = await self._load_run_start(id)
        await to_thread.run_sync(_require_folder, id, started)
        own = index_patterns(patterns)
        self._run_agents.check_agents(started.agents, self.settings.with_record(started.settings), own)
        parts = OwnParts(
            functions=wrap_functions(tools),
            patterns=Patterns(on_discussion, own=own),
            is_attended=is_attended,
            report_waiting=report_waiting,
            read_saved_rules=read_saved_rules,
            parks_at_limits=parks_at_limits,
        )
        return await self._claim(
            id, parts, by=by, must_be_intact=True, continues_pause=continues_pause, started=started
        )

    async def has_run(self, run: str) -> bool:
        """Return whether there is a run with this id."""
        return bool(await self._store.read_rows(run))

    async def read_entries(self, run: str) -> list[Entry]:
        """Return the current timeline of a run."""
        return [decode_entry(row.line) for row in await self._store.read_rows(run)]

    async def fail(self, run: str, why: str, *, by: Actor) -> None:
        """End a run as failed, because it cannot continue. Raise RunHeld if a process is working on it."""
        await (await self.claim_idle(run, by=by)).record_failure(why)

    async def pause(self, run: str, why: PauseAsked | Noticed | None = None, *, by: Actor) -> None:
        """Pause a run that no process is working on. `why` is recorded first: who asked for it, or a notice.

        Raise RunHeld if a process is working on it.
        """
        reasons = [] if why is None else [why]
        await (await self.claim_idle(run, by=by)).record_and_release(*reasons, RunPaused())

    async def claim_idle(self, run: str, *, by: Actor, must_be_intact: bool = False) -> RunDriver:
        """Claim a run that no process is working on, to record events about it. `by` is who claims it.

        This is also possible if this machine refuses to execute the run. Raise RunOver if the run has ended, and
        RunHeld if a process is working on it. With `must_be_intact`, raise StoreCorrupt if entries were changed or
        lost.
        """
        await self._require_unfinished(run)
        return await self._claim(run, by=by, must_be_intact=must_be_intact)

    async def end_stopped(self, run: str, *, by: Actor) -> bool:
        """End a run that somebody asked to stop, and keep its partial results.

        Return False if a process is working on it, which then ends it, or if it has ended already. Raise StoreFailed if
        this process cannot end it.
        """
        try:
            claimed = await self._claim(run, by=by)
        except (RunHeld, RunOver):  # its owner receives the request, and may have finished by now
            return False
        result = await claimed.run()
        if result.outcome == "interrupted":
            raise StoreFailed(f"run {run} could not be ended: {result.error}")
        return True

    def _write_run_start(
        self,
        started: RunStarted,
        id: str,
        notices: Iterable[str],
        own: OwnParts,
        *,
        beside: Statement | None = None,
        job: FleetJob | None = None,
    ) -> tuple[RunLease, Timeline, Entry]:
        """Write the start of a new run and its notices to the run's timeline.

        `beside` is an additional SQL statement to execute in the same transaction. It is ignored for a worker's run:
        the statement that inserts the worker and its `job` is then executed instead.
        """
        id = id or secrets.token_hex(6)
        started = structs.replace(started, host=socket.gethostname(), boot=read_machine_boot())
        beside = beside if started.errand is None else build_worker_insert(id, started.errand, job)
        lease = self._store.begin_run(id, beside)
        timeline = self._parts.open_timeline(lease, self._build_redaction(started), own)
        begun = timeline.append(started, scope="")
        for notice in notices:
            timeline.append(Noticed(text=notice), scope="")
        return lease, timeline, begun

    def _build_redaction(self, started: RunStarted) -> Redaction:
        """Return the redaction for a run: of the secrets in the environment and in its repositories' configuration."""
        found: dict[str, str] = {}
        for checkout in started.checkouts:
            found |= read_stored_credentials(Path(checkout.path))
        return self._redaction.add_secrets(found)

    async def _require_unfinished(self, run: str) -> None:
        """Raise RunOver if a run has ended."""

        def read_summary() -> RunSummary:
            with StoreReader(self.settings.store) as reader:
                return reader.read_summary(run)

        require_not_ended(run, (await to_thread.run_sync(read_summary)).last)

    async def _load_run_start(self, run: str) -> RunStarted:
        """Return the first event of a run, as this machine may execute it. Raise RunRefused if it may not."""
        return await to_thread.run_sync(load_run_start, self.settings.store, run)

    async def _claim(
        self,
        id: str,
        own: OwnParts = NOTHING_OWN,
        *,
        by: Actor,
        must_be_intact: bool = False,
        continues_pause: bool = True,
        started: RunStarted | None = None,
    ) -> RunDriver:
        """Claim a run and load its timeline. If `must_be_intact`, raise StoreCorrupt if entries were changed or lost.

        A damaged run can still be ended or paused. `started` is the start of a run that is then executed. A run that
        this machine may not execute can be ended without it; none of its hooks is called.
        """
        lease = await self._store.claim_run(id)
        try:
            rows = await self._store.read_rows(id)
            last = decode_entry(rows[-1].line)
            require_not_ended(id, last)
            if not continues_pause and not is_startable(last.event, now=time.time()):
                raise RunIsPaused(f"run {id} is paused; continue it with: podium resume {id}")
            notices = [describe_late_wakeup(last.event)]
            if must_be_intact:
                notices.append(await to_thread.run_sync(require_intact_run, self.settings.store, id, rows))
            first = decode_entry(rows[0].line)
            first = structs.replace(first, event=started or await self._load_powerless_start(id, first.started))
            settings, notice = self._restore_settings(first.started, rows, must_be_intact=must_be_intact)
            messages = [] if started is None else await self._recover_files(rows, first, lease.epoch)
            run = await self._load_run(lease, rows, first, settings, own)
            # Deliver the mail before the run is resumed. If it contains a request to pause, resuming the run then ends
            # that pause.
            await run.deliver()
            resumed = RunResumed(host=socket.gethostname(), pid=os.getpid(), boot=read_machine_boot())
            run.timeline.append(resumed.with_actor(by), scope="")
            for message in messages:
                run.timeline.append(message, scope="")
            for text in filter(None, (*notices, notice, _describe_bypass(settings))):
                run.timeline.append(Noticed(text=text), scope="")
            await run.timeline.wait_written()
        except BaseException:
            self._store.release_run(lease)
            raise
        return run

    async def _load_powerless_start(self, run: str, recorded: RunStarted) -> RunStarted:
        """Return the first event of a run to end, without its hooks if this machine may not execute the run."""
        try:
            return await self._load_run_start(run)
        except RunRefused:
            return make_powerless(recorded)

    def _restore_settings(
        self, started: RunStarted, rows: Sequence[JournalRow], *, must_be_intact: bool
    ) -> tuple[Settings, str]:
        """Return the settings that a run started with, and a notice if this machine calls another address."""
        settings = self.settings.with_record(started.settings)
        if must_be_intact and any(row.kind == KINDS[OperationStarted] for row in rows):
            require_same_servers(rows[0].run, started.servers, settings.mcp_servers)
        if settings.base_url:
            return settings, ""
        settings = settings.with_own_address(self._environ)
        recorded = decode_entry(rows[0].line).started.settings.get("base_url", "")
        return settings, _describe_address(recorded, settings.base_url, rows)

    async def _load_run(
        self, lease: RunLease, rows: Sequence[JournalRow], first: Entry, settings: Settings, own: OwnParts
    ) -> RunDriver:
        """Load the timeline of a claimed run, and return its driver."""
        timeline = self._parts.open_timeline(lease, self._build_redaction(first.started), own, first=first)
        timeline.load(rows)
        earlier_turns = await load_earlier_turns(first.started.after, self._store.read_rows)
        return self._parts.build_driver(lease, timeline, first, settings, own, earlier_turns=earlier_turns)

    async def _recover_files(self, rows: Sequence[JournalRow], first: Entry, epoch: int) -> list[MessageReceived]:
        """Recover the files of a run, and return the messages that tell its agents what may be missing."""
        from .checkout_recovery import recover_files  # imported here to keep start-up fast: a new run needs no recovery

        return await recover_files(rows, locate_run(first, self.settings.home).started, epoch)


def _describe_bypass(settings: Settings) -> str:
    return BYPASS_NOTICE if settings.permission_mode == "bypass" else ""


def _require_folder(run: str, started: RunStarted) -> None:
    """Raise Mistake if the folder that a run works in is gone. A worker's checkout is created again."""
    if started.errand is None and started.repo and not Path(started.repo).is_dir():
        raise Mistake(
            f"run {run} works in {started.repo}, which is no longer a folder on this machine; restore it, or end "
            f"the run with: podium stop {run}"
        )


def _describe_address(recorded: str, own: str, rows: Sequence[JournalRow]) -> str:
    """Return a notice if this machine calls another address than a run recorded, unless the timeline has it already."""
    if not recorded or not own or without_credentials(own) == recorded:
        return ""
    notice = (
        f"This machine sends the model calls to {without_credentials(own)}, which its own settings name, and not to "
        f"{recorded}, which the run recorded."
    )
    known = (decode_entry(row.line).event for row in rows if row.kind == KINDS[Noticed])
    return "" if Noticed(text=notice) in known else notice
