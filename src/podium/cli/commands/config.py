"""`podium config`: which settings hold here, where each comes from, and whether the files are right."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, structs, to_builtins

from ...config.settings_files import MCP_FILE, REPO_FILE, USER_FILE, read_files
from ...engines.model.providers import without_credentials
from ...setup.settings import Settings, home_folder
from ...system.locations import find_repo
from ...values.diagnostic import Finding
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ..terminal import exit_codes
from ..terminal.measure import aligned, counted
from ..terminal.text import as_json, visible

in_repo = click.option(
    "--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The repository to look in."
)
as_object = click.option("--json", "is_json", is_flag=True, help="Print it as JSON.")


@click.group("config", invoke_without_command=True)
@in_repo
@as_object
@click.pass_context
def command(ctx: click.Context, repo: Path | None, is_json: bool) -> Any:
    """Show the settings that hold here, where their files are, or what is wrong with them."""
    if ctx.invoked_subcommand is None:
        return ctx.invoke(show, repo=repo, is_json=is_json)
    if is_json or repo is not None:
        option = "--json" if is_json else "--repo"
        raise click.UsageError(f"{option} goes after {ctx.invoked_subcommand}, and not before it")
    return None


@command.command("show")
@in_repo
@as_object
def show(repo: Path | None = None, is_json: bool = False) -> None:
    """Show every setting with its value and its source. Secrets are never shown."""
    settings = Settings.load(os.environ, _repo(repo))
    rows = effective(settings)
    if is_json:
        fields = {"settings": rows, "proposed": list(settings.proposed.said_keys()), "notices": settings.notices}
        click.echo(as_json({"schema": SCHEMA, **fields}))
        return
    lines = ["  ".join(row) for row in aligned([[row["key"], row["source"], _told(row["value"])] for row in rows])]
    click.echo(visible("\n".join([*lines, *(f"note: {notice}" for notice in settings.notices)])))


@command.command("path")
@in_repo
@as_object
def path(repo: Path | None, is_json: bool) -> None:
    """Show where settings files are looked for, the weakest first, and which of them are there."""
    folder = _repo(repo)
    files = [
        {"source": source, "path": str(place), "exists": place.exists()}
        for source, place in (
            ("repository file", folder / REPO_FILE),
            ("repository file", folder / MCP_FILE),
            ("user file", home_folder() / USER_FILE),
        )
    ]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "files": files}))
        return
    rows = [[str(one["path"]), str(one["source"]), "" if one["exists"] else "not there"] for one in files]
    click.echo(visible("\n".join("  ".join(row).rstrip() for row in aligned(rows))))


@command.command("validate")
@in_repo
@as_object
def validate(repo: Path | None, is_json: bool) -> int:
    """Check the settings files and print all findings; the exit code is 1 when there are errors."""
    findings = checked(home_folder(), _repo(repo))
    severities = [finding.severity for finding in findings]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "errors": severities.count("error"), "findings": findings}))
    else:
        counts = [(severities.count(word), word) for word in ("error", "warning", "notice")]
        summed = ", ".join(counted(number, word) for number, word in counts if number)
        lines = [f"{finding.severity}: {finding}" for finding in findings]
        click.echo(visible("\n".join([*lines, f"settings: {summed or 'nothing to complain about'}"])))
    return exit_codes.GOAL_NOT_MET if "error" in severities else exit_codes.GOAL_MET


def checked(home: Path, repo: Path) -> list[Finding]:
    """Everything that is wrong with the settings files, and how they fit together."""
    files = read_files(home, repo)
    findings = list(files.findings)
    if not files.errors:
        try:
            Settings.of(files, os.environ, repo)
        except Mistake as error:
            findings.insert(0, Finding(severity="error", path="settings", message=str(error)))
    return findings


def effective(settings: Settings) -> list[dict[str, Any]]:
    """Each key with its value and its source, without anything secret."""
    values: dict[str, Any] = {
        "home": str(settings.home),
        "store": str(settings.store),
        "model": settings.model,
        "base_url": without_credentials(settings.base_url),
        "permissions.mode": settings.permission_mode,
        "sandbox": settings.sandbox,
        "workers": settings.workers,
        "max_restarts": settings.max_restarts,
        "approvals.timeout": "never" if math.isinf(settings.approval_seconds) else settings.approval_seconds,
        "notify": [without_credentials(word) for word in settings.notify],
    }
    values |= {f"permissions.{key}": list(rules) for key, rules in _fields(settings.permissions).items() if rules}
    values |= {f"narrowing.{key}": list(rules) for key, rules in _fields(settings.narrowing).items() if rules}
    values |= {f"models.{name}": role for name, role in settings.models.items()}
    values |= {f"budget.{key}": limit for key, limit in _fields(settings.budget).items() if limit is not None}
    values |= {f"checks.{name}": list(argv) for name, argv in settings.checks.items()}
    values |= {f"worktrees.{key}": value for key, value in settings.worktrees.said().items()}
    values |= {
        f"providers.{name}.{key}": without_credentials(limit) if isinstance(limit, str) else limit
        for name, limits in settings.providers.items()
        for key, limit in _fields(limits).items()
        if limit is not None
    }
    values |= {f"engines.{name}": _bare(_fields(one)) for name, one in settings.engines.items()}
    values |= {f"mcpServers.{name}": _bare(_fields(one)) for name, one in settings.mcp_servers.items()}
    return [{"key": key, "value": value, "source": _source(key, settings)} for key, value in values.items()]


def _source(key: str, settings: Settings) -> str:
    return "repository file" if key.startswith("narrowing.") else settings.sources.get(key, "default")


def _fields(value: Struct | None) -> dict[str, Any]:
    return {} if value is None else structs.asdict(value)


def _bare(fields: dict[str, Any]) -> dict[str, Any]:
    """What is started or called, without arguments, values of variables and headers, which may be secret."""
    address = without_credentials(fields.get("url", "")).partition("?")[0]
    shown = {"command": fields["command"], "url": address}
    names = {key: sorted(fields[key]) for key in ("env", "headers") if fields.get(key)}
    return {key: value for key, value in shown.items() if value} | names


def _told(value: Any) -> str:
    """A value on one line."""
    return value if isinstance(value, str) else json.dumps(to_builtins(value), ensure_ascii=False)


def _repo(given: Path | None) -> Path:
    return given or find_repo(Path.cwd(), home=home_folder())
