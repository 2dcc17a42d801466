"""Secrets from the environment reach neither the timeline nor a model."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium import Agent, App, Settings
from podium.core.redaction import Redaction
from podium.testing import ModelServer
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


async def test_a_canary_key_appears_nowhere(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    subprocess.run(["git", "init", "-q", repo], check=True)
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
