"""Find the credentials in a repository's git configuration, so that they can be redacted wherever they appear."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from ...core.redaction import CREDENTIALS, is_unusual
from ...system.whole_file import UnreadableFile, read_file_bytes
from ...values.errors import Mistake, OutsideFailed
from .repository import Repository

PLAIN_NAMES = frozenset(("x-access-token", "x-oauth-basic", "x-token-auth", "gitlab-ci-token", "oauth2"))
"""User names and passwords that only tell a git server what kind of token the other part is."""

_USER = re.compile(r"(\w+)://([^\s/\"]+)@")
_HEADER = re.compile(r"authorization\s*:\s*(?:(basic)\s+|\w+\s+)?([^\s\"]+)", re.IGNORECASE)


def read_stored_credentials(folder: Path) -> dict[str, str]:
    """Return the passwords and tokens in the configuration of the repository at a folder, with the name to show.

    These are the credentials in URLs of remotes and in extra HTTP headers. Without a repository there are none.
    """
    try:
        repository = Repository.at(folder)
    except (Mistake, OutsideFailed, OSError):
        return {}
    files = [repository.common_dir / "config", repository.git_dir / "config.worktree"]
    files += sorted((repository.common_dir / "modules").glob("*/config"))
    found = {one for file in files for one in _find_credentials(_read_text(file))}
    return dict.fromkeys(sorted(found), CREDENTIALS)


def _read_text(file: Path) -> str:
    try:
        return read_file_bytes(file).decode(errors="replace")
    except UnreadableFile:
        return ""


def _find_credentials(text: str) -> Iterator[str]:
    """Yield the credentials in a git configuration, as they are written and decoded. Ordinary words are left out."""
    for scheme, written in _USER.findall(text):
        user, _, password = written.partition(":")
        if password and password not in PLAIN_NAMES:
            yield from _select_unusual(password)
        elif scheme.lower() in ("http", "https"):
            # A token can be the user name: alone, or with a password that only says what kind of token it is.
            yield from _select_unusual(user)
    for kind, value in _HEADER.findall(text):
        yield from _select_unusual(value, *(_decode_basic(value) if kind else ()))


def _select_unusual(*parts: str) -> Iterator[str]:
    for part in parts:
        forms = dict.fromkeys((part, unquote(part)))
        yield from (one for one in forms if is_unusual(one) and one not in PLAIN_NAMES)


def _decode_basic(value: str) -> tuple[str, ...]:
    """Return the user and password of a basic authorization header."""
    try:
        user, _, password = b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        return ()
    return user, password
