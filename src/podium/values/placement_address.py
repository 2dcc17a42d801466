"""The address of the queue that a fleet's hosts take runs from: `pgqueuer`, or the URL of a NATS server."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from .errors import Mistake

PGQUEUER = "pgqueuer"
"""The queue in the store's database."""

NATS_SCHEMES = ("nats", "tls")


def check_placement(text: str) -> None:
    """Raise Mistake if this is not the address of a queue, or if its connection could leave this machine without TLS.

    The address may contain a password, so it is never included in the message.
    """
    if text == PGQUEUER:
        return
    try:
        url = urlsplit(text)
        host, _ = url.hostname, url.port
    except ValueError:
        host, url = None, urlsplit("")
    if url.scheme not in NATS_SCHEMES or not host:
        raise Mistake(f"expected {PGQUEUER}, or the address of a NATS server such as tls://nats.example.com:4222")
    if url.scheme != "tls" and not _is_loopback(host):
        raise Mistake(
            f"the NATS server {host} may be on another machine, and nats:// is not encrypted; use tls:// instead"
        )


def describe_placement(text: str) -> str:
    """Return the address without its user name and password."""
    return re.sub(r"(?<=://)[^/?#]*@", "", text)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
