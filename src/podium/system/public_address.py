"""Distinguish public IP addresses from loopback, private and special-purpose addresses."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address

TRANSLATED = IPv6Network("64:ff9b::/96")
"""The network of IPv6 addresses that embed an IPv4 address (NAT64)."""


def is_public_address(number: str) -> bool:
    """Return whether an IP address is public. If it embeds an IPv4 address, check the embedded address."""
    try:
        address = ip_address(number.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address in TRANSLATED:
            return is_public_address(str(ip_address(int(address) & 0xFFFFFFFF)))
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            return is_public_address(str(inner))
        if address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast
