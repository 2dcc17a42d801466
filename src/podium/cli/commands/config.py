"""`podium config`: show the effective settings and their sources, and check the settings files."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import click
from msgspec import Struct, structs, to_builtins

from ...engines.model.providers import without_credentials
from ...files.settings import Settings
from ...files.settings_diagnostics import check_settings
from ...files.settings_document import (
    SPELLED,
    FileSettings,
    Launch,
    ProviderLimits,
    describe_notify_target,
    iter_explicit_fields,
)
from ...files.settings_files import MCP_FILE, REPO_FILE, USER_FILE
from ...system.locations import find_home_folder, find_repo
from ...values.event import SCHEMA
from ...values.mcp_server import McpServer
from ...values.plain_text import format_count
from ..output import exit_codes
from ..output.command_options import json_option, repo_option
from ..output.text import align_columns, as_json, escape_for_terminal


@click.group("config", invoke_without_command=True)
@repo_option
@json_option
@click.pass_context
def config_command(ctx: click.Context, repo: Path | None, is_json: bool) -> Any:
    """Show the effective settings, list the settings files, or check them."""
    if ctx.invoked_subcommand is None:
        return ctx.invoke(config_show_command, repo=repo, is_json=is_json)
    if is_json or repo is not None:
        option = "--json" if is_json else "--repo"
        raise click.UsageError(
            f"{option} must come after the subcommand: podium config {ctx.invoked_subcommand} {option}"
        )
    return None


@config_command.command("show")
@repo_option
@json_option
def config_show_command(repo: Path | None = None, is_json: bool = False) -> None:
    """Show every setting with its source and value. Secrets are never shown."""
    settings = Settings.load(os.environ, _resolve_repo(repo))
    rows = _list_effective_settings(settings)
    if is_json:
        proposed = list(settings.proposed.iter_explicit_keys())
        answer = {"schema": SCHEMA, "settings": rows, "proposed": proposed, "notices": settings.notices}
        click.echo(as_json(answer))
        return
    lines = ["  ".join(row) for row in align_columns([[row.key, row.source, _format_value(row.value)] for row in rows])]
    click.echo(escape_for_terminal("\n".join([*lines, *(f"note: {notice}" for notice in settings.notices)])))


@config_command.command("path")
@repo_option
@json_option
def config_path_command(repo: Path | None, is_json: bool) -> None:
    """List the settings files, lowest precedence first, and show whether each exists."""
    folder = _resolve_repo(repo)
    files = [
        {"source": source, "path": str(place), "exists": place.exists()}
        for source, place in (
            ("repository file", folder / REPO_FILE),
            ("repository file", folder / MCP_FILE),
            ("user file", find_home_folder() / USER_FILE),
        )
    ]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "files": files}))
        return
    rows = [[str(one["path"]), str(one["source"]), "" if one["exists"] else "not found"] for one in files]
    click.echo(escape_for_terminal("\n".join("  ".join(row).rstrip() for row in align_columns(rows))))


@config_command.command("validate")
@repo_option
@json_option
def config_validate_command(repo: Path | None, is_json: bool) -> int:
    """Check the settings files and print all diagnostics. The exit code is 1 if there are errors."""
    findings = check_settings(os.environ, _resolve_repo(repo)).diagnostics
    severities = [finding.severity for finding in findings]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "errors": severities.count("error"), "findings": findings}))
    else:
        counts = [(severities.count(word), word) for word in ("error", "warning", "notice")]
        summed = ", ".join(format_count(number, word) for number, word in counts if number)
        lines = [f"{finding.severity}: {finding}" for finding in findings]
        click.echo(escape_for_terminal("\n".join([*lines, f"settings: {summed or 'no problems'}"])))
    return exit_codes.GOAL_NOT_MET if "error" in severities else exit_codes.GOAL_MET


@config_command.command("schema")
@click.argument("kind", type=click.Choice(["settings", "agent"]), default="settings")
def config_schema_command(kind: str) -> None:
    """Print the JSON schema of settings files, or of the keys in an agent's file, for editors."""
    # Imported here to keep start-up fast: the tables of keys are long.
    from ...files.agent_keys import KEYS as AGENT_KEYS
    from ...files.settings_keys import KEYS
    from ...values.key_schema import build_file_schema

    title, keys = ("Podium settings", KEYS) if kind == "settings" else ("Podium agent", AGENT_KEYS)
    click.echo(as_json(build_file_schema(title, keys)))


class EffectiveSetting(Struct, frozen=True, kw_only=True):
    """A key in the settings, with its value and its source."""

    key: str
    value: Any
    source: str


def _list_effective_settings(settings: Settings) -> list[EffectiveSetting]:
    """Return each key with its value and source, without secrets."""
    values: dict[str, Any] = {
        "home": str(settings.home),
        "store": str(settings.store),
        "base_url": without_credentials(settings.base_url),
    }
    for name in FileSettings.__struct_fields__:
        values |= _list_values(SPELLED.get(name, name), getattr(settings, name))
    values |= {
        "approvals.timeout": "never" if math.isinf(settings.approval_seconds) else settings.approval_seconds,
        "forge": settings.forge or "auto",
        "installs.ask": settings.installs.ask is not False,
        "installs.hosts": settings.installs.hosts,
        "notify": [describe_notify_target(target) for target in settings.notify],
        **_list_values("narrowing", settings.narrowing),
    }
    return [EffectiveSetting(key=key, value=value, source=_find_source(key, settings)) for key, value in values.items()]


def _list_values(key: str, value: Any) -> dict[str, Any]:
    """Return the values of a setting: one, or one for each entry of a mapping and each field that is set."""
    if isinstance(value, dict):
        return {name: one for entry in value for name, one in _list_entry(f"{key}.{entry}", value[entry]).items()}
    if isinstance(value, Struct):
        return {f"{key}.{name}": one for name, one in iter_explicit_fields(value)}
    return {} if value is None else {key: value}


def _list_entry(key: str, value: Any) -> dict[str, Any]:
    if isinstance(value, ProviderLimits):
        url = value.base_url and without_credentials(value.base_url)
        return _list_values(key, structs.replace(value, base_url=url))
    is_program = isinstance(value, McpServer | Launch)
    return {key: _without_secrets(structs.asdict(value)) if is_program else value}


def _find_source(key: str, settings: Settings) -> str:
    return "repository file" if key.startswith("narrowing.") else settings.sources.get(key, "default")


def _without_secrets(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a server's command or URL and the names of its variables and headers. Omit values that may be secret."""
    address = without_credentials(fields.get("url", "")).partition("?")[0]
    shown = {"command": fields["command"], "url": address}
    names = {key: sorted(fields[key]) for key in ("env", "headers") if fields.get(key)}
    return {key: value for key, value in shown.items() if value} | names


def _format_value(value: Any) -> str:
    """Return a value as one line."""
    return value if isinstance(value, str) else json.dumps(to_builtins(value), ensure_ascii=False)


def _resolve_repo(given: Path | None) -> Path:
    return given or find_repo(Path.cwd(), home=find_home_folder())
