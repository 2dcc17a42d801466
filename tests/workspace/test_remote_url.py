"""Which URLs of remotes are used, and what of them is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.values.errors import Mistake
from podium.workspace.travel.remote_url import find_remote, hide_credentials, parse_remote_url

from .merging import Repo


@pytest.mark.parametrize(
    ("given", "text", "protocol"),
    [
        ("git@example.com:team/shop.git", "git@example.com:team/shop.git", "ssh"),
        ("example.com:shop", "example.com:shop", "ssh"),
        ("[::1]:shop", "[::1]:shop", "ssh"),
        ("ssh://git:secret@example.com:2222/shop.git", "ssh://git@example.com:2222/shop.git", "ssh"),
        ("https://me:token@example.com/shop.git", "https://example.com/shop.git", "https"),
        ("https://token@example.com:8443/shop", "https://example.com:8443/shop", "https"),
        ("http://me:x@127.0.0.1:8000/shop.git", "http://127.0.0.1:8000/shop.git", "http"),
        ("http://[::1]:8000/shop", "http://[::1]:8000/shop", "http"),
        ("/srv/git/../shop.git", "/srv/shop.git", "file"),
        ("file:///srv/a%20b.git", "/srv/a b.git", "file"),
        ("../shop.git", "/home/me/shop.git", "file"),
        ("./odd:name", "/home/me/work/odd:name", "file"),
    ],
)
def test_a_usable_url_is_recorded_without_credentials(given: str, text: str, protocol: str) -> None:
    url = parse_remote_url(given, root=Path("/home/me/work"))

    assert (url.text, url.protocol) == (text, protocol)
    assert parse_remote_url(url.text) == url


@pytest.mark.parametrize(
    "given",
    [
        "",
        " /srv/shop.git",
        "--upload-pack=touch /tmp/x",
        "-oProxyCommand=touch:x",
        "ext::sh -c 'touch /tmp/x'",
        "fd::17",
        "transport::http://example.com",
        "git://example.com/shop.git",
        "ftp://example.com/shop.git",
        "http://example.com/shop.git",
        "https://example.com",
        "https:///shop.git",
        "https://example.com/shop.git?private_token=secret",
        "https://example.com:port/shop.git",
        "ssh://-oProxyCommand=x/shop.git",
        "ssh://a b@example.com/shop.git",
        "-evil@example.com:shop.git",
        "git@-evil:shop.git",
        "git@example.com:--upload-pack=x",
        "git@example.com:",
        "file://otherhost/srv/shop.git",
        "shop\n.git",
        "shop.git",
    ],
)
def test_any_other_url_is_refused_with_what_would_work(given: str) -> None:
    with pytest.raises(Mistake) as refused:
        parse_remote_url(given)

    assert "secret" not in str(refused.value) or "private_token" in given
    assert any(word in str(refused.value) for word in ("use ", "remove it"))


def test_two_urls_never_share_a_folder_and_one_always_has_the_same() -> None:
    names = [parse_remote_url(url).folder_name for url in ("/a/shop.git", "/b/shop.git", "/a/shop.git")]

    assert names[0] == names[2] != names[1]
    assert all(name.startswith("shop-") for name in names)
    assert parse_remote_url("/a/.git").name == "repository"


def test_credentials_are_hidden_in_the_messages_of_servers() -> None:
    assert hide_credentials("fatal: https://me:pw@h/x and ssh://u@h/y") == "fatal: https://h/x and ssh://h/y"


async def test_code_travels_through_origin_or_the_only_remote(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "repo")

    assert await find_remote(repo.path) is None

    repo.git("remote", "add", "upstream", "https://me:pw@example.com/up.git")
    only = await find_remote(repo.path)
    assert only is not None
    assert (only.name, only.url.text) == ("upstream", "https://example.com/up.git")

    repo.git("remote", "add", "fork", "git@example.com:fork.git")
    with pytest.raises(Mistake, match=r"several remotes \(fork, upstream\) and none of them is called origin"):
        await find_remote(repo.path)

    repo.git("remote", "add", "origin", "../remote.git")
    chosen = await find_remote(repo.path)
    assert chosen is not None
    assert (chosen.name, chosen.url.text) == ("origin", str(tmp_path / "remote.git"))
