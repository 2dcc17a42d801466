"""Delegating: tools with which an agent sends workers of its own, looks after them and hears what came of them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from anyio import move_on_after

from ..errors import Failed
from ..event import ToolUse, WorkerReturned, WorkerSent
from ..mind import Tool, ToolAnswer
from ..operation import Operation
from ..scope import Scope
from .away import SHARE, UNSENT, begun, waiting

NAMES = ("delegate_task", "check_workers", "get_worker_result", "cancel_worker")
LONGEST_WAIT = 45.0
"""Callers that wait longer are dropped by some engines: the result is asked for again."""


def delegating(op: Operation) -> tuple[Tool, ...]:
    """The tools that the agent's file names, where there is a way to workers."""
    wanted = [name for name in op.agent.tools or () if name in NAMES]
    if not wanted or op.placement is None:
        return ()
    made = {tool.name: tool for tool in _Crew(op).tools()}
    return tuple(made[name] for name in wanted)


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
                    "branch": "The new branch that the work will be on.",
                    "task": "What to do, with all that it needs to know: the worker sees nothing else.",
                    "after": "Optional: a branch whose worker has to succeed first.",
                },
                ("branch", "task"),
                self._delegate,
            ),
            _tool("check_workers", "How the workers that you have sent stand.", {}, (), self._check),
            _tool(
                "get_worker_result",
                f"What a worker answered. Waits up to {LONGEST_WAIT:g} s; ask again where it is not through.",
                {"branch": "The worker's branch."},
                ("branch",),
                self._result,
            ),
            _tool("cancel_worker", "End a worker.", {"branch": "The worker's branch."}, ("branch",), self._cancel),
        ]

    async def _delegate(self, arguments: dict[str, str], place: Scope) -> ToolAnswer:
        op, branch = self._op, arguments["branch"]
        after = [sent.branch for sent in self._sent() if sent.branch == arguments.get("after")]
        if arguments.get("after") and not after:
            return ToolAnswer(text=f"No worker was sent to {arguments['after']!r}.", is_error=True)
        sent = place.at("worker").recall(WorkerSent)
        try:
            if sent is None:
                for other in self._sent():
                    await self._ended(other)  # what was kept for those that are through is free again
                budget = op.allowance.loan(None, share=SHARE, agent=op.agent.name)
                sent = WorkerSent(run=secrets.token_hex(6), branch=branch, task=arguments["task"], budget=budget)
                place.at("worker").settle(sent)
            await begun(op, sent, None, after=tuple(after))
        except Failed as error:
            why = str(error.failure.message)
            if sent is None:
                return ToolAnswer(text=why, is_error=True)
            at = op.scope.at(f"worker:{sent.run}")
            at.recall(WorkerReturned) or at.settle(WorkerReturned(run=sent.run, outcome="failed", error=why))
            return ToolAnswer(text=why, is_error=True)
        return ToolAnswer(text=f"A worker is on {branch} (run {sent.run}).")

    async def _check(self, arguments: dict[str, str], place: Scope) -> ToolAnswer:
        placement = self._op.placement
        assert placement is not None
        lines = [f"{sent.branch}: {await placement.standing(sent.run)}" for sent in self._sent()]
        return ToolAnswer(text="\n".join(lines) or "You have sent no worker yet.")

    async def _result(self, arguments: dict[str, str], place: Scope) -> ToolAnswer:
        op = self._op
        sent = self._of(arguments["branch"])
        if sent is None:
            return self._nobody(arguments["branch"])
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

    async def _cancel(self, arguments: dict[str, str], place: Scope) -> ToolAnswer:
        sent = self._of(arguments["branch"])
        if sent is None:
            return self._nobody(arguments["branch"])
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


def _tool(
    name: str,
    description: str,
    fields: dict[str, str],
    needed: tuple[str, ...],
    act: Callable[[dict[str, str], Scope], Awaitable[ToolAnswer]],
) -> Tool:
    async def answer(call: ToolUse, scope: Scope) -> ToolAnswer:
        given: dict[str, Any] = {field: call.arguments.get(field, "") for field in fields}
        bad = next((field for field in fields if not isinstance(given[field], str)), None)
        missing = next((field for field in needed if not given.get(field)), None)
        if bad is not None or missing is not None:
            return ToolAnswer(text=f"{name} needs {', '.join(needed)}, as text.", is_error=True)
        return await act(given, scope)

    return Tool(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": {field: {"type": "string", "description": words} for field, words in fields.items()},
            "required": list(needed),
        },
        answer=answer,
        timeout=LONGEST_WAIT + 15,
        is_step=True,
        is_parallel=False,
    )
