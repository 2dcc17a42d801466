"""Secrets from the environment reach neither the timeline nor a model."""

from __future__ import annotations

import json
import subprocess
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium import Agent, App, Settings
from podium.core.redaction import Redaction
from podium.testing import ModelServer, make_repository
from podium.values.agent import Permissions

CANARY = 'sk-canary-"7\\f3-Ω'
ENVIRON = {"OPENAI_API_KEY": CANARY, "DEPLOY_TOKEN": "tok-4711-abcdef", "LANG": "C.UTF-8"}


def test_keys_and_variables_named_like_secrets_are_redacted() -> None:
    redaction = Redaction.from_environment(ENVIRON, {"OPENAI_API_KEY"})

    assert (
        redaction.redact_text(f"a {CANARY} b tok-4711-abcdef c C.UTF-8")
        == "a [OPENAI_API_KEY] b [DEPLOY_TOKEN] c C.UTF-8"
    )


@pytest.mark.parametrize("value", ["x", "password", "/run/user/1000/agent.sock", "123456789012345", ""])
def test_words_paths_numbers_and_placeholders_are_no_secrets(value: str) -> None:
    redaction = Redaction.from_environment({"SSH_AUTH_SOCK": value, "OPENAI_API_KEY": "x"}, {"OPENAI_API_KEY"})

    assert redaction.redact_text(f"the {value} x") == f"the {value} x"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_SECRET_ACCESS_KEY", "/Zm9vYmFyYmF6+cXV4/quux"),
        ("DB_PASSWORD", "correcthorsebatterystaple"),
        ("BANK_TOKEN", "481516234200815"),
        ("SMTP_PASS", "hunter2-hunter2"),
        ("GITHUB_PAT", "ghp_0123456789abcdef"),
        ("MYSQL_PWD", "s3cret-enough"),
    ],
)
def test_a_secret_is_redacted_whatever_it_looks_like(name: str, value: str) -> None:
    assert Redaction.from_environment({name: value}).redact_text(f"a {value} b") == f"a [{name}] b"


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("postgres://app:p%40ss-w0rd@db.example/app", "p@ss-w0rd"),
        ("redis://:s3cret-99@cache:6379/0", "s3cret-99"),
        ("https://ghp_0123456789ab@github.com/o/r", "ghp_0123456789ab"),
        ("mongodb+srv://u:x/y@h", "mongodb+srv://u:x/y@h"),
        ("https://hooks.example/x?token=abcdef123456", "abcdef123456"),
        ("postgres://postgres:postgres@localhost/app", "postgres://postgres:postgres@localhost/app"),
    ],
)
def test_a_password_in_an_address_is_redacted(address: str, secret: str) -> None:
    redaction = Redaction.from_environment({"DATABASE_URL": address})

    assert redaction.redact_text(f"at {address}") == "at [DATABASE_URL]"
    assert redaction.redact_text(f"with {secret}") == "with [DATABASE_URL]"


def test_an_ordinary_word_in_an_address_stays() -> None:
    environ = {"DATABASE_URL": "postgres://postgres:postgres@localhost/app", "HOMEPAGE": "https://example.com/a?b=c"}

    redaction = Redaction.from_environment(environ)

    assert redaction.redact_text("postgres https://example.com/a?b=c") == "postgres https://example.com/a?b=c"


@pytest.mark.parametrize("name", ["AWS_WEB_IDENTITY_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "SECRETS_DIR"])
def test_a_path_to_a_secret_is_no_secret(name: str) -> None:
    value = "/var/run/secrets/token"

    assert Redaction.from_environment({name: value}).redact_text(value) == value


def test_a_secret_that_contains_another_goes_as_a_whole() -> None:
    redaction = Redaction({"abcdefgh": "A", "abcdefghijkl": "B"})

    assert redaction.redact_text("abcdefghijkl abcdefgh") == "[B] [A]"


@given(st.text(), st.text(), st.integers(min_value=0, max_value=40))
def test_a_secret_that_comes_in_two_pieces_is_found(before: str, after: str, cut: int) -> None:
    redaction = Redaction({CANARY: "KEY"})
    whole = before + CANARY + after
    cut = min(cut, len(whole))
    first, second = whole[:cut], whole[cut:]

    held = redaction.partial_secret_length(first)
    shown = redaction.redact_text(first[: len(first) - held]) + redaction.redact_text(
        first[len(first) - held :] + second
    )

    assert CANARY not in shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("https://user:tok3n@host/r.git", "https://[credentials]@host/r.git"),
        ("https://TOKEN@host/r.git", "https://[credentials]@host/r.git"),
        ("HTTP://x-access-token:ghs_1@host", "HTTP://[credentials]@host"),
        ("https://me:p%40ss@host", "https://[credentials]@host"),
        ("https://me:a@b@host", "https://[credentials]@host"),
        ("git+https://tok@host/r", "git+https://[credentials]@host/r"),
        ("ssh://git:pw@host/r", "ssh://git:[credentials]@host/r"),
        ("redis://:s3cret-99@cache", "redis://:[credentials]@cache"),
        ("goto=https%3A%2F%2Fme%3Atok%40host%2Fr", "goto=https%3A%2F%2F[credentials]%40host%2Fr"),
        ("https%253A%252F%252Ftok%2540host", "https%253A%252F%252F[credentials]%2540host"),
        (r"https:\/\/me:tok@host\/r", r"https:\/\/[credentials]@host\/r"),
        ("https://me:\x1b[01;31m\x1b[Ktok\x1b[m\x1b[K@host", "https://[credentials]@host"),
    ],
)
def test_credentials_in_a_url_are_redacted_however_it_is_written(written: str, shown: str) -> None:
    redaction = Redaction()

    assert redaction.redact_text(f"origin\t{written} (fetch)") == f"origin\t{shown} (fetch)"
    assert json.loads(redaction.redact_line(json.dumps({"text": f"ö {written}"}).encode())) == {"text": f"ö {shown}"}
    assert redaction.redact_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "git@github.com:o/r.git",
        "ssh://git@host/r",
        "git+ssh://git@host/r",
        "postgres://user@host/db",
        "postgres://postgres:postgres@localhost/app",
        "Author: A B <a@b.example>",
        "https://host/@scope/name@1.2.3",
        "https://host/?mail=a@b.example",
        "https://host/?next=https%3A%2F%2Fhost%2Fa%40b",
        "https://${TOKEN}@host",
        "https://$(id)@host",
        "https://{user}:{password}@host",
        "see https://host, or mail a@b.example",
    ],
)
def test_addresses_without_credentials_stay(text: str) -> None:
    assert Redaction().redact_text(text) == text
    assert Redaction().redact_line(text.encode()) == text.encode()


@given(st.text(), st.text(), st.integers(min_value=0, max_value=60))
def test_a_url_that_comes_in_two_pieces_is_redacted(before: str, after: str, cut: int) -> None:
    redaction = Redaction()
    whole = f"{before} https://me:s3cr3t@host {after}"
    cut = min(cut, len(whole))
    first, second = whole[:cut], whole[cut:]

    held = redaction.partial_secret_length(first)
    shown = redaction.redact_text(first[: len(first) - held]) + redaction.redact_text(
        first[len(first) - held :] + second
    )

    assert "s3cr3t@" not in shown


@pytest.mark.parametrize(
    "piece", ["://", "https://", "https://a@", "a:", "@", "%3A%2F%2F", "\x1b[", "https://" + "a" * 5000]
)
def test_looking_for_urls_takes_time_in_proportion_to_the_text(piece: str) -> None:
    text = (piece * 300_000)[:300_000]
    began = time.process_time()

    Redaction().redact_text(text)
    Redaction().redact_line(text.encode())
    Redaction().partial_secret_length(text)

    assert time.process_time() - began < 2


async def test_credentials_of_a_remote_reach_neither_the_model_nor_the_timeline(tmp_path: Path) -> None:
    repo, token, extra = tmp_path / "repo", "ghp_0123456789abcdef", "x-access-token:ghs_987654321"
    make_repository(repo)
    for key, value in {
        "remote.origin.url": f"https://x-access-token:{token}@git.example/o/r.git",
        "remote.other.url": f"https://{token}@git.example/o/r.git",
        "http.https://git.example/.extraheader": f"AUTHORIZATION: basic {b64encode(extra.encode()).decode()}",
    }.items():
        subprocess.run(["git", "-C", repo, "config", key, value], check=True)
    (repo / "notes.txt").write_text("push to http://me:hunter2@git.example/r\nmail me@git.example\n")
    script: list[Any] = [
        {"calls": [{"name": "bash", "arguments": {"command": "git remote -v; git config -l; cat .git/config"}}]},
        {"calls": [{"name": "bash", "arguments": {"command": "git remote -v | tr ':@' '  ' >&2; exit 3"}}]},
        {"calls": [{"name": "grep", "arguments": {"pattern": "git.example"}}]},
        {"calls": [{"name": "read_file", "arguments": {"path": ".git/config"}}]},
        {"calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]},
        {"calls": [{"name": "write_file", "arguments": {"path": "new.txt", "content": "http://a:b@host"}}]},
        {"says": "Done."},
    ]
    async with ModelServer(script) as server:
        environ = {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": server.url}
        settings = Settings.load(environ, home=tmp_path / "home", permission_mode="bypass")
        agent = Agent(name="looker", prompt="Look.", tools=("Read", "Grep", "Bash", "Write"))
        async with App(settings, environ=environ) as app, app.start(agent, "Look at it", repo=repo) as run:
            result = await run.result()
        sent_texts = [message.text for received in server.calls for message in received.call.messages]

    written = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert result.succeeded, result.error
    assert any("[credentials]@git.example/o/r.git (fetch)" in text for text in sent_texts)
    assert any("mail me@git.example" in text for text in sent_texts)
    for secret in (token, "ghs_987654321", b64encode(extra.encode()).decode(), "hunter2"):
        assert not any(secret in text for text in sent_texts)
        assert secret.encode() not in written
    assert (repo / "new.txt").read_text() == "http://a:b@host"


async def test_a_canary_key_appears_nowhere(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    make_repository(repo)
    (repo / "notes.txt").write_text(f"the key is {CANARY}, do not tell\n")
    script: list[Any] = [
        {"says": "looking", "calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]},
        {"calls": [{"name": "bash", "arguments": {"command": f"echo '{CANARY}'; cat notes.txt; exit 3"}}]},
        {"calls": [{"name": "nobody", "arguments": {"x": CANARY}}]},
        {
            "says": f"It is {CANARY}!",
            "pieces": 9,
            "pace": 0.05,
            "fails": {"status": 500, "message": CANARY, "times": 1},
        },
        {"says": f"It is {CANARY}!", "pieces": 9, "pace": 0.05},
    ]
    async with ModelServer(script) as server:
        environ = {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": server.url}
        settings = Settings.load(environ, home=tmp_path / "home", permissions=Permissions(allow=("Bash",)))
        agent = Agent(name="teller", prompt=f"You know {CANARY}.", tools=("Read", "Bash"))
        async with App(settings, environ=environ) as app, app.start(agent, f"What is {CANARY}?", repo=repo) as run:
            await run.send(f"It is {CANARY}")
            result = await run.result()
        sent_texts = [
            message.text
            for received in server.calls
            for message in received.call.messages
            if message.role != "assistant"
        ]
        sent_texts += [received.call.system for received in server.calls]

    written = [path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert result.succeeded, result.error
    assert CANARY not in result.text
    for form in (CANARY.encode(), CANARY.replace("\\", "\\\\").replace('"', '\\"').encode()):
        assert not any(form in data for data in written)
    assert any("the key is [OPENAI_API_KEY]" in text for text in sent_texts)
    assert not any(CANARY in text for text in sent_texts)
