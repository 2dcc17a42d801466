"""Whether a person at the terminal may be asked, and `--no-input`, which says that nobody is there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

NO_INPUT_KEY = "podium.no_input"


def no_input_option(command: F) -> F:
    """Give a command the option `--no-input`."""

    def record_flag(ctx: click.Context, _: click.Parameter, is_set: bool) -> None:
        ctx.find_root().meta[NO_INPUT_KEY] = is_set

    what = "Ask nothing: what agents may not do by themselves is denied at once."
    return click.option("--no-input", is_flag=True, expose_value=False, callback=record_flag, help=what)(command)


def is_input_disabled() -> bool:
    """Whether the command line says that nobody is to be asked."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.find_root().meta.get(NO_INPUT_KEY))


def is_attended() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not is_input_disabled()
