"""`podium check`: report all problems with the agents at a path, and with the settings of a repository."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import click

from ...files.discovery import CheckReport, check_path
from ...files.settings_diagnostics import check_settings
from ...runs.assembly.agent_diagnostics import make_agent_check
from ...runs.assembly.run_guidance import check_guidance
from ...system.locations import find_home_folder, find_repo
from ...values.errors import Diagnostic, filter_errors
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ..output.text import as_json, escape_for_terminal

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
