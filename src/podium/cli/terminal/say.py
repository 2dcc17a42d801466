"""Telling people something, beside what a command was asked for."""

from __future__ import annotations

import click

from .text import escape_for_terminal


def print_to_stderr(sentence: str) -> None:
    """Tell people something, on standard error."""
    click.echo(escape_for_terminal(sentence), err=True)
