"""Parse requests and build replies for the OpenAI chat completions API, with an agent or a team as the model.

Clients of this API keep the conversation and send all of it with every request. The last message is the request to the
agent, and the messages before it are quoted in it. An agent has its own model, tools and limits, so parameters such as
`temperature` have no effect; parameters that would change the meaning of the reply are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..files.discovery import Roster
from ..values.agent import Agent
from ..values.errors import BadAgent, Mistake
from ..values.json import JsonObject
from ..values.request import Result, quote_lines, replace_surrogates
from ..values.usage import Usage

OWNER = "podium"
RUN_PREFIX = "chatcmpl-"
"""The prefix of a completion's id, which is followed by the run's id."""
CHUNK = "chat.completion.chunk"
DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": waiting\n\n"


class UnknownModel(Mistake):
    """No agent has the name of the requested model."""


class ContentPart(Struct):
    """A part of a message's content."""

    type: str
    text: str = ""


class ChatMessage(Struct):
    """A message in the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        """The text of the message. Raise Mistake if the message contains anything but text."""
        if isinstance(self.content, str):
            return self.content
        parts = self.content or []
        if other := [part.type for part in parts if part.type not in ("text", "input_text", "refusal")]:
            raise Mistake(f"the message has a part of type {other[0]!r}; only text is supported")
        return "\n".join(part.text for part in parts)


class StreamOptions(Struct):
    """The options of a stream."""

    include_usage: bool = False


class ResponseFormat(Struct):
    """The format of the reply."""

    type: str = "text"


class ChatRequest(Struct):
    """A chat completion request. Other parameters of the API have no effect."""

    model: str
    messages: list[ChatMessage]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: ResponseFormat | None = None

    @property
    def includes_usage(self) -> bool:
        """Whether the stream ends with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage


def parse_chat_request(body: bytes) -> ChatRequest:
    """Parse the body of a chat request. Raise Mistake if it is invalid or uses a feature that agents do not support."""
    try:
        request = msgspec.json.decode(body, type=ChatRequest)
    except msgspec.ValidationError as error:
        raise Mistake(f"the request is invalid: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Mistake(f"the body is not valid JSON: {error}") from error
    except RecursionError:
        raise Mistake("the JSON is nested too deeply") from None
    if request.n not in (None, 1):
        raise Mistake(f"n is {request.n}; an agent gives one answer, so n must be 1")
    if request.tools or request.functions:
        raise Mistake("the request specifies tools, but an agent uses only its own; remove them from the request")
    if request.response_format is not None and request.response_format.type != "text":
        raise Mistake(f"response_format {request.response_format.type!r} is not supported; use text")
    return request


def build_request_text(messages: Sequence[ChatMessage]) -> str:
    """Return the request to the agent: the earlier messages as quotes, and then the last message.

    Raise Mistake if the last message is not from the user or has no text.
    """
    if not messages or messages[-1].role != "user":
        raise Mistake("the last message must have the role user")
    last = replace_surrogates(messages[-1].text)
    if not last.strip():
        raise Mistake("the last message is empty; send a request to the agent")
    earlier = [(one.role, replace_surrogates(one.text)) for one in messages[:-1]]
    instructions = [text for role, text in earlier if role in ("system", "developer") and text.strip()]
    turns = [(role, text) for role, text in earlier if role not in ("system", "developer") and text.strip()]
    blocks = [f"Instructions for this conversation:{quote_lines(text)}" for text in instructions]
    if turns:
        blocks.append("The conversation so far:")
        blocks += [f"{role}:{quote_lines(text)}" for role, text in turns]
    return "\n\n".join([*blocks, "The request:", last]) if blocks else last


def find_model(roster: Roster, name: str) -> Agent:
    """Return the agent that has the model's name. Raise UnknownModel if there is none."""
    try:
        return roster.get(name)
    except BadAgent as error:
        raise UnknownModel(str(error)) from error


class ChatModel(Struct, frozen=True, kw_only=True):
    """An agent, described as a model."""

    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = OWNER
    description: str
    is_team: bool


def build_model(agent: Agent) -> ChatModel:
    """Return the description of an agent as a model."""
    return ChatModel(id=agent.name, description=agent.description, is_team=agent.team is not None)


class ChatModelList(Struct, frozen=True, kw_only=True):
    """A list of agents, each described as a model."""

    object: str = "list"
    data: tuple[ChatModel, ...]


def build_model_list(roster: Roster) -> ChatModelList:
    """Return the list of agents, each described as a model."""
    return ChatModelList(data=tuple(build_model(agent) for agent in roster.agents.values()))


class CachedTokens(Struct, frozen=True):
    """How many tokens of a prompt came from a cache."""

    cached_tokens: int


class ChatUsage(Struct, frozen=True, kw_only=True):
    """The token usage of a run."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class Completion(Struct, frozen=True, kw_only=True):
    """A reply, or a chunk of one."""

    id: str
    created: int
    model: str
    object: str
    choices: tuple[JsonObject, ...]
    usage: ChatUsage | UnsetType = UNSET


class CompletionWriter:
    """Writes the reply to one request, whole or as a stream of chunks."""

    def __init__(self, run: str, model: str, *, created: int) -> None:
        self._id = f"{RUN_PREFIX}{run}"
        self._model = model
        self._created = created

    def build_completion(self, result: Result) -> Completion:
        """Return the whole reply."""
        message = {"role": "assistant", "content": result.text, "refusal": None}
        choice: JsonObject = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return self._build("chat.completion", choice, usage=_build_usage(result.usage))

    def encode_opening(self) -> bytes:
        """Return the first event of a stream."""
        return self._encode_choice({"role": "assistant", "content": ""})

    def encode_text(self, text: str) -> bytes:
        """Return the event for a piece of the answer."""
        return self._encode_choice({"content": text})

    def encode_ending(self, result: Result, *, has_usage: bool) -> bytes:
        """Return the last events of a stream."""
        usage = encode_data(self._build(CHUNK, usage=_build_usage(result.usage))) if has_usage else b""
        return self._encode_choice({}, finish_reason="stop") + usage + DONE

    def _encode_choice(self, delta: JsonObject, *, finish_reason: str | None = None) -> bytes:
        choice: JsonObject = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return encode_data(self._build(CHUNK, choice))

    def _build(self, kind: str, *choices: JsonObject, usage: ChatUsage | UnsetType = UNSET) -> Completion:
        return Completion(
            id=self._id, created=self._created, model=self._model, object=kind, choices=choices, usage=usage
        )


def _build_usage(usage: Usage) -> ChatUsage:
    """Return the token usage of a run. Rehearsed calls are not counted."""
    return ChatUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.tokens,
        prompt_tokens_details=CachedTokens(usage.cached_tokens),
    )


class ChatErrorDetails(Struct, frozen=True, kw_only=True):
    """What is wrong with a request, or with a run."""

    message: str
    type: str
    param: str | None = None
    code: str | None


class ChatError(Struct, frozen=True):
    """An error in the API's format."""

    error: ChatErrorDetails


ERROR_KINDS = {
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "insufficient_scope"),
    404: ("invalid_request_error", "model_not_found"),
    409: ("conflict_error", "run_did_not_end"),
    429: ("rate_limit_error", "too_many_runs"),
    502: ("server_error", "agent_failed"),
    503: ("server_error", "interrupted"),
}


def build_error(status: int, message: str) -> ChatError:
    """Return an error in the API's format."""
    unnamed = ("server_error" if status >= 500 else "invalid_request_error", None)
    kind, code = ERROR_KINDS.get(status, unnamed)
    return ChatError(ChatErrorDetails(message=message, type=kind, code=code))


def encode_data(fields: object) -> bytes:
    """Return one server-sent event."""
    return b"data: %s\n\n" % msgspec.json.encode(fields)
