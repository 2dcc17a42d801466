"""Write the server's own messages to standard error, which is often a terminal.

A message can contain text that a client chose: a path, a name, or a value in the text of an exception. Control and
invisible characters in it are escaped, so that the text cannot control the terminal or look like something else.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from ...values.plain_text import escape_for_terminal


def report_trouble(text: str) -> None:
    """Write a message about a problem to standard error."""
    sys.stderr.write(f"{escape_for_terminal(f'podium serve: {text.rstrip()}')}\n")


class EscapingFormatter(logging.Formatter):
    """Formats log records, with their tracebacks, as text that is safe to print to a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_for_terminal(super().format(record))


LOG_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"escaped": {"()": EscapingFormatter, "format": "podium serve: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "escaped"}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": "ERROR", "propagate": False} for name in ("uvicorn", "asyncio")
    },
}
"""How the messages of the HTTP server and of its event loop are printed."""
