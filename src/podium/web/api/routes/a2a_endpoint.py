"""The Agent2Agent endpoint: a card and a task endpoint for each agent and team in the server's repository.

The tasks of an agent are the runs that were started at its own endpoint. Other runs are not found there.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import msgspec
from anyio import move_on_after, to_thread
from litestar import get, post
from litestar.params import FromPath
from litestar.response import Response, Stream

from ....files.discovery import load_roster
from ....files.settings import Settings
from ....protocols.a2a_agent import (
    TASK_NOT_CANCELABLE,
    TASK_NOT_FOUND,
    UNSUPPORTED_OPERATION,
    Fields,
    RpcRequest,
    SendMessage,
    TaskEvents,
    build_card,
    build_message_text,
    build_task,
    parse_rpc_request,
    parse_send_message,
    parse_task_id,
)
from ....protocols.conversation import find_conversation, find_first_run
from ....protocols.openai_chat import find_model
from ....runs.queries.run_lookup import open_reader
from ....runs.run_steering import NewMessage, send_message, stop_run
from ....store.follower import Follower
from ....store.reader import RunSummary
from ....system.json_rpc import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from ....values.actor import Actor, get_scope
from ....values.errors import NoSuchRun, PodiumError
from ....values.phase import FINAL_PHASES, Phase
from ....views.run_report import Report
from ....workers.delegation import BackgroundRun, enqueue_background_run
from ..event_stream import HEARTBEAT_SECONDS
from ..route_parameters import Server
from ..scopes import ApiRequest, get_token, may_read, require_scope
from ..server_context import ServerContext

ACTS: dict[str, Callable[..., object]] = {
    "SendMessage": send_message,
    "SendStreamingMessage": send_message,
    "CancelTask": stop_run,
}
"""The methods that need more than the scope `read`, each with the act that declares the scope."""


@get("/a2a/{name:str}/.well-known/agent-card.json", guards=[may_read], sync_to_thread=True)
def read_card(name: FromPath[str], request: ApiRequest, server: Server) -> Fields:
    """Return an agent's card."""
    agent = find_model(load_roster(server.repo, server.settings.home), name)
    return build_card(agent, f"{request.base_url}a2a/{name}")


@post("/a2a/{name:str}", guards=[may_read], status_code=200)
async def answer_rpc(name: FromPath[str], request: ApiRequest, server: Server) -> Response[Any] | Stream:
    """Answer a JSON-RPC request in the A2A protocol: send a message, or read, follow or cancel a task."""
    id: str | int | None = None
    try:
        rpc = parse_rpc_request(await request.body())
        id = rpc.id
        require_scope(request, get_scope(ACTS[rpc.method]) if rpc.method in ACTS else "read")
        found = await _dispatch(server, name, rpc)
    except RpcError as error:
        return Response(_build_error(id, error.code, str(error)))
    except PodiumError as error:
        return Response(_build_error(id, INVALID_PARAMS, str(error)))
    if isinstance(found, dict):
        return Response({"jsonrpc": "2.0", "id": id, "result": found})
    token = get_token(request)
    events = _encode_events(found, id, lambda: server.is_valid_token(token.id))
    return Stream(events, media_type="text/event-stream", headers={"cache-control": "no-store"})


async def _dispatch(server: ServerContext, name: str, rpc: RpcRequest) -> Fields | AsyncIterator[Fields | None]:
    """Return the result of a request, or a stream of events, in which None means that nothing happened for a while."""
    match rpc.method:
        case "SendMessage":
            sent = parse_send_message(rpc.params)
            run = await _send(server, name, sent)
            if not sent.configuration.return_immediately:
                async for _ in _iter_entries(server, name, run):
                    pass
            return {"task": await to_thread.run_sync(_load_task, server, name, run)}
        case "SendStreamingMessage":
            return _iter_events(server, name, await _send(server, name, parse_send_message(rpc.params)))
        case "SubscribeToTask":
            run = parse_task_id(rpc.params)
            if (await to_thread.run_sync(_load_report, server, name, run))[1] in FINAL_PHASES:
                raise RpcError(UNSUPPORTED_OPERATION, f"task {run} has ended; use GetTask to get its result")
            return _iter_events(server, name, run)
        case "GetTask":
            return await to_thread.run_sync(_load_task, server, name, parse_task_id(rpc.params))
        case "CancelTask":
            run = parse_task_id(rpc.params)
            if (await to_thread.run_sync(_load_report, server, name, run))[1] in FINAL_PHASES:
                raise RpcError(TASK_NOT_CANCELABLE, f"task {run} has already ended")
            await stop_run(server.runs, run, by=_find_actor(server))
            async for _ in _iter_entries(server, name, run):
                pass
            return await to_thread.run_sync(_load_task, server, name, run)
    raise RpcError(METHOD_NOT_FOUND, f"podium serve does not support the A2A method {rpc.method[:100]!r}")


async def _send(server: ServerContext, name: str, sent: SendMessage) -> str:
    """Send a message to the task that the message names, or start a new task if it names none.

    Return the id of the task's run.
    """
    text = build_message_text(sent.message)
    if task := sent.message.task_id:
        report, state = await to_thread.run_sync(_load_report, server, name, task)
        if state in FINAL_PHASES:
            raise RpcError(UNSUPPORTED_OPERATION, f"task {task} has ended; send the message without a task id")
        with open_reader(server.store) as reader:
            summary = reader.read_summary(task)
        message = NewMessage(text=text, ref=sent.message.message_id)
        await to_thread.run_sync(lambda: send_message(server.store, summary, message, by=_find_actor(server)))
        return report.run
    after = ""
    if context := sent.message.context_id:
        try:
            is_task = partial(_is_task, name)
            after = (await to_thread.run_sync(find_conversation, server.store, context, is_task))[-1].run
        except NoSuchRun:
            raise RpcError(
                INVALID_PARAMS, f"context {context[:100]!r} not found; omit contextId to start a new context"
            ) from None
    find_model(await to_thread.run_sync(load_roster, server.repo, server.settings.home), name)
    settings = Settings.load(repo=server.repo, store=server.store, home=server.settings.home)
    new = BackgroundRun(
        agent=name, request=text, place=server.repo, options={"after": after}, endpoint=_name_endpoint(name)
    )
    return await enqueue_background_run(server.runs, settings, new, by=_find_actor(server), run=secrets.token_hex(6))


async def _iter_events(server: ServerContext, name: str, run: str) -> AsyncIterator[Fields | None]:
    """Yield the task, then its events until its run ends or pauses, and None if nothing happens for a while."""
    task = await to_thread.run_sync(_load_task, server, name, run)
    yield {"task": task}
    events = TaskEvents(run, task["contextId"])
    async for entry in _iter_entries(server, name, run):
        if entry is None:
            yield None
            continue
        for event in events.apply(entry):
            yield event
    for event in events.finish(*await to_thread.run_sync(_load_report, server, name, run)):
        yield event


async def _iter_entries(server: ServerContext, name: str, run: str) -> AsyncIterator[Any]:
    """Yield the entries of a run until it ends or pauses, or until no process works on it.

    Yield None if nothing happens for a while.
    """
    with Follower(server.store, run) as entries:
        while not server.hub.is_closed:
            entry, is_over = None, False
            with move_on_after(HEARTBEAT_SECONDS) as silence:
                try:
                    entry = await anext(entries)
                except StopAsyncIteration:
                    is_over = True
            if is_over or (silence.cancelled_caught and await to_thread.run_sync(_is_left, server, name, run)):
                return
            yield entry


def _is_left(server: ServerContext, name: str, run: str) -> bool:
    return _load_report(server, name, run)[1] in FINAL_PHASES | {"paused", "resumable"}


def _load_report(server: ServerContext, name: str, run: str) -> tuple[Report, Phase]:
    """Return the report and the state of a task of the agent `name`. Raise RpcError if it has no such task."""
    try:
        with open_reader(server.store) as reader:
            summary = reader.read_summary(run)
            if not _is_task(name, summary):
                raise NoSuchRun(f"run {run!r} is not a task of {name}")
            state = summary.phase
            return Report.from_entries(reader.read_entries(run)), state
    except NoSuchRun:
        raise RpcError(TASK_NOT_FOUND, f"task {run[:100]!r} not found") from None


def _find_actor(server: ServerContext) -> Actor:
    return Actor(name=server.user, channel="a2a")


def _is_task(name: str, summary: RunSummary) -> bool:
    """Return whether a run was started by a client of the agent's endpoint."""
    task = summary.started.errand
    return task is not None and task.endpoint == _name_endpoint(name)


def _name_endpoint(name: str) -> str:
    return f"a2a/{name}"


def _load_task(server: ServerContext, name: str, run: str) -> Fields:
    report, state = _load_report(server, name, run)
    return build_task(report, state, find_first_run(server.store, run))


async def _encode_events(
    events: AsyncIterator[Fields | None], id: str | int | None, may_go_on: Callable[[], bool]
) -> AsyncIterator[bytes]:
    try:
        async for event in events:
            if not may_go_on():
                return
            if event is None:
                yield b": waiting\n\n"
            else:
                yield b"data: %s\n\n" % msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": event})
    except PodiumError as error:
        yield b"data: %s\n\n" % msgspec.json.encode(_build_error(id, INTERNAL_ERROR, str(error)))


def _build_error(id: str | int | None, code: int, message: str) -> Fields:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


ROUTES = (read_card, answer_rpc)
