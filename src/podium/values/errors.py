"""What can go wrong, by what a caller would do about it.

    PodiumError
    ├── Mistake            the person asked for something that cannot be: say it, change it, try again
    │   ├── BadAgent           an agent file or a reference between agents is wrong
    │   └── NoSuchRun          no run, or more than one, has that id
    ├── Answered           somebody else was faster with an answer
    ├── Failed             an agent's work came to nothing; carries the failure as it is on the timeline
    ├── OutsideFailed      a model, an engine or another program did not do its part
    ├── StoreFailed        the store cannot take or give what was asked; nothing was half written
    │   ├── StoreCorrupt       the file is not what it should be
    │   ├── LeaseLost          another process owns the run now
    │   └── RunHeld            another live process owns the run
    └── Inconsistent       the journal and the code disagree: our own bug, or a tampered store

Every error says in one sentence what was asked, what stands in the way and what would work.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FailureKind = Literal["failed", "timed_out", "empty_reply", "engine", "routing", "advice", "refused", "budget", "limit"]


class Failure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an agent's work came to nothing, as it is recorded and shown.

    `where` says more about the agent's place than its name does, such as the stage of a chain.
    """

    kind: FailureKind
    agent: str
    message: str
    where: str = ""

    @property
    def outcome(self) -> Literal["failed", "timed_out"]:
        """How work with this failure is said to have ended."""
        return "timed_out" if self.kind == "timed_out" else "failed"

    def describe_to(self, agent: str) -> str:
        """The failure where it is clear already that `agent` is spoken of."""
        return self.message if self.agent == agent and not self.where else str(self)

    def __str__(self) -> str:
        return f"{self.where or self.agent}: {self.message}"


class PodiumError(Exception):
    """Anything that Podium itself raises."""


class Mistake(PodiumError):
    """The person's mistake, found before anything ran."""


class BadAgent(Mistake):
    """An agent cannot be used as it is written."""


class NoSuchRun(Mistake):
    """No run, or more than one, has the id that was given."""


class RunOver(Mistake):
    """A run has ended, and nothing can be done with it any more."""


class AlreadyAnswered(PodiumError):
    """What an agent asked has an answer already, and only the first counts."""

    def __init__(self, id: str, *, how: str, by: str) -> None:
        super().__init__(f"{id} was decided before: {how} by {by or 'somebody'}")
        self.id = id
        self.how = how
        self.by = by


class AgentFailed(PodiumError):
    """An agent's work came to nothing; `so_far` is what there is of an answer all the same."""

    def __init__(self, failure: Failure, *, so_far: str = "") -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.so_far = so_far


class OutsideFailed(PodiumError):
    """Something outside failed; `retryable` when the same call may succeed a little later.

    `is_too_long` when a model was given more than it can read.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        retry_after: float | None = None,
        status: int | None = None,
        is_too_long: bool = False,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.status = status
        self.is_too_long = is_too_long


class StoreFailed(PodiumError):
    """The store refused; what was asked is not written."""


class StoreCorrupt(StoreFailed):
    """The store's content is damaged or was changed from outside."""


class LeaseLost(StoreFailed):
    """This process no longer owns the run that it tried to write to."""


class RunHeld(StoreFailed):
    """Another live process owns the run."""

    def __init__(self, run: str, *, host: str, pid: int) -> None:
        super().__init__(
            f"run {run} is being worked on by process {pid} on {host}; stop it there or wait for it to end"
        )
        self.run = run
        self.host = host
        self.pid = pid


class JournalMismatch(PodiumError):
    """The journal says one thing and the code another."""


def find_first_error(error: BaseException) -> BaseException:
    """What went wrong first: the error itself, or what a group of them begins with; ours before others'."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    inner = [find_first_error(one) for one in error.exceptions]
    return next((one for one in inner if isinstance(one, PodiumError)), inner[0])
