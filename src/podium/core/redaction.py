"""Redact secrets, so that they do not appear on the timeline, in prompts or in output.

The secrets are provider keys, the values of environment variables with names such as `DB_PASSWORD`, and passwords
and tokens in URLs that variables contain. Each value is replaced by the variable's name in brackets. In text from tools
and people, the user names and passwords of other URLs are replaced, too. Encoded forms of a secret, such as base64, are
not detected.
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
CREDENTIALS = "credentials"
"""The name that replaces the user name or the password in a URL."""
LONGEST_USER = 4096
"""The maximum length of the part of a URL before the @ sign that is recognised."""

_USER_TEXT = r"(?:[^\s/?#\"'`<>|\\(){}$;&\x00-\x20]|(?:\x1b|\\u001b)\[[0-9;]*[A-Za-z])"
"""Matches a character before the @ sign of a URL, or a colour code, which grep adds around a match.

Characters that a shell acts on are left out: redacting them could hide a part of a command from the person who is asked
about it, and they show that the text is a template such as https://${TOKEN}@host.
"""
_URL_USER = (
    rf"(?:://|:(?:\\+/){{2}}(?=[^/\\]))(?P<user>{_USER_TEXT}{{1,{LONGEST_USER}}})@"
    r"|%(?:25)*3A(?:%(?:25)*2F){2}"
    rf"(?P<encoded>(?:(?!%(?:25)*(?:2F|3F|23)){_USER_TEXT}){{1,{LONGEST_USER}}})(?=%(?:25)*40)"
)
_USER_IN_TEXT = re.compile(_URL_USER, re.ASCII | re.IGNORECASE)
_USER_IN_LINE = re.compile(_URL_USER.encode(), re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_COLON = re.compile(r":|%(?:25)*3A", re.IGNORECASE)
_COLOUR = re.compile(r"(?:\x1b|\\u001b)\[[0-9;]*[A-Za-z]")
_WEB = frozenset(("http", "https"))
_REMOTE = frozenset(("ssh", "git", "ftp", "ftps", "sftp", "svn", "rsync", "dav", "davs"))
_OPEN_WORD = re.compile(rf"[^\s\"'<>]{{1,{LONGEST_USER + 64}}}\Z")
_SCHEME_STARTS = frozenset(name[:end] for name in (*_WEB, *_REMOTE) for end in range(1, len(name) + 1))
ADDRESS_SECRET = re.compile(r"[?&][^=&]*(?:password|passwd|token|secret|key|sig|signature)=([^&\s#]+)", re.IGNORECASE)


class Redaction:
    """Replaces secrets in text. `secrets` maps each secret value to the name that replaces it."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._secrets = dict(secrets or {})
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

    def add_secrets(self, secrets: Mapping[str, str]) -> Redaction:
        """Return a redaction of these secrets and the present ones."""
        return Redaction({**secrets, **self._secrets}) if secrets else self

    def redact_text(self, text: str) -> str:
        """Return the text with secrets replaced, and with the credentials in its URLs replaced."""
        if self._pattern is not None:
            text = self._pattern.sub(lambda found: self._names[found[0]], text)
        return _redact_url_users(text)

    def redact_line(self, line: bytes, *, with_urls: bool = True) -> bytes:
        """Return a line of JSON with secrets replaced, and with the credentials in its URLs replaced if `with_urls`."""
        if self._line_pattern is not None:
            line = self._line_pattern.sub(lambda found: self._lines[found[0]], line)
        if not with_urls or (b"@" not in line and b"40" not in line):
            return line
        return _USER_IN_LINE.sub(_replace_user_in_line, line)

    def partial_secret_length(self, text: str) -> int:
        """Return how many characters at the end of `text` may be the start of a secret or of a URL with one."""
        longest = _measure_open_url(text)
        for secret in self._names:
            for size in range(min(len(secret) - 1, len(text)), longest, -1):
                if text.endswith(secret[:size]):
                    longest = size
                    break
        cut = len(text) - longest
        whole = () if self._pattern is None else self._pattern.finditer(text)
        # A secret that has arrived completely is not cut in two, because neither part would be found.
        return next((len(text) - found.start() for found in whole if found.start() < cut < found.end()), longest)


def is_unusual(text: str) -> bool:
    """Return whether a part of a URL is unusual enough that redacting it does not garble ordinary text."""
    is_plain = text.isalpha() or text.isdigit()
    return len(text) >= (MIN_SECRET_LENGTH if is_plain else MIN_KEY_LENGTH)


NO_REDACTION = Redaction()


def _redact_url_users(text: str) -> str:
    """Return the text with the credentials in its URLs replaced: the user of a web page, or any user's password."""
    if "@" not in text and "40" not in text:
        return text
    return _USER_IN_TEXT.sub(_replace_user, text)


def _replace_user(found: re.Match[str]) -> str:
    """Return the match of `_URL_USER` with the credentials replaced."""
    before = found.string[max(0, found.start() - 32) : found.start()]
    name = "user" if found["user"] is not None else "encoded"
    start, end = found.start(name) - found.start(), found.end(name) - found.start()
    return f"{found[0][:start]}{_hide_user(found[name], before)}{found[0][end:]}"


def _replace_user_in_line(found: re.Match[bytes]) -> bytes:
    # Every byte becomes one character, so that the positions stay the same.
    text = found.string[max(0, found.start() - 32) : found.end() + 64].decode("latin-1")
    match = _USER_IN_TEXT.search(text, min(found.start(), 32))
    return found[0] if match is None else _replace_user(match).encode("latin-1")


def _hide_user(written: str, before: str) -> str:
    """Return the part of a URL before the @ sign without credentials. `before` is the text before the colon."""
    found = _SCHEME.search(_COLOUR.sub("", before))
    scheme = found[0].lower().rpartition("+")[2] if found else ""
    plain = _COLOUR.sub("", written)
    user, *rest = _COLON.split(plain, maxsplit=1)
    password = "".join(rest)
    if not (password or user).strip("*") or (password or user).startswith("["):
        return written
    if scheme in _WEB:
        return f"[{CREDENTIALS}]"
    if password and (scheme in _REMOTE or is_unusual(password)):
        return f"{user}:[{CREDENTIALS}]"
    return written


def _measure_open_url(text: str) -> int:
    """Return the length of the last word if it may be the start of a URL whose @ sign has not arrived."""
    found = _OPEN_WORD.search(text[-LONGEST_USER - 64 :])
    if found is None:
        return 0
    word = found[0]
    scheme = _SCHEME.search(word)
    is_open = ":" in word or "%" in word or (scheme is not None and scheme[0].lower() in _SCHEME_STARTS)
    return len(word) if is_open else 0


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
    secrets = [part for written in parts for part in dict.fromkeys((written, unquote(written))) if is_unusual(part)]
    return [value, *secrets] if password or in_query or secrets else []
