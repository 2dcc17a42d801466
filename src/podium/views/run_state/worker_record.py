"""Follow the work in a run's own checkout: where it is, what was committed and checked, and how often it resumed."""

from __future__ import annotations

import re

from msgspec import Struct, field

from ...core.edits import EDITS, Edits
from ...values.event import (
    KINDS,
    ActionBegan,
    Checked,
    Entry,
    Noticed,
    ReasoningStreamed,
    RunPaused,
    RunResumed,
    RunStarted,
    TextStreamed,
    ToolAnswered,
    WorkCommitted,
    WorkerPlaced,
)
from ..run_phase import OngoingWork
from . import RunState

CHECKS_TOOL = "run_checks"
VERDICT = re.compile(r"(PASS|FAIL) (.+?)(?=, (?:PASS|FAIL) |$)")
"""Pattern for the result of each check in the first line of the tool's answer, if the tool ran several checks."""


_UNRELATED = frozenset({TextStreamed, ReasoningStreamed, RunStarted, Noticed})


class CheckRun(Struct, frozen=True, kw_only=True):
    """A check that was executed during a run, and whether it passed."""

    name: str
    passed: bool


class WorkerRecord(RunState):
    """The work in a run's own checkout, built by applying the entries of its timeline in order."""

    PLACE = ("worker",)
    KINDS = tuple(name for event, name in KINDS.items() if event not in _UNRELATED)

    begun_at: float = 0.0
    restarts: int = 0
    is_under_way: bool = False
    """Whether any work was recorded since the run was last started, resumed or paused."""
    ongoing: OngoingWork = field(default_factory=OngoingWork)
    placed: WorkerPlaced | None = None
    committed: WorkCommitted | None = None
    checks: list[CheckRun] = field(default_factory=list)
    running_checks: dict[str, str] = field(default_factory=dict)
    """The running checks, keyed by the scopes of their calls; denied checks are not included."""

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        if type(entry.event) in _UNRELATED:
            return
        match entry.event:
            case RunResumed():
                self._apply_resume(entry.at, edits)
                return
            case RunPaused():
                edits.set(self, is_under_way=False)
                return
            case WorkerPlaced() as placed:
                edits.set(self, placed=placed)
            case WorkCommitted() as committed:
                edits.set(self, committed=committed)
            case ActionBegan(action=action) if action.tool == CHECKS_TOOL:
                name = str(action.arguments.get("name") or CHECKS_TOOL)
                edits.put(self, "running_checks", entry.scope, name)
            case ToolAnswered() as answered if name := self.running_checks.get(entry.scope, ""):
                edits.drop(self, "running_checks", entry.scope)
                edits.add(self, "checks", *_parse_check_results(name, answered))
            case Checked() as checked:
                edits.add(self, "checks", CheckRun(name="; ".join(checked.commands), passed=checked.passed))
        if not self.is_under_way:
            edits.set(self, is_under_way=True)
        if self.ongoing.apply(entry):
            edits.replace(self, "ongoing")

    def _apply_resume(self, at: float, edits: Edits) -> None:
        """Record that a new process resumed the run, and that the earlier turns and tools are no longer running."""
        restarts = self.restarts + self.is_under_way
        edits.set(self, restarts=restarts, begun_at=self.begun_at or at, is_under_way=False)
        self.ongoing.interrupt()
        edits.replace(self, "ongoing")


def _parse_check_results(name: str, answered: ToolAnswered) -> list[CheckRun]:
    """Return the checks that a call ran, each with its own result if the answer lists them."""
    said = VERDICT.findall(answered.text.partition("\n")[0])
    if len(said) > 1 and ", ".join(one for _, one in said) == name:
        return [CheckRun(name=one, passed=verdict == "PASS") for verdict, one in said]
    return [CheckRun(name=name, passed=not answered.is_error)]
