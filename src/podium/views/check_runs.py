"""Collect the checks that were executed during a run, with their results."""

from __future__ import annotations

import re

from msgspec import Struct

from ..values.event import ActionBegan, Checked, Entry, ToolAnswered

CHECKS_TOOL = "run_checks"
VERDICT = re.compile(r"(PASS|FAIL) (.+?)(?=, (?:PASS|FAIL) |$)")
"""Pattern for the result of each check in the first line of the tool's answer, if the tool ran several checks."""


class CheckRun(Struct, frozen=True, kw_only=True):
    """A check that was executed during a run, and whether it passed."""

    name: str
    passed: bool


class CheckRunsBuilder:
    """Collects the checks in the entries applied so far."""

    def __init__(self) -> None:
        self.checks: list[CheckRun] = []
        self._running: dict[str, str] = {}
        """The running checks, keyed by the scopes of their calls; denied checks are not included."""

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        match entry.event:
            case ActionBegan(action=action) if action.tool == CHECKS_TOOL:
                self._running[entry.scope] = str(action.arguments.get("name") or CHECKS_TOOL)
            case ToolAnswered() as answered if name := self._running.pop(entry.scope, ""):
                self.checks += _parse_check_results(name, answered)
            case Checked() as checked:
                self.checks.append(CheckRun(name="; ".join(checked.commands), passed=checked.passed))


def _parse_check_results(name: str, answered: ToolAnswered) -> list[CheckRun]:
    """Return the checks that a call ran, each with its own result if the answer lists them."""
    said = VERDICT.findall(answered.text.partition("\n")[0])
    if len(said) > 1 and ", ".join(one for _, one in said) == name:
        return [CheckRun(name=one, passed=verdict == "PASS") for verdict, one in said]
    return [CheckRun(name=name, passed=not answered.is_error)]
