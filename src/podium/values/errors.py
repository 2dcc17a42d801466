"""The errors that Podium raises, grouped by how a caller handles them.

    PodiumError
    ├── Mistake            the user asked for something impossible, but can correct the request and retry
    │   ├── BadAgent           an agent file or a reference between agents is wrong
    │   ├── NoSuchRun          no run, or more than one, matches the id
    │   ├── RunOver            the run has ended
    │   ├── RunIsPaused        the run is paused and must be resumed first
    │   └── RunRefused         a host created the run, and this machine does not execute it
    │       └── RunNotConfirmed    it is not known who created the run, and the user has not confirmed it
    ├── AlreadyAnswered    the request already has an answer
    ├── RequestClosed      the request expired, or nobody is waiting for the answer any more
    ├── AgentFailed        an agent failed; contains the failure recorded on the timeline
    ├── OutsideFailed      a model, an engine or another program failed
    │   └── PlacementUnavailable  a fleet's queue cannot be reached at the moment
    ├── DependencyMissing  a package, program or library that is needed is not installed
    ├── ChecksumMismatch   a downloaded or imported file does not have the expected content, and was not used
    ├── StoreFailed        the store could not be read or written; a failed write leaves no partial data
    │   ├── StoreUnreachable   the store's server cannot be reached
    │   ├── StoreCorrupt       the store's content is damaged
    │   ├── LeaseLost          another process has taken over the run
    │   └── RunHeld            another live process owns the run
    └── JournalMismatch    the journal and the code disagree: a bug in Podium, or a tampered store

Every error says in one sentence what was given, what is wrong and what would work.
"""

from collections.abc import Iterable, Sequence
from errno import EDQUOT, ENOSPC
from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning", "notice"]


class Diagnostic(Struct, frozen=True, kw_only=True):
    """A message about a file: what was found and what was expected, in one sentence.

    A file with an error is not used; a file that has only warnings is still used. A notice is for information only.
    `line` and `key` are not set if the diagnostic concerns the whole file.
    """

    severity: Severity
    path: str
    line: int | None = None
    key: str = ""
    message: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


FailureKind = Literal["failed", "timed_out", "empty_reply", "engine", "routing", "advice", "refused", "budget", "limit"]


class Failure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an agent failed, as recorded and shown.

    `where` locates the agent more precisely than its name does, such as the stage of a chain. If `is_unknown_model` is
    true, the agent failed because its provider has no such model, and no other model could be used.
    """

    kind: FailureKind
    agent: str
    message: str
    where: str = ""
    is_unknown_model: bool = False

    @property
    def outcome(self) -> Literal["failed", "timed_out"]:
        """The outcome of an operation that failed in this way."""
        return "timed_out" if self.kind == "timed_out" else "failed"

    def describe_to(self, agent: str) -> str:
        """Return the failure as text, for use where `agent` is already mentioned."""
        return self.message if self.agent == agent and not self.where else str(self)

    def __str__(self) -> str:
        return f"{self.where or self.agent}: {self.message}"


def format_failures(failures: Iterable[Failure]) -> str:
    """Return failures as text, grouping agents that failed with the same message: `a, b: no key; c: timed out`."""
    places: dict[str, list[str]] = {}
    for failure in failures:
        places.setdefault(failure.message, []).append(failure.where or failure.agent)
    return "; ".join(f"{', '.join(dict.fromkeys(names))}: {message}" for message, names in places.items())


class PodiumError(Exception):
    """The base class of all errors that Podium raises."""


class Mistake(PodiumError):
    """The user asked for something impossible, but can correct the request and try again."""


class BadAgent(Mistake):
    """An agent definition is invalid."""


class NoSuchRun(Mistake):
    """No run, or more than one, matches the given id."""


class RunOver(Mistake):
    """The run has ended and accepts no more commands."""


class RunIsPaused(Mistake):
    """The run is paused and must be resumed first."""


class RunRefused(Mistake):
    """A host of a fleet created the run, and what it recorded cannot be derived from a person's record."""


class RunNotConfirmed(RunRefused):
    """It is not known whether a host created the run, and the user has not confirmed it yet."""


class AlreadyAnswered(PodiumError):
    """An agent's request or question already has an answer; only the first counts."""

    def __init__(self, id: str, *, how: str, by: str, why: str = "") -> None:
        super().__init__(f"{id} was already answered: {how} by {by or 'somebody'}{f' ({why})' if why else ''}")
        self.id = id
        self.how = how
        self.by = by


class RequestClosed(PodiumError):
    """The agent's request can no longer be answered: it expired, or the agent or its run has ended."""

    def __init__(self, id: str, message: str) -> None:
        super().__init__(message)
        self.id = id


class AgentFailed(PodiumError):
    """An agent failed; `so_far` is its partial answer, if there is one."""

    def __init__(self, failure: Failure, *, so_far: str = "") -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.so_far = so_far


class OutsideFailed(PodiumError):
    """Something outside Podium failed; with `retryable`, the same call may succeed later.

    `retry_after` is the delay in seconds that a server asks for, and `status` is the HTTP status of its response.
    `is_too_long` means that the prompt exceeds the model's context window, `is_unknown_model` that the provider has
    no model with this name, and `is_silent` that it sent nothing for too long.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
        is_too_long: bool = False,
        is_unknown_model: bool = False,
        is_silent: bool = False,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status
        self.is_too_long = is_too_long
        self.is_unknown_model = is_unknown_model
        self.is_silent = is_silent


class PlacementUnavailable(OutsideFailed):
    """A fleet's placement engine cannot be reached; the same call may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class DependencyMissing(PodiumError):
    """A package, program or library is not installed, or cannot be loaded."""


class ChecksumMismatch(PodiumError):
    """A downloaded or imported file does not have the expected content."""


class StoreFailed(PodiumError):
    """The store could not be read or written. A failed write leaves no partial data."""


class StoreUnreachable(StoreFailed):
    """The store's server cannot be reached, or has closed the connection; the same call may succeed later."""


class StoreCorrupt(StoreFailed):
    """The store's content is damaged or was changed by another program."""


class LeaseLost(StoreFailed):
    """This process no longer owns the run that it tried to write to."""


class RunHeld(StoreFailed):
    """Another live process owns the run."""

    def __init__(self, run: str, *, host: str, pid: int) -> None:
        super().__init__(f"run {run} is in use by process {pid} on {host}; stop the run there or wait until it ends")
        self.run = run
        self.host = host
        self.pid = pid


class JournalMismatch(PodiumError):
    """The code and a run's journal disagree, or an internal check failed.

    Either Podium has a bug, or the store was altered.
    """


def find_first_error(error: BaseException) -> BaseException:
    """Return the error itself, or the first error in an exception group, preferring a PodiumError."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    inner = [find_first_error(one) for one in error.exceptions]
    return next((one for one in inner if isinstance(one, PodiumError)), inner[0])


def explain_full_disk(error: BaseException) -> str:
    """Return a sentence if an error means that a disk or a quota is full, and an empty string otherwise."""
    if not isinstance(error, OSError) or error.errno not in (ENOSPC, EDQUOT):
        return ""
    what = f"cannot write {error.filename}" if error.filename else "cannot write"
    return f"{what}: the disk is full; free some space, then try again"


def summarise_errors(errors: Sequence[Diagnostic], *, command: str) -> str:
    """Return the first error and, if there are more, their number and the command that shows them all."""
    more = len(errors) - 1
    return f"{errors[0]} (and {more} more; run {command} to see all)" if more else f"{errors[0]}"


def filter_errors(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the diagnostics that are errors."""
    return tuple(diagnostic for diagnostic in diagnostics if diagnostic.severity == "error")
