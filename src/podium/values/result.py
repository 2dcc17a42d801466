"""Define the result of a run."""

from typing import Any

from msgspec import Struct

from .request import Outcome, Part
from .usage import NO_USAGE, Usage


class Result(Struct, frozen=True, kw_only=True):
    """The result of a run.

    `parts` contains the contributions of individual agents. If the run has no answer, these contributions are its only
    output. If `outcome` is `interrupted`, the run has not ended and can be resumed. `unproved` is the reason why the
    work of a run that succeeded is unproved, or None: its last check or call failed or was refused, or its last edit
    changed nothing.
    """

    run_id: str
    outcome: Outcome
    succeeded: bool
    text: str = ""
    data: Any = None
    parts: tuple[Part, ...] = ()
    usage: Usage = NO_USAGE
    error: str | None = None
    unproved: str | None = None
