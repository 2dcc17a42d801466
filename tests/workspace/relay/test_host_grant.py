"""Which hosts a grant covers: exactly those that a person wrote, in whatever form a program writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.values.errors import Mistake
from podium.workspace.relay.host_grant import HostGrant, find_grant, split_host


@pytest.mark.parametrize(
    ("text", "shown", "ports", "is_private"),
    [
        ("example.com", "example.com", (80, 443), False),
        ("Example.COM.", "example.com", (80, 443), False),
        ("example.com:8443", "example.com:8443", (8443,), False),
        ("*.example.com", "*.example.com", (80, 443), False),
        ("localhost:3000", "localhost:3000", (3000,), True),
        ("10.0.0.7", "10.0.0.7", (80, 443), True),
        ("[::1]:8080", "[::1]:8080", (8080,), True),
        ("xn--bcher-kva.example", "xn--bcher-kva.example", (80, 443), False),
    ],
)
def test_a_grant_is_a_host_with_ports(text: str, shown: str, ports: tuple[int, ...], is_private: bool) -> None:
    grant = HostGrant.parse(text)

    assert (str(grant), grant.ports, grant.is_private) == (shown, ports, is_private)
    assert HostGrant.parse(str(grant)) == grant


NOT_HOSTS = (
    *("", ".", "-a.test", "a-.test", "a..test", "http://ok.test", "ok.test/path", "user@ok.test", "ok.test:0"),
    *("ok.test:65536", "ok.test:x", "ok.test:", "ok.test:+80", "ok.test:٣", "127.1", "0x7f.1", "2130706433"),
    *("0177.0.0.1", "127.0.0.0x1", "[::1", "[::1]x", "::1", "[127.0.0.1]", "fe80::1%eth0", "[fe80::1%eth0]", "*"),
    *(
        "evil.test\0.ok.test",
        "ok.test\n",
        "ok test",
        "o\u200bk.test",
        "оk.test",
        f"{'a' * 64}.test",
        "a." * 127 + "test",
    ),
)


@pytest.mark.parametrize("text", NOT_HOSTS)
def test_what_is_not_a_plain_host_is_refused(text: str) -> None:
    assert split_host(text) is None
    with pytest.raises(Mistake, match="is not a host"):
        HostGrant.parse(text)


def test_a_number_has_no_subdomains() -> None:
    with pytest.raises(Mistake, match="an IP address has no subdomains"):
        HostGrant.parse("*.10.0.0.1")


GRANTS = tuple(map(HostGrant.parse, ("ok.test", "api.ok.test:8443", "*.wild.test")))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("ok.test:443", True),
        ("OK.TEST.:443", True),
        ("ok.test:80", True),
        ("ok.test:22", False),
        ("api.ok.test:8443", True),
        ("api.ok.test:443", False),
        ("ok.test.evil.test:443", False),
        ("evilok.test:443", False),
        ("a.wild.test:443", True),
        ("wild.test:443", False),
        ("evilwild.test:443", False),
        ("[::1]:443", False),
        ("127.0.0.1:443", False),
    ],
)
def test_only_the_granted_host_and_port_are_covered(target: str, expected: bool) -> None:
    found = split_host(target)

    assert found is not None
    assert found[1] is not None
    assert (find_grant(GRANTS, found[0], found[1]) is not None) is expected


@given(st.text(max_size=60))
def test_no_grants_cover_nothing_and_every_accepted_host_has_one_form(text: str) -> None:
    found = split_host(text)

    if found is not None:
        host, port = found
        assert find_grant((), host, port or 443) is None
        assert split_host(f"[{host}]" if ":" in host else host) == (host, None)
