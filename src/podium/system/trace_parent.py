"""The position in a trace that the programs started by the current task inherit, as in the W3C Trace Context.

It is empty unless this process records traces.
"""

from __future__ import annotations

from contextvars import ContextVar

VARIABLE = "TRACEPARENT"

trace_parent: ContextVar[str] = ContextVar("trace_parent", default="")
"""The value of TRACEPARENT for programs that the current task starts."""


def trace_variables() -> dict[str, str]:
    """Return the variable that a program inherits, or nothing if this process records no traces."""
    value = trace_parent.get()
    return {VARIABLE: value} if value else {}
