"""Define, encode and decode the messages between a worker and its commander. Each message is one line of JSON.

Every message has an `id`, a `type` and a `timestamp`. Received lines are validated here, once: unknown fields
are ignored, and a line that is not a valid message raises BadFrame. The link checks who can send which message,
and when.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, structs

from ...values.plain_text import escape_unprintable, truncate_text
from .line_socket import BadFrame

Id = Annotated[str, Meta(min_length=1, max_length=128)]


class _Message(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The fields of every message. `id` and `timestamp` (in milliseconds) are set when the message is sent."""

    id: Id = ""
    timestamp: Annotated[int, Meta(ge=1, le=2**53)] = 0


# Messages from a worker


class Handshake(_Message, frozen=True, kw_only=True, tag="handshake"):
    """The first message of a connection. It identifies the worker by the token; the name is not trusted."""

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
    """A notice that a request or question in the worker's run is waiting for an answer. `request` is its id.

    The answer does not come over the wire: it is posted to the run's mailbox.
    """

    request: Id


class Pong(_Message, frozen=True, kw_only=True, tag="pong"):
    """The answer to a Ping."""


# Messages from a commander


class HandshakeAck(_Message, frozen=True, kw_only=True, tag="handshake_ack"):
    """The answer to a Handshake. `config` contains everything that the worker needs, including its models' keys."""

    accepted: bool
    error: str = ""
    config: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"HandshakeAck(accepted={self.accepted!r}, error={self.error!r}, config=…)"


class Cancel(_Message, frozen=True, kw_only=True, tag="cancel"):
    """An instruction that tells the worker to stop."""

    reason: str = ""


class Ping(_Message, frozen=True, kw_only=True, tag="ping"):
    """A keepalive message from the commander. The worker answers with a Pong."""


Report = PermissionRequest
"""A message from a worker to its commander."""
Order = Cancel
"""A message from a commander to a worker."""
FromWorker = Handshake | Report | Pong
FromCommander = HandshakeAck | Order | Ping

_Any = TypeVar("_Any", bound=FromWorker | FromCommander)

_from_worker: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)
_from_commander: msgspec.json.Decoder[FromCommander] = msgspec.json.Decoder(FromCommander)


def stamp_message(message: _Any, *, id: str, timestamp: int) -> _Any:
    """Return the message with the timestamp, and with the id unless the message already has an id."""
    return structs.replace(message, id=message.id or id, timestamp=timestamp)


def encode_message(message: FromWorker | FromCommander) -> bytes:
    """Return the message as a line, including the line break. Raise BadFrame if it cannot be encoded."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError as error:
        kind = type(message).__struct_config__.tag
        raise BadFrame(
            f"cannot send the {kind} message: one of its strings contains a lone surrogate, which UTF-8 cannot encode"
        ) from error


def decode_from_worker(line: bytes) -> FromWorker:
    """Decode a line from a worker. Raise BadFrame if it is not a valid message."""
    return _decode_line(_from_worker, line)


def decode_from_commander(line: bytes) -> FromCommander:
    """Decode a line from a commander. Raise BadFrame if it is not a valid message."""
    return _decode_line(_from_commander, line)


def _decode_line(decoder: msgspec.json.Decoder[_Any], line: bytes) -> _Any:
    try:
        message = decoder.decode(line)
    except msgspec.ValidationError as error:
        raise BadFrame(f"received an invalid message: {truncate_text(escape_unprintable(str(error)), 200)}") from None
    except (msgspec.MsgspecError, ValueError):
        raise BadFrame("received an invalid message: it is not JSON in UTF-8") from None
    except RecursionError:
        raise BadFrame("received an invalid message: it is nested too deeply") from None
    # The decoder does not require these fields: they have default values, which are replaced when a message is sent.
    if not message.id or not message.timestamp:
        raise BadFrame("received an invalid message: it has no id or no timestamp")
    return message
