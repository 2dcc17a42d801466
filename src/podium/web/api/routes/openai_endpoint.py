"""The OpenAI-compatible endpoint: agents and teams as models of the chat completions API."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any

from anyio import create_task_group, move_on_after, to_thread
from litestar import get, post
from litestar.params import FromPath
from litestar.response import Response, Stream

from ....files.discovery import Roster, load_roster
from ....files.settings import Settings
from ....protocols.client_runs import ClientRun, describe_missing_answer
from ....protocols.openai_chat import (
    DONE,
    HEARTBEAT,
    ChatModel,
    ChatModelList,
    ChatRequest,
    CompletionWriter,
    build_error,
    build_model,
    build_model_list,
    build_request_text,
    encode_data,
    find_model,
    parse_chat_request,
)
from ....runs.run_start import start_run
from ....values.request import Outcome, Result
from ....views.answer_text import AnswerText
from ..route_parameters import Server
from ..scopes import ApiRequest, get_token, may, may_read
from ..server_context import ServerContext

HEARTBEAT_SECONDS = 15.0
RUN_HEADER = "x-podium-run"
NO_RETRY = {"x-should-retry": "false"}
"""Tells OpenAI clients not to retry, because repeating a request would start another run."""
FAILED_STATUS: dict[Outcome, HTTPStatus] = {
    "paused": HTTPStatus.CONFLICT,
    "cancelled": HTTPStatus.CONFLICT,
    "interrupted": HTTPStatus.SERVICE_UNAVAILABLE,
}


@get("/v1/models", guards=[may_read], sync_to_thread=True)
def list_models(server: Server) -> ChatModelList:
    """List the agents and teams in the server's repository as model objects of the OpenAI API."""
    return build_model_list(_load_roster(server))


@get("/v1/models/{name:str}", guards=[may_read], sync_to_thread=True)
def read_model(name: FromPath[str], server: Server) -> ChatModel:
    """Return the agent or team with this name as a model object of the OpenAI API."""
    return build_model(find_model(_load_roster(server), name))


@post("/v1/chat/completions", guards=[may(start_run)], status_code=200)
async def complete_chat(request: ApiRequest, server: Server) -> Response[Any] | Stream:
    """Send the conversation to the agent named by `model`, and return or stream the agent's answer.

    If the client disconnects, the run is stopped. The run's permission requests wait in the inbox.
    """
    chat = parse_chat_request(await request.body())
    text = build_request_text(chat.messages)
    settings = await to_thread.run_sync(_prepare, server, chat.model)
    starting = server.client_runs.start(settings, server.repo, chat.model, text)
    if chat.stream:
        token = get_token(request)
        events = _stream_chat(starting, chat, lambda: server.is_valid_token(token.id))
        # The first event is read here, so that the client gets an HTTP error status if the run cannot start.
        first = await anext(events)
        return Stream(_prepend(first, events), media_type="text/event-stream", headers={"cache-control": "no-store"})
    async with starting as run:
        result = await _wait_result(request, server, run)
    if not result.succeeded:
        status = _find_failed_status(result)
        error = build_error(status, describe_missing_answer(result))
        return Response(error, status_code=status, headers={RUN_HEADER: run.id, **NO_RETRY})
    fields = CompletionWriter(run.id, chat.model, created=int(time.time())).build_completion(result)
    return Response(fields, headers={RUN_HEADER: run.id})


async def _wait_result(request: ApiRequest, server: ServerContext, run: ClientRun) -> Result:
    """Return the result of a run. If the client disconnects, stop the run first."""
    async with create_task_group() as group:

        async def stop_on_disconnect() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            if not run.run.is_over:
                await run.run.stop(by=server.client_runs.by)

        group.start_soon(stop_on_disconnect)
        result = await run.result()
        group.cancel_scope.cancel()
    return result


async def _stream_chat(
    starting: AbstractAsyncContextManager[ClientRun], chat: ChatRequest, may_go_on: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield a stream's events, and a comment if nothing happens for a while. Closing the iterator stops the run."""
    async with starting as run:
        writer = CompletionWriter(run.id, chat.model, created=int(time.time()))
        yield writer.encode_opening()
        answer = AnswerText()
        with run.entries() as entries:
            while may_go_on():
                entry = None
                with move_on_after(HEARTBEAT_SECONDS) as silence:
                    entry = await anext(entries, None)
                if silence.cancelled_caught:
                    yield HEARTBEAT
                elif entry is None:
                    break
                elif piece := answer.apply(entry):
                    yield writer.encode_text(piece)
            else:
                return
        result = await run.result()
        if not result.succeeded:
            yield encode_data(build_error(_find_failed_status(result), describe_missing_answer(result))) + DONE
            return
        if rest := answer.finish(result.text):
            yield writer.encode_text(rest)
        yield writer.encode_ending(result, has_usage=chat.includes_usage)


def _find_failed_status(result: Result) -> HTTPStatus:
    return FAILED_STATUS.get(result.outcome, HTTPStatus.BAD_GATEWAY)


async def _prepend(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for one in others:
        yield one


def _prepare(server: ServerContext, model: str) -> Settings:
    """Return the settings for a run. Raise UnknownModel if no agent or team is called `model`."""
    find_model(_load_roster(server), model)
    return Settings.load(repo=server.repo, store=server.store, home=server.settings.home)


def _load_roster(server: ServerContext) -> Roster:
    return load_roster(server.repo, server.settings.home)


ROUTES = (list_models, read_model, complete_chat)
