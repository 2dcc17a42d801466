"""Find the settings files of a user and a repository, and merge their content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from ..system.locations import format_path
from ..values.errors import Diagnostic, Mistake, Severity, filter_errors, summarise_errors
from .settings_document import SPELLED, SettingsDocument, iter_looser_limits, merge_documents

if TYPE_CHECKING:
    from .settings_reading import SettingsFileContent

USER_FILE = "config.yaml"
REPO_FILE = "podium.yaml"
MCP_FILE = ".mcp.json"

UNTRUSTED = "proposed by the repository; ignored until you trust it with podium trust"
YOURS: tuple[Severity, str] = ("notice", "ignored: it takes effect only in your own settings")
REFUSED: dict[str, tuple[Severity, str]] = {
    "permissions.allow": ("warning", "ignored: a repository can only tighten permissions"),
    "permissions.mode": ("warning", "ignored: set the mode in your own settings, or for one run with --permissions"),
}
"""What a diagnostic says about a key of a repository's file, if it does not say the same as for other such keys."""


class SettingsFiles(Struct, frozen=True, kw_only=True):
    """The content of all settings files.

    `repo` contains the settings that the repository can set by itself and the proposals that the user
    trusts; `proposed` lists the other proposals. `user_lines` and `repo_lines` map keys to locations such
    as `~/.podium/config.yaml:3`; the key of a rule is `permissions.deny.RULE`.
    """

    user: SettingsDocument = SettingsDocument()
    repo: SettingsDocument = SettingsDocument()
    proposed: SettingsDocument = SettingsDocument()
    paths: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    user_lines: dict[str, str] = {}
    repo_lines: dict[str, str] = {}

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that prevent the settings from being used."""
        return filter_errors(self.diagnostics)

    def require_no_errors(self) -> None:
        """Raise Mistake if there are errors, with the first of them as its message."""
        if self.errors:
            raise Mistake(summarise_errors(self.errors, command="podium config validate"))


def read_settings_files(home: Path, repo: Path | None = None) -> SettingsFiles:
    """Read the settings files in Podium's home folder `home` and in a repository. Errors become diagnostics."""
    user_file = home / USER_FILE
    repo_files = () if repo is None else (repo / REPO_FILE, repo / MCP_FILE)
    if not any(map(os.path.lexists, (user_file, *repo_files))):
        return SettingsFiles()
    # For start-up time: importing the YAML reader is slow, and most users have no such file.
    from .settings_reading import read_settings_file
    from .trust_proposal import select_proposed, without_proposed

    user = read_settings_file(user_file, path_shown=format_path(user_file), is_yours=True)
    if repo is None:
        return SettingsFiles(user=user.document, paths=user.paths, diagnostics=user.diagnostics, user_lines=user.lines)
    own = read_settings_file(repo / REPO_FILE, path_shown=REPO_FILE, is_yours=False, root=repo)
    foreign = read_settings_file(repo / MCP_FILE, path_shown=MCP_FILE, is_yours=False, root=repo)
    files = SettingsFiles(
        user=user.document,
        repo=without_proposed(own.document),
        proposed=merge_documents(foreign.document, select_proposed(own.document)),
        paths=(*own.paths, *foreign.paths, *user.paths),
        diagnostics=(
            *user.diagnostics,
            *own.diagnostics,
            *foreign.diagnostics,
            *_report_ignored_keys(own),
            *_report_ignored_keys(foreign),
            *_report_looser_budgets(own, user.document),
        ),
        user_lines=user.lines,
        repo_lines=foreign.lines | own.lines,
    )
    return files if files.proposed == SettingsDocument() else _apply_trusted(files, home, repo)


def _apply_trusted(files: SettingsFiles, home: Path, repo: Path) -> SettingsFiles:
    """Apply the proposals that the user trusts, and remove the notices about them."""
    # For start-up time: most repositories propose nothing.
    from .trust import FILE, Trust
    from .trust_proposal import find_trusted_keys, select_keys, without_keys

    try:
        keys = find_trusted_keys(files.proposed, repo, Trust.load(home))
    except Mistake as mistake:
        broken = Diagnostic(severity="warning", path=format_path(home / FILE), message=str(mistake))
        return structs.replace(files, diagnostics=(*files.diagnostics, broken))
    return structs.replace(
        files,
        repo=merge_documents(files.repo, select_keys(files.proposed, keys)),
        proposed=without_keys(files.proposed, keys),
        diagnostics=tuple(one for one in files.diagnostics if one.key not in keys or one.severity != "notice"),
    )


def _report_ignored_keys(reading: SettingsFileContent) -> list[Diagnostic]:
    """Return a diagnostic for each key that a repository cannot set by itself."""
    # Imported here to keep start-up fast: few commands check the keys.
    from .settings_keys import find_scope
    from .trust_proposal import select_proposed

    found = []
    for key in select_proposed(reading.document).iter_explicit_keys():
        severity, message = REFUSED.get(key, YOURS if find_scope(key) == "user" else ("notice", UNTRUSTED))
        line = reading.line_numbers.get(key)
        found.append(Diagnostic(severity=severity, path=reading.path, line=line, key=key, message=message))
    return found


def _report_looser_budgets(reading: SettingsFileContent, user: SettingsDocument) -> list[Diagnostic]:
    """Return a notice for each daily budget limit that is ignored because the user's own limit is lower."""
    found = []
    for name, limit in iter_looser_limits(reading.document, user):
        key = f"{SPELLED[name]}.{limit}"
        message = f"ignored: the limit in your own settings is lower ({getattr(getattr(user, name), limit):,g})"
        line = reading.line_numbers.get(key)
        found.append(Diagnostic(severity="notice", path=reading.path, line=line, key=key, message=message))
    return found
