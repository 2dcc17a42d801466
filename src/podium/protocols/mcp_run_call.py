"""Handle one call to the tool `run_agent`: follow its run, and have the client show requests to its user.

Before version 2026-07-28 of the protocol, the server asks the client during the call. From that version on, the call
returns the open requests, and the client repeats the call with the answers; the run continues in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from anyio import CancelScope, create_task_group, current_time, sleep_forever
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from ..core.open_requests import Asked
from ..files.settings import Settings
from ..values.actor import Actor
from ..values.errors import find_first_error
from ..values.event import (
    Entry,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    ToolCalled,
    WorkerSent,
)
from ..values.json import JsonSchema
from ..values.operation_path import parse_agent_name
from .client_runs import SETTLE_SECONDS, AskClient, ClientRequests, ClientRun, ClientRuns, submit_client_answer

MODERN_VERSION = "2026-07-28"
MOST_ROUNDS = 8
"""The maximum number of times that a call returns requests. Many clients repeat a call at most ten times."""

ToolContext = Context[Any, Any]
PERMISSION_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Decision",
            "description": "once: allow this action; run: allow it for the rest of the run; deny: do not allow it",
            "enum": ["once", "run", "deny"],
        }
    },
    "required": ["decision"],
}


class RunCall:
    """A run that a tool call has started. Exiting this context manager stops the run, unless `keep` was called."""

    def __init__(self, run: ClientRun, settings: Settings, resources: AsyncExitStack, *, by: Actor) -> None:
        self.run = run
        self._by = by
        self._settings = settings
        self._resources = resources
        self._is_kept = False
        self.kept_at = 0.0
        """When the call last returned requests to the client, as a value of the monotonic clock."""
        self._entries = resources.enter_context(run.entries())
        self._open: dict[str, Entry] = {}
        """The run's open requests that the client has not been asked about."""
        self._has_workers = False
        self._waiting: dict[str, tuple[Entry, Asked, str]] = {}
        """The requests that the client will be asked about next, with their texts."""
        self._shown: dict[str, tuple[Entry, Asked, str]] = {}
        """The requests that the client was asked about last."""
        self._seen: set[str] = set()
        """The ids of all requests that the client has been asked about."""
        self._rounds = 0
        self._steps = 0

    @classmethod
    async def start(cls, runs: ClientRuns, settings: Settings, place: Path, agent: str, request: str) -> RunCall:
        """Start a run for a call."""
        resources = AsyncExitStack()
        run = await resources.enter_async_context(runs.start(settings, place, agent, request))
        return cls(run, settings, resources, by=runs.by)

    def keep(self) -> Self:
        """Leave the run open when this context manager exits. The client's next request can then continue the call."""
        self._is_kept = True
        self.kept_at = monotonic()
        return self

    async def __aenter__(self) -> Self:
        self._is_kept = False
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_kept:
            await self._resources.aclose()

    async def follow(self, ctx: ToolContext) -> InputRequiredResult | None:
        """Report progress until the run ends. If the client must first answer open requests, return them instead."""
        while not await self._follow_until_asked(ctx):
            if self._shown:
                self._rounds += 1
                return self._make_questions()
        return None

    async def _follow_until_asked(self, ctx: ToolContext) -> bool:
        """Report progress until the run ends, or until there are requests for the client. Return whether it ended."""
        try:
            async with create_task_group() as group:
                with CancelScope() as following:
                    requests = ClientRequests(
                        group, self._settings.store, self.run.id, self._choose_asking(ctx, following), by=self._by
                    )
                    for entry in self._open.values():
                        requests.handle_entry(entry)
                    if self._has_workers:
                        requests.watch_workers()
                    async for entry in self._entries:
                        self._track_requests(entry)
                        requests.handle_entry(entry)
                        if (text := _describe_progress(entry)) is not None:
                            await self._report_progress(ctx, text)
                if following.cancelled_caught:
                    self._take_waiting()
                group.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise find_first_error(errors) from errors
        return not following.cancelled_caught

    def _choose_asking(self, ctx: ToolContext, following: CancelScope) -> AskClient:
        """Return the function that asks the client about a request.

        An older client is asked during the call. For a newer client, the function ends the scope `following`, so that
        the call returns the request. After MOST_ROUNDS such returns, further requests are only left in the inbox.
        """
        if not _can_elicit(ctx) or ctx.request_context.session.protocol_version < MODERN_VERSION:
            return partial(_ask_client, ctx)
        if self._rounds < MOST_ROUNDS:
            return partial(self._collect_request, following)
        return partial(self._leave_in_inbox, ctx)

    async def take_answers(self, responses: Mapping[str, object]) -> None:
        """Answer the requests that the client has shown."""
        for id, (entry, asked, _) in self._shown.items():
            given = responses.get(id)
            value = _read_elicited(given) if isinstance(given, ElicitResult) else None
            if value is not None:
                await submit_client_answer(self._settings.store, entry.run, asked, value, by=self._by)
        self._shown.clear()

    def _track_requests(self, entry: Entry) -> None:
        match entry.event:
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                self._open[id] = entry
            case PermissionAnswered(id=id) | QuestionAnswered(id=id):
                self._open.pop(id, None)
            case WorkerSent():
                self._has_workers = True

    async def _collect_request(self, following: CancelScope, entry: Entry, asked: Asked, text: str) -> None:
        """Make the call return this request to the client. Wait until the call returns or the request is withdrawn."""
        if asked.id in self._seen:
            return
        self._waiting[asked.id] = entry, asked, text
        following.deadline = min(following.deadline, current_time() + SETTLE_SECONDS)
        try:
            await sleep_forever()
        finally:
            self._waiting.pop(asked.id, None)
            if not self._waiting:
                following.deadline = inf

    async def _leave_in_inbox(self, ctx: ToolContext, entry: Entry, asked: Asked, text: str) -> None:
        if entry.run != self.run.id and asked.id not in self._seen:  # the run's own requests have been reported
            await self._report_progress(ctx, f"a worker is waiting for an answer (request {asked.id})")

    async def _report_progress(self, ctx: ToolContext, text: str) -> None:
        self._steps += 1
        await ctx.report_progress(self._steps, message=text)

    def _take_waiting(self) -> None:
        self._shown = dict(self._waiting)
        self._seen |= self._shown.keys()
        for id in self._shown:
            self._open.pop(id, None)

    def _make_questions(self) -> InputRequiredResult:
        questions = {
            id: ElicitRequest(params=ElicitRequestFormParams(message=text, requested_schema=build_schema(asked)))
            for id, (_, asked, text) in self._shown.items()
        }
        return InputRequiredResult(input_requests=dict(questions), request_state=self.run.id)


def _can_elicit(ctx: ToolContext) -> bool:
    """Return whether the client can show a form to its user."""
    capabilities = ctx.request_context.session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


def build_schema(asked: Asked) -> JsonSchema:
    """Return the JSON schema of the form in which the user answers a request."""
    if isinstance(asked, PermissionAsked):
        return PERMISSION_SCHEMA
    answer: JsonSchema = {"type": "string", "title": "Answer"}
    if asked.choices and asked.kind == "decision":
        answer["enum"] = list(asked.choices)
    elif asked.choices:
        answer["description"] = f"for example: {', '.join(asked.choices)}"
    return {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}


def _read_elicited(given: ElicitResult) -> str | None:
    """Return the answer that the client's user entered in a form, or None if the user did not submit an answer."""
    value = next(iter((given.content or {}).values()), None) if given.action == "accept" else None
    return value if isinstance(value, str) else None


async def _ask_client(ctx: ToolContext, _: Entry, asked: Asked, text: str) -> str | None:
    """Ask the client to show a request to its user. Return None if the client cannot do so, or nobody answers."""
    if not _can_elicit(ctx):
        return None
    session = ctx.request_context.session
    try:
        return _read_elicited(await session.elicit_form(text, build_schema(asked), related_request_id=ctx.request_id))
    except MCPError:
        return None  # the client did not ask its user, so the request stays in the inbox


def _describe_progress(entry: Entry) -> str | None:
    """Return a progress message for an entry of a run, or None if the entry is not worth showing."""
    agent = parse_agent_name(entry.operation)
    match entry.event:
        case OperationStarted():
            return f"{agent} started"
        case ToolCalled(action=action):
            return f"{agent} is using {action.tool}"
        case PermissionAsked(id=id, action=action):
            return f"{agent} is waiting for permission to use {action.tool} (request {id})"
        case QuestionAsked(id=id):
            return f"{agent} is waiting for an answer (request {id})"
    return None
