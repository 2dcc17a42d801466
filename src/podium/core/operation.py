"""Run operations. An operation is the work of one agent on one request.

An operation gathers advice, does the agent's own work, then hands off. The patterns for these three
phases are passed in; this module does not depend on them. Patterns can start child
operations. An operation is a step: if its outcome is on the timeline, the answer is read from there.

The code that cancels an operation records why. A cancelled operation writes nothing itself, so
the work of an interrupted process can be resumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from anyio import move_on_after
from msgspec import structs

from ..policy import Mode, Rules, Verdict, check, narrow_rules
from ..values.action import Action
from ..values.agent import Agent
from ..values.errors import AgentFailed, Failure, FailureKind, Mistake
from ..values.event import Checked, Noticed, OperationEnded, OperationStarted, ToolUse, Trigger
from ..values.operation_path import parse_plan_step
from ..values.request import Answer, Part, Request
from ..values.usage import DEFAULT_TURN_LIMITS, TurnLimits, Unattended
from .budget import Allowance, TimeLimit
from .decision_state import NO_DECISIONS, RepositoryDecisions
from .engine import Engine, EngineSessionSpec, PastTurn, ReplyFormat, Tool
from .engine_sessions import EngineSessionTasks
from .gate import Gate, SavedRules
from .journal_rows import compute_digest
from .member_change import apply_recorded_change
from .placement import DEFAULT_OPTIONS, Placement, WorkerOptions
from .plan_state import store_artifact
from .run_repository import RunRepository, TeamWork
from .scope import Scope
from .session import Session, read_past_turns
from .timeline import Timeline
from .tool_rate_limit import RateLimit

if TYPE_CHECKING:
    from .run_hooks import RunHooks

from ..values.operation_path import parse_agent_name

MEMBER = "member:"


NO_RULES = Rules()
STOP_SECONDS = 5.0
"""How long to wait for workers that were asked to stop."""


async def do_nothing() -> None:
    """Do nothing: the files of a run without a repository are not saved."""


class ExecutionPatterns(Protocol):
    """The patterns that agents use to gather advice, do their own work and hand off."""

    async def advise(self, op: Operation, request: Request) -> Request:
        """Return the request with the advisors' advice added."""
        ...

    async def perform(self, op: Operation, request: Request) -> Answer:
        """Return the agent's own answer to the request."""
        ...

    async def hand_off(self, op: Operation, request: Request, answer: Answer) -> Answer:
        """Return the next agent's answer; if there is no next agent, return `answer` itself."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Everything that a run's operations share."""

    timeline: Timeline
    agents: Mapping[str, Agent]
    patterns: ExecutionPatterns
    engine_for: Callable[[Agent], Engine]
    session_tasks: EngineSessionTasks
    offer_tools: Callable[[Operation], Awaitable[tuple[Tool, ...]]]
    """Returns the tools that an operation's agent may use. Tools with side effects are wrapped by the gate."""
    repository: RunRepository | None = None
    """The repository that the run works in, or None if there is none."""
    build_system_prompt: Callable[[Agent], str] = attrgetter("prompt")
    """Builds an agent's system prompt."""
    decisions: RepositoryDecisions = NO_DECISIONS
    allowance: Allowance
    rules: Rules = NO_RULES
    mode: Mode = "default"
    unattended: Unattended | None = "deny"
    """How agents' requests and questions are handled without a person, or None if a person is available to answer."""
    turn_limits: TurnLimits = DEFAULT_TURN_LIMITS
    earlier_turns: tuple[PastTurn, ...] = ()
    """The turns of the earlier runs that this run continues."""
    hooks: RunHooks | None = None
    """The hooks of the run, or None if it has none."""
    saved_rules: SavedRules = field(default_factory=SavedRules)
    active_agents: Counter[str] = field(default_factory=Counter)
    """How many operations of each agent are running in this process."""
    rate_limits: dict[str, RateLimit] = field(default_factory=dict)
    """The rate limit of each agent, keyed by name."""

    def rate_limit_for(self, agent: str) -> RateLimit:
        """Return an agent's rate limit, shared by all its operations in the run."""
        return self.rate_limits.setdefault(agent, RateLimit(self.turn_limits.tool_calls_a_minute))

    def root_operation(self, agent: str) -> Operation:
        """Return the first operation of the run."""
        return Operation(self, self.agents[agent], path=agent, trigger="request", parent=None)


class Operation:
    """The work of one agent on one request."""

    def __init__(
        self,
        context: RunContext,
        agent: Agent,
        *,
        path: str,
        trigger: Trigger,
        parent: Operation | None,
        after: Operation | None = None,
        within: Allowance | None = None,
    ) -> None:
        self.agent = agent
        self.agents = context.agents
        self.trigger = trigger
        self.parent = parent
        self.scope = Scope(context.timeline, path, operation=path, digest="")
        self.request = Request(text="")
        """The request to this agent, before any advice."""
        above: Operation | RunContext = context if parent is None else parent
        self.allowance: Allowance = (within or above.allowance).for_operation(path, agent.budget, of=agent.name)
        self.rules: Rules = _narrow_rules(above.rules, agent)
        """The permission rules of this agent; never more permissive than those of the parent operation or the run."""
        self.mode: Mode = above.mode if above.mode == "plan" else agent.permission_mode or above.mode
        """The permission mode of this agent. The mode `plan` also applies to all descendants of this operation."""
        self.coordination_tools: tuple[Tool, ...] = ()
        """Tools for working with other agents. Set by a pattern."""
        self.reply_format: ReplyFormat | None = None
        """The format of the reply, or None for free text. Set by a pattern."""
        self.is_correction: bool = False
        """Whether the previous reply is left out of the conversation. Set by a pattern."""
        self.worker_options: WorkerOptions = DEFAULT_OPTIONS
        """The options for starting a worker that runs this operation. Set by a pattern."""
        self.time_limit: TimeLimit | None = None
        """The time left for a group of operations that includes this one. None means no limit. Set by a pattern."""
        self.checkout: str = "" if parent is None else parent.checkout
        """The checkout that this agent's tools use instead of the run's own, if it is not empty. Set by a pattern."""
        self._context = context
        self._continues_from = after
        self._session: Session | None = None

    async def run(self, request: Request) -> Answer:
        """Run the operation and return the agent's answer. Raise AgentFailed if the operation fails.

        If the operation's outcome is already on the timeline, use that outcome and do not run the operation again.
        """
        self.request = request
        # The digest does not cover notes: Podium derives them from recorded facts, and a newer release may reword them.
        self.scope.digest = compute_digest(self.agent, request.text, request.origin, self.trigger)
        if (ended := self.scope.find_outcome(OperationEnded)) is None:
            active = self._context.active_agents
            active[self.agent.name] += 1
            try:
                ended = self.scope.record_outcome(await self._perform_request(request))
            finally:
                active[self.agent.name] -= 1
            self._report_unread_messages()
        if ended.failure is not None:
            raise AgentFailed(ended.failure, so_far=ended.text)
        return Answer(text=ended.text, data=ended.data, parts=ended.parts)

    async def _perform_request(self, request: Request) -> OperationEnded:
        """Gather advice, do the agent's own work, then hand off. Return how this ended, even if the agent fails.

        Two optional time limits apply: the agent's own, and one shared with other operations.
        """
        self.scope.record(OperationStarted(agent=self.agent.name, trigger=self.trigger, request=request))
        patterns, timeline, limit = self._context.patterns, self.scope.timeline, self._find_time_limit()
        with (
            nullcontext() if limit is None else timeline.work.timeouts.apply_timeout(self.scope.path, limit.seconds)
        ) as timeout:
            try:
                try:
                    advised = await patterns.advise(self, request)
                    answer = await patterns.perform(self, advised)
                finally:
                    await self._close_session()
                ended = self._build_end(await patterns.hand_off(self, request, answer))
            except AgentFailed as error:
                ended = structs.replace(_build_failed_end(error.failure), text=error.so_far)
        if limit is None or timeout is None:
            return ended
        if timeout.scope.cancelled_caught:
            await timeline.work.wait_while_paused()
            await self.stop_workers()
            ended = _build_failed_end(self.make_error("budget", limit.message).failure)
        seconds = 0.0 if self.time_limit is None else round(timeout.active_seconds, 3)
        return structs.replace(ended, seconds=seconds)

    def _find_time_limit(self) -> TimeLimit | None:
        """Return the shorter of the agent's own time limit and the one shared with other operations, if any."""
        own = None if self.agent.budget is None else self.agent.budget.seconds
        if own is None or (self.time_limit is not None and self.time_limit.seconds <= own):
            return self.time_limit
        return TimeLimit(seconds=own, message=f"its budget of {own:g} s is used up")

    def _build_end(self, answer: Answer) -> OperationEnded:
        """Return the event for the end of the operation with the agent's answer."""
        proof = self.scope.timeline.index.proof
        if self.mode == "plan":
            proof.forget(self.scope.path)  # a reader's answer is its work, whatever it was not allowed to do
        unproved = proof.find_problem(self.scope.path)
        return OperationEnded(
            outcome="succeeded", text=answer.text, data=answer.data, parts=answer.parts, unproved=unproved
        )

    async def run_as_part(self, request: Request, *, timeout: float | None = None) -> Part:
        """Run the operation and return its outcome as a `Part`, whether it succeeds or fails.

        Cancel the operation after `timeout` seconds.
        """
        try:
            with self.scope.timeline.work.timeouts.apply_timeout(self.scope.path, inf if timeout is None else timeout):
                answer = await self.run(request)
                return Part(agent=self.agent.name, outcome="succeeded", text=answer.text)
            await self.scope.timeline.work.wait_while_paused()
            await self.stop_workers()
            late = self.make_error("timed_out", f"timed out after {timeout:g} s").failure
            ended = self.scope.find_outcome(OperationEnded) or self.scope.record_outcome(_build_failed_end(late))
            self._report_unread_messages()
        except AgentFailed as error:
            ended = structs.replace(_build_failed_end(error.failure), text=error.so_far)
        return Part(agent=self.agent.name, outcome=ended.outcome, text=ended.text, failure=ended.failure)

    def _report_unread_messages(self) -> None:
        """Record which messages the agent has not received, unless another operation of it can still receive them."""
        if self.parent is None or self._context.active_agents[self.agent.name]:
            return
        for message in self.scope.timeline.index.messages.list_undelivered(self.agent.name):
            said = f"{message.to} finished its task before it received the message: {message.text}"
            self.scope.record_each_time(Noticed(text=said))

    def child(
        self,
        agent: str | Agent,
        trigger: Trigger,
        *,
        at: Scope | None = None,
        after: Operation | None = None,
        within: Allowance | None = None,
    ) -> Operation:
        """Return a child operation for an agent.

        `at` is the scope below which the child is recorded, such as a tool call; the default is this operation's scope.
        `after` is an earlier operation of the same agent, whose conversation the child continues. `within` is an
        allowance nested in this operation's allowance, such as the allowance of a plan step.
        """
        chosen = self.agents[agent] if isinstance(agent, str) else agent
        place = (at or self.scope).next_child(f"{trigger}:{chosen.name}")
        chosen = apply_recorded_change(chosen, place)
        return Operation(
            self._context, chosen, path=place.path, trigger=trigger, parent=self, after=after, within=within
        )

    @property
    def placement(self) -> Placement | None:
        """The placement that starts workers, or None if there is no repository for them."""
        return None if self._context.repository is None else self._context.repository.get_placement()

    @property
    def repository(self) -> TeamWork | None:
        """The interface to the team's work in the run's repository, or None if there is no repository."""
        return None if self._context.repository is None else self._context.repository.get_work()

    @property
    def decisions(self) -> RepositoryDecisions:
        """The decisions that apply in the run's repository."""
        return self._context.decisions

    @property
    def can_check(self) -> bool:
        """Whether commands can be run on a checkout of the work."""
        return self._context.repository is not None

    @property
    def unattended(self) -> Unattended | None:
        """How questions are handled if no person is available, or None if a person is available."""
        return self._context.unattended

    def grant_rules(self, approved: tuple[str, ...]) -> None:
        """Add allow rules that a person approved for this operation. Rules that ask or deny still apply."""
        self.rules = structs.replace(self.rules, allow=self.rules.allow + approved)

    async def stop_workers(self) -> None:
        """Stop all workers that were started at or below this operation and have not returned."""
        runs = self._list_unreturned_workers()
        if not runs or self.placement is None:
            return
        await self.placement.stop_workers(runs)
        with move_on_after(STOP_SECONDS):
            for run in runs:
                # A worker's usage counts even if its answer is no longer needed.
                self.scope.child(f"worker:{run}").record_outcome(await self.placement.wait_for_result(run))

    async def record_ended_workers(self) -> None:
        """Check each worker that has not returned. If it has ended, record its result, so that its usage counts."""
        for run in self._list_unreturned_workers():
            if self.placement is not None and (ended := await self.placement.poll_result(run)) is not None:
                self.scope.child(f"worker:{run}").record_outcome(ended)

    def _list_unreturned_workers(self) -> list[str]:
        """Return the run ids of all workers that were started at or below this operation and have not returned."""
        prefix = f"{self.scope.path}/"
        return [
            run
            for run, sent in self.scope.timeline.index.unreturned_workers.items()
            if f"{sent.operation}/".startswith(prefix)
        ]

    @property
    def duration(self) -> float:
        """How many seconds the operation took, according to the timeline."""
        began = self.scope.timeline.outcome_time(f"{self.scope.path}/operation_started#1")
        ended = self.scope.timeline.outcome_time(self.scope.path)
        return 0.0 if began is None or ended is None else ended - began

    @property
    def active_seconds(self) -> float:
        """How many seconds the operation took, excluding the time spent waiting for a person.

        The time is recorded when the operation ends, and only if the operation shares a time limit with other
        operations. If the time is not recorded, this is 0.
        """
        ended = self.scope.find_outcome(OperationEnded)
        return 0.0 if ended is None else ended.seconds

    def past_turns(self) -> list[PastTurn]:
        """Return the agent's turns in this operation and in the operations that it continues."""
        return [*self._earlier_turns(), *read_past_turns(self.scope)]

    def _earlier_turns(self) -> list[PastTurn]:
        """Return the turns before this operation; an agent called as a tool starts without earlier turns."""
        if self._continues_from is not None:
            turns = self._continues_from.past_turns()
            last = [structs.replace(turn, is_refused=turn.is_refused or self.is_correction) for turn in turns[-1:]]
            return [*turns[:-1], *last]
        return [] if self.trigger == "tool" else list(self._context.earlier_turns)

    def session(self, *tools: Tool, max_turns: int | None = None) -> Session:
        """Return the agent's session in this operation. The first call creates the session, with these tools."""
        if self._session is None:
            names = [tool.name for tool in tools]
            if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
                raise self.make_error("failed", f"two of its tools are named {twice}; rename the agent or function")
            spec = EngineSessionSpec(
                agent=self.agent,
                system=self._context.decisions.add_to_prompt(self._context.build_system_prompt(self.agent)),
                tools=tools,
                max_turns=max_turns or self.agent.max_turns or 50,
                schema=self.agent.output if isinstance(self.agent.output, dict) else None,
                allowance=self.allowance,
                gate=self.gate,
                run=self.scope.timeline.run,
            )
            try:
                engine = self._context.engine_for(self.agent)
            except Mistake as error:
                raise self.make_error("engine", str(error)) from error
            self._session = Session(
                engine,
                spec,
                self.scope,
                session_tasks=self._context.session_tasks,
                turn_limits=self._context.turn_limits,
                past_turns=self._earlier_turns(),
            )
        return self._session

    async def session_without_tools(self) -> Session:
        """Remove all tools from the agent's session and return the session. Its conversation continues."""
        if self._session is None:
            return self.session()
        self._session = await self._session.reopen(())
        return self._session

    @cached_property
    def gate(self) -> Gate:
        """The gate that this agent's actions pass through."""
        repository = self._context.repository
        return Gate(
            self._judge_action,
            agent=self.agent.name,
            checkouts=(self.checkout,) if self.checkout else () if repository is None else repository.checkouts,
            allowance=self.allowance,
            rate_limit=self._context.rate_limit_for(self.agent.name),
            unattended=self._context.unattended,
            approval_seconds=self._context.turn_limits.approval,
            before_change=do_nothing if repository is None else repository.save_before_change,
            saved_rules=self._context.saved_rules,
            hooks=None if self._context.hooks is None else self._context.hooks.for_agent(self.agent),
        )

    def _judge_action(self, action: Action, changed_lines: int, guard: str) -> Verdict:
        granted = self.scope.timeline.index.requests.granted_rules + self._context.saved_rules.rules
        rules = structs.replace(self.rules, allow=self.rules.allow + granted) if granted else self.rules
        return check(action, rules, self.mode, changed_lines=changed_lines, guard=guard)

    async def run_checks(
        self, commands: tuple[str, ...], place: Scope, *, commit: str = "", log_name: str = ""
    ) -> Checked:
        """Run commands on a clean checkout of a commit, by default of the current work, and record the result.

        With `log_name`, the whole output is stored as an artifact with this name if the commands fail or print a lot.
        """
        if (known := place.find_outcome(Checked)) is not None:
            return known
        if self._context.repository is None:
            why = "there is no repository to check the work in"
            return place.record_outcome(Checked(commands=commands, passed=False, output=why))
        tool = self.gate.wrap_tool(self._context.repository.make_check_tool(commands, commit))
        answer = await tool.answer(ToolUse(id=place.path, name=tool.name, arguments={}), place)
        if answer.log and log_name:
            store_artifact(place, "log", log_name, answer.log, step=parse_plan_step(place.path))
        # No model called this tool, so a refusal uses the wording for the user.
        output = f"the checks were not run: {answer.refusal}" if answer.refusal else answer.text
        return place.record_outcome(
            Checked(commands=commands, passed=not answer.is_error, output=output, refusal=answer.refusal)
        )

    async def offer_tools(self) -> tuple[Tool, ...]:
        """Return the tools that the agent may use. Tools with side effects are wrapped by the gate."""
        return await self._context.offer_tools(self)

    def make_error(self, kind: FailureKind, message: str, *, so_far: str = "") -> AgentFailed:
        """Return an AgentFailed error for this agent; `so_far` is its partial answer."""
        return AgentFailed(Failure(kind=kind, agent=self.agent.name, message=message), so_far=so_far)

    async def _close_session(self) -> None:
        if self._session is not None:
            await self._session.aclose()


def _narrow_rules(rules: Rules, agent: Agent) -> Rules:
    own = agent.permissions
    return rules if own is None else narrow_rules(rules, Rules(ask=own.ask, deny=own.deny))


def _build_failed_end(failure: Failure) -> OperationEnded:
    return OperationEnded(outcome=failure.outcome, failure=failure)


def find_lost_members(place: Scope) -> list[Failure]:
    """Return why members below a scope failed: one failure for each that has an unknown model and completed no task."""
    lost: dict[tuple[str, str], Failure] = {}
    done: set[tuple[str, str]] = set()
    for entry in place.timeline.find_entries_below(place.path, OperationEnded):
        team, _, segment = entry.operation.rpartition("/")
        if not segment.startswith(MEMBER) or not isinstance(entry.event, OperationEnded):
            continue
        member = (team, parse_agent_name(entry.operation))
        failure = entry.event.failure
        if failure is None:
            done.add(member)
        elif failure.is_unknown_model:
            lost[member] = failure
    return [failure for member, failure in lost.items() if member not in done]
