"""The servers that a person has signed in to, each with its address, its token and the certificate to expect.

This data is stored in Podium's home, in a file that only its owner can read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

from ...system.atomic_file import replace_file
from ...system.file_lock import hold_file_lock
from ...system.private_folder import make_private_folder
from ...values.errors import Mistake

FILE_NAME = "servers.json"


class KnownServer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server that the user has signed in to.

    If `fingerprint` is empty, an HTTPS certificate is verified against the certificates that this machine trusts.
    """

    address: str
    token: str
    fingerprint: str = ""


class SignInAddress(NamedTuple):
    """An address as `podium serve` prints it. `code` is empty if no code follows the #."""

    address: str
    code: str


def parse_address(text: str) -> SignInAddress:
    """Return the address of a server without its path, and the sign-in code, if there is one.

    Raise Mistake if `text` is not an address, or if connections to another machine would not be encrypted.
    """
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Mistake(f"{text!r} is not an address: {error}; give one such as https://192.168.1.5:8420") from error
    if parts.scheme not in ("http", "https") or not host:
        raise Mistake(f"{text!r} is not the address of a server; give one such as https://192.168.1.5:8420")
    if parts.scheme == "http" and not is_loopback(host):
        raise Mistake(f"{text!r} is not encrypted, so others could read the token; give an address with https://")
    shown = f"[{host}]" if ":" in host else host
    code = parse_qs(parts.fragment).get("code", [""])[0]
    return SignInAddress(f"{parts.scheme}://{shown}{f':{port}' if port else ''}", code)


def is_loopback(host: str) -> bool:
    """Return whether a host refers to this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def load_servers(home: Path) -> Mapping[str, KnownServer]:
    """Return the known servers, keyed by address. Raise Mistake if the file cannot be read."""
    path = home / FILE_NAME
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[KnownServer])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise Mistake(f"{path} cannot be read ({error}); delete it and sign in again with podium login") from error
    return {one.address: one for one in found}


def find_server(home: Path, text: str) -> KnownServer:
    """Return the known server with this address. Raise Mistake if the user has not signed in to it."""
    address, servers = parse_address(text).address, load_servers(home)
    if address not in servers:
        known = f"; known servers: {', '.join(servers)}" if servers else ""
        raise Mistake(f"not signed in to {address}; sign in with: podium login {address}{known}")
    return servers[address]


def save_server(home: Path, server: KnownServer) -> None:
    """Add a server, or replace the one with this address."""
    _change(home, lambda servers: {**servers, server.address: server})


def forget_server(home: Path, address: str) -> None:
    """Delete a server from the file."""
    _change(home, lambda servers: {key: one for key, one in servers.items() if key != address})


def _change(home: Path, change: Callable[[Mapping[str, KnownServer]], Mapping[str, KnownServer]]) -> None:
    path = home / FILE_NAME
    make_private_folder(home)
    with hold_file_lock(path.with_suffix(".lock"), protects=path):
        replace_file(path, msgspec.json.encode(list(change(load_servers(home)).values())))
