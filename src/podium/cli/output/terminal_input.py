"""Check whether a user at the terminal can be prompted, and ask for a confirmation. `--no-input` disables prompts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ...values.errors import Mistake
from . import exit_codes
from .text import print_to_stderr

F = TypeVar("F", bound=Callable[..., Any])
NO_INPUT_KEY = "podium.no_input"


def no_input_option(command: F) -> F:
    """Add the option `--no-input` to a command."""

    def record_flag(ctx: click.Context, _: click.Parameter, is_set: bool) -> None:
        ctx.find_root().meta[NO_INPUT_KEY] = is_set

    what = "Do not prompt: deny anything that needs permission."
    return click.option("--no-input", is_flag=True, expose_value=False, callback=record_flag, help=what)(command)


def is_input_disabled() -> bool:
    """Return whether `--no-input` was given."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.find_root().meta.get(NO_INPUT_KEY))


def is_attended() -> bool:
    """Return whether a user is at the terminal to answer prompts."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not is_input_disabled()


def confirm_action(question: str, *, is_agreed: bool) -> None:
    """Ask for confirmation unless --yes was given. Exit if the user refuses. Raise Mistake if there is no terminal."""
    if is_agreed:
        return

    if not is_attended():
        raise Mistake(f'cannot ask "{question}" without a terminal; use --yes to confirm')
    if not click.confirm(question, err=True):
        print_to_stderr("nothing was changed")
        raise click.exceptions.Exit(exit_codes.DENIED)
