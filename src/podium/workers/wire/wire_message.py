"""Messages: what a worker and its commander say to each other, one line of JSON each.

Every message has an `id`, a `type` and a `timestamp`. What the other side sends is checked here, once:
fields that are not known are ignored, and anything else that is not a message is a BadFrame. Who may
say what, and when, is the wire's affair.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from ...values.action import Action
from ...values.plain_text import escape_unprintable, truncate_text
from .frame import BadFrame

ReportedState = Literal[
    "starting", "idle", "thinking", "tool_call", "waiting_permission", "complete", "failed", "cancelled"
]
"""What a worker is doing, or how it ended."""

FINAL: frozenset[ReportedState] = frozenset({"complete", "failed", "cancelled"})
"""The states that never change again."""

ApprovalScope = Literal["once", "run", "always"]
LogLevel = Literal["debug", "info", "warning", "error"]
Id = Annotated[str, Meta(min_length=1, max_length=128)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Amount = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


def next_state(before: ReportedState, after: ReportedState) -> ReportedState:
    """The state of a worker that was in one and says another: a final state stays."""
    return before if before in FINAL else after


class _Message(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The envelope. `timestamp` is in milliseconds; both it and `id` are given when the message is sent."""

    id: Id = ""
    timestamp: Annotated[int, Meta(ge=1, le=2**53)] = 0


# What a worker says


class Handshake(_Message, frozen=True, kw_only=True, tag="handshake"):
    """Who comes: the first message of a connection. What proves it is the token, not the name."""

    worker: str
    token: str
    worktree: str = ""
    branch: str = ""
    task: str = ""
    model: str = ""
    engine: str = ""

    def __repr__(self) -> str:
        return f"Handshake(worker={self.worker!r}, branch={self.branch!r}, token=…)"


class PermissionRequest(_Message, frozen=True, kw_only=True, tag="permission_request"):
    """A worker wants to do something that a person decides on.

    Its `id` is what the answer names, and stays the same where the request is sent again. The rest is
    as it stands in the event `permission_asked`.
    """

    id: Id
    action: Action
    reason: str = ""
    shown: str = ""
    always: str = ""
    denied: tuple[str, ...] = ()


class StatusUpdate(_Message, frozen=True, kw_only=True, tag="status_update"):
    """What the worker does now. `progress` is the share that is done, where that is known."""

    state: ReportedState
    tool: str = ""
    progress: Share | None = None
    tokens: Count = 0
    message: str = ""


class TaskComplete(_Message, frozen=True, kw_only=True, tag="task_complete"):
    """The worker is through with its task. `cost` is in dollars, `duration` in seconds."""

    success: bool
    response: str
    tool_calls: Count = 0
    tokens: Count = 0
    cost: Amount = 0.0
    duration: Amount = 0.0
    branch: str = ""
    commits: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    pr_url: str | None = None


class TaskError(_Message, frozen=True, kw_only=True, tag="task_error"):
    """Something went wrong; where it is recoverable, the worker goes on."""

    message: str
    code: str = ""
    recoverable: bool = False


class LogLine(_Message, frozen=True, kw_only=True, tag="log"):
    """A line for the worker's log."""

    level: LogLevel
    content: str


class Pong(_Message, frozen=True, kw_only=True, tag="pong"):
    """The worker is there."""


# What a commander says


class HandshakeAck(_Message, frozen=True, kw_only=True, tag="handshake_ack"):
    """Whether the worker is let in. `config` is what it needs to begin, the keys of its models among it."""

    accepted: bool
    error: str = ""
    config: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"HandshakeAck(accepted={self.accepted!r}, error={self.error!r}, config=…)"


class Approve(Struct, frozen=True, kw_only=True, tag_field="type", tag="approve"):
    """It may be done: this time, this and its like in the run, or always."""

    scope: ApprovalScope = "once"


class Deny(Struct, frozen=True, kw_only=True, tag_field="type", tag="deny"):
    """It may not be done; the comment is for the agent."""

    comment: str = ""


class Abort(Struct, frozen=True, kw_only=True, tag_field="type", tag="abort"):
    """It may not be done, and the worker is to end."""


class ApprovePattern(Struct, frozen=True, kw_only=True, tag_field="type", tag="approve_pattern"):
    """It may be done, and so may whatever the rule covers. The rule is for information: the commander applies it."""

    rule: str


Result = Approve | Deny | Abort | ApprovePattern


class PermissionResponse(_Message, frozen=True, kw_only=True, tag="permission_response"):
    """What was decided on the request of that id."""

    request_id: Id
    result: Result


class Cancel(_Message, frozen=True, kw_only=True, tag="cancel"):
    """The worker is to end."""

    reason: str = ""


class Pause(_Message, frozen=True, kw_only=True, tag="pause"):
    """The worker is to begin nothing further."""


class Resume(_Message, frozen=True, kw_only=True, tag="resume"):
    """The worker is to go on."""


class InjectContext(_Message, frozen=True, kw_only=True, tag="inject_context"):
    """Something that the worker's agent is to know; `files` are paths in its checkout."""

    text: str
    files: tuple[str, ...] = ()


class Ping(_Message, frozen=True, kw_only=True, tag="ping"):
    """The commander is there, and asks whether the worker is."""


Report = PermissionRequest | StatusUpdate | TaskComplete | TaskError | LogLine
"""What a worker says of its work."""
Order = PermissionResponse | Cancel | Pause | Resume | InjectContext
"""What a commander says about it."""
FromWorker = Handshake | Report | Pong
FromCommander = HandshakeAck | Order | Ping

_Any = TypeVar("_Any", bound=FromWorker | FromCommander)

_from_worker: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)
_from_commander: msgspec.json.Decoder[FromCommander] = msgspec.json.Decoder(FromCommander)


def stamp_message(message: _Any, *, id: str, timestamp: int) -> _Any:
    """The message as it is sent: with an id, unless it has one, and the moment."""
    return structs.replace(message, id=message.id or id, timestamp=timestamp)


def encode_message(message: FromWorker | FromCommander) -> bytes:
    """The message as a line, its end included. Raises BadFrame."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError as error:
        kind = type(message).__struct_config__.tag
        raise BadFrame(f"a {kind} cannot be sent: one of its texts is not Unicode; replace what is not") from error


def decode_from_worker(line: bytes) -> FromWorker:
    """What a worker says in a line. Raises BadFrame."""
    return _decode_line(_from_worker, line)


def decode_from_commander(line: bytes) -> FromCommander:
    """What a commander says in a line. Raises BadFrame."""
    return _decode_line(_from_commander, line)


def _decode_line(decoder: msgspec.json.Decoder[_Any], line: bytes) -> _Any:
    try:
        message = decoder.decode(line)
    except msgspec.ValidationError as error:
        raise BadFrame(f"a line is no message: {truncate_text(escape_unprintable(str(error)), 200)}") from None
    except (msgspec.MsgspecError, ValueError):
        raise BadFrame("a line is no message: it is not JSON in UTF-8") from None
    except RecursionError:
        raise BadFrame("a line is no message: it is nested too deeply") from None
    # Both have defaults, so that a message can be made before it is sent, and are not missed by the decoder.
    if not message.id or not message.timestamp:
        raise BadFrame("a line is no message: it has no id or no timestamp")
    return message
