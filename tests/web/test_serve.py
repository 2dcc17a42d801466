"""`podium serve` as a program: its addresses, its certificate, its tokens, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from podium.testing import make_repository

PODIUM = (sys.executable, "-m", "podium")


def make_environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PODIUM_HOME": str(home), "NO_COLOR": "1"}


@contextmanager
def serve(
    folder: Path, *options: str, repo: Path | None = None, **variables: str
) -> Iterator[tuple[dict[str, Any], subprocess.Popen[str]]]:
    """Start a server in a folder, or in a repository in it, and yield what it prints and its process."""
    process = subprocess.Popen(
        [*PODIUM, "serve", "--port", "0", "--json", *options],
        cwd=repo or folder,
        env=make_environment(folder / "home") | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            text += line
        yield json.loads(text), process
    finally:
        process.terminate()
        process.communicate(timeout=20)


def podium(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PODIUM, *arguments],
        cwd=folder,
        env=make_environment(folder / "home"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextmanager
def sign_in(printed: dict[str, Any], **options: Any) -> Iterator[httpx.Client]:
    code = printed["sign_in"].partition("#code=")[2].partition("&")[0]
    with httpx.Client(base_url=printed["address"], **options) as client:
        token = client.post("/api/login", json={"code": code}).raise_for_status().json()["token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_repository(tmp_path)


def test_a_browser_stays_signed_in_when_the_server_restarts_and_until_it_is_revoked(folder: Path) -> None:
    with serve(folder) as (printed, process), sign_in(printed) as client:
        assert client.get("/api/overview").status_code == 200
        signed_in = {"Authorization": client.headers["Authorization"]}
        process.send_signal(signal.SIGKILL)
        process.wait()
    with serve(folder) as (printed, _), httpx.Client(base_url=printed["address"], headers=signed_in) as again:
        assert again.get("/api/overview").status_code == 200

        [token] = json.loads(podium(folder, "serve", "tokens", "--json").stdout)["tokens"]
        assert (token["channel"], token["scopes"]) == ("page", ["read", "act", "approve"])
        assert "digest" not in token
        assert podium(folder, "serve", "tokens", "--revoke", token["id"]).returncode == 0
        assert again.get("/api/overview").status_code == 401


def test_a_program_gets_a_token_of_its_own(folder: Path) -> None:
    made = podium(folder, "serve", "tokens", "--create", "script", "--token-scope", "read")
    with serve(folder) as (printed, _):
        headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
        with httpx.Client(base_url=printed["address"], headers=headers) as client:
            assert client.get("/api/runs").status_code == 200
            assert client.post("/api/runs", json={"agent": "answer", "request": "x"}).status_code == 403


def test_another_address_needs_tls_and_shows_the_fingerprint_of_its_own_certificate(folder: Path) -> None:
    with serve(folder, "--host", "127.0.0.2", "--public-name", "podium.test") as (printed, _):
        assert printed["address"].startswith("https://127.0.0.2:")
        port = int(printed["address"].rpartition(":")[2])
        certificate = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.2", port)))
        shown = ":".join(f"{byte:02X}" for byte in sha256(certificate).digest())
        trusting = ssl.create_default_context(cadata=certificate)

        assert printed["fingerprint"] == shown
        assert stat.S_IMODE((folder / "home" / "serve-certificate.pem").stat().st_mode) == 0o600
        with sign_in(printed, verify=trusting) as client:
            assert client.get("/api/overview").status_code == 200
            proxied = {"Host": "podium.test", "Origin": "https://podium.test"}
            assert client.get("/api/overview", headers=proxied).status_code == 200
            foreign = {"Host": "podium.test", "Origin": "https://evil.test"}
            assert client.get("/api/overview", headers=foreign).status_code == 403
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.2:{port}/")
    with serve(folder, "--host", "127.0.0.2", "--public-name", "podium.test") as (again, _):
        assert again["fingerprint"] == printed["fingerprint"]


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        (("--port", "70000"), "70000", 2),
        (("--host", "192.0.2.7"), "cannot listen on 192.0.2.7:0", 2),
        (("--lan", "--host", "127.0.0.1"), "give --lan or --host, not both", 2),
        (("--token-scope", "everything"), "unknown scope 'everything'; scopes: read, act, approve", 2),
        (("--certificate", "podium.yaml"), "podium.yaml", 2),
        (("tokens", "--revoke", "nobody"), "token 'nobody' not found; valid tokens: none", 2),
    ],
)
def test_bad_options_get_one_sentence(folder: Path, options: tuple[str, ...], says: str, code: int) -> None:
    done = podium(folder, "serve", "--port", "0", *options)

    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert says in done.stderr


def test_a_port_in_use_is_named_and_a_signal_ends_the_server_in_good_order(folder: Path) -> None:
    with serve(folder) as (printed, process):
        port = printed["address"].rpartition(":")[2]
        second = podium(folder, "serve", "--port", port)
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=20) == 143
    assert second.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; use another --port" in second.stderr


def test_the_browser_that_opens_the_page_is_not_one_of_the_checkout(folder: Path) -> None:
    repo, outside, opened = folder / "repo", folder / "bin", folder / "opened"
    for place in (repo / ".venv" / "bin", outside):
        place.mkdir(parents=True)
        for name in ("xdg-open", "x-www-browser", "www-browser"):
            (place / name).write_text(f'#!/bin/sh\necho "$0" >{opened}\n')
            (place / name).chmod(0o755)
    (repo / ".git").mkdir()
    (repo / ".git" / "HEAD").write_text("ref: refs/heads/main\n")

    path = f"{repo}/.venv/bin:.venv/bin:{outside}:/usr/bin:/bin"
    os.mkfifo(opened)
    with serve(folder, "--open", repo=repo, PATH=path, DISPLAY=":9", BROWSER=""):
        program = opened.read_text()

    assert program.startswith(f"{outside}/")
