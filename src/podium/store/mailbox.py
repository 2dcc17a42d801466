"""Post messages to the mailbox of a run from any process, and read them in the process that owns the run.

A mailbox message is an event for the run's timeline. The owner writes the event to the timeline in the same
transaction that marks the message as taken. A `ref` is unique within a run: if two processes answer the same
question, only the first answer is posted, and the second sender is told that its answer came too late.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from ..core.redaction import Redaction
from ..values.event import (
    BudgetChanged,
    MemberChanged,
    MessageAcknowledged,
    MessageReceived,
    PauseAsked,
    PermissionAnswered,
    QuestionAnswered,
    StopAsked,
)
from ..values.request import AttachedFile
from ..values.store_address import StoreAddress
from .attachment_rows import insert_attachments
from .sql_connection import SqlConnection
from .store_connection import open_connection, translate_errors
from .wakeup import send_wakeup
from .write_statements import INSERT_MAIL

MailboxEvent = (
    StopAsked
    | PauseAsked
    | BudgetChanged
    | MemberChanged
    | MessageReceived
    | MessageAcknowledged
    | PermissionAnswered
    | QuestionAnswered
)
"""The events that can be posted to a mailbox."""

_decoder: msgspec.json.Decoder[MailboxEvent] = msgspec.json.Decoder(MailboxEvent)


class MailboxMessage(NamedTuple):
    """A message for a run's owner. Ids increase in the order of arrival."""

    id: int
    run: str
    event: MailboxEvent


def post_to_mailbox(
    path: StoreAddress, run: str, event: MailboxEvent, *, ref: str = "", files: Sequence[AttachedFile] = ()
) -> bool:
    """Post a message to a run's mailbox, and wake all processes that own runs, so that the run's owner reads it.

    Return False, and post nothing, if the run already has a message with this `ref`. `files` contains the attachments
    of a `MessageReceived`. Secrets in this process's environment are redacted, because the store keeps the message
    even after the run's owner has read it.
    """
    data = Redaction.from_environment(os.environ).redact_line(msgspec.json.encode(event))
    connection = open_connection(path, create=False)
    try:
        with translate_errors(path):
            connection.set_durable(True)
            # Messages of one run get their ids in the order in which they are committed.
            connection.begin_write(f"mail {run}")
            posted = connection.execute(INSERT_MAIL, (run, ref or secrets.token_hex(8), time.time(), data)).rowcount
            if posted == 1 and files and isinstance(event, MessageReceived):
                insert_attachments(connection, run, event.id, files)
            connection.execute("COMMIT")
    finally:
        connection.close()
    send_wakeup(path, "owner")
    return posted == 1


def read_mailbox(connection: SqlConnection, run: str, after: int) -> list[MailboxMessage]:
    """Return a run's messages that have not been taken and have an id greater than `after`, in order of arrival.

    A message that this release cannot decode, because a newer release posted it, stays in the mailbox.
    """
    found = connection.execute(
        "SELECT id, run, line FROM mail WHERE run = ? AND taken IS NULL AND id > ? ORDER BY id", (run, after)
    )
    readable = []
    for id, run, line in found:
        with suppress(msgspec.MsgspecError):
            readable.append(MailboxMessage(id, run, _decoder.decode(line)))
    return readable


def find_runs_with_mail(connection: SqlConnection) -> list[str]:
    """Return the runs with messages that have not been taken."""
    return [run for (run,) in connection.execute("SELECT DISTINCT run FROM mail WHERE taken IS NULL")]
