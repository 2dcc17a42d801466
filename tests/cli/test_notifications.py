"""The setting `notify`, at a real terminal and without one."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from anyio import to_thread

from podium.cli.output.terminal_notifier import TerminalNotifier
from podium.views.notification import Notification

from ..webhook import serve_webhook
from ..workers.worker_lab import bash
from .conftest import Desk
from .test_chat import send_line
from .test_terminal import Terminal
from .worker_runs import open_lab

CHECK = {"calls": [{"name": "bash", "arguments": {"command": "cargo check -q"}}]}


@pytest.fixture
def write_settings(desk: Desk) -> Callable[[str], Path]:
    """Write the person's settings."""

    def write(text: str) -> Path:
        path = desk.home / "config.yaml"
        path.write_text(f"sandbox: off\n{text}")
        return path

    return write


def wait_title(terminal: Terminal, title: str) -> None:
    terminal.wait_until(lambda _: terminal.screen.title == title)


def count_bells(output: bytes) -> int:
    """Count the bells, without those that end an escape sequence."""
    return output.count(b"\a") - output.count(b"\x1b]")


def read_json_lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# At a terminal


def test_the_bell_rings_and_the_title_counts_while_a_request_waits(
    desk: Desk, write_settings: Callable[[str], Path]
) -> None:
    write_settings("notify: [bell, title]\n")
    desk.write_agent("lead", CHECK, "done", tools=["Bash"])

    terminal = Terminal(desk, "run", "lead", "do it")
    wait_title(terminal, "(1) needs you")
    terminal.wait_for("[y] once")
    before = terminal.output
    terminal.process.send("y")

    assert terminal.wait_exit() == 0
    assert count_bells(before) == 1
    assert count_bells(terminal.output) == 2
    assert terminal.screen.title == "podium"
    assert terminal.output.count(b"\x1b[22;2t") == terminal.output.count(b"\x1b[23;2t") == 1
    assert b"\x1b]9;" not in terminal.output


@pytest.mark.parametrize(("moves", "word"), [(["done"], "finished"), ([{"fails": "no"}], "failed")])
def test_a_desktop_notification_is_shown_when_a_run_ends(
    desk: Desk, write_settings: Callable[[str], Path], moves: list[str], word: str
) -> None:
    write_settings("notify: desktop\n")
    desk.write_agent("lead", *moves)

    terminal = Terminal(desk, "run", "lead", "do it", TERM_PROGRAM="WezTerm")
    terminal.wait_exit()

    assert f"\x1b]9;Podium: run {desk.run_id()} {word}\a".encode() in terminal.output
    assert count_bells(terminal.output) == 0


def test_a_terminal_without_desktop_notifications_rings_instead(
    desk: Desk, write_settings: Callable[[str], Path]
) -> None:
    write_settings("notify: [desktop, bell]\n")
    desk.write_agent("lead", "done")

    terminal = Terminal(desk, "run", "lead", "do it")
    terminal.wait_exit()

    assert b"\x1b]9;" not in terminal.output
    assert count_bells(terminal.output) == 1


@pytest.mark.parametrize(("options", "kind"), [(["--quiet"], "xterm"), (["--json"], "xterm"), ([], "dumb")])
def test_nothing_is_written_where_it_would_be_in_the_way(
    desk: Desk, write_settings: Callable[[str], Path], options: list[str], kind: str
) -> None:
    write_settings("notify: [bell, title, desktop]\n")
    desk.write_agent("lead", "done")

    terminal = Terminal(desk, "run", "lead", "do it", *options, TERM=kind, TERM_PROGRAM="WezTerm")

    assert terminal.wait_exit() == 0
    assert b"\a" not in terminal.output
    assert b"\x1b]" not in terminal.output


def test_following_a_run_notifies_only_about_what_is_new(desk: Desk, write_settings: Callable[[str], Path]) -> None:
    got = desk.home / "got"
    write_settings(f"notify: [bell, title, {{command: 'cat >>{got}'}}]\n")
    desk.write_agent("lead", CHECK, "done", tools=["Bash"])
    working = Terminal(desk, "run", "lead", "do it")
    working.wait_for("[y] once")

    following = Terminal(desk, "logs", "-f", desk.run_id())
    wait_title(following, "(1) needs you")
    before = count_bells(following.output)
    working.process.send("y")
    assert working.wait_exit() == 0
    following.wait_exit()
    after = Terminal(desk, "logs", "-f", desk.run_id())
    after.wait_exit()

    assert (before, count_bells(following.output), count_bells(after.output)) == (0, 1, 0)
    # Only the process that works on the run calls the command.
    assert [one["event"] for one in read_json_lines(got)] == ["needs-input", "finished"]


def test_a_chat_notifies_about_requests_and_replies(desk: Desk, write_settings: Callable[[str], Path]) -> None:
    write_settings("notify: [title, desktop]\n")
    desk.write_agent("poet", CHECK, "a poem", tools=["Bash"])
    terminal = Terminal(desk, "chat", "poet", TERM_PROGRAM="ghostty")
    terminal.wait_for("poet>")

    send_line(terminal, "write a poem")
    wait_title(terminal, "(1) needs you")
    terminal.wait_for("your key>")
    terminal.process.send("y")
    terminal.wait_for("2 model calls")
    wait_title(terminal, "podium")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    run = desk.run_id()
    for words in (f"run {run} needs you: 1 request is waiting", f"run {run} finished"):
        assert f"\x1b]9;Podium: {words}\a".encode() in terminal.output


async def test_waiting_for_workers_notifies_about_their_requests_and_ends() -> None:
    async with open_lab() as lab:
        run = await lab.delegate("feat/one", bash("make"), "done", allow=())
        lab.write_settings("notify: [title, desktop]\n")
        desk = Desk(repo=lab.repo.path, home=lab.home, environment=lab.environ)
        terminal = Terminal(desk, "workers", "wait", TERM_PROGRAM="ghostty")

        await to_thread.run_sync(wait_title, terminal, "(1) needs you")
        lab.answer(run, await lab.wait_asked(run), "deny")

        assert await to_thread.run_sync(terminal.wait_exit) == 0
        assert f"\x1b]9;Podium: run {run} finished\a".encode() in terminal.output
        assert terminal.screen.title == "podium"
        await lab.wait_no_processes()


def test_no_text_can_leave_its_escape_sequence() -> None:
    written = io.StringIO()
    hostile = "r1\a\x1b]0;evil\x1b\\\x9d2;evil\x9c\n"

    notifier = TerminalNotifier(written, ["desktop", "title"], {"TERM": "xterm-kitty"})
    notifier.show(Notification(event="finished", run=hostile, at=0.0))

    assert written.getvalue() == "\x1b]9;Podium: run r10evil2evil finished\a"


# Without a terminal


def test_a_command_and_a_webhook_are_told_about_a_run(desk: Desk, write_settings: Callable[[str], Path]) -> None:
    got = desk.home / "got"
    desk.write_agent("lead", "done")
    with serve_webhook() as hook:
        write_settings(f"notify: [bell, '{hook.url}', {{command: [sh, -c, 'cat >>{got}']}}]\n")

        done = desk.run_podium("run", "lead", "do it", "--quiet")

        [posted] = hook.list_calls()
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert read_json_lines(got) == [posted]
    assert (posted["event"], posted["run"], posted["outcome"]) == ("finished", desk.run_id(), "succeeded")


def test_a_parked_run_tells_about_its_request(desk: Desk, write_settings: Callable[[str], Path]) -> None:
    got = desk.home / "got"
    write_settings(f"notify: {{command: 'cat >>{got}'}}\n")
    desk.write_agent("lead", CHECK, "done", tools=["Bash"])

    done = desk.run_podium("run", "lead", "do it", "--park")

    assert done.returncode == 3
    assert [(one["event"], one["waiting"]) for one in read_json_lines(got)] == [("needs-input", 1)]


def test_a_request_that_is_denied_at_once_needs_nobody(desk: Desk, write_settings: Callable[[str], Path]) -> None:
    got = desk.home / "got"
    write_settings(f"notify: [{{command: 'cat >>{got}'}}]\n")
    desk.write_agent("lead", CHECK, "done", tools=["Bash"])

    done = desk.run_podium("run", "lead", "do it")

    assert "bash was refused" in done.stderr
    assert [one["event"] for one in read_json_lines(got)] == ["finished"]


def test_notifications_that_fail_are_one_line_each_and_no_error_of_the_run(
    desk: Desk, write_settings: Callable[[str], Path]
) -> None:
    desk.write_agent("lead", "done")
    with serve_webhook(status=500) as hook:
        write_settings(f"notify: ['{hook.url}', {{command: exit 3}}]\n")

        done = desk.run_podium("run", "lead", "do it", "--quiet")

    assert (done.returncode, done.stdout) == (0, "done\n")
    assert sorted(done.stderr.splitlines()) == [
        "the notification failed: the command sh failed (exit code 3)",
        f"the notification failed: the webhook at {hook.url.split('/')[2]} returned status 500",
    ]


def test_a_repository_cannot_have_a_command_or_a_webhook_called(desk: Desk, tmp_path: Path) -> None:
    desk.write_agent("lead", "done")
    with serve_webhook() as hook:
        (desk.repo / "podium.yaml").write_text(f"notify: ['{hook.url}', {{command: touch {tmp_path}/canary}}, bell]\n")
        trusted = desk.invoke("trust", "--all")

        done = desk.run_podium("run", "lead", "do it")

        assert hook.list_calls() == []
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert not (tmp_path / "canary").exists()
    assert "notify" not in trusted.output
    shown = desk.invoke("config", "show").output
    assert "podium.yaml:1: notify: ignored: " in shown


def test_the_settings_are_shown_without_what_may_be_secret(desk: Desk, write_settings: Callable[[str], Path]) -> None:
    write_settings("notify: [bell, 'https://me:pw@hooks.example/T0/secret?x=1', {command: [push, --key, secret]}]\n")

    shown = desk.invoke("config", "show").output

    assert '["bell", "https://hooks.example/…", "command push"]' in shown
    assert "secret" not in shown
