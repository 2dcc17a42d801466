"""Each run's mailbox: how everybody but its owner speaks to a run.

A letter is an event that the sender wants on the timeline. The owner moves it there in the
transaction that takes it out of the mailbox. A letter with a `ref` is unique in its run: of two
answers to one question the first is the decision, and the second sender is told.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...values.attachment import AttachedFile
from ...values.event import (
    BudgetChanged,
    MemberChanged,
    MessageReceived,
    PauseAsked,
    PermissionAnswered,
    QuestionAnswered,
    StopAsked,
)
from ..wakeup import ensure_socket_folder, send_wakeup
from .attachment_rows import insert_attachments
from .schema import open_connection, translate_sqlite_errors

MailboxEvent = (
    StopAsked | PauseAsked | BudgetChanged | MemberChanged | MessageReceived | PermissionAnswered | QuestionAnswered
)
"""What may be put into a mailbox."""

_decoder: msgspec.json.Decoder[MailboxEvent] = msgspec.json.Decoder(MailboxEvent)


class MailboxMessage(NamedTuple):
    """Something for the owner of a run. `id` orders letters by arrival."""

    id: int
    run: str
    event: MailboxEvent


def post_to_mailbox(
    path: Path, run: str, event: MailboxEvent, *, ref: str = "", files: Sequence[AttachedFile] = ()
) -> bool:
    """Put a letter into a run's mailbox and ring. False when there is one with this `ref` already.

    `files` are what comes with a message.
    """
    connection = open_connection(path, create=False)
    try:
        with translate_sqlite_errors(path):
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            if files and isinstance(event, MessageReceived):
                insert_attachments(connection, run, event.id, files)
            posted = connection.execute(
                "INSERT OR IGNORE INTO mail (run, ref, at, line) VALUES (?, ?, ?, ?)",
                (run, ref or secrets.token_hex(8), time.time(), msgspec.json.encode(event)),
            ).rowcount
            connection.execute("COMMIT")
    finally:
        connection.close()
    send_wakeup(ensure_socket_folder(path), "owner")
    return posted == 1


def read_mailbox(connection: sqlite3.Connection, run: str, after: int) -> list[MailboxMessage]:
    """The letters for a run that nobody has taken, in the order in which they came.

    One that this release cannot read, from a newer one, is left for it.
    """
    found = connection.execute(
        "SELECT id, run, line FROM mail WHERE run = ? AND taken IS NULL AND id > ? ORDER BY id", (run, after)
    )
    readable = []
    for id, run, line in found:
        with suppress(msgspec.MsgspecError):
            readable.append(MailboxMessage(id, run, _decoder.decode(line)))
    return readable


def find_runs_with_mail(connection: sqlite3.Connection) -> list[str]:
    """The runs for which letters are waiting."""
    return [run for (run,) in connection.execute("SELECT DISTINCT run FROM mail WHERE taken IS NULL")]
