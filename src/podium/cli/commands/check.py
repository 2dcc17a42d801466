"""`podium check` and `doctor`: report all problems of agents, of the settings of a repository, and of this machine."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import click

from ...files.discovery import CheckReport, check_path
from ...files.settings import Settings
from ...files.settings_diagnostics import check_settings
from ...runs.assembly.agent_diagnostics import make_agent_check
from ...runs.assembly.run_guidance import check_guidance
from ...runs.queries.health_checks import Fact, collect_facts
from ...store.store_connection import has_current_tables
from ...system.locations import find_home_folder, find_repo
from ...values.errors import Diagnostic, PodiumError, filter_errors
from ...values.event import SCHEMA
from ...values.plain_text import join_some
from ..output import exit_codes
from ..output.text import align_columns, as_json, escape_for_terminal

MOST_NAMED = 5


NOT_CHECKED = Diagnostic(
    severity="notice",
    path="settings",
    message="agents' models, tools and hooks are checked only if the settings have no errors",
)


@click.command("check")
@click.argument("path", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository to check.")
@click.option("--json", "is_json", is_flag=True, help="Print the diagnostics as JSON.")
def check_command(path: Path | None, repo: Path | None, is_json: bool) -> None:
    """Check the agents at PATH: a repository (default: this one), a folder of agents, or one file.

    Prints all diagnostics: problems in the files, problems that would prevent a run with the current settings and,
    for a repository, settings that are invalid or ignored and instruction files that are not read.
    The exit code is 1 if there are errors.
    """
    home = find_home_folder()
    place = path or repo or find_repo(Path.cwd(), home=home)
    inside = find_repo(place if place.is_dir() else place.parent, home=home)
    review_result = _check_place(place, inside, home)
    click.echo(_format_review_json(review_result) if is_json else format_review(review_result))
    if filter_errors(review_result.diagnostics):
        sys.exit(1)


def _check_place(place: Path, inside: Path, home: Path) -> CheckReport:
    """Check the agents at a path in the repository `inside`.

    If the path is the repository, also check the settings files and the instruction files. For any other path,
    only errors in the settings are reported, because they prevent a complete check of the agents.
    """
    is_repository = place.absolute() == inside
    checked = check_settings(os.environ, inside)
    about_settings = checked.diagnostics if is_repository else filter_errors(checked.diagnostics)
    if checked.settings is None:
        found = check_path(place, home)
        return replace(found, diagnostics=(*about_settings, NOT_CHECKED, *found.diagnostics))
    found = check_path(place, home, make_agent_check(checked.settings, os.environ, inside))
    about_files = anyio.run(check_guidance, inside, checked.settings) if is_repository else ()
    return replace(found, diagnostics=(*about_settings, *found.diagnostics, *about_files))


def format_review(found: CheckReport) -> str:
    """Return a line for each diagnostic, then the totals."""
    lines = [escape_for_terminal(f"{finding.severity}: {finding}") for finding in found.diagnostics]
    return "\n".join([*lines, f"{format_count(found.agent_count, 'agent')}: {_format_severity_counts(found)}"])


def _format_severity_counts(found: CheckReport) -> str:
    """Return the number of diagnostics of each severity."""
    severities = [finding.severity for finding in found.diagnostics]
    counts = [(severities.count(word), word) for word in ("error", "warning", "notice")]
    return ", ".join(format_count(number, word) for number, word in counts if number) or "no problems"


def format_count(number: int, word: str) -> str:
    """Return a count and its noun, e.g. `1 agent` or `2 agents`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _format_review_json(found: CheckReport) -> str:
    """Return the diagnostics as JSON."""
    return as_json(
        {
            "schema": SCHEMA,
            "agents": found.agent_count,
            "errors": len(filter_errors(found.diagnostics)),
            "findings": found.diagnostics,
        }
    )


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
