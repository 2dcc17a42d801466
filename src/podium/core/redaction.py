"""Redaction: secrets that this process knows never reach the timeline, a model or a screen.

Known are the keys of providers and other values of the environment whose names say that they are
secret. Each is replaced by its variable's name in brackets. Forms of a secret that only mean it,
such as base64, are not found.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import msgspec

SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:^|_)(?:API)?KEY$", re.IGNORECASE)
MIN_KEY_LENGTH = 8
"""A shorter key is a placeholder such as "x", and blotting it out would spoil every sentence."""

MIN_SECRET_LENGTH = 12


class Redaction:
    """What is blotted out: each secret by the name that takes its place."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._names = {value: f"[{name}]" for value, name in (secrets or {}).items()}
        ordered = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._lines = {_escape_json(value): _escape_json(name) for value, name in self._names.items()}
        written = sorted(self._lines, key=len, reverse=True)
        self._line_pattern = re.compile(b"|".join(map(re.escape, written))) if written else None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], key_names: Collection[str] = ()) -> Redaction:
        """What is secret in an environment; `key_names` are variables that certainly are."""
        return cls(
            {
                value: name
                for name, value in environ.items()
                if (name in key_names and len(value) >= MIN_KEY_LENGTH)
                or (SECRET_NAME.search(name) and _looks_secret(value))
            }
        )

    def redact_text(self, text: str) -> str:
        """The text without secrets."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._names[found[0]], text)

    def redact_line(self, line: bytes) -> bytes:
        """A line of JSON without secrets."""
        if self._line_pattern is None:
            return line
        return self._line_pattern.sub(lambda found: self._lines[found[0]], line)

    def partial_secret_length(self, text: str) -> int:
        """How many signs at the end of a text may be the beginning of a secret that goes on after it."""
        longest = 0
        for secret in self._names:
            for size in range(min(len(secret) - 1, len(text)), longest, -1):
                if text.endswith(secret[:size]):
                    longest = size
                    break
        return longest


NO_REDACTION = Redaction()


def _escape_json(text: str) -> bytes:
    """The text as it stands inside a JSON string."""
    return msgspec.json.encode(text)[1:-1]


def _looks_secret(value: str) -> bool:
    """Whether a value can be a secret: not a short one, a word, a path or a number."""
    return len(value) >= MIN_SECRET_LENGTH and not value.isalpha() and not value.isdigit() and not value.startswith("/")
