"""Translate agents and runs into the terms of the Agent2Agent protocol, version 1.0: agent cards, tasks and events.

A task is a run, and a context is a conversation made up of runs; its id is the id of its first run.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from .. import __version__
from ..system.json_rpc import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, Params, RpcError
from ..values.agent import Agent
from ..values.event import Entry, PermissionAsked, QuestionAsked
from ..values.operation_path import parse_agent_name
from ..values.phase import Phase
from ..values.request import quote_lines, replace_surrogates
from ..views.answer_text import AnswerText
from ..views.request_text import escape_in_line
from ..views.run_report import Report

PROTOCOL_VERSION = "1.0"
TASK_NOT_FOUND = -32001
TASK_NOT_CANCELABLE = -32002
UNSUPPORTED_OPERATION = -32004
CONTENT_TYPE_NOT_SUPPORTED = -32005
ANSWER = "answer"
"""The id of the artifact that contains a task's answer."""
STATES: dict[Phase, str] = {
    "queued": "TASK_STATE_SUBMITTED",
    "running": "TASK_STATE_WORKING",
    "waiting": "TASK_STATE_WORKING",
    "paused": "TASK_STATE_WORKING",
    "resumable": "TASK_STATE_WORKING",
    "succeeded": "TASK_STATE_COMPLETED",
    "failed": "TASK_STATE_FAILED",
    "timed_out": "TASK_STATE_FAILED",
    "cancelled": "TASK_STATE_CANCELED",
}

Fields = dict[str, Any]


class RpcRequest(Struct):
    """A JSON-RPC request."""

    method: str
    id: str | int | None = None
    params: Params = {}


class MessagePart(Struct, rename="camel"):
    """A part of a message: text, data, or a file, given by its URL or its content (`raw`)."""

    text: str | None = None
    data: Any = None
    url: str = ""
    raw: str = ""


class ClientMessage(Struct, rename="camel"):
    """A message from the client. With `task_id`, it is for a task in progress; otherwise, it starts a new task."""

    message_id: str
    parts: tuple[MessagePart, ...] = ()
    context_id: str = ""
    task_id: str = ""


class SendConfiguration(Struct, rename="camel", frozen=True):
    """Options for the response to a message.

    With `return_immediately`, the response is sent before the task has ended.
    """

    return_immediately: bool = False


class SendMessage(Struct, rename="camel"):
    """The parameters of SendMessage and SendStreamingMessage."""

    message: ClientMessage
    configuration: SendConfiguration = SendConfiguration()


class TaskQuery(Struct, rename="camel"):
    """The parameters of GetTask, CancelTask and SubscribeToTask."""

    id: str


def parse_rpc_request(body: bytes) -> RpcRequest:
    """Return the JSON-RPC request in a body. Raise RpcError if there is none."""
    try:
        return msgspec.json.decode(body, type=RpcRequest)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_REQUEST, f"the request is invalid: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, f"the body is not valid JSON: {error}") from error


def parse_send_message(params: Params) -> SendMessage:
    """Return the message to send. Raise RpcError if it is invalid."""
    try:
        return msgspec.convert(params, SendMessage)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"the parameters are invalid: {error}") from error


def parse_task_id(params: Params) -> str:
    """Return the id of the task that a request is about. Raise RpcError if it has none."""
    try:
        return msgspec.convert(params, TaskQuery).id
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, f"the parameters are invalid: {error}") from error


def build_message_text(message: ClientMessage) -> str:
    """Return the text of a message, which is the request to the agent. A file is included as its URL.

    Raise RpcError if the message is empty or contains the content of a file.
    """
    parts: list[str] = []
    for part in message.parts:
        if part.raw:
            raise RpcError(CONTENT_TYPE_NOT_SUPPORTED, "the message contains a file's content; send text or a URL")
        if part.data is not None:
            parts.append(f"Data:{quote_lines(msgspec.json.encode(part.data).decode())}")
        parts.append(part.text or part.url)
    text = replace_surrogates("\n\n".join(filter(None, parts)))
    if not text.strip():
        raise RpcError(INVALID_PARAMS, "the message is empty; send a request to the agent")
    return text


def build_card(agent: Agent, address: str) -> Fields:
    """Return the card of an agent whose endpoint is at `address`."""
    modes = ["text/plain"]
    skill = {
        "id": agent.name,
        "name": agent.display_name or agent.name,
        "description": agent.description or f"The agent {agent.name}.",
        "tags": ["team"] if agent.team is not None else ["agent"],
    }
    return {
        "name": agent.display_name or agent.name,
        "description": skill["description"],
        "version": __version__,
        "supportedInterfaces": [{"url": address, "protocolBinding": "JSONRPC", "protocolVersion": PROTOCOL_VERSION}],
        "capabilities": {"streaming": True, "pushNotifications": False},
        "securitySchemes": {"token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"token": {"list": []}}}],
        "defaultInputModes": modes,
        "defaultOutputModes": modes,
        "skills": [skill],
    }


def build_task(report: Report, state: Phase, context: str) -> Fields:
    """Return a run as a task."""
    fields: Fields = {"id": report.run, "contextId": context, "status": _build_status(report, state)}
    if report.answer is not None:
        fields["artifacts"] = [_build_artifact(report.answer)]
    return fields


def _build_status(report: Report, state: Phase) -> Fields:
    """Return the state of a run, with the reason if it has no answer."""
    why = report.why
    if state in ("paused", "resumable"):
        why = f"run {report.run} is {state}; to continue it, run podium resume {report.run}"
    return {"state": STATES[state], **_build_message(report.run, why), "timestamp": _format_time()}


def _build_artifact(text: str) -> Fields:
    """Return an answer, or a piece of it, as an artifact."""
    return {"artifactId": ANSWER, "name": ANSWER, "parts": [{"text": text}]}


class TaskEvents:
    """Turns the entries of one run into the events of its task."""

    def __init__(self, run: str, context: str) -> None:
        self._ids = {"taskId": run, "contextId": context}
        self._answer = AnswerText()
        self._has_text = False

    def apply(self, entry: Entry) -> Iterator[Fields]:
        """Yield the events for the next entry of the run."""
        if piece := self._answer.apply(entry):
            yield self._artifact_event(piece, is_last=False)
        if isinstance(entry.event, PermissionAsked | QuestionAsked):
            who = escape_in_line(parse_agent_name(entry.operation))
            why = f"{who} is waiting for a person to answer request {entry.event.id} in Podium's inbox"
            message = _build_message(entry.run, why)
            yield {"statusUpdate": {**self._ids, "status": {"state": "TASK_STATE_WORKING", **message}}}

    def finish(self, report: Report, state: Phase) -> Iterator[Fields]:
        """Yield the rest of the answer and the final state."""
        if report.answer is not None and (rest := self._answer.finish(report.answer)):
            yield self._artifact_event(rest, is_last=True)
        yield {"statusUpdate": {**self._ids, "status": _build_status(report, state)}}

    def _artifact_event(self, text: str, *, is_last: bool) -> Fields:
        append, self._has_text = self._has_text, True
        event = {**self._ids, "artifact": _build_artifact(text), "append": append, "lastChunk": is_last}
        return {"artifactUpdate": event}


def _build_message(run: str, text: str) -> Fields:
    if not text:
        return {}
    return {"message": {"messageId": f"{run}-status", "role": "ROLE_AGENT", "parts": [{"text": text}]}}


def _format_time() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
