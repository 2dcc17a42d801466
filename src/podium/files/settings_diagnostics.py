"""Check the settings files: report what is wrong with each of them, and with their combination."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..system.locations import find_home_folder
from ..values.errors import Diagnostic, Mistake, Severity
from .program_start import require_no_relative_path
from .settings import Settings
from .settings_files import SettingsFiles, read_settings_files
from .trust import Trust
from .trust_proposal import OWN, list_own_hooks, list_own_servers, needs_no_sandbox


class CheckedSettings(NamedTuple):
    """The settings, or None if they cannot be used, and all diagnostics about their files."""

    settings: Settings | None
    diagnostics: tuple[Diagnostic, ...]


def check_settings(environ: Mapping[str, str], repo: Path) -> CheckedSettings:
    """Load the settings for this environment and repository, and collect all errors instead of raising the first."""
    files = read_settings_files(find_home_folder(environ), repo)
    if files.errors:
        return CheckedSettings(None, files.diagnostics)
    try:
        settings = Settings.from_files(files, environ, repo)
    except Mistake as error:
        problem = Diagnostic(severity="error", path="settings", message=str(error))
        return CheckedSettings(None, (problem, *files.diagnostics))
    return CheckedSettings(settings, (*files.diagnostics, *_check_programs(settings, files, repo)))


def _check_programs(settings: Settings, files: SettingsFiles, repo: Path) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each server and hook that will not start: its paths are refused, or it is not trusted."""
    lines = files.repo_lines | files.user_lines
    proposed = settings.proposed.mcp_servers
    for name, server in (proposed | settings.mcp_servers).items():
        if server.command:
            severity: Severity = "warning" if name not in settings.mcp_servers else "error"
            yield from _check_paths(f"mcpServers.{name}", (server.command, *server.args), server.cwd, lines, severity)
    for event, hooks in files.user.hooks.items():
        for hook in filter(needs_no_sandbox, hooks):
            yield from _check_paths(f"hooks.{event}", hook.command, hook.cwd, lines, "error")
    trust = Trust.load(settings.home)
    for one in (*list_own_servers(files.user.mcp_servers, repo), *list_own_hooks(files.user.hooks, repo)):
        if not trust.is_trusted(one.kind, one.name, one.digest):
            message = "uses files of this checkout, so it does not start until you trust it with podium trust"
            key = one.key.removeprefix(OWN)
            yield Diagnostic(severity="warning", path=_find_place(key, lines), key=key, message=message)


def _check_paths(
    key: str, command: Sequence[str], cwd: str, lines: Mapping[str, str], severity: Severity
) -> Iterator[Diagnostic]:
    try:
        if not cwd:
            require_no_relative_path(command)
    except Mistake as error:
        yield Diagnostic(severity=severity, path=_find_place(key, lines), key=key, message=str(error))


def _find_place(key: str, lines: Mapping[str, str]) -> str:
    """Return the place in a settings file that sets a key, or else a key that contains it."""
    return next((lines[one] for one in (key, key.rpartition(".")[0]) if one in lines), "settings")
