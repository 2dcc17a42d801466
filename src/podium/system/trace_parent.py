"""The trace context that programs started by the current task inherit, in the W3C Trace Context format.

It is empty unless this process records traces.
"""

from __future__ import annotations

from contextvars import ContextVar

VARIABLE = "TRACEPARENT"

trace_parent: ContextVar[str] = ContextVar("trace_parent", default="")
"""The value of TRACEPARENT for programs that the current task starts."""


def trace_variables() -> dict[str, str]:
    """Return the variable TRACEPARENT for child programs, or an empty mapping if this process records no traces."""
    value = trace_parent.get()
    return {VARIABLE: value} if value else {}
