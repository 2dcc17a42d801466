"""Check the settings files: report what is wrong with each of them, and with their combination."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..config.settings_files import read_settings_files
from ..system.locations import find_home_folder
from ..values.diagnostic import Diagnostic
from ..values.errors import Mistake
from .settings import Settings


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
        return CheckedSettings(Settings.from_files(files, environ, repo), files.diagnostics)
    except Mistake as error:
        problem = Diagnostic(severity="error", path="settings", message=str(error))
        return CheckedSettings(None, (problem, *files.diagnostics))
