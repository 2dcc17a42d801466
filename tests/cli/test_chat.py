"""Chatting with an agent in a real terminal."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Iterator

import pytest

from podium.cli.chat.chat_output import skip_printed_text
from podium.cli.chat.reply_printer import LineWrapper
from podium.testing import make_repository
from podium.values.event import RunEnded, RunStarted

from .conftest import SLOW, Desk
from .test_terminal import Terminal


def start_chat(desk: Desk, agent: str, *, kind: str = "xterm-256color") -> Terminal:
    """Start a chat, and wait until it is ready for the first line."""
    terminal = Terminal(desk, "chat", agent, TERM=kind)
    terminal.wait_for(f"{agent}>")
    return terminal


def send_line(terminal: Terminal, line: str) -> None:
    terminal.process.send(f"{line}\r")


def list_requests(desk: Desk) -> list[str]:
    """Return the requests of all runs, the newest first."""
    started = [run.first.event for run in desk.runs()]
    return [event.request.text for event in started if isinstance(event, RunStarted)]


@pytest.fixture
def poet(desk: Desk) -> Desk:
    desk.write_agent("poet", "a poem about rain", "a shorter poem", "the shortest poem")
    return desk


def test_a_conversation_goes_on_from_line_to_line(poet: Desk) -> None:
    terminal = start_chat(poet, "poet")

    send_line(terminal, "write a poem")
    terminal.wait_for("a poem about rain")
    send_line(terminal, "shorter")
    terminal.wait_for("a shorter poem")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert "> write a poem" in terminal.lines
    assert list_requests(poet) == ["shorter", "write a poem"]


def test_podium_alone_on_a_terminal_is_a_chat(desk: Desk) -> None:
    terminal = Terminal(desk)

    terminal.wait_for("answer>")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0


def test_without_a_terminal_there_is_no_chat(poet: Desk) -> None:
    done = poet.run_podium("chat", "poet", input="hello\n")

    assert done.returncode == 2
    assert (
        done.stderr
        == "podium: podium chat needs a terminal for input and output; use podium run poet REQUEST instead\n"
    )


def test_a_reply_is_shown_while_it_is_streamed(desk: Desk) -> None:
    desk.write_agent("slow", {"says": "one two three four five six", "pieces": 6, "pace": 0.3})
    terminal = start_chat(desk, "slow")

    send_line(terminal, "count")
    lines = terminal.wait_for("one two")

    assert not any("six" in line for line in lines)
    terminal.wait_for("one two three four five six")
    terminal.process.sendcontrol("d")
    assert terminal.wait_exit() == 0


def test_nothing_that_an_agent_says_acts_on_the_terminal(desk: Desk) -> None:
    desk.write_agent("sly", "all \x1b[2Jgone \u202eoops\u202c")
    terminal = start_chat(desk, "sly")

    send_line(terminal, "hello")
    lines = terminal.wait_for("gone")

    assert any("all \\x1b[2Jgone \\u202eoops\\u202c" in line for line in lines)
    terminal.process.sendcontrol("d")
    assert terminal.wait_exit() == 0


def test_ctrl_c_stops_the_turn_and_the_conversation_goes_on(desk: Desk) -> None:
    desk.write_agent("poet", SLOW, "There once was a cat")
    terminal = start_chat(desk, "poet")
    send_line(terminal, "write a poem")
    terminal.wait_for("(poet is thinking")

    terminal.process.sendcontrol("c")
    terminal.wait_for("  stopped")
    send_line(terminal, "rather a limerick")
    terminal.wait_for("There once was a cat")
    terminal.wait_for("1 model call")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert [getattr(run.last.event, "outcome", "") for run in desk.runs()] == ["succeeded", "cancelled"]


def test_ctrl_c_puts_a_line_that_no_agent_has_received_back_into_the_input(desk: Desk) -> None:
    desk.write_agent("poet", SLOW, "There once was a cat")
    terminal = start_chat(desk, "poet")
    send_line(terminal, "write a poem")
    terminal.wait_for("(poet is thinking")
    send_line(terminal, "in two lines")
    terminal.wait_for("the agent will receive your message at its next step")

    terminal.process.sendcontrol("c")
    terminal.wait_for("poet> in two lines")
    send_line(terminal, " at most")
    terminal.wait_for("There once was a cat")
    terminal.wait_for("1 model call")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert list_requests(desk) == ["in two lines at most", "write a poem"]


def test_ctrl_c_during_a_turn_keeps_the_line_that_is_being_typed(desk: Desk) -> None:
    desk.write_agent("poet", SLOW, "There once was a cat")
    terminal = start_chat(desk, "poet")
    send_line(terminal, "write a poem")
    terminal.wait_for("(poet is thinking")
    send_line(terminal, "shorter,")
    terminal.wait_for("the agent will receive your message at its next step")
    terminal.process.send("and with a cat")
    terminal.wait_for("poet> and with a cat")

    terminal.process.sendcontrol("c")
    terminal.wait_for("poet> shorter, and with a cat")
    terminal.process.sendcontrol("c")
    lines = terminal.wait_for("Ctrl-C again or Ctrl-D")
    terminal.wait_until(lambda lines: "poet>" in lines)
    terminal.process.sendcontrol("c")

    assert "  stopped" in lines
    assert terminal.wait_exit() == 130
    assert list_requests(desk) == ["write a poem"]


def test_a_second_ctrl_c_leaves(poet: Desk) -> None:
    terminal = start_chat(poet, "poet")

    terminal.process.sendcontrol("c")
    terminal.wait_for("Ctrl-C again")
    terminal.process.sendcontrol("c")

    assert terminal.wait_exit() == 130


def test_leaving_in_the_middle_leaves_a_run_that_can_be_resumed(desk: Desk) -> None:
    desk.write_agent("poet", SLOW)
    terminal = start_chat(desk, "poet")
    send_line(terminal, "write a poem")
    terminal.wait_for("(poet is thinking")

    send_line(terminal, "/quit")

    assert terminal.wait_exit() == 0
    assert any(f"podium resume {desk.run_id()}" in line for line in terminal.lines)


def test_a_line_sent_during_a_turn_is_delivered_at_the_next_step(desk: Desk) -> None:
    desk.write_agent(
        "reader",
        {"calls": [{"name": "read_file", "arguments": {"path": "a.txt"}}], "delay": 6.0},
        "done",
        tools=["Read"],
    )
    (desk.repo / "a.txt").write_text("x\n")
    terminal = start_chat(desk, "reader")
    send_line(terminal, "read it")
    terminal.wait_for("(reader is thinking")

    send_line(terminal, "and mind the end")
    terminal.wait_for("the agent will receive your message at its next step")
    terminal.wait_for("done")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert len(desk.runs()) == 1
    assert "messages_delivered" in desk.kinds(desk.run_id())


def test_an_undelivered_line_becomes_the_next_request(desk: Desk) -> None:
    desk.write_agent("poet", {"says": "a poem", "delay": 1.0}, "a shorter poem")
    terminal = start_chat(desk, "poet")
    send_line(terminal, "write a poem")
    terminal.wait_for("(poet is thinking")

    send_line(terminal, "shorter")
    terminal.wait_for("a shorter poem")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert list_requests(desk) == ["shorter", "write a poem"]


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
def test_only_text_that_was_not_printed_yet_is_printed_at_the_end(said: str, whole: str, rest: str) -> None:
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


def test_lines_of_wide_characters_fit_too() -> None:
    wrapper = LineWrapper(lambda: 11)

    assert wrapper.add_text("日本語 です日本語です日本語\n") == ["日本語", "です日本語", "です日本語"]


# Requests


@pytest.fixture
def writer(desk: Desk) -> Desk:
    desk.write_agent(
        "writer",
        {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}], "delay": 0.5},
        "The end.",
        tools=["Write"],
    )
    return desk


def start_chat_with_request(desk: Desk) -> Terminal:
    """Start a chat in which the writer has asked for permission."""
    terminal = start_chat(desk, "writer")
    send_line(terminal, "go")
    terminal.wait_for("your key>")
    return terminal


def test_a_request_is_answered_in_the_chat_with_a_key(writer: Desk) -> None:
    terminal = start_chat_with_request(writer)
    lines = terminal.lines

    terminal.process.send("\ry")
    terminal.wait_for("The end.")
    terminal.process.sendcontrol("d")

    assert any("writer asks for permission" in line for line in lines)
    assert any("+new" in line for line in lines)
    assert any("[y] once" in line for line in lines)
    assert f"allowed (once) by {getpass.getuser()} (chat)" in writer.run_podium("logs", writer.run_id()).stdout
    assert terminal.wait_exit() == 0
    assert (writer.repo / "a.txt").read_text() == "new\n"


def test_a_sentence_decides_nothing_in_the_chat(writer: Desk) -> None:
    terminal = start_chat_with_request(writer)

    terminal.process.send("tell me why\r")
    terminal.wait_for("that key is not an answer and is ignored")
    terminal.wait_until(lambda lines: sum("[y] once" in line for line in lines) == 2)
    terminal.wait_for("your key>")
    terminal.process.send("a")

    terminal.wait_for("writer>")
    terminal.process.sendcontrol("d")
    terminal.wait_exit()
    assert not (writer.repo / "a.txt").exists()


def test_a_request_is_refused_with_a_reason(writer: Desk) -> None:
    terminal = start_chat_with_request(writer)

    terminal.process.send("n")
    terminal.wait_for("Reason for the agent")
    send_line(terminal, "not now")
    terminal.wait_for("The end.")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert not (writer.repo / "a.txt").exists()
    assert "not now" in writer.run_podium("logs", writer.run_id()).stdout
    assert "not now" not in (writer.home / "chat_history").read_text()


def test_no_key_of_a_line_that_is_being_typed_decides_anything(writer: Desk) -> None:
    terminal = start_chat(writer, "writer")
    send_line(terminal, "go")
    terminal.process.send("yes")

    terminal.wait_for("[y] once")
    terminal.wait_for("send or clear this line first")
    terminal.process.send("y\r")
    terminal.wait_for("> yesy")
    terminal.wait_for("your key>")
    terminal.process.send("a")

    terminal.wait_for("writer>")
    terminal.process.sendcontrol("d")
    terminal.wait_exit()
    assert not (writer.repo / "a.txt").exists()


def test_an_answer_from_another_process_is_shown(writer: Desk) -> None:
    terminal = start_chat_with_request(writer)
    id = next(line.split("(")[1].split(")")[0] for line in terminal.lines if "asks for permission" in line)

    assert writer.run_podium("approve", id).returncode == 0

    terminal.wait_for(f"{id} was answered by {getpass.getuser()} (command)")
    terminal.wait_for("The end.")
    terminal.process.sendcontrol("d")
    assert terminal.wait_exit() == 0
    assert (writer.repo / "a.txt").exists()


def test_a_request_that_is_left_open_can_be_answered_later(writer: Desk) -> None:
    terminal = start_chat_with_request(writer)

    terminal.process.sendcontrol("c")
    lines = terminal.wait_for("stays open")
    id = next(line.split()[0] for line in lines if "stays open" in line)
    send_line(terminal, f"/deny {id} no need for it")
    terminal.wait_for("The end.")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert "no need for it" in writer.run_podium("logs", writer.run_id()).stdout


@pytest.fixture
def worker_desk(poet: Desk) -> Iterator[Desk]:
    """Make a repository with a commit and an agent that writes a file; wait at the end until no worker is running."""
    poet.write_agent(
        "worker",
        {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}]},
        "The end.",
        tools=["Write"],
    )
    make_repository(poet.repo, {}, message="begin")
    yield poet
    for run in poet.runs():
        if not isinstance(run.last.event, RunEnded):
            poet.run_podium("stop", run.id)


def test_a_worker_is_started_and_its_request_answered_in_the_chat(worker_desk: Desk) -> None:
    terminal = start_chat(worker_desk, "poet")

    send_line(terminal, "/delegate feat/a write it")
    terminal.wait_for("feat/a: delegated to a worker")
    terminal.wait_for("worker on feat/a asks for permission")
    terminal.wait_for("your key>")
    listed = worker_desk.run_podium("approvals").stdout
    terminal.process.send("y")
    terminal.wait_for("once.")
    assert f"worker on feat/a in {worker_desk.run_id()}: write_file a.txt" in listed

    assert worker_desk.run_podium("logs", worker_desk.run_id(), "-f").returncode == 0
    shown = subprocess.run(["git", "show", "feat/a:a.txt"], cwd=worker_desk.repo, capture_output=True, text=True)
    assert shown.stdout == "new\n"
    send_line(terminal, "/worktrees")
    terminal.wait_for("feat/a ")
    terminal.process.sendcontrol("d")
    assert terminal.wait_exit() == 0


@pytest.mark.slow
def test_delegate_takes_options_and_reports_an_unknown_one(worker_desk: Desk) -> None:
    terminal = start_chat(worker_desk, "poet")

    send_line(terminal, '/delegate feat/a "write it" --rool tests')
    terminal.wait_for("--rool")
    send_line(terminal, "/delegate --help")
    terminal.wait_for("Print the worker as JSON")
    send_line(terminal, '/delegate feat/a "write it" --auto-approve Write --role tests')
    terminal.wait_for("feat/a: delegated to a worker")
    send_line(terminal, "/delegate feat/b and don't stop --after feat/a --read-only")
    terminal.wait_for("feat/b: delegated to a worker")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    second, first = [run.first.event for run in worker_desk.runs()]
    assert isinstance(first, RunStarted)
    assert isinstance(second, RunStarted)
    assert (first.request.text, second.request.text) == ("write it", "and don't stop")
    assert {(one.by, one.channel) for one in (first, second)} == {(getpass.getuser(), "chat")}
    assert first.errand is not None
    assert second.errand is not None
    assert (first.errand.role, len(second.errand.after), second.errand.is_reader) == ("tests", 1, True)


def test_a_worker_is_cancelled_in_the_chat(worker_desk: Desk) -> None:
    worker_desk.write_agent("worker", SLOW)
    terminal = start_chat(worker_desk, "poet")
    send_line(terminal, "/delegate feat/a write it")
    terminal.wait_for("feat/a: delegated to a worker")

    send_line(terminal, "/workers cancel feat/a")
    terminal.wait_for("feat/a has ended (cancelled)")
    send_line(terminal, "/workers cancel feat/a")
    terminal.wait_for("feat/a has already ended")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0


@pytest.mark.slow
def test_an_answer_to_a_worker_from_another_process_is_shown(worker_desk: Desk) -> None:
    terminal = start_chat(worker_desk, "poet")
    send_line(terminal, "/delegate feat/a write it")
    lines = terminal.wait_for("your key>")
    id = next(line.split("(")[1].split(")")[0] for line in lines if "asks for permission" in line)

    assert worker_desk.run_podium("deny", id, "--why", "not now").returncode == 0

    terminal.wait_for(f"{id} was answered by")
    terminal.wait_for("poet>")
    terminal.process.sendcontrol("d")
    assert terminal.wait_exit() == 0


# Slash commands


def test_help_lists_the_slash_commands(poet: Desk) -> None:
    terminal = start_chat(poet, "poet")

    send_line(terminal, "/help")
    lines = terminal.wait_for("/quit")

    assert any(line.split()[:1] == ["/delegate"] for line in lines)
    terminal.process.sendcontrol("d")
    assert terminal.wait_exit() == 0


def test_slash_commands_print_what_the_podium_commands_print(poet: Desk) -> None:
    terminal = start_chat(poet, "poet")
    send_line(terminal, "write a poem")
    terminal.wait_for("a poem about rain")

    send_line(terminal, "/status")
    terminal.wait_for(poet.run_id())
    send_line(terminal, "/cost")
    terminal.wait_for("this chat: 1 run, 1 model call")
    terminal.wait_for("total of 1 run")
    send_line(terminal, "/team pr-review")
    terminal.wait_for("mode")
    send_line(terminal, "/statsu")
    terminal.wait_for("did you mean /status?")
    send_line(terminal, "/workers wait")
    terminal.wait_for("would block the chat")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0


def test_another_agent_goes_on_with_the_conversation_until_it_is_cleared(poet: Desk) -> None:
    poet.write_agent("critic", "unused", "a fine poem", "what poem?")
    terminal = start_chat(poet, "poet")
    send_line(terminal, "write a poem")
    terminal.wait_for("a poem about rain")

    send_line(terminal, "/agent critic")
    terminal.wait_for("critic>")
    send_line(terminal, "well?")
    terminal.wait_for("a fine poem")
    send_line(terminal, "/clear")
    terminal.wait_for("started a new conversation")
    send_line(terminal, "well?")
    terminal.wait_for("unused")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0


def test_a_tab_completes_commands_and_agents(poet: Desk) -> None:
    terminal = start_chat(poet, "poet")

    terminal.process.send("/ag\t")
    terminal.wait_for("poet> /agent")
    terminal.process.send(" poe\t")
    terminal.wait_for("poet> /agent poet")
    terminal.process.send("\r")
    terminal.wait_for("poet continues")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0


def test_the_history_is_kept_for_the_next_chat_and_readable_only_by_its_owner(poet: Desk) -> None:
    first = start_chat(poet, "poet")
    send_line(first, "write a poem")
    first.wait_for("a poem about rain")
    first.process.sendcontrol("d")
    first.wait_exit()

    second = start_chat(poet, "poet")
    second.process.send("\x1b[A")
    second.wait_for("poet> write a poem")

    assert (poet.home / "chat_history").stat().st_mode & 0o777 == 0o600
    second.process.sendcontrol("c")
    second.wait_for("Ctrl-C again")
    second.process.sendcontrol("d")
    assert second.wait_exit() == 0


# Terminals


def test_plain_lines_are_enough(writer: Desk) -> None:
    terminal = start_chat(writer, "writer", kind="dumb")

    send_line(terminal, "go")
    terminal.wait_for("[y] once")
    send_line(terminal, "")
    send_line(terminal, "y")
    terminal.wait_for("The end.")
    send_line(terminal, "/help")
    terminal.wait_for("/quit")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert (writer.repo / "a.txt").exists()


def test_ctrl_c_stops_a_turn_in_plain_lines(desk: Desk) -> None:
    desk.write_agent("poet", SLOW)
    terminal = start_chat(desk, "poet", kind="dumb")
    send_line(terminal, "write a poem")
    terminal.wait_for("(poet is thinking)")

    terminal.process.sendintr()
    terminal.wait_for("  stopped")
    terminal.process.sendintr()
    terminal.wait_for("Ctrl-C again or Ctrl-D")
    terminal.process.sendintr()

    assert terminal.wait_exit() == 130


def test_ctrl_c_in_plain_lines_names_a_line_that_no_agent_has_received(desk: Desk) -> None:
    desk.write_agent("poet", SLOW)
    terminal = start_chat(desk, "poet", kind="dumb")
    send_line(terminal, "write a poem")
    terminal.wait_for("(poet is thinking)")
    send_line(terminal, "shorter")
    terminal.wait_for("the agent will receive your message at its next step")

    terminal.process.sendintr()
    terminal.wait_for("  not sent: shorter")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert list_requests(desk) == ["write a poem"]


def test_a_narrow_and_low_terminal_is_enough(desk: Desk) -> None:
    desk.write_agent("poet", "so many words that they do not fit on one line of this terminal")
    terminal = Terminal(desk, "chat", "poet", rows=9, columns=30)
    terminal.wait_for("poet>")

    send_line(terminal, "go")
    terminal.wait_for("fit on one line of this")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0


def test_a_chat_in_plain_lines_works_in_a_home_that_does_not_exist_yet(desk: Desk) -> None:
    home = desk.home / "new"
    terminal = Terminal(desk, "chat", "--plain", "answer", PODIUM_HOME=str(home))
    terminal.wait_for("answer>")

    send_line(terminal, "hello")
    terminal.wait_for("[rehearsed]")
    terminal.process.sendcontrol("d")

    assert terminal.wait_exit() == 0
    assert (home / "podium.db").exists()
