"""`podium doctor`: check this machine and repository, and suggest fixes."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import click

from ...runs.health_checks import collect_facts
from ...runs.store_health import Fact
from ...setup.settings import Settings
from ...store.store_connection import has_current_tables
from ...values.errors import PodiumError
from ...values.event import SCHEMA
from ...values.placement_address import PGQUEUER, describe_placement
from ...values.store_address import PostgresAddress
from ..terminal import exit_codes
from ..terminal.text import align_columns, as_json, escape_for_terminal


@click.command("doctor")
@click.option("--json", "is_json", is_flag=True, help="Print the results as JSON.")
def doctor_command(is_json: bool) -> int:
    """Check everything that Podium needs, from settings to agents. The exit code is 1 if there is a problem.

    The command runs nothing from the repository and changes nothing. It looks for model servers only on this
    machine, and shows only the names of keys, never their values.
    """
    facts = [*collect_facts(os.environ, Path.cwd()), *_check_placement(), *_check_schedules()]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "facts": [fact._asdict() for fact in facts]}))
    else:
        click.echo("\n".join(format_facts(facts)))
    return exit_codes.GOAL_NOT_MET if any(fact.level == "problem" for fact in facts) else exit_codes.GOAL_MET


def _check_placement() -> list[Fact]:
    """Report whether the fleet's queue can be reached, unless it is in the store's database."""
    try:
        settings = Settings.load()
        if settings.placement == PGQUEUER or not isinstance(settings.store, PostgresAddress):
            return []
        anyio.run(_open_placement, settings.store, settings.placement)
    except PodiumError as error:
        return [Fact("queue", "problem", str(error))]
    return [Fact("queue", "fine", f"{describe_placement(settings.placement)}, a NATS server with JetStream")]


async def _open_placement(store: PostgresAddress, placement: str) -> None:
    from ...fleet.placement_choice import open_placement  # imported here because it needs optional packages

    async with open_placement(store, placement) as queue:
        await queue.list_jobs()


def _check_schedules() -> list[Fact]:
    """Report if there are schedules but no process to start their runs. Another check covers the store itself."""
    from ...workers.schedule_firing import describe_unattended_schedules  # imported here for start-up time

    try:
        settings = Settings.load()
        told = describe_unattended_schedules(settings) if has_current_tables(settings.store) else ""
    except PodiumError:
        return []
    return [Fact("schedules", "note", told)] if told else []


def format_facts(facts: list[Fact]) -> list[str]:
    """Return a line for each fact."""
    marks = {"fine": "ok", "note": "--", "problem": "!!"}
    return [
        escape_for_terminal("  ".join(row))
        for row in align_columns([[marks[level], what, text] for what, level, text in facts])
    ]
