"""Redaction: keeps the secrets that this process knows out of the timeline, prompts and output.

Known secrets are provider keys and environment variables whose names look secret. Each value is
replaced by the variable's name in brackets. Encoded forms of a secret, such as base64, are not found.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:^|_)(?:API)?KEY$", re.IGNORECASE)
MIN_KEY_LENGTH = 8
"""A shorter key is a placeholder such as "x"; redacting it would garble ordinary text."""

MIN_SECRET_LENGTH = 12


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
        """Collect the secrets of an environment; `key_names` are variables known to hold keys."""
        return cls(
            {
                value: name
                for name, value in environ.items()
                if (name in key_names and len(value) >= MIN_KEY_LENGTH)
                or (SECRET_NAME.search(name) and _looks_secret(value))
            }
        )

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
        """Return how many characters at the end of a text may be the beginning of a secret."""
        longest = 0
        for secret in self._names:
            for size in range(min(len(secret) - 1, len(text)), longest, -1):
                if text.endswith(secret[:size]):
                    longest = size
                    break
        return longest


NO_REDACTION = Redaction()


def _escape_json(text: str) -> bytes:
    """Return the text as it is encoded inside a JSON string."""
    return msgspec.json.encode(text)[1:-1]


def _looks_secret(value: str) -> bool:
    """Return whether a value may be a secret: it is not short, a single word, a path or a number."""
    return len(value) >= MIN_SECRET_LENGTH and not value.isalpha() and not value.isdigit() and not value.startswith("/")
