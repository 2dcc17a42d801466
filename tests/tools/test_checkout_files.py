"""Nothing outside the checkout is ever opened."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from podium.core.gate import InvalidCall
from podium.system import openat2
from podium.system.owned_files import is_own_name
from podium.tools.checkout_files import open_checkout

LOOKUP_METHODS = [
    pytest.param(True, id="kernel", marks=pytest.mark.skipif(not openat2.is_available(), reason="no openat2 here")),
    pytest.param(False, id="walk"),
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    directory = tmp_path / "checkout"
    (directory / "src").mkdir(parents=True)
    (directory / "src" / "a.py").write_text("a\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret\n")
    return directory


def locate_path(directory: Path, path: str, by_kernel: bool) -> tuple[str, str]:
    with open_checkout(directory, by_kernel=by_kernel) as inside:
        found = inside.locate(path)
        return found.path, found.kind


@pytest.mark.parametrize("by_kernel", LOOKUP_METHODS)
@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("src/a.py", ("src/a.py", "file")),
        ("./src//a.py", ("src/a.py", "file")),
        ("src/../src/a.py", ("src/a.py", "file")),
        ("src/", ("src", "directory")),
        (".", (".", "directory")),
        ("new/deep/file", ("new/deep/file", "absent")),
        ("C:\\x", ("C:\\x", "absent")),
    ],
)
def test_a_path_inside_is_found_in_its_plain_form(
    checkout: Path, path: str, found: tuple[str, str], by_kernel: bool
) -> None:
    assert locate_path(checkout, path, by_kernel) == found
    assert locate_path(checkout, f"{checkout}/{path}", by_kernel) == found


@pytest.mark.parametrize("by_kernel", LOOKUP_METHODS)
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "is empty"),
        ("..", "leads out"),
        ("../outside/secret", "leads out"),
        ("src/../../outside/secret", "leads out"),
        ("/etc/passwd", "outside the checkout"),
        ("~/.ssh/id_rsa", "home directory"),
        ("a\0b", "contains unprintable characters"),
        ("a\nb", "contains unprintable characters"),
        ("\udc80", "contains unprintable characters"),
        ("x" * 256, "too long"),
        ("x/" * 3000, "too long"),
        ("src/a.py/b", "one of its parent directories is a file"),
        ("src/a.py/", "directory"),
        ("new/", "no such directory"),
    ],
)
def test_an_invalid_path_is_refused_with_the_reason(checkout: Path, path: str, why: str, by_kernel: bool) -> None:
    with pytest.raises(InvalidCall, match=why):
        locate_path(checkout, path, by_kernel)


@pytest.mark.parametrize("by_kernel", LOOKUP_METHODS)
@pytest.mark.parametrize(
    "target", ["/etc", "../outside", "../..", "src/../../outside", "/nonexistent", "nowhere", "link", "/proc/self/root"]
)
@pytest.mark.parametrize("name", ["link", "deep/link"])
def test_a_link_that_leads_out_or_nowhere_is_refused(checkout: Path, target: str, name: str, by_kernel: bool) -> None:
    (checkout / "deep").mkdir()
    (checkout / name).symlink_to(target)

    for path in (name, f"{name}/x", f"{name}/secret"):
        with pytest.raises(InvalidCall):
            locate_path(checkout, path, by_kernel)

    assert [path.name for path in (checkout.parent / "outside").iterdir()] == ["secret"]


@pytest.mark.skipif(not openat2.is_available(), reason="no openat2 here")
def test_a_link_inside_shows_as_what_it_leads_to(checkout: Path) -> None:
    (checkout / ".git" / "hooks").mkdir(parents=True)
    (checkout / "harmless").symlink_to(".git/hooks")
    (checkout / "b.py").symlink_to("src/a.py")

    assert locate_path(checkout, "harmless/pre-commit", True) == (".git/hooks/pre-commit", "absent")
    assert locate_path(checkout, "b.py", True) == ("src/a.py", "file")


def test_without_openat2_every_link_is_refused(checkout: Path) -> None:
    (checkout / "b.py").symlink_to("src/a.py")

    with pytest.raises(InvalidCall, match=r"b\.py is a link"):
        locate_path(checkout, "b.py", False)


@pytest.mark.parametrize("by_kernel", LOOKUP_METHODS)
def test_a_fifo_a_socket_and_a_device_are_refused_at_once(checkout: Path, by_kernel: bool) -> None:
    os.mkfifo(checkout / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(checkout / "socket"))
        names = ["fifo", "socket"]
        if os.geteuid() == 0:
            os.mknod(checkout / "device", 0o20600, os.makedev(1, 3))
            names.append("device")

        for name in names:
            with pytest.raises(InvalidCall, match=f"is a {name}; only regular files"):
                locate_path(checkout, name, by_kernel)


def test_a_fifo_that_replaces_a_file_does_not_block(checkout: Path) -> None:
    (checkout / "src" / "a.py").unlink()
    os.mkfifo(checkout / "src" / "a.py")

    with (
        open_checkout(checkout) as inside,
        pytest.raises(InvalidCall, match="no longer a file"),
        inside.open_file("src/a.py"),
    ):
        pass


def test_writing_keeps_the_mode_but_not_the_setuid_bit(checkout: Path) -> None:
    script = checkout / "run.sh"
    script.write_text("old")
    script.chmod(0o4755)

    with open_checkout(checkout) as inside:
        inside.write_file("run.sh", b"new")

    assert script.read_text() == "new"
    assert script.stat().st_mode & 0o7777 == 0o755


def test_writing_leaves_the_other_name_of_a_hard_link_alone(checkout: Path) -> None:
    secret = checkout.parent / "outside" / "secret"
    (checkout / "hard").hardlink_to(secret)

    with open_checkout(checkout) as inside:
        inside.write_file("hard", b"mine")

    assert secret.read_text() == "secret\n"


def test_a_link_put_where_a_file_was_located_is_not_written_through(checkout: Path) -> None:
    secret = checkout.parent / "outside" / "secret"
    (checkout / "src" / "a.py").unlink()
    (checkout / "src" / "a.py").symlink_to(secret)

    with open_checkout(checkout) as inside, pytest.raises(InvalidCall, match="no longer a file"):
        inside.write_file("src/a.py", b"mine")

    assert secret.read_text() == "secret\n"


def test_no_half_written_file_stays_behind_when_writing_fails(checkout: Path) -> None:
    (checkout / "src" / "a.py").unlink()
    (checkout / "src" / "a.py").mkdir()

    with open_checkout(checkout) as inside, pytest.raises(InvalidCall):
        inside.write_file("src/a.py", b"mine")

    assert [path for path in checkout.rglob("*") if is_own_name(path.name)] == []


FLIP_PROGRAM = """
import ctypes, os, select, sys
exchange = ctypes.CDLL(None, use_errno=True).renameat2
flips = 0
while flips < 10_000 or not select.select([0], [], [], 0)[0]:
    for _ in range(100):
        if exchange(-100, b"d", -100, b"link", 2):
            sys.exit(f"cannot exchange: {os.strerror(ctypes.get_errno())}")
        flips += 1
print(flips)
"""
"""Swaps a directory and a link that leads outside, over and over for as long as the input is open."""


@pytest.mark.skipif(sys.platform != "linux", reason="no exchange of names here")
@pytest.mark.parametrize("by_kernel", LOOKUP_METHODS)
def test_ten_thousand_link_flips_let_no_write_out(checkout: Path, by_kernel: bool) -> None:
    canary = checkout.parent / "outside"
    (checkout / "d").mkdir()
    (checkout / "link").symlink_to(canary)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FLIP_PROGRAM], cwd=checkout, stdin=pipe, stdout=pipe) as flipping:
        written = refused = 0
        until = time.monotonic() + 60
        while min(written, refused) < 100 and time.monotonic() < until:
            with open_checkout(checkout, by_kernel=by_kernel) as inside:
                try:
                    inside.write_file(inside.locate("d/x").path, b"mine")
                    written += 1
                except (InvalidCall, OSError):
                    refused += 1
        flips, _ = flipping.communicate()

    assert int(flips) >= 10_000
    assert min(written, refused) >= 100
    assert [path.name for path in canary.iterdir()] == ["secret"]
    assert (canary / "secret").read_text() == "secret\n"


odd = st.sampled_from(
    [
        "..",
        ".",
        "",
        "~",
        "/",
        "\0",
        "\n",
        "C:\\",
        "link",
        "out",
        "src",
        "a.py",
        "x" * 300,
        "․․",
        "．．",
        "%2e%2e",
        "é",
        "é",
        "-rf",
    ]
)


@pytest.mark.parametrize("by_kernel", LOOKUP_METHODS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.one_of(st.lists(odd, max_size=8).map("/".join), st.text(max_size=40)))
@example(path="/" * 5000)
@example(path="link/../../outside/secret")
@example(path="out/../secret")
def test_whatever_a_path_looks_like_it_is_refused_or_stays_inside(checkout: Path, by_kernel: bool, path: str) -> None:
    for name, target in (("link", "src"), ("out", "../outside")):
        if not (checkout / name).is_symlink():
            (checkout / name).symlink_to(target)

    with open_checkout(checkout, by_kernel=by_kernel) as inside:
        try:
            found = inside.locate(path).as_file()
            inside.write_file(found.path, b"mine")
        except (InvalidCall, OSError):
            pass

    outside = checkout.parent / "outside"
    assert sorted(one.name for one in checkout.parent.iterdir()) == ["checkout", "outside"]
    assert [one.name for one in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "secret\n"
