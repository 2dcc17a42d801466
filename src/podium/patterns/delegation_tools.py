"""Delegating: tools with which an agent sends workers of its own, looks after them and hears what came of them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from anyio import move_on_after
from msgspec import Meta, Struct, structs

from ..core.budget import tightest
from ..core.engine import Tool, ToolAnswer
from ..core.operation import Operation
from ..core.placement import Wanted
from ..core.scope import Scope
from ..values.agent import Budget
from ..values.errors import Failed
from ..values.event import ToolUse, WorkerReturned, WorkerSent
from .in_worker import SHARE, UNSENT, begun, waiting

NAMES = ("delegate_task", "check_workers", "get_worker_result", "cancel_worker")
LONGEST_WAIT = 45.0
"""Callers that wait longer are dropped by some engines: the result is asked for again."""

G = TypeVar("G", bound=Struct)


def delegating(op: Operation) -> tuple[Tool, ...]:
    """The tools that the agent's file names, where there is a way to workers."""
    wanted = [name for name in op.agent.tools or () if name in NAMES]
    if not wanted or op.placement is None:
        return ()
    made = {tool.name: tool for tool in _Crew(op).tools()}
    return tuple(made[name] for name in wanted)


class Nothing(Struct, frozen=True):
    """What a tool is given that needs nothing."""


class Whose(Struct, frozen=True, kw_only=True):
    """A worker, by its branch."""

    branch: str


class Limits(Struct, frozen=True, kw_only=True):
    """What a worker may use at most."""

    usd: Annotated[float, Meta(gt=0)] | None = None
    tokens: Annotated[int, Meta(gt=0)] | None = None
    turns: Annotated[int, Meta(gt=0)] | None = None


class Order(Struct, frozen=True, kw_only=True):
    """A task for a worker. What would let it do more than the one that sends it may is nothing to ask for here."""

    branch: str
    task: str
    after: str | tuple[str, ...] = ()
    agent: str = ""
    read_only: bool = False
    model: str = ""
    timeout: Annotated[float, Meta(ge=1)] | None = None
    budget: Limits = Limits()

    @property
    def branches(self) -> tuple[str, ...]:
        """Those whose workers have to succeed first."""
        return (self.after,) if isinstance(self.after, str) else tuple(dict.fromkeys(self.after))

    def wanted(self) -> Wanted:
        """The same for whoever sends it."""
        limits = structs.asdict(self.budget)
        return Wanted(
            after=self.branches,
            model=self.model,
            budget=Budget(**limits, seconds=self.timeout) if any(limits.values()) or self.timeout else None,
            is_reader=self.read_only,
        )


class _Crew:
    """The workers that one operation has sent, as its timeline knows them."""

    def __init__(self, op: Operation) -> None:
        self._op = op

    def tools(self) -> list[Tool]:
        return [
            _tool(
                "delegate_task",
                "Have a worker do a task in the background, in a checkout of its own, on a branch. Returns at once.",
                {
                    "branch": _text("The new branch that the work will be on; a reader's name."),
                    "task": _text("What to do, with all that it needs to know: the worker sees nothing else."),
                    "after": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Branches whose workers have to succeed first.",
                    },
                    "agent": {
                        **_text("Who does it, in place of the usual worker."),
                        "enum": list(self._op.agents),
                    },
                    "read_only": {"type": "boolean", "description": "It only reads, and needs no branch of its own."},
                    "model": _text("What it thinks with, where that is not as usual."),
                    "timeout": {"type": "number", "description": "Seconds until it is ended with what there is."},
                    "budget": {
                        "type": "object",
                        "description": "What it may use at most, of what is left to you; a quarter of that by default.",
                        "properties": {
                            "usd": {"type": "number"},
                            "tokens": {"type": "integer"},
                            "turns": {"type": "integer"},
                        },
                    },
                },
                Order,
                self._delegate,
            ),
            _tool("check_workers", "How the workers that you have sent stand.", {}, Nothing, self._check),
            _tool(
                "get_worker_result",
                f"What a worker answered. Waits up to {LONGEST_WAIT:g} s; ask again where it is not through.",
                {"branch": _text("The worker's branch.")},
                Whose,
                self._result,
            ),
            _tool("cancel_worker", "End a worker.", {"branch": _text("The worker's branch.")}, Whose, self._cancel),
        ]

    async def _delegate(self, order: Order, place: Scope) -> ToolAnswer:
        op = self._op
        for branch in order.branches:
            if self._of(branch) is None:
                return self._nobody(branch)
        if order.agent and order.agent not in op.agents:
            there = ", ".join(op.agents)
            return ToolAnswer(text=f"There is no agent {order.agent!r} here; there are: {there}.", is_error=True)
        agent = op.agents.get(order.agent)
        wanted = order.wanted()
        sent = place.at("worker").recall(WorkerSent)
        try:
            if sent is None:
                for other in self._sent():
                    await self._ended(other)  # what was kept for those that are through is free again
                own = tightest(None if agent is None else agent.budget, wanted.budget)
                budget = op.allowance.loan(own, share=SHARE, agent=op.agent.name)
                sent = WorkerSent(run=secrets.token_hex(6), branch=order.branch, task=order.task, budget=budget)
                place.at("worker").settle(sent)
            await begun(op, sent, agent, wanted=wanted)
        except Failed as error:
            why = str(error.failure.message)
            if sent is None:
                return ToolAnswer(text=why, is_error=True)
            at = op.scope.at(f"worker:{sent.run}")
            at.recall(WorkerReturned) or at.settle(WorkerReturned(run=sent.run, outcome="failed", error=why))
            return ToolAnswer(text=why, is_error=True)
        return ToolAnswer(text=f"A worker is on {order.branch} (run {sent.run}).")

    async def _check(self, nothing: Nothing, place: Scope) -> ToolAnswer:
        placement = self._op.placement
        assert placement is not None
        lines = [f"{sent.branch}: {await placement.standing(sent.run)}" for sent in self._sent()]
        return ToolAnswer(text="\n".join(lines) or "You have sent no worker yet.")

    async def _result(self, whose: Whose, place: Scope) -> ToolAnswer:
        op = self._op
        sent = self._of(whose.branch)
        if sent is None:
            return self._nobody(whose.branch)
        at = op.scope.at(f"worker:{sent.run}")
        returned = await self._ended(sent)
        if returned is None:
            assert op.placement is not None
            with move_on_after(LONGEST_WAIT):
                returned = at.settle(await op.placement.returned(sent.run, idle=waiting(op)))
        if returned is None:
            return ToolAnswer(text=f"The worker on {sent.branch} is not through yet; ask again.")
        if returned.outcome != "succeeded":
            return ToolAnswer(text=f"The worker {returned.outcome}: {returned.error}\n{returned.text}", is_error=True)
        return ToolAnswer(text=returned.text)

    async def _cancel(self, whose: Whose, place: Scope) -> ToolAnswer:
        sent = self._of(whose.branch)
        if sent is None:
            return self._nobody(whose.branch)
        assert self._op.placement is not None
        if (ended := await self._ended(sent)) is not None:
            why = f": {ended.error}" if ended.error else ""
            return ToolAnswer(text=f"The worker on {sent.branch} was over already ({ended.outcome}){why}.")
        await self._op.placement.call_back([sent.run])
        return ToolAnswer(text=f"The worker on {sent.branch} is told to end.")

    async def _ended(self, sent: WorkerSent) -> WorkerReturned | None:
        """How a worker ended, recorded once; None while it has not."""
        at = self._op.scope.at(f"worker:{sent.run}")
        if (known := at.recall(WorkerReturned)) is not None:
            return known
        assert self._op.placement is not None
        ended = await self._op.placement.ended(sent.run)
        return None if ended is None else at.settle(ended)

    def _sent(self) -> list[WorkerSent]:
        """The workers that have begun."""
        events = self._op.scope.timeline.below(self._op.scope.path, WorkerSent, WorkerReturned)
        refused = {one.run for one in events if isinstance(one, WorkerReturned) and one.error.startswith(UNSENT)}
        return [one for one in events if isinstance(one, WorkerSent) and one.run not in refused]

    def _of(self, branch: str) -> WorkerSent | None:
        return next((sent for sent in reversed(self._sent()) if sent.branch == branch), None)

    def _nobody(self, branch: str) -> ToolAnswer:
        there = ", ".join(sent.branch for sent in self._sent()) or "nobody yet"
        return ToolAnswer(text=f"You have sent no worker to {branch!r}; you have sent: {there}.", is_error=True)


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _tool(
    name: str,
    description: str,
    fields: dict[str, dict[str, Any]],
    given: type[G],
    act: Callable[[G, Scope], Awaitable[ToolAnswer]],
) -> Tool:
    async def answer(call: ToolUse, scope: Scope) -> ToolAnswer:
        # What is left out is left empty by some models.
        said = {field: value for field, value in call.arguments.items() if value not in (None, "", {})}
        try:
            arguments = msgspec.convert(said, given)
        except msgspec.ValidationError as error:
            return ToolAnswer(text=f"{name} cannot be called so: {error}.", is_error=True)
        return await act(arguments, scope)

    return Tool(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": fields,
            "required": [field.name for field in msgspec.structs.fields(given) if field.required],
        },
        answer=answer,
        timeout=LONGEST_WAIT + 15,
        is_step=True,
        is_parallel=False,
    )
