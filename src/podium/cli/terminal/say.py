"""Telling people something, beside what a command was asked for."""

from __future__ import annotations

import click

from .text import visible


def say(sentence: str) -> None:
    """Tell people something, on standard error."""
    click.echo(visible(sentence), err=True)
