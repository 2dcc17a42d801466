"""Print the output of commands that work on a run or follow one, such as `podium run`, and define their options.

The answer or the JSON goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ...values.event import ActionRefused
from ...values.request import Result
from ...views.run_state.tree import RunView
from . import exit_codes
from .agent_text import format_agent_text, format_output, format_parts
from .follow_run import RunEnding
from .run_display import JsonLinesView, LineView, ProgressView, SilentView
from .text import format_duration, format_usage, print_to_stderr

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """The output options of a command."""

    is_json: bool = False
    is_jsonl: bool = False
    is_plain: bool = False
    is_quiet: bool = False
    is_strict: bool = False

    def __post_init__(self) -> None:
        if self.is_json and self.is_jsonl:
            raise click.UsageError("--json and --jsonl cannot be combined; give one of them")

    @property
    def is_verbose(self) -> bool:
        """Whether to report progress to the user."""
        return not self.is_quiet and not self.is_jsonl

    @property
    def shows_notifications(self) -> bool:
        """Whether to notify the user at the terminal."""
        return not (self.is_quiet or self.is_json or self.is_jsonl)

    def make_view(self, run_view: RunView) -> ProgressView:
        """Return the view that shows the run while it is active."""
        if self.is_jsonl:
            return JsonLinesView()
        if self.is_quiet:
            return SilentView()
        if self.is_plain or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            return LineView()
        from .live_tree import LiveTree  # imported here for start-up time: importing rich is slow

        return LiveTree(run_view)

    def print_ending(self, ending: RunEnding) -> int:
        """Print how the run ended and return the exit code. With `--json`, the caller prints the result."""
        result = ending.result
        if result is None:
            print_to_stderr("interrupted before the run started")
            return exit_codes.SIGNALLED + (ending.signal or 0)
        if result.outcome not in ("interrupted", "paused") and self.is_verbose:
            mark = ", unproved" if result.unproved else ""
            print_to_stderr(
                f"run {result.run_id}: {result.outcome}{mark} in {format_duration(result.usage.seconds)}, "
                f"{format_usage(result.usage)}"
            )
        if result.succeeded and not self.is_json and not self.is_jsonl:
            click.echo(format_agent_text(result.text, sys.stdout, is_plain=self.is_plain))
        if self.is_verbose and not result.succeeded and (parts := format_parts(result.parts)):
            click.echo(format_output(parts, sys.stderr, is_plain=self.is_plain), err=True)
        if ending.refusals:
            print_to_stderr(_format_refusals(result.run_id, ending.refusals))
        if result.unproved:
            print_to_stderr(f"unproved: {result.unproved}")
        code = _print_follow_up(result, ending)
        is_doubtful = bool(ending.refusals or result.unproved)
        return exit_codes.ASKS if self.is_strict and is_doubtful and code == exit_codes.GOAL_MET else code


def output_options(command: F) -> F:
    """Add the output options to a command that works on runs. Their values are passed as `is_json` and so on."""
    for option in (
        click.option(
            "--strict",
            "is_strict",
            is_flag=True,
            help="Exit with code 3 instead of 0 if an action was refused or the work is unproved.",
        ),
        click.option("--quiet", "is_quiet", is_flag=True, help="Print only the answer and errors."),
        click.option("--plain", "is_plain", is_flag=True, help="Print lines instead of a live tree."),
        click.option(
            "--jsonl", "is_jsonl", is_flag=True, help="Print the timeline as it happens, one JSON object per line."
        ),
        click.option("--json", "is_json", is_flag=True, help="Print the result as one JSON object."),
    ):
        command = option(command)
    return command


def _format_refusals(run: str, refusals: Sequence[ActionRefused]) -> str:
    """Return a sentence about the actions that were refused in a run."""
    first, others = refusals[0], len(refusals) - 1
    more = f" and {others} more" if others else ""
    verb = "were" if others else "was"
    return (
        f"{first.action.tool}{more} {verb} refused ({first.reason}); run podium audit {run} to see all refused actions"
    )


def _print_follow_up(result: Result, ending: RunEnding) -> int:
    """Print why there is no answer and how to continue, unless the run succeeded. Return the exit code."""
    go_on = f"continue with: podium resume {result.run_id}"
    match result.outcome:
        case "paused":
            print_to_stderr(f"paused; {go_on}")
            if ending.is_parked:
                return exit_codes.ASKS
        case "interrupted" if ending.signal is not None:
            print_to_stderr(f"interrupted; {go_on}")
            return exit_codes.SIGNALLED + ending.signal
        case "interrupted":
            print_to_stderr(f"podium: {result.error}")
            print_to_stderr(f"interrupted; {go_on}")
            return exit_codes.GOAL_NOT_MET if ending.error is None else exit_codes.error_exit_code(ending.error)
        case outcome if outcome != "succeeded":
            print_to_stderr(f"podium: {ending.error_text or f'the run was {outcome}'}")
            if ending.is_aborted:
                return exit_codes.DENIED
    return exit_codes.run_exit_code(result.outcome, ending.failure)
