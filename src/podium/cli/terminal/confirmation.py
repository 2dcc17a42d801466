"""Ask the user to confirm an action."""

from __future__ import annotations

import click

from ...values.errors import Mistake
from . import exit_codes
from .text import print_to_stderr


def confirm_action(question: str, *, is_agreed: bool) -> None:
    """Ask for confirmation unless --yes was given. Exit if the user refuses. Raise Mistake if there is no terminal."""
    if is_agreed:
        return
    from .terminal_input import is_attended  # imported here for start-up time: only this function needs it

    if not is_attended():
        raise Mistake(f'cannot ask "{question}" without a terminal; use --yes to confirm')
    if not click.confirm(question, err=True):
        print_to_stderr("nothing was changed")
        raise click.exceptions.Exit(exit_codes.DENIED)
