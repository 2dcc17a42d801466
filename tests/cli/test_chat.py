"""Talking to an agent at a real terminal."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from podium.cli.chat.chat_output import LineWrapper, skip_printed_text
from podium.values.event import RunEnded, RunStarted

from .conftest import SLOW, Desk
from .test_terminal import Terminal


def chat(desk: Desk, agent: str, *, kind: str = "xterm-256color") -> Terminal:
    """A chat that waits for the first line."""
    terminal = Terminal(desk, "chat", agent, TERM=kind)
    terminal.wait_for(f"{agent}>")
    return terminal


def say(terminal: Terminal, line: str) -> None:
    terminal.process.send(f"{line}\r")


def requests(desk: Desk) -> list[str]:
    """What was asked, the last first."""
    started = [run.first.event for run in desk.runs()]
    return [event.request.text for event in started if isinstance(event, RunStarted)]


@pytest.fixture
def poet(desk: Desk) -> Desk:
    desk.agent("poet", "a poem about rain", "a shorter poem", "the shortest poem")
    return desk


def test_a_conversation_goes_on_from_line_to_line(poet: Desk) -> None:
    terminal = chat(poet, "poet")

    say(terminal, "write a poem")
    terminal.wait_for("a poem about rain")
    say(terminal, "shorter")
    terminal.wait_for("a shorter poem")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0
    assert "> write a poem" in terminal.lines
    assert requests(poet) == ["shorter", "write a poem"]


def test_podium_alone_on_a_terminal_is_a_chat(desk: Desk) -> None:
    terminal = Terminal(desk)

    terminal.wait_for("answer>")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0


def test_without_a_terminal_there_is_no_chat(poet: Desk) -> None:
    done = poet.podium("chat", "poet", input="hello\n")

    assert done.returncode == 2
    assert done.stderr == "podium: a chat needs a terminal, and this is none; podium run poet REQUEST asks once\n"


def test_words_are_shown_while_they_are_said(desk: Desk) -> None:
    desk.agent("slow", {"says": "one two three four five six", "pieces": 6, "pace": 0.3})
    terminal = chat(desk, "slow")

    say(terminal, "count")
    lines = terminal.wait_for("one two")

    assert not any("six" in line for line in lines)
    terminal.wait_for("one two three four five six")
    terminal.process.sendcontrol("d")
    assert terminal.end() == 0


def test_nothing_that_an_agent_says_acts_on_the_terminal(desk: Desk) -> None:
    desk.agent("sly", "all \x1b[2Jgone \u202eoops\u202c")
    terminal = chat(desk, "sly")

    say(terminal, "hello")
    lines = terminal.wait_for("gone")

    assert any("all \\x1b[2Jgone \\u202eoops\\u202c" in line for line in lines)
    terminal.process.sendcontrol("d")
    assert terminal.end() == 0


def test_ctrl_c_stops_the_turn_and_the_conversation_goes_on(desk: Desk) -> None:
    desk.agent("poet", SLOW, "There once was a cat")
    terminal = chat(desk, "poet")
    say(terminal, "write a poem")
    terminal.wait_for("(poet thinks")

    terminal.process.sendcontrol("c")
    terminal.wait_for("  stopped")
    say(terminal, "rather a limerick")
    terminal.wait_for("There once was a cat")
    terminal.wait_for("1 model call")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0
    assert [getattr(run.last.event, "outcome", "") for run in desk.runs()] == ["succeeded", "cancelled"]


def test_a_second_ctrl_c_leaves(poet: Desk) -> None:
    terminal = chat(poet, "poet")

    terminal.process.sendcontrol("c")
    terminal.wait_for("Ctrl-C again")
    terminal.process.sendcontrol("c")

    assert terminal.end() == 130


def test_leaving_in_the_middle_leaves_a_run_that_can_be_resumed(desk: Desk) -> None:
    desk.agent("poet", SLOW)
    terminal = chat(desk, "poet")
    say(terminal, "write a poem")
    terminal.wait_for("(poet thinks")

    say(terminal, "/quit")

    assert terminal.end() == 0
    assert any(f"go on with: podium resume {desk.run_id()}" in line for line in terminal.lines)


def test_what_is_said_meanwhile_is_heard_at_the_next_step(desk: Desk) -> None:
    desk.agent(
        "reader",
        {"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}], "delay": 1.5},
        "done",
        tools=["Read"],
    )
    (desk.repo / "a.txt").write_text("x\n")
    terminal = chat(desk, "reader")
    say(terminal, "read it")
    terminal.wait_for("> read it")

    say(terminal, "and mind the end")
    terminal.wait_for("it is heard at the next step")
    terminal.wait_for("done")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0
    assert len(desk.runs()) == 1
    assert "messages_delivered" in desk.kinds(desk.run_id())


def test_what_was_not_heard_is_the_next_line(desk: Desk) -> None:
    desk.agent("poet", {"says": "a poem", "delay": 1.0}, "a shorter poem")
    terminal = chat(desk, "poet")
    say(terminal, "write a poem")
    terminal.wait_for("(poet thinks")

    say(terminal, "shorter")
    terminal.wait_for("a shorter poem")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0
    assert requests(desk) == ["shorter", "write a poem"]


@pytest.mark.parametrize(
    ("said", "whole", "rest"),
    [
        ("", "all of it", "all of it"),
        ("all of", "all of it", " it"),
        ("I look.all of", "all of it", " it"),
        ("all of it", "all of it", ""),
        ("I look.", "all of it", "\nall of it"),
    ],
)
def test_only_what_was_not_said_yet_is_said_at_the_end(said: str, whole: str, rest: str) -> None:
    assert skip_printed_text(said, whole) == rest


def test_lines_are_whole_words_that_fit() -> None:
    flow = LineWrapper(lambda: 11)

    lines = [
        *flow.add_text("one two th"),
        *flow.add_text("ree\nfour five si"),
        *flow.add_text("x seven-eleven"),
        *flow.take_last_line(),
    ]

    assert lines == ["one two", "three", "four five", "six", "seven-elev", "en"]


# Being asked


@pytest.fixture
def writer(desk: Desk) -> Desk:
    desk.agent(
        "writer",
        {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}], "delay": 0.5},
        "The end.",
        tools=["Write"],
    )
    return desk


def asked(desk: Desk) -> Terminal:
    """A chat in which the writer has asked for permission."""
    terminal = chat(desk, "writer")
    say(terminal, "go")
    terminal.wait_for("your key>")
    return terminal


def test_a_request_is_answered_in_the_chat_with_a_key(writer: Desk) -> None:
    terminal = asked(writer)
    lines = terminal.lines

    terminal.process.send("\ry")
    terminal.wait_for("The end.")
    terminal.process.sendcontrol("d")

    assert any("writer asks for permission" in line for line in lines)
    assert any("+new" in line for line in lines)
    assert any("[y] once" in line for line in lines)
    assert terminal.end() == 0
    assert (writer.repo / "a.txt").read_text() == "new\n"


def test_a_sentence_decides_nothing_in_the_chat(writer: Desk) -> None:
    terminal = asked(writer)

    terminal.process.send("tell me why\r")
    terminal.wait_for("that decides nothing; press Enter, then one of the keys")
    terminal.wait_until(lambda lines: sum("[y] once" in line for line in lines) == 2)
    terminal.wait_for("your key>")
    terminal.process.send("a")

    terminal.wait_for("writer>")
    terminal.process.sendcontrol("d")
    terminal.end()
    assert not (writer.repo / "a.txt").exists()


def test_a_request_is_refused_with_a_reason(writer: Desk) -> None:
    terminal = asked(writer)

    terminal.process.send("n")
    terminal.wait_for("Why not?")
    say(terminal, "not now")
    terminal.wait_for("The end.")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0
    assert not (writer.repo / "a.txt").exists()
    assert "not now" in writer.podium("logs", writer.run_id()).stdout
    assert "not now" not in (writer.home / "chat_history").read_text()


def test_no_key_of_a_line_that_is_being_typed_decides_anything(writer: Desk) -> None:
    terminal = chat(writer, "writer")
    say(terminal, "go")
    terminal.process.send("yes")

    terminal.wait_for("[y] once")
    terminal.wait_for("send or clear this line first")
    terminal.process.send("y\r")
    terminal.wait_for("> yesy")
    terminal.wait_for("your key>")
    terminal.process.send("a")

    terminal.wait_for("writer>")
    terminal.process.sendcontrol("d")
    terminal.end()
    assert not (writer.repo / "a.txt").exists()


def test_an_answer_from_elsewhere_is_told(writer: Desk) -> None:
    terminal = asked(writer)
    id = next(line.split("(")[1].split(")")[0] for line in terminal.lines if "asks for permission" in line)

    assert writer.podium("approve", id).returncode == 0

    terminal.wait_for(f"{id} was answered by")
    terminal.wait_for("The end.")
    terminal.process.sendcontrol("d")
    assert terminal.end() == 0
    assert (writer.repo / "a.txt").exists()


def test_a_request_that_is_left_open_can_be_answered_later(writer: Desk) -> None:
    terminal = asked(writer)

    terminal.process.sendcontrol("c")
    lines = terminal.wait_for("is left open")
    id = next(line.split()[0] for line in lines if "is left open" in line)
    say(terminal, f"/deny {id} no need for it")
    terminal.wait_for("The end.")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0
    assert "no need for it" in writer.podium("logs", writer.run_id()).stdout


@pytest.fixture
def staffed(poet: Desk) -> Iterator[Desk]:
    """A repository with a commit, a worker that writes a file, and nobody left at work in the end."""
    poet.agent(
        "worker",
        {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}]},
        "The end.",
        tools=["Write"],
    )
    (poet.repo / ".git").rmdir()
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.com")
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "begin"]):
        subprocess.run(["git", *arguments], cwd=poet.repo, check=True)
    yield poet
    for run in poet.runs():
        if not isinstance(run.last.event, RunEnded):
            poet.podium("stop", run.id)


def test_a_worker_is_sent_and_answered_in_the_chat(staffed: Desk) -> None:
    terminal = chat(staffed, "poet")

    say(terminal, "/delegate feat/a write it")
    terminal.wait_for("feat/a: a worker is on it")
    terminal.wait_for("worker on feat/a asks for permission")
    terminal.wait_for("your key>")
    listed = staffed.podium("approvals").stdout
    terminal.process.send("y")
    terminal.wait_for("once.")
    assert f"worker on feat/a in {staffed.run_id()}: write_file a.txt" in listed

    assert staffed.podium("logs", staffed.run_id(), "-f").returncode == 0
    shown = subprocess.run(["git", "show", "feat/a:a.txt"], cwd=staffed.repo, capture_output=True, text=True)
    assert shown.stdout == "new\n"
    say(terminal, "/worktrees")
    terminal.wait_for("feat/a ")
    terminal.process.sendcontrol("d")
    assert terminal.end() == 0


def test_delegating_takes_options_and_a_wrong_one_is_told_of(staffed: Desk) -> None:
    terminal = chat(staffed, "poet")

    say(terminal, '/delegate feat/a "write it" --rool tests')
    terminal.wait_for("--rool")
    say(terminal, "/delegate --help")
    terminal.wait_for("--auto-approve TOOL")
    say(terminal, '/delegate feat/a "write it" --auto-approve Write --role tests')
    terminal.wait_for("feat/a: a worker is on it")
    say(terminal, "/delegate feat/b and don't stop --after feat/a --read-only")
    terminal.wait_for("feat/b: a worker is on it")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0
    second, first = [run.first.event for run in staffed.runs()]
    assert isinstance(first, RunStarted)
    assert isinstance(second, RunStarted)
    assert (first.request.text, second.request.text) == ("write it", "and don't stop")
    assert first.errand is not None
    assert second.errand is not None
    assert (first.errand.role, len(second.errand.after), second.errand.is_reader) == ("tests", 1, True)


def test_a_worker_is_cancelled_in_the_chat(staffed: Desk) -> None:
    staffed.agent("worker", SLOW)
    terminal = chat(staffed, "poet")
    say(terminal, "/delegate feat/a write it")
    terminal.wait_for("feat/a: a worker is on it")

    say(terminal, "/workers cancel feat/a")
    terminal.wait_for("feat/a has ended (cancelled)")
    say(terminal, "/workers cancel feat/a")
    terminal.wait_for("feat/a is over already")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0


def test_an_answer_to_a_worker_from_elsewhere_is_told(staffed: Desk) -> None:
    terminal = chat(staffed, "poet")
    say(terminal, "/delegate feat/a write it")
    lines = terminal.wait_for("your key>")
    id = next(line.split("(")[1].split(")")[0] for line in lines if "asks for permission" in line)

    assert staffed.podium("deny", id, "--why", "not now").returncode == 0

    terminal.wait_for(f"{id} was answered by")
    terminal.wait_for("poet>")
    terminal.process.sendcontrol("d")
    assert terminal.end() == 0


# Slash commands


def test_help_lists_the_slash_commands(poet: Desk) -> None:
    terminal = chat(poet, "poet")

    say(terminal, "/help")
    lines = terminal.wait_for("/quit")

    assert any(line.split()[:1] == ["/delegate"] for line in lines)
    terminal.process.sendcontrol("d")
    assert terminal.end() == 0


def test_looking_around_says_what_the_commands_say(poet: Desk) -> None:
    terminal = chat(poet, "poet")
    say(terminal, "write a poem")
    terminal.wait_for("a poem about rain")

    say(terminal, "/status")
    terminal.wait_for(poet.run_id())
    say(terminal, "/cost")
    terminal.wait_for("this chat: 1 run, 1 model call")
    terminal.wait_for("sum of 1 run")
    say(terminal, "/team pr-review")
    terminal.wait_for("mode")
    say(terminal, "/statsu")
    terminal.wait_for("did you mean /status?")
    say(terminal, "/workers wait")
    terminal.wait_for("would keep the chat waiting")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0


def test_another_agent_goes_on_with_the_conversation_until_it_is_cleared(poet: Desk) -> None:
    poet.agent("critic", "unused", "a fine poem", "what poem?")
    terminal = chat(poet, "poet")
    say(terminal, "write a poem")
    terminal.wait_for("a poem about rain")

    say(terminal, "/agent critic")
    terminal.wait_for("critic>")
    say(terminal, "well?")
    terminal.wait_for("a fine poem")
    say(terminal, "/clear")
    terminal.wait_for("is forgotten")
    say(terminal, "well?")
    terminal.wait_for("unused")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0


def test_a_tab_completes_commands_and_agents(poet: Desk) -> None:
    terminal = chat(poet, "poet")

    terminal.process.send("/ag\t")
    terminal.wait_for("poet> /agent")
    terminal.process.send(" poe\t")
    terminal.wait_for("poet> /agent poet")
    terminal.process.send("\r")
    terminal.wait_for("poet goes on")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0


def test_what_was_said_is_kept_for_the_next_chat_and_for_nobody_else(poet: Desk) -> None:
    first = chat(poet, "poet")
    say(first, "write a poem")
    first.wait_for("a poem about rain")
    first.process.sendcontrol("d")
    first.end()

    second = chat(poet, "poet")
    second.process.send("\x1b[A")
    second.wait_for("poet> write a poem")

    assert (poet.home / "chat_history").stat().st_mode & 0o777 == 0o600
    second.process.sendcontrol("c")
    second.wait_for("Ctrl-C again")
    second.process.sendcontrol("d")
    assert second.end() == 0


# Terminals


def test_plain_lines_are_enough(writer: Desk) -> None:
    terminal = chat(writer, "writer", kind="dumb")

    say(terminal, "go")
    terminal.wait_for("[y] once")
    say(terminal, "")
    say(terminal, "y")
    terminal.wait_for("The end.")
    say(terminal, "/help")
    terminal.wait_for("/quit")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0
    assert (writer.repo / "a.txt").exists()


def test_ctrl_c_stops_a_turn_in_plain_lines(desk: Desk) -> None:
    desk.agent("poet", SLOW)
    terminal = chat(desk, "poet", kind="dumb")
    say(terminal, "write a poem")
    terminal.wait_for("(poet thinks)")

    terminal.process.sendintr()
    terminal.wait_for("  stopped")
    terminal.process.sendintr()
    terminal.wait_for("Ctrl-C again")
    terminal.process.sendintr()

    assert terminal.end() == 130


def test_a_narrow_and_low_terminal_is_enough(desk: Desk) -> None:
    desk.agent("poet", "so many words that they do not fit on one line of this terminal")
    terminal = Terminal(desk, "chat", "poet", rows=9, columns=30)
    terminal.wait_for("poet>")

    say(terminal, "go")
    terminal.wait_for("not fit on one line of this")
    terminal.process.sendcontrol("d")

    assert terminal.end() == 0
