"""Redact secrets, so that they do not appear on the timeline, in prompts or in output.

The secrets are provider keys, the values of environment variables with names such as `DB_PASSWORD`, and passwords
and tokens in URLs that variables contain. Each value is replaced by the variable's name in brackets. Encoded forms of a
secret, such as base64, are not detected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:^|_)(?:API)?KEY$|(?:^|_)(?:PASS|PAT|JWT)$|_(?:PWD|AUTH)$",
    re.IGNORECASE,
)
NAME_OF_PATH = re.compile(r"(?:FILE|PATH|DIR|DIRECTORY|FOLDER|HOME|CACHE|STORE|SOCK|CREDENTIALS)$", re.IGNORECASE)
"""Names of variables whose value, if it is a path, is the location of a secret and not the secret itself."""
MIN_KEY_LENGTH = 8
"""The minimum length of a key that is redacted. Shorter keys are placeholders: redacting "x" would garble all text."""

MIN_SECRET_LENGTH = 12
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://(?P<user>[^:/?#\s]*)(?::(?!\d+/)(?P<password>\S*))?@", re.IGNORECASE)
ADDRESS_SECRET = re.compile(r"[?&][^=&]*(?:password|passwd|token|secret|key|sig|signature)=([^&\s#]+)", re.IGNORECASE)


class Redaction:
    """Replaces secrets in text. `secrets` maps each secret value to the name that replaces it."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._names = {value: f"[{name}]" for value, name in (secrets or {}).items()}
        ordered = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._lines = {_escape_json(value): _escape_json(name) for value, name in self._names.items()}
        written = sorted(self._lines, key=len, reverse=True)
        self._line_pattern = re.compile(b"|".join(map(re.escape, written))) if written else None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], key_names: Collection[str] = ()) -> Redaction:
        """Collect the secrets in an environment; `key_names` lists the variables that contain keys."""
        found: dict[str, str] = {}
        for name, value in environ.items():
            for secret in _list_secrets_in_address(value):
                found[secret] = name
            if (name in key_names and len(value) >= MIN_KEY_LENGTH) or _is_secret(name, value):
                found[value] = name
        return cls(found)

    def redact_text(self, text: str) -> str:
        """Return the text with secrets replaced."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._names[found[0]], text)

    def redact_line(self, line: bytes) -> bytes:
        """Return a line of JSON with secrets replaced."""
        if self._line_pattern is None:
            return line
        return self._line_pattern.sub(lambda found: self._lines[found[0]], line)

    def partial_secret_length(self, text: str) -> int:
        """Return how many characters at the end of `text` may be the start of a secret."""
        longest = 0
        for secret in self._names:
            for size in range(min(len(secret) - 1, len(text)), longest, -1):
                if text.endswith(secret[:size]):
                    longest = size
                    break
        return longest


NO_REDACTION = Redaction()


def _escape_json(text: str) -> bytes:
    """Return the text as encoded inside a JSON string."""
    return msgspec.json.encode(text)[1:-1]


def _is_secret(name: str, value: str) -> bool:
    """Return whether a variable probably contains a secret, judging by its name and its value."""
    is_path = value.startswith(("/", "~/")) and NAME_OF_PATH.search(name) is not None
    return SECRET_NAME.search(name) is not None and len(value) >= MIN_SECRET_LENGTH and not is_path


def _list_secrets_in_address(value: str) -> list[str]:
    """Return the strings to redact if a value is a URL with secrets, such as postgres://me:password@host.

    The strings are the whole value, and each secret in it that is not ordinary text. Without secrets, the list is
    empty.
    """
    if "://" not in value:
        return []
    from urllib.parse import unquote  # imported here for start-up time: few environments contain URLs

    found = ADDRESS.search(value)
    user, password = (found["user"], found["password"] or "") if found else ("", "")
    in_query = ADDRESS_SECRET.findall(value)
    # Without a password, the user name may be a token.
    parts = [password or user, *in_query]
    secrets = [part for written in parts for part in dict.fromkeys((written, unquote(written))) if _is_unusual(part)]
    return [value, *secrets] if password or in_query or secrets else []


def _is_unusual(text: str) -> bool:
    """Return whether a part of a URL is unusual enough that redacting it does not garble ordinary text."""
    is_plain = text.isalpha() or text.isdigit()
    return len(text) >= (MIN_SECRET_LENGTH if is_plain else MIN_KEY_LENGTH)
