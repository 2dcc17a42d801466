"""Bearer tokens for API clients, and the one-time codes that a browser exchanges for a token.

The tokens are stored as hashes in a file in the home directory, so that a browser stays signed in when the server
restarts, and another process can list and revoke them. One-time codes are kept only in the server's memory.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from ipaddress import IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec import Struct, structs

from ...system.file_lock import hold_file_lock
from ...system.owned_files import make_private_folder
from ...system.whole_file import replace_file
from ...values.actor import AccessScope
from ...values.errors import Mistake

SCOPES: tuple[AccessScope, ...] = get_args(AccessScope)
FILE_NAME = "serve-tokens.json"
CODE_SECONDS = 600.0
SESSION_SECONDS = 12 * 3600.0
"""How long a client stays signed in if it does not ask to be remembered."""
USE_SECONDS = 60.0
"""The minimum time between two updates of a token's last-used time."""
MOST_CODES = 100
CODE_BYTES = 18
MOST_FAILURES = 20
MOST_CLIENTS = 1000
"""The number of clients whose wrong codes are remembered."""
FAILURE_SECONDS = 60.0


class AccessToken(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token as it is stored: without its secret. `expires` is 0 if it is valid until it is revoked."""

    id: str
    name: str
    scopes: tuple[AccessScope, ...]
    digest: str
    created: float
    expires: float = 0.0
    last_used: float = 0.0
    channel: Literal["page", "api"] = "api"
    """`page` if a client got the token in exchange for a one-time code, `api` if it was created for a program."""


class TokenFile:
    """The tokens of one home directory."""

    def __init__(self, home: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = home / FILE_NAME
        self._clock = clock
        self._read_at: tuple[int, int] | None = None
        self._tokens: tuple[AccessToken, ...] = ()

    def list_tokens(self) -> tuple[AccessToken, ...]:
        """Return the valid tokens, oldest first. Raise Mistake if the file is invalid.

        The file is read again only if it has changed.
        """
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return ()
        if (found.st_mtime_ns, found.st_ino) != self._read_at:
            try:
                self._tokens = msgspec.json.decode(self._path.read_bytes(), type=tuple[AccessToken, ...])
            except msgspec.MsgspecError as error:
                raise Mistake(
                    f"{self._path} is not a valid token file ({error}); delete it to sign everybody out"
                ) from error
            self._read_at = (found.st_mtime_ns, found.st_ino)
        now = self._clock()
        return tuple(one for one in self._tokens if not one.expires or one.expires > now)

    def create_token(
        self, name: str, scopes: Iterable[AccessScope], *, seconds: float = 0.0, channel: Literal["page", "api"] = "api"
    ) -> tuple[str, AccessToken]:
        """Create a token and return its secret, which is not stored, and its record."""
        secret, now = f"pod_{secrets.token_urlsafe(32)}", self._clock()
        chosen = tuple(one for one in SCOPES if one in scopes)
        token = AccessToken(
            id=secrets.token_hex(4),
            name=name,
            scopes=chosen,
            digest=_hash_secret(secret),
            created=now,
            expires=now + seconds if seconds else 0.0,
            channel=channel,
        )
        self._change(lambda tokens: (*tokens, token))
        return secret, token

    def find_token(self, secret: str) -> AccessToken | None:
        """Return the valid token with this secret and record its use, or return None if there is no such token."""
        digest = _hash_secret(secret)
        for token in self.list_tokens():
            if secrets.compare_digest(token.digest, digest):
                self._note_use(token)
                return token
        return None

    def get_token(self, id: str) -> AccessToken:
        """Return the valid token with this id. Raise Mistake if there is none."""
        tokens = self.list_tokens()
        found = next((one for one in tokens if one.id == id), None)
        if found is None:
            there_are = ", ".join(one.id for one in tokens) or "none"
            raise Mistake(f"token {id!r} not found; valid tokens: {there_are}")
        return found

    def revoke_token(self, id: str) -> AccessToken:
        """Delete a token and return it. Raise Mistake if there is no valid token with this id."""
        found = self.get_token(id)
        self._change(lambda tokens: tuple(one for one in tokens if one.id != id))
        return found

    def _note_use(self, token: AccessToken) -> None:
        if self._clock() - token.last_used < USE_SECONDS:
            return
        used = structs.replace(token, last_used=self._clock())
        self._change(lambda tokens: tuple(used if one.id == token.id else one for one in tokens))

    def _change(self, change: Callable[[tuple[AccessToken, ...]], Sequence[AccessToken]]) -> None:
        make_private_folder(self._path.parent)
        with hold_file_lock(self._path.with_suffix(".lock"), protects=self._path):
            replace_file(self._path, msgspec.json.encode(change(self.list_tokens())))


class LoginCodes:
    """One-time codes, each valid for a short time and for one exchange.

    A code has so many random bits that guessing is hopeless at any speed. The limit on wrong codes, which applies to
    each client alone, only makes attempts visible and cheap to refuse: no client can keep another one out.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._codes: dict[str, tuple[float, tuple[AccessScope, ...]]] = {}
        self._failures: dict[str, list[float]] = {}
        """When each client sent its last wrong codes, the client that sent one last at the end."""

    def create_code(self, scopes: Iterable[AccessScope], *, seconds: float = CODE_SECONDS) -> str:
        """Return a new code that grants these scopes."""
        if len(self._codes) >= MOST_CODES:
            self._codes.pop(next(iter(self._codes)))
        code = secrets.token_urlsafe(CODE_BYTES)
        self._codes[_hash_secret(code)] = (self._clock() + seconds, tuple(scopes))
        return code

    def is_blocked(self, client: str) -> bool:
        """Return whether a client has sent too many wrong codes in the last minute."""
        since = self._clock() - FAILURE_SECONDS
        return sum(at > since for at in self._failures.get(_name_network(client), ())) >= MOST_FAILURES

    def redeem_code(self, code: str, *, client: str = "") -> tuple[AccessScope, ...] | None:
        """Return the scopes of a code and invalidate it. Return None if the code is unknown, already used or expired.

        `client` is the address that sent it. While it is blocked, its codes are neither accepted nor used up.
        """
        if self.is_blocked(client):
            return None
        now = self._clock()
        expires, scopes = self._codes.pop(_hash_secret(code), (0.0, ()))
        if expires > now:
            return scopes
        network = _name_network(client)
        self._failures[network] = [*self._failures.pop(network, ()), now][-MOST_FAILURES:]
        while len(self._failures) > MOST_CLIENTS:
            self._failures.pop(next(iter(self._failures)))
        return None


def _name_network(client: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or the first 64 bits of an IPv6 address."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return client[:100]
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        return str(IPv6Network((address, 64), strict=False) if mapped is None else mapped)
    return str(address)


def _hash_secret(secret: str) -> str:
    """Return the hash that is stored for a secret. Secrets are random, so a fast hash is enough."""
    return sha256(secret.encode(errors="surrogatepass")).hexdigest()
