"""`podium check`: everything that is wrong with the agents at a path, at once."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ...roster.agent_review import Review, review
from ...system.locations import find_repo, user_home
from ...values.diagnostic import errors
from ...values.event import SCHEMA
from ..terminal.text import as_json, visible


@click.command("check")
@click.argument("path", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The repository to check.")
@click.option("--json", "is_json", is_flag=True, help="Print the findings as JSON.")
def command(path: Path | None, repo: Path | None, is_json: bool) -> None:
    """Check the agents at PATH: a repository (this one by default), a folder of agents, or one file.

    Prints all findings; the exit code is 1 when there are errors.
    """
    home = user_home()
    found = review(path or repo or find_repo(Path.cwd(), home=home), home)
    click.echo(rendered_json(found) if is_json else rendered(found))
    if errors(found.findings):
        sys.exit(1)


def rendered(found: Review) -> str:
    """A line for each finding, then the sum."""
    lines = [visible(f"{finding.severity}: {finding}") for finding in found.findings]
    return "\n".join([*lines, f"{counted(found.agents, 'agent')}: {summed(found)}"])


def summed(found: Review) -> str:
    """How many findings there are of each severity that occurs."""
    severities = [finding.severity for finding in found.findings]
    counts = [(severities.count(word), word) for word in ("error", "warning", "notice")]
    return ", ".join(counted(number, word) for number, word in counts if number) or "nothing to complain about"


def counted(number: int, word: str) -> str:
    """`1 agent`, `2 agents`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def rendered_json(found: Review) -> str:
    """The same for programs."""
    return as_json(
        {
            "schema": SCHEMA,
            "agents": found.agents,
            "errors": len(errors(found.findings)),
            "findings": found.findings,
        }
    )
