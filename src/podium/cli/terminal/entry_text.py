"""Format timeline entries for the terminal, each as one line of text or of JSON."""

from __future__ import annotations

import json
from typing import Any

from msgspec import to_builtins

from ...system.host_id import get_username
from ...values.event import Entry, RunResumed, RunStarted
from ...views.event_text import describe_entry, is_detail, name_subject
from .text import escape_for_terminal


def format_entry(entry: Entry, *, has_details: bool = False) -> str | None:
    """Describe an entry in one line, or return None if it is not worth a line, such as streamed text.

    With `has_details`, routine entries also have a line.
    """
    if is_detail(entry.event) and not has_details:
        return None
    # Looking up the user takes longer than the rest, so it is done only for the events that may name another one.
    user = get_username() if isinstance(entry.event, RunStarted | RunResumed) else ""
    text = describe_entry(entry, user=user)
    if text is None:
        return None
    subject = name_subject(entry)
    return escape_for_terminal(f"{subject}: {text}" if subject else text)


def format_entry_json(entry: Entry) -> str:
    """Return an entry as one line of ASCII JSON, which cannot contain terminal control characters."""
    fields: dict[str, Any] = to_builtins(entry)
    event = fields.pop("event")
    top = {"type": event.pop("type"), "seq": entry.seq, "schema": entry.schema}
    return json.dumps({**top, **fields, "event": event}, separators=(",", ":"))
