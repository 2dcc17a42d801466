"""Notifications by real commands and a real webhook."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from podium.files.settings_document import NotifyCommand, NotifyTarget
from podium.runs.notifier import open_notifier
from podium.store.run_leases import read_process_start
from podium.views.notification import Notification

from ..webhook import serve_webhook

FINISHED = Notification(event="finished", run="r1", at=5.0, outcome="succeeded")
ASKED = Notification(event="needs-input", run="r1", at=4.0, waiting=2, request="q2")
ASKED_FIELDS = {
    "schema": 1,
    "event": "needs-input",
    "run": "r1",
    "at": 4.0,
    "waiting": 2,
    "request": "q2",
    "outcome": "",
    "text": "run r1 needs you: 2 requests are waiting",
}


def run_shell(command: str) -> NotifyCommand:
    return NotifyCommand(command=("sh", "-c", command))


async def send_all(
    home: Path, targets: Sequence[NotifyTarget], *notifications: Notification, seconds: float = 20.0
) -> list[str]:
    """Send notifications, wait for their end, and return what was reported."""
    told: list[str] = []
    async with open_notifier(lambda: targets, home=home, tell=told.append, seconds=seconds) as notifier:
        for notification in notifications:
            notifier.send(notification)
    return told


async def test_a_command_gets_the_notification_as_json_on_its_standard_input(tmp_path: Path) -> None:
    told = await send_all(tmp_path, [run_shell("cat >got; pwd >where")], ASKED)

    assert told == []
    assert json.loads((tmp_path / "got").read_text()) == ASKED_FIELDS
    assert (tmp_path / "where").read_text() == f"{tmp_path}\n"


async def test_a_command_gets_the_environment_without_the_keys_of_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("MY_DISPLAY", ":7")

    await send_all(tmp_path, [run_shell('echo "$MY_DISPLAY/$OPENAI_API_KEY" >got')], FINISHED)

    assert (tmp_path / "got").read_text() == ":7/\n"


async def test_a_webhook_gets_the_same_json(tmp_path: Path) -> None:
    with serve_webhook() as hook:
        assert await send_all(tmp_path, [hook.url], ASKED) == []

        assert hook.list_calls() == [ASKED_FIELDS]


async def test_the_words_for_a_terminal_start_nothing(tmp_path: Path) -> None:
    assert await send_all(tmp_path, ["bell", "title", "desktop"], ASKED, FINISHED) == []


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("echo 'no such \x1b[31muser' >&2; exit 3", r"the command sh failed (exit code 3): no such \x1b[31muser"),
        ("exit 1", "the command sh failed (exit code 1)"),
    ],
)
async def test_a_command_that_fails_is_reported_once(tmp_path: Path, command: str, sentence: str) -> None:
    told = await send_all(tmp_path, [run_shell(command)], ASKED, FINISHED)

    assert told == [f"the notification failed: {sentence}"]


async def test_a_command_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    [told] = await send_all(tmp_path, [NotifyCommand(command=("no-such-program",))], FINISHED)

    assert told.startswith("the notification failed: ")
    assert "no-such-program" in told


async def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    told = await send_all(tmp_path, [run_shell("sleep 999 & echo $! >pid; wait")], FINISHED, seconds=0.5)

    assert told == ["the notification failed: the command sh took longer than 0.5 s"]
    assert not read_process_start(int((tmp_path / "pid").read_text()))


async def test_a_webhook_that_fails_is_reported_once_and_without_its_path(tmp_path: Path) -> None:
    with serve_webhook(status=500) as broken, serve_webhook(status=302) as moved, serve_webhook(is_silent=True) as slow:
        told = await send_all(tmp_path, [broken.url, moved.url, slow.url], ASKED, FINISHED, seconds=0.5)

        calls = [len(hook.list_calls()) for hook in (broken, moved, slow)]
    told += await send_all(tmp_path, [broken.url], FINISHED)

    first, second, third = (
        hook.url.removesuffix("/hook/secret").removeprefix("http://") for hook in (broken, moved, slow)
    )
    assert sorted(told) == sorted(
        [
            f"the notification failed: the webhook at {first} returned status 500",
            f"the notification failed: the webhook at {second} returned status 302",
            f"the notification failed: the webhook at {third} did not respond within 0.5 s",
            f"the notification failed: the webhook at {first} cannot be reached",
        ]
    )
    assert calls == [2, 2, 2]
