"""Report a run that waited for a provider's limit to reset and continues late."""

from __future__ import annotations

import time

from ..values.event import Event, RunPaused
from ..values.plain_text import format_countdown, format_utc_time

LATE_SECONDS = 60.0
"""If a run continues at least this much later than planned, a notice on its timeline reports the delay."""


def describe_late_wakeup(last: Event) -> str:
    """Return a notice if a waiting run continues later than planned; otherwise an empty string.

    `last` is the run's last event.
    """
    if not isinstance(last, RunPaused) or not last.until or (late := time.time() - last.until) < LATE_SECONDS:
        return ""
    when = format_utc_time(last.until)
    return (
        f"The run was due to continue at {when}. No process was running to continue it, "
        f"so it continues {format_countdown(late)} late."
    )
