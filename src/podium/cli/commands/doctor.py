"""`podium doctor`: check this machine and repository, and suggest fixes."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import click

from ...files.settings import Settings
from ...runs.queries.health_checks import Fact, collect_facts
from ...store.store_connection import has_current_tables
from ...system.locations import find_home_folder
from ...values.errors import PodiumError
from ...values.event import SCHEMA
from ...values.plain_text import join_some
from ..output import exit_codes
from ..output.text import align_columns, as_json, escape_for_terminal

MOST_NAMED = 5


@click.command("doctor")
@click.option("--json", "is_json", is_flag=True, help="Print the results as JSON.")
def doctor_command(is_json: bool) -> int:
    """Check everything that Podium needs, from settings to agents. The exit code is 1 if there is a problem.

    The command runs nothing from the repository and changes nothing. It looks for model servers only on this
    machine, and shows only the names of keys, never their values.
    """
    facts = [*collect_facts(os.environ, Path.cwd()), *_check_queue(), *_check_schedules(), *_check_known_servers()]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "facts": facts}))
    else:
        click.echo("\n".join(_format_facts(facts)))
    return exit_codes.GOAL_NOT_MET if any(fact.level == "problem" for fact in facts) else exit_codes.GOAL_MET


def _check_queue() -> list[Fact]:
    """Report runs that wait for a host of the fleet but are not in its queue. Another check covers the store itself."""
    from ...workers.fleet_jobs import find_missing_jobs  # imported here for start-up time

    try:
        settings = Settings.load()
        if not has_current_tables(settings.store):
            return []
        missing = anyio.run(find_missing_jobs, settings.store)
    except PodiumError:
        return []
    why = "not in the fleet's queue, for example because they waited on a NATS server, which is no longer supported"
    how = "a host queues them when it starts, and podium resume RUN queues them now"
    return [Fact("queue", "note", f"{join_some(missing, MOST_NAMED)}: {why}; {how}")] if missing else []


def _check_schedules() -> list[Fact]:
    """Report if there are schedules but no process to start their runs. Another check covers the store itself."""
    from ...schedules.schedule_firing import describe_unattended_schedules  # imported here for start-up time

    try:
        settings = Settings.load()
        told = describe_unattended_schedules(settings) if has_current_tables(settings.store) else ""
    except PodiumError:
        return []
    return [Fact("schedules", "note", told)] if told else []


def _check_known_servers() -> list[Fact]:
    """Report a file with sign-ins to other machines, which earlier releases used for `podium --server`."""
    path = find_home_folder() / "servers.json"
    if not path.exists():
        return []
    what = f"{path} contains the sign-ins of podium --server, which is no longer supported"
    return [Fact("sign-ins", "note", f"{what}; revoke them in the dashboards of these servers, and delete the file")]


def _format_facts(facts: list[Fact]) -> list[str]:
    """Return a line for each fact."""
    marks = {"fine": "ok", "note": "--", "problem": "!!"}
    return [
        escape_for_terminal("  ".join(row))
        for row in align_columns([[marks[fact.level], fact.what, fact.text] for fact in facts])
    ]
