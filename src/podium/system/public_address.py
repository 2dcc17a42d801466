"""Distinguish public IP addresses from loopback, private and special-purpose addresses.

The tables are complete, so that the answer is the same with every version of Python. An IPv6 address that is in no
range of public addresses is not public.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

SPECIAL_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by a provider's customers; Alibaba's metadata server is 100.100.100.200
            "127.0.0.0/8",
            "168.63.129.16/32",  # the metadata server of Azure
            "169.254.0.0/16",  # link-local; the metadata server of most clouds is 169.254.169.254
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments; Oracle's metadata server is 192.0.0.192
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",  # multicast, reserved and broadcast
        ),
    )
)
"""Ranges of IPv4 addresses that are not public."""
PUBLIC_V6 = IPv6Network("2000::/3")
"""The only range in which public IPv6 addresses are assigned."""
SPECIAL_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, including Teredo, benchmarks and ORCHID
            "2001:db8::/32",
            "2620:4f:8000::/48",
            "3ffe::/16",
            "3fff::/20",
        ),
    )
)
"""Ranges inside PUBLIC_V6 that are not public."""
EMBEDDING = (
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
)
"""Networks of IPv6 addresses that stand for an IPv4 address, and how many bits follow that address."""
ISATAP = 0x5EFE
"""The number in an interface identifier that is followed by an IPv4 address in the same site."""


def is_public_address(number: str) -> bool:
    """Return whether an IP address is public. If it embeds an IPv4 address, check the embedded address."""
    try:
        address = ip_address(number.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in SPECIAL_V4)
    return _is_public_v6(address)


def _is_public_v6(address: IPv6Address) -> bool:
    for network, after in EMBEDDING:
        if address in network:
            return is_public_address(str(IPv4Address(int(address) >> after & 0xFFFFFFFF)))
    if int(address) >> 32 & 0xFFFF == ISATAP:
        return False
    return address in PUBLIC_V6 and not any(address in network for network in SPECIAL_V6)
