"""Define the hosts that commands in the sandbox may reach, and check whether a request is for one of them.

The decision is based on the host and port that Podium then connects to, not on the text of the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

from ...values.errors import Mistake

DEFAULT_PORTS = (80, 443)
_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")
_LAST_LABEL = re.compile(r"[a-z]|xn--", re.ASCII)
LONGEST_NAME = 253
LOCAL_NAMES = ("localhost", "ip6-localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGrant:
    """A host name or IP address with its ports. `is_private` allows addresses that are not public.

    If `has_subdomains` is true, the grant covers all subdomains of the name, but not the name itself.
    """

    host: str
    ports: tuple[int, ...] = DEFAULT_PORTS
    has_subdomains: bool = False
    is_private: bool = False

    @classmethod
    def parse(cls, text: str) -> HostGrant:
        """Return the grant for `host`, `host:port`, `*.host` or an IP address. Raise Mistake if it is none of these.

        A grant for an IP address or `localhost` allows addresses that are not public. A grant for another name does
        not, because others decide what the name resolves to.
        """
        has_subdomains = text.startswith("*.")
        found = split_host(text.removeprefix("*.") if has_subdomains else text)
        if found is None:
            raise Mistake(f"{text!r} is not a host; give one such as example.com, example.com:8443 or *.example.com")
        host, port = found
        is_number = _is_number(host)
        if has_subdomains and is_number:
            raise Mistake(f"{text!r} is not a host: an IP address has no subdomains")
        return cls(
            host=host,
            ports=DEFAULT_PORTS if port is None else (port,),
            has_subdomains=has_subdomains,
            is_private=is_number or host in LOCAL_NAMES,
        )

    def covers(self, host: str, port: int) -> bool:
        """Return whether this grant is for a host and port. The host is in the form that `split_host` returns."""
        is_host = host.endswith(f".{self.host}") and not _is_number(host) if self.has_subdomains else host == self.host
        return is_host and port in self.ports

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else f"*.{self.host}" if self.has_subdomains else self.host
        return host if self.ports == DEFAULT_PORTS else f"{host}:{self.ports[0]}"


def find_grant(grants: Iterable[HostGrant], host: str, port: int) -> HostGrant | None:
    """Return the grant for a host and port, or None."""
    return next((grant for grant in grants if grant.covers(host, port)), None)


def split_host(text: str) -> tuple[str, int | None] | None:
    """Return the host, in its canonical form, and the port if there is one. Return None if the text is invalid.

    Names are in lower case and without a final dot. Numbers must be complete IP addresses: other forms that a resolver
    would accept, such as `127.1` or `0x7f.1`, are refused.
    """
    if text.startswith("["):
        inner, mark, rest = text[1:].partition("]")
        if not mark or (rest and not rest.startswith(":")) or not _is_number(inner) or ":" not in inner:
            return None
        host, port = str(ip_address(inner)), rest[1:] if rest else None
    else:
        name, mark, number = text.partition(":")
        host, port = name.lower().removesuffix("."), number if mark else None
        if not _is_number(host) and not _is_name(host):
            return None
    if port is None:
        return host, None
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536
    return (host, int(port)) if is_port else None


def _is_name(host: str) -> bool:
    is_name = len(host) <= LONGEST_NAME and _NAME.fullmatch(host) is not None
    return is_name and _LAST_LABEL.match(host.rpartition(".")[2]) is not None


def _is_number(host: str) -> bool:
    with suppress(ValueError):
        return "%" not in host and bool(ip_address(host))
    return False
