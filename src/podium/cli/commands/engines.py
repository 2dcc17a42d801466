"""`podium engines`: list the coding agents that can be used as engines, and allow repositories' agents to use them."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import click

from ...files.settings import Settings
from ...runs.queries.engine_listing import EngineItem, EngineList, confirm_engine, list_engines
from ...system.locations import find_home_folder, find_repo
from ..lazy_group import require_no_group_options
from ..output.command_options import json_option, repo_option
from ..output.text import align_columns, as_json, escape_for_terminal, print_to_stderr


@click.group("engines", invoke_without_command=True)
@repo_option
@json_option
@click.pass_context
def engines_command(ctx: click.Context, repo: Path | None, is_json: bool) -> None:
    """List the coding agents that can be used as engines.

    The list shows the version of each installed coding agent, and how to install the others. To use one of them, set
    engine: NAME in an agent's file.
    """
    if ctx.invoked_subcommand is not None:
        return require_no_group_options(ctx, repo=repo, json=is_json)
    settings = Settings.load(os.environ, repo or find_repo(Path.cwd(), home=find_home_folder()))
    found = anyio.run(list_engines, settings, os.environ)
    return click.echo(as_json(found) if is_json else _format_engines(found))


@engines_command.command("use")
@click.argument("name")
@repo_option
def engines_use_command(name: str, repo: Path | None) -> None:
    """Allow agents defined in repositories to use the coding agent NAME, with your login and at your expense.

    Your own agents and programs do not need this permission.
    """
    settings = Settings.load(os.environ, repo or find_repo(Path.cwd(), home=find_home_folder()))
    print_to_stderr(confirm_engine(settings, name))


def _format_engines(found: EngineList) -> str:
    """Return the coding agents as text: a table, how to install the missing ones, and their known limitations."""
    engines = found.engines
    rows = [[one.name, _format_version(one), _format_consent(one), " ".join(one.command)] for one in engines]
    lines = ["Coding agents", *(f"  {'  '.join(row)}" for row in align_columns(rows))]
    missing = [[one.name, one.install] for one in engines if one.executable is None and one.install]
    if missing:
        lines += ["", "To install", *(f"  {'  '.join(row)}" for row in align_columns(missing))]
    lines += ["", "Known limits", *(f"  {one.name}: {text}" for one in engines for text in one.open)]
    return escape_for_terminal("\n".join(lines))


def _format_version(engine: EngineItem) -> str:
    if engine.executable is None:
        return "not installed"
    tested = engine.tested_version
    other = f", tested with {tested}" if tested and engine.version != tested else ""
    return f"{engine.version or 'unknown version'}{other}"


def _format_consent(engine: EngineItem) -> str:
    if engine.is_own:
        return "in your settings"
    return "confirmed" if engine.is_confirmed else "not confirmed"
