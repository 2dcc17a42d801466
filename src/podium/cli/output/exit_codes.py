"""Define the exit codes of commands, and map outcomes and errors to them."""

from __future__ import annotations

from ...values.errors import (
    AgentFailed,
    AlreadyAnswered,
    ChecksumMismatch,
    DependencyMissing,
    Failure,
    FailureKind,
    JournalMismatch,
    LeaseLost,
    Mistake,
    RequestClosed,
    RunHeld,
    StoreCorrupt,
)
from ...values.request import Outcome

GOAL_MET = 0
GOAL_NOT_MET = 1
USAGE = 2
ASKS = 3
DENIED = 4
LIMIT = 5
CONFLICT = 6
MISSING = 7
INTEGRITY = 8
SIGNALLED = 128
"""After a signal, the exit code is this value plus the signal's number, e.g. 130 for SIGINT and 143 for SIGTERM."""

# The first match wins.
_BY_ERROR: tuple[tuple[type[BaseException], int], ...] = (
    (Mistake, USAGE),
    (AlreadyAnswered, CONFLICT),
    (RequestClosed, CONFLICT),
    (RunHeld, CONFLICT),
    (LeaseLost, CONFLICT),
    (StoreCorrupt, INTEGRITY),
    (JournalMismatch, INTEGRITY),
    (ChecksumMismatch, INTEGRITY),
    (DependencyMissing, MISSING),
    (ModuleNotFoundError, MISSING),
)
_LIMITS: frozenset[FailureKind] = frozenset({"timed_out", "limit", "budget"})


def run_exit_code(outcome: Outcome, failure: Failure | None) -> int:
    """Return the exit code for a run with this outcome."""
    if outcome == "succeeded":
        return GOAL_MET
    is_limit = outcome == "timed_out" or (failure is not None and failure.kind in _LIMITS)
    return LIMIT if is_limit else GOAL_NOT_MET


def error_exit_code(error: BaseException) -> int:
    """Return the exit code of a command that raised this error."""
    if isinstance(error, AgentFailed):
        return run_exit_code(error.failure.outcome, error.failure)
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), GOAL_NOT_MET)
