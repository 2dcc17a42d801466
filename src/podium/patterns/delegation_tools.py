"""Create the tools that an agent uses to start workers, check on them, get their results and cancel them.

Members of a team send each other messages. A message is recorded in the sender's run before it is posted, and in the
receiver's run when it arrives. When it is delivered to the receiver, the sender's run gets a receipt.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, TypeVar

import msgspec
from anyio import move_on_after
from msgspec import Meta, Struct, structs

from ..core.budget import combine_strictest
from ..core.engine import Tool, ToolAnswer
from ..core.gate import InvalidCall
from ..core.operation import Operation
from ..core.person_message import TEAMMATE
from ..core.placement import Placement, Teammate, WorkerOptions
from ..core.scope import Scope
from ..core.tool_call import Arguments, build_schema, parse_arguments
from ..values.agent import Budget
from ..values.errors import AgentFailed
from ..values.event import MessageReceived, MessageSent, ToolUse, WorkerReturned, WorkerSent
from ..values.json import JsonSchema
from ..values.operation_path import parse_team_operation
from ..values.plain_text import join_words
from ..values.request import describe_outcome
from ..values.tool_table import DELEGATING_TOOLS, SEND_MESSAGE
from .worker_run import DEFAULT_BUDGET_SHARE, UNSENT, make_limit_pause, start_worker

LONGEST_MESSAGE = 4000
MOST_MESSAGES = 20
"""How many messages an agent can send during one operation."""


class SendMessageArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of send_message."""

    to: Annotated[str, Meta(min_length=1)]
    text: Annotated[str, Meta(min_length=1)]


LONGEST_WAIT = 45.0
"""Maximum number of seconds to wait for a worker in one call. Some engines drop longer tool calls."""
G = TypeVar("G", bound=Struct)


def make_delegation_tools(op: Operation) -> tuple[Tool, ...]:
    """Create the delegation tools listed in the agent's file, if workers can be started."""
    wanted = [name for name in op.agent.tools or () if name in DELEGATING_TOOLS]
    if not wanted or op.placement is None:
        return ()
    made = {tool.name: tool for tool in _WorkerDelegation(op).make_tools()}
    return tuple(made[name] for name in wanted)


class NoArguments(Struct, frozen=True):
    """The arguments of a tool that takes none."""


class BranchArguments(Struct, frozen=True, kw_only=True):
    """Arguments that identify a worker by its branch."""

    branch: str


class BudgetArguments(Struct, frozen=True, kw_only=True):
    """Limits for a worker."""

    usd: Annotated[float, Meta(gt=0)] | None = None
    tokens: Annotated[int, Meta(gt=0)] | None = None
    turns: Annotated[int, Meta(gt=0)] | None = None


class DelegateTaskArguments(Struct, frozen=True, kw_only=True):
    """Arguments of `delegate_task`. They cannot give the worker more rights than the delegating agent has."""

    branch: str
    task: str
    after: str | tuple[str, ...] = ()
    agent: str = ""
    read_only: bool = False
    model: str = ""
    timeout: Annotated[float, Meta(ge=1)] | None = None
    budget: BudgetArguments = BudgetArguments()

    @property
    def after_branches(self) -> tuple[str, ...]:
        """The branches whose workers must succeed before this worker starts."""
        return (self.after,) if isinstance(self.after, str) else tuple(dict.fromkeys(self.after))

    def as_worker_options(self) -> WorkerOptions:
        """Return the options that the placement uses to start the worker."""
        limits = structs.asdict(self.budget)
        return WorkerOptions(
            after=self.after_branches,
            model=self.model or None,
            budget=Budget(**limits, seconds=self.timeout) if any(limits.values()) or self.timeout else None,
            is_reader=self.read_only,
        )


class _WorkerDelegation:
    """Creates the delegation tools of an operation, and finds its workers on the timeline."""

    def __init__(self, op: Operation) -> None:
        self._op = op

    def make_tools(self) -> list[Tool]:
        return [
            _make_tool(
                "delegate_task",
                "Start a worker in the background on its own branch.",
                {
                    "branch": _string_schema("Name of the new branch, or of the worker if read_only"),
                    "task": _string_schema("Everything that the worker needs to know"),
                    "after": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Branches to wait for",
                    },
                    "agent": {
                        "type": "string",
                        "enum": list(self._op.agents),
                    },
                    "read_only": {"type": "boolean"},
                    "model": {"type": "string"},
                    "timeout": {"type": "number", "description": "Seconds"},
                    "budget": {
                        "type": "object",
                        "description": "The worker's limits, up to your remaining budget; default: a quarter of it",
                        "properties": {
                            "usd": {"type": "number"},
                            "tokens": {"type": "integer"},
                            "turns": {"type": "integer"},
                        },
                    },
                },
                DelegateTaskArguments,
                self._delegate_task,
            ),
            _make_tool("check_workers", "Show the state of your workers.", {}, NoArguments, self._check_workers),
            _make_tool(
                "get_worker_result",
                "Wait for a worker's answer.",
                {"branch": {"type": "string"}},
                BranchArguments,
                self._get_worker_result,
            ),
            _make_tool(
                "cancel_worker",
                "Stop a worker.",
                {"branch": {"type": "string"}},
                BranchArguments,
                self._cancel_worker,
            ),
        ]

    async def _delegate_task(self, arguments: DelegateTaskArguments, place: Scope) -> ToolAnswer:
        op = self._op
        after = {branch: self._find_worker(branch) for branch in arguments.after_branches}
        for branch, earlier in after.items():
            if earlier is None:
                return self._answer_unknown_branch(branch)
        if arguments.agent and arguments.agent not in op.agents:
            there = ", ".join(op.agents)
            return ToolAnswer(text=f"Agent {arguments.agent!r} not found; available: {there}.", is_error=True)
        agent = op.agents.get(arguments.agent)
        options = structs.replace(
            arguments.as_worker_options(), after=tuple(one.branch for one in after.values() if one is not None)
        )
        sent = place.child("worker").find_outcome(WorkerSent)
        try:
            if sent is None:
                for other in self._list_workers():
                    await self._poll_outcome(other)  # this releases the budget reserved for finished workers
                own = combine_strictest(None if agent is None else agent.budget, options.budget)
                budget = op.allowance.compute_worker_budget(own, share=DEFAULT_BUDGET_SHARE, agent=op.agent.name)
                sent = WorkerSent(run=secrets.token_hex(6), branch=arguments.branch, task=arguments.task, budget=budget)
                place.child("worker").record_outcome(sent)
            await start_worker(op, sent, agent, options=options)
        except AgentFailed as error:
            why = str(error.failure.message)
            if sent is None:
                return ToolAnswer(text=why, is_error=True)
            at = op.scope.child(f"worker:{sent.run}")
            at.find_outcome(WorkerReturned) or at.record_outcome(
                WorkerReturned(run=sent.run, outcome="failed", error=why)
            )
            return ToolAnswer(text=why, is_error=True)
        return ToolAnswer(text=f"Started a worker on {sent.branch} (run {sent.run}).")

    async def _check_workers(self, arguments: NoArguments, place: Scope) -> ToolAnswer:
        placement = self._op.placement
        assert placement is not None
        lines = [f"{sent.branch}: {await placement.describe_worker(sent.run)}" for sent in self._list_workers()]
        return ToolAnswer(text="\n".join(lines) or "You have not started any workers yet.")

    async def _get_worker_result(self, arguments: BranchArguments, place: Scope) -> ToolAnswer:
        op = self._op
        sent = self._find_worker(arguments.branch)
        if sent is None:
            return self._answer_unknown_branch(arguments.branch)
        at = op.scope.child(f"worker:{sent.run}")
        returned = await self._poll_outcome(sent)
        if returned is None:
            assert op.placement is not None
            with move_on_after(LONGEST_WAIT):
                returned = at.record_outcome(await op.placement.wait_for_result(sent.run, idle=make_limit_pause(op)))
        if returned is None:
            return ToolAnswer(text=f"The worker on {sent.branch} has not finished yet; ask again.")
        if returned.outcome != "succeeded":
            how = f"The worker on {sent.branch} {describe_outcome(returned.outcome)}"
            return ToolAnswer(text=f"{how}: {returned.error}\n{returned.text}", is_error=True)
        return ToolAnswer(text=returned.text)

    async def _cancel_worker(self, arguments: BranchArguments, place: Scope) -> ToolAnswer:
        sent = self._find_worker(arguments.branch)
        if sent is None:
            return self._answer_unknown_branch(arguments.branch)
        assert self._op.placement is not None
        if (ended := await self._poll_outcome(sent)) is not None:
            why = f": {ended.error}" if ended.error else ""
            how = ended.outcome.replace("_", " ")
            return ToolAnswer(text=f"The worker on {sent.branch} has already ended ({how}){why}.")
        await self._op.placement.stop_workers([sent.run])
        return ToolAnswer(text=f"The worker on {sent.branch} was asked to stop.")

    async def _poll_outcome(self, sent: WorkerSent) -> WorkerReturned | None:
        """Return a worker's result, or None while the worker is running. The result is recorded once."""
        at = self._op.scope.child(f"worker:{sent.run}")
        if (known := at.find_outcome(WorkerReturned)) is not None:
            return known
        assert self._op.placement is not None
        ended = await self._op.placement.poll_result(sent.run)
        return None if ended is None else at.record_outcome(ended)

    def _list_workers(self) -> list[WorkerSent]:
        """Return the workers of this operation, except those that could not be started."""
        events = self._op.scope.timeline.find_events_below(self._op.scope.path, WorkerSent, WorkerReturned)
        refused = {one.run for one in events if isinstance(one, WorkerReturned) and one.error.startswith(UNSENT)}
        return [one for one in events if isinstance(one, WorkerSent) and one.run not in refused]

    def _find_worker(self, branch: str) -> WorkerSent | None:
        """Return the newest worker that is on this branch or was started with this branch name, or None."""
        return next((sent for sent in reversed(self._list_workers()) if branch in (sent.branch, sent.asked)), None)

    def _answer_unknown_branch(self, branch: str) -> ToolAnswer:
        there = ", ".join(sent.branch for sent in self._list_workers()) or "none yet"
        return ToolAnswer(text=f"You have no worker on {branch!r}; your workers are on: {there}.", is_error=True)


def _string_schema(description: str) -> JsonSchema:
    return {"type": "string", "description": description}


def _make_tool(
    name: str,
    description: str,
    fields: dict[str, JsonSchema],
    argument_type: type[G],
    act: Callable[[G, Scope], Awaitable[ToolAnswer]],
) -> Tool:
    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        # Some models send empty values for arguments that they do not want to set.
        said = {field: value for field, value in call.arguments.items() if value not in (None, "", {})}
        try:
            arguments = msgspec.convert(said, argument_type)
        except msgspec.ValidationError as error:
            return ToolAnswer(text=f"Invalid arguments for {name}: {error}.", is_error=True)
        return await act(arguments, scope)

    return Tool(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": fields,
            "required": [field.name for field in msgspec.structs.fields(argument_type) if field.required],
        },
        answer=answer_call,
        timeout=LONGEST_WAIT + 15,
        is_step=True,
        is_parallel=False,
        is_polling=name in ("check_workers", "get_worker_result"),
    )


def make_message_tools(op: Operation) -> tuple[Tool, ...]:
    """Create the tool that sends messages, if the agent lists it and works in a team."""
    placement = op.placement
    if SEND_MESSAGE not in (op.agent.tools or ()) or placement is None or not (team := find_team(op, placement)):
        return ()

    async def send(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            asked = parse_arguments(call, SendMessageArguments)
            to = _choose_receiver(op, asked, await placement.list_teammates(team))
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        receipts = _describe_receipts(op)
        sent = scope.record(MessageSent(id=secrets.token_hex(6), to=asked.to, text=asked.text, run=to.run))
        to = Teammate(name=sent.to, run=sent.run, agent=to.agent)
        await scope.timeline.wait_written()
        sender = f"{op.agent.name}{TEAMMATE}"
        message = MessageReceived(
            id=sent.id, to=to.agent, text=sent.text, by=sender, sender=scope.timeline.run, channel="agent"
        )
        if not await placement.post_message(to, message):
            return ToolAnswer(text=f"{asked.to} has ended and did not get the message.{receipts}", is_error=True)
        return ToolAnswer(text=f"Sent. {asked.to} gets the message before its next model call.{receipts}")

    return (
        Tool(
            name=SEND_MESSAGE,
            description="Send a message to a member of your team. Do not wait for an answer.",
            parameters=build_schema(SendMessageArguments),
            answer=send,
            timeout=60.0,
            is_step=True,
            is_parallel=False,
        ),
    )


def find_team(op: Operation, placement: Placement) -> str:
    """Return the path of the operation that leads the agent's team, or an empty string if it is not in a team.

    A worker's team is in the run that started the worker.
    """
    above = op.parent
    while above is not None:
        if above.agent.team is not None:
            return above.scope.path
        above = above.parent
    return parse_team_operation(placement.parent_operation) if placement.parent_operation else ""


def _choose_receiver(op: Operation, asked: SendMessageArguments, teammates: Iterable[Teammate]) -> Teammate:
    """Return the member that a message is for. Raise InvalidCall if the message cannot be sent."""
    known = {one.name: one for one in teammates if one.name != op.agent.name}
    if asked.to not in known:
        raise InvalidCall(f"{asked.to!r} is not in your team; available: {join_words(sorted(known)) or 'nobody'}.")
    if len(asked.text) > LONGEST_MESSAGE:
        raise InvalidCall(f"The message has {len(asked.text):,} characters; the limit is {LONGEST_MESSAGE:,}.")
    if len(op.scope.timeline.find_events_below(op.scope.path, MessageSent)) >= MOST_MESSAGES:
        raise InvalidCall(f"You have sent {MOST_MESSAGES} messages, which is the limit; continue without sending more.")
    return known[asked.to]


def _describe_receipts(op: Operation) -> str:
    """Return the delivery status of the agent's earlier messages, or an empty string if there are none."""
    earlier = op.scope.timeline.find_events_below(op.scope.path, MessageSent)
    if not earlier:
        return ""
    receipts = [op.scope.timeline.index.messages.receipts.get(sent.id) for sent in earlier]
    counts = {"read": receipts.count(True), "waiting": receipts.count(None), "never read": receipts.count(False)}
    return f" Your earlier messages: {', '.join(f'{number} {word}' for word, number in counts.items() if number)}."
