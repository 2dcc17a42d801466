"""Say when a run continues that waits for a limit of a provider, and whether it continues late."""

from __future__ import annotations

import time

from ..values.event import Event, RunPaused
from ..values.plain_text import format_countdown, format_utc_time

LATE_SECONDS = 60.0
"""A run that continues later than this after its time continues late, and its timeline says so."""


def is_paused_now(last: Event) -> bool:
    """Return whether a run whose last event is `last` is paused, or waits for a time that has not come yet."""
    return isinstance(last, RunPaused) and (not last.until or last.until > time.time())


def describe_late_wakeup(last: Event) -> str:
    """Return a notice if a run whose last event is `last` should have continued long ago; otherwise an empty string."""
    if not isinstance(last, RunPaused) or not last.until or (late := time.time() - last.until) < LATE_SECONDS:
        return ""
    when = format_utc_time(last.until)
    return f"The run was to continue at {when}. No process was there, so it continues {format_countdown(late)} late."
