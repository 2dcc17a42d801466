"""Serve MCP on standard input and output, with tools that let other programs run agents and delegate tasks.

No tool answers requests, because the caller of a tool is a model. A client that supports elicitation shows a
run's requests to its user; all requests are in the inbox.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Annotated, Any

import msgspec
from anyio import create_memory_object_stream, create_task_group, move_on_after, sleep, to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.request_state import RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import InputRequiredResult, ToolAnnotations
from pydantic import Field

from .. import __version__
from ..app import App
from ..files.discovery import load_roster
from ..files.settings import Settings
from ..runs import find
from ..runs.queries.request_details import describe_in_full
from ..runs.queries.run_lookup import open_reader
from ..runs.run_steering import POLL_SECONDS, wait_for_end_or_pause
from ..store.request_list import list_open_requests
from ..system.identity import get_local_actor
from ..values.column import encode_rows
from ..values.errors import PodiumError
from ..values.worker_task import DEFAULT_WORKER_AGENT
from ..views.run_report import Report
from ..workers.delegation import NewWorker, delegate
from ..workers.queries.worker_listing import WORKER_COLUMNS, make_worker_rows
from ..workers.queries.worker_lookup import RepoContext
from .client_runs import ClientRuns, describe_missing_answer
from .mcp_run_call import RunCall, ToolContext

INSTRUCTIONS = (
    "Podium runs agents and teams of agents in this repository. list_agents shows them. run_agent waits for the "
    "answer; delegate_task starts a worker on its own git branch and returns at once."
)
MOST_WAIT_SECONDS = 45.0
"""The maximum time that get_result waits. Many clients give up after a minute."""

ANSWER_SECONDS = 24 * 3600.0
"""How long the user of a newer client can take to answer requests. After that, the call cannot be continued."""

CHECKED = {"id", "branch", "state", "agent", "task", "answer", "why", "waiting_for", "added", "removed", "files"}
"""The columns of the workers that check_workers returns."""


class PodiumTools:
    """The tools of the server, for the repository `place`."""

    def __init__(self, place: Path, runs: ClientRuns, load_settings: Callable[[], Settings]) -> None:
        self._place = place
        self._runs = runs
        self._load_settings = load_settings
        self._waiting: dict[str, RunCall] = {}
        """The calls whose clients are showing a request to the user, keyed by run."""

    async def list_agents(self) -> list[dict[str, Any]]:
        """List the agents and teams that can be run in this repository."""
        settings = await to_thread.run_sync(self._load_settings)
        roster = await to_thread.run_sync(load_roster, self._place, settings.home)
        return [
            {"name": agent.name, "description": agent.description, "is_team": agent.team is not None}
            for agent in roster.agents.values()
        ]

    async def run_agent(
        self,
        agent: Annotated[str, Field(description="Name of an agent or a team, from list_agents.")],
        request: Annotated[str, Field(description="What the agent should do or answer.")],
        ctx: ToolContext,
    ) -> str | InputRequiredResult:
        """Run an agent or a team in this repository, and wait for its answer. Cancelling the call stops the run."""
        try:
            await self._close_abandoned_calls()
            call = self._waiting.pop(ctx.request_state or "", None)
            if call is None:
                settings = await to_thread.run_sync(self._load_settings)
                call = await RunCall.start(self._runs, settings, self._place, agent, request)
            async with call:
                await call.take_answers(ctx.input_responses or {})
                questions = await call.follow(ctx)
                if questions is not None:
                    self._waiting[call.run.id] = call.keep()
                    return questions
                result = await call.run.result()
        except PodiumError as error:
            raise ToolError(str(error)) from error
        if not result.succeeded:
            raise ToolError(describe_missing_answer(result))
        return result.text

    async def _close_abandoned_calls(self) -> None:
        """Stop the runs of calls whose clients have not answered requests in time."""
        for id, call in [*self._waiting.items()]:
            if call.kept_at < monotonic() - ANSWER_SECONDS:
                async with self._waiting.pop(id):
                    pass

    async def delegate_task(
        self,
        branch: Annotated[str, Field(description="Git branch that the worker creates and commits to.")],
        task: Annotated[str, Field(description="The task, with everything that the worker needs to know.")],
        agent: Annotated[str, Field(description="Agent that does the task.")] = DEFAULT_WORKER_AGENT,
    ) -> dict[str, str]:
        """Start a worker that does a task on its own branch, in its own checkout. Returns its run id at once."""
        try:
            settings = await to_thread.run_sync(self._load_settings)
            worker = NewWorker(at=self._place, branch=branch, task=task, agent=agent)
            async with App(settings) as app:
                run = await delegate(app.runs, settings, worker, by=self._runs.by)
        except PodiumError as error:
            raise ToolError(str(error)) from error
        return {"run": run, "branch": branch}

    async def check_workers(self) -> list[dict[str, Any]]:
        """List the workers of this repository and their states, oldest first."""

        def load() -> list[dict[str, Any]]:
            context = RepoContext(self._place, self._load_settings())
            rows = make_worker_rows(context.load_workers(), now=time())
            columns = [column for column in WORKER_COLUMNS if column.name in CHECKED]
            return [_to_plain_json(row) for row in encode_rows(rows, columns)]

        try:
            return await to_thread.run_sync(load)
        except PodiumError as error:
            raise ToolError(str(error)) from error

    async def get_result(
        self,
        run: Annotated[str, Field(description="Id of a run, the beginning of one, the branch of a worker, or last.")],
        wait_seconds: Annotated[float, Field(ge=0, le=MOST_WAIT_SECONDS)] = 0.0,
    ) -> dict[str, Any]:
        """Wait up to `wait_seconds` for a run or a worker to end, and return its state and answer."""
        settings = await to_thread.run_sync(self._load_settings)

        def load(id: str) -> dict[str, Any]:
            with open_reader(settings.store) as reader:
                report = Report.from_entries(reader.read_entries(id))
                state = reader.read_summary(id).phase
            fields = {"run": id, "state": state, "agent": report.agent, "answer": report.answer, "why": report.why}
            return {**fields, "draft": report.draft, "data": _to_plain_json(report.data)}

        try:
            id = (await to_thread.run_sync(partial(find.resolve, settings.store, run, repo=self._place))).run
            with move_on_after(wait_seconds):
                while await wait_for_end_or_pause(settings.store, id) is None:  # noqa: ASYNC110 - nothing wakes it
                    await sleep(POLL_SECONDS)  # a worker that has not started yet
            return await to_thread.run_sync(load, id)
        except PodiumError as error:
            raise ToolError(str(error)) from error

    async def pending_approvals(self) -> list[dict[str, Any]]:
        """List the permission requests and questions that are waiting for a person. No tool can answer them."""
        settings = await to_thread.run_sync(self._load_settings)
        if not settings.store.exists():
            return []
        found = await to_thread.run_sync(list_open_requests, settings.store)
        return [_to_plain_json(describe_in_full(one)) for one in found]


def _to_plain_json(value: Any) -> Any:
    """Return a value as plain JSON types."""
    return json.loads(msgspec.json.encode(value))


def build_server(tools: PodiumTools) -> MCPServer[Any]:
    """Return the server with its tools."""
    server: MCPServer[Any] = MCPServer(
        "podium",
        title="Podium",
        version=__version__,
        instructions=INSTRUCTIONS,
        log_level="ERROR",
        request_state_security=RequestStateSecurity.ephemeral(ttl=ANSWER_SECONDS),
    )
    reading = ToolAnnotations(read_only_hint=True)
    server.add_tool(tools.list_agents, annotations=reading)
    server.add_tool(tools.run_agent, structured_output=False)
    server.add_tool(tools.delegate_task)
    server.add_tool(tools.check_workers, annotations=reading)
    server.add_tool(tools.get_result, annotations=reading)
    server.add_tool(tools.pending_approvals, annotations=reading)
    return server


def report_trouble(text: str) -> None:
    """Write an error message to standard error, which clients log."""
    sys.stderr.write(f"podium mcp: {text}\n")


async def serve_mcp(place: Path, load_settings: Callable[[], Settings]) -> None:
    """Serve on standard input and output until the input ends. Runs that are still active can be resumed later."""
    async with create_task_group() as tasks:
        runs = ClientRuns(tasks, by=get_local_actor("mcp"), tell=report_trouble)
        server = build_server(PodiumTools(place, runs, load_settings))._lowlevel_server
        async with stdio_server() as (read, write):
            sender, messages = create_memory_object_stream[SessionMessage | Exception](0)

            async def forward_messages() -> None:
                async with sender, read:
                    async for message in read:
                        await sender.send(message)
                    # Interrupt the runs, so that they can be resumed, before the server cancels the calls:
                    # cancelling a call would stop its run for good.
                    runs.close()

            tasks.start_soon(forward_messages)
            await server.run(messages, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()
