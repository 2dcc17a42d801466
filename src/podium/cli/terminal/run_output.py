"""What `run` and `resume` print: the answer on standard output, everything else on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ...values.result import Result
from ...views.run_view import Picture
from . import exit_codes
from .follow_run import Ending
from .measure import span, used
from .outcome_text import parts_told
from .run_display import JsonLines, Lines, Nothing, View
from .say import say
from .text import visible

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What the person wants to see."""

    is_json: bool = False
    is_jsonl: bool = False
    is_plain: bool = False
    is_quiet: bool = False

    def __post_init__(self) -> None:
        if self.is_json and self.is_jsonl:
            raise click.UsageError("--json and --jsonl exclude each other")

    @property
    def is_talkative(self) -> bool:
        """Whether people are told how it goes."""
        return not self.is_quiet and not self.is_jsonl

    def view(self, picture: Picture) -> View:
        """What shows the run while it goes on."""
        if self.is_jsonl:
            return JsonLines()
        if self.is_quiet:
            return Nothing()
        if self.is_plain or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
            return Lines()
        from .live_tree import LiveTree  # rich takes longer to import than most commands to answer

        return LiveTree(picture)

    def tell(self, ending: Ending) -> int:
        """Say what came of it, all but the object that `--json` asks for; the exit code."""
        result = ending.result
        if result is None:
            say("interrupted before the run began")
            return exit_codes.SIGNALLED + (ending.signal or 0)
        if result.outcome not in ("interrupted", "paused") and self.is_talkative:
            say(f"run {result.run_id}: {result.outcome} in {span(result.usage.seconds)}, {used(result.usage)}")
        if result.succeeded and not self.is_json and not self.is_jsonl:
            click.echo(visible(result.text))
        if self.is_talkative and not result.succeeded:
            for words in parts_told(result.parts):
                say(words)
        return _left(result, ending)


def output_options(command: F) -> F:
    """The options of every command that works on runs; they arrive as `is_json` and so on."""
    for option in (
        click.option("--quiet", "is_quiet", is_flag=True, help="Print only the answer and errors."),
        click.option("--plain", "is_plain", is_flag=True, help="Print lines instead of drawing a tree."),
        click.option("--jsonl", "is_jsonl", is_flag=True, help="Print the timeline as it happens, an object a line."),
        click.option("--json", "is_json", is_flag=True, help="Print the result as one JSON object."),
    ):
        command = option(command)
    return command


def _left(result: Result, ending: Ending) -> int:
    """Say why there is no answer, and how there may still be one; the exit code."""
    go_on = f"go on with: podium resume {result.run_id}"
    match result.outcome:
        case "paused":
            say(f"paused; {go_on}")
        case "interrupted" if ending.signal is not None:
            say(f"interrupted; {go_on}")
            return exit_codes.SIGNALLED + ending.signal
        case "interrupted":
            say(f"podium: {result.error}")
            say(f"interrupted; {go_on}")
            return exit_codes.GOAL_NOT_MET if ending.trouble is None else exit_codes.of_error(ending.trouble)
        case outcome if outcome != "succeeded":
            say(f"podium: {result.error or f'the run was {outcome}'}")
    return exit_codes.of_run(result.outcome, ending.failure)
