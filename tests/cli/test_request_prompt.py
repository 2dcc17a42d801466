"""Agents' requests, prompted for in a real terminal."""

from __future__ import annotations

import getpass
import json

import anyio
import pytest

from podium import Agent
from podium.cli.output.request_prompt import RequestPrompter, format_permission_request
from podium.cli.output.run_display import SilentView
from podium.core.timeline import Timeline
from podium.store.request_list import find_posted_answer
from podium.store.run_store import RunStore
from podium.values.action import Action, RiskFact
from podium.values.event import Entry, PermissionAnswered, PermissionAsked, RunStarted
from podium.values.request import Request

from ..studio import Studio
from .conftest import Desk
from .test_terminal import Terminal

EVIL = "echo \x1b[2J\x1b[1;1Hls \u202eoops\u202c; touch evil.txt"


@pytest.fixture
def writer(desk: Desk) -> Desk:
    desk.write_agent(
        "writer",
        {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}]},
        {"says": "The end."},
        tools=["Write"],
    )
    return desk


def test_a_person_sees_the_whole_action_and_allows_it_with_a_key(writer: Desk) -> None:
    terminal = Terminal(writer, "run", "writer", "go")

    lines = terminal.wait_for("[y] once")

    assert any("writer asks for permission" in line and "write_file" in line for line in lines)
    assert any("path: a.txt" in line for line in lines)
    assert any("+new" in line for line in lines)
    assert not any("no changes:" in line for line in lines)
    terminal.process.send("y")
    assert terminal.wait_exit() == 0
    assert (writer.repo / "a.txt").read_text() == "new\n"
    assert f"allowed (once) by {getpass.getuser()} (terminal)" in writer.invoke("logs", writer.run_id()).stdout


def test_ctrl_c_at_a_request_interrupts_the_run_and_leaves_it_open(writer: Desk) -> None:
    terminal = Terminal(writer, "run", "writer", "go", rows=60)
    terminal.wait_for("[?] help")

    terminal.process.sendintr()

    assert terminal.wait_exit() == 130
    assert any(line.endswith(f"podium resume {writer.run_id()}") for line in terminal.lines)
    assert "write_file" in writer.run_podium("approvals").stdout


def test_enter_and_arrows_decide_nothing(writer: Desk) -> None:
    terminal = Terminal(writer, "run", "writer", "go")
    terminal.wait_for("[y] once")

    terminal.process.send("\r")
    terminal.process.send("\x1b[A")
    terminal.process.send("n")
    terminal.wait_for("Reason for the agent")
    terminal.process.send("not now\r")

    assert terminal.wait_exit() == 0
    assert not (writer.repo / "a.txt").exists()


def test_a_write_that_changes_nothing_is_shown_as_such(writer: Desk) -> None:
    (writer.repo / "a.txt").write_text("new\n")
    terminal = Terminal(writer, "run", "writer", "go")

    lines = terminal.wait_for("[y] once")
    terminal.process.send("a")
    terminal.wait_exit()

    assert any("no changes: a.txt would stay the same" in line for line in lines)


def test_esc_leaves_the_request_open(writer: Desk) -> None:
    terminal = Terminal(writer, "run", "writer", "go")
    terminal.wait_for("[y] once")

    terminal.process.send("\x1b")
    terminal.wait_for("stays open; see podium approvals.")
    [left] = json.loads(writer.invoke("approvals", "--json").stdout)["waiting"]
    writer.invoke("approve", left["id"])

    assert terminal.wait_exit() == 0
    assert (writer.repo / "a.txt").exists()


@pytest.mark.parametrize(
    "pieces",
    [
        ["\x1b[A"],
        ["\x1b", "[", "A"],
        ["\x1b[121;5u"],  # Ctrl-Y, as some terminals send it
        *(
            pytest.param([sequence], marks=pytest.mark.slow)
            for sequence in (
                "\x1bOA",
                "\x1by",
                "\x1b[1;5A",
                "\x1b[I",  # the terminal window has the focus again
                "\x1b[27;5;121~",  # Ctrl-Y, as other terminals send it
                "\x1b[?1;2c",  # a terminal describes itself
            )
        ),
    ],
)
def test_no_piece_of_a_sequence_is_a_key(writer: Desk, pieces: list[str]) -> None:
    terminal = Terminal(writer, "run", "writer", "go")
    terminal.wait_for("[y] once")

    for piece in pieces:
        terminal.process.send(piece)
    terminal.process.send("n")
    terminal.wait_for("Reason for the agent")
    terminal.process.send("not now\r")

    assert terminal.wait_exit() == 0
    assert not any("stays open" in line for line in terminal.lines)


def test_a_question_mark_shows_what_each_key_does(writer: Desk) -> None:
    terminal = Terminal(writer, "run", "writer", "go", rows=60)
    terminal.wait_for("[?] help")

    terminal.process.send("?y")  # the second key comes before the help can be read, so it does not decide
    lines = terminal.wait_for("Esc  leave it open")
    terminal.wait_until(lambda lines: sum("[y] once" in line for line in lines) == 2)
    assert not (writer.repo / "a.txt").exists()
    terminal.process.send("y")

    shown = "\n".join(lines)
    assert all(f"  {key}    " in shown for key in "yrnxas")
    assert "Esc  leave it open" in shown
    assert terminal.wait_exit() == 0


@pytest.mark.parametrize(
    ("sandbox", "told"),
    [
        ("", "sandbox: not used for this tool"),
        ("none", "sandbox: none: the command has all your permissions and network access"),
        ("missing", "sandbox: not available on this machine"),
        ("workspace", "sandbox: workspace: can write only in the checkout; no network access"),
        ("read-only", "sandbox: read-only: cannot write anything; no network access"),
    ],
)
def test_a_request_shows_its_sandbox_and_a_long_wait(sandbox: str, told: str) -> None:
    action = Action(run="r", agent="law", tool="bash", sandbox=sandbox)
    asked = PermissionAsked(id="5f0c", action=action, reason="no rule")
    entry = Entry(run="r", seq=1, at=100.0, operation="law", scope="law", event=asked)

    soon, late = format_permission_request(entry, asked, now=102.0), format_permission_request(entry, asked, now=112.0)

    assert told in soon
    assert "waiting" not in soon
    assert "law asks for permission (5f0c), waiting 12s: bash" in late


def test_the_prompt_shows_what_is_risky_about_the_action() -> None:
    action = Action(run="r", agent="law", tool="bash", arguments={"command": "curl example.com"})
    risks = (RiskFact(kind="network", examples=("example.com",)),)
    asked = PermissionAsked(id="5f0c", action=action, reason="no rule", risks=risks)
    entry = Entry(run="r", seq=1, at=100.0, operation="law", scope="law", event=asked)

    shown = format_permission_request(entry, asked, now=102.0)

    assert shown.splitlines()[-1] == "  risk: uses the network: example.com"


def test_always_shows_what_the_rule_allows_and_does_not_before_it_is_saved(desk: Desk) -> None:
    call = {"calls": [{"name": "bash", "arguments": {"command": "pytest -q tests"}}]}
    desk.write_agent("sly", call, "The end.", tools=["Bash"])
    terminal = Terminal(desk, "run", "sly", "go", rows=60, columns=120)
    terminal.wait_for("[y] once")

    terminal.process.send("p")
    lines = terminal.wait_for("[y] save the rule and allow this action")
    terminal.process.send("n")
    terminal.wait_until(lambda shown: sum("[y] once" in line for line in shown) == 2)
    assert not (desk.home / "allowed.json").exists()
    terminal.process.send("p")
    terminal.wait_until(lambda shown: sum("[y] save the rule" in line for line in shown) == 2)
    terminal.process.send("y")

    assert terminal.wait_exit() == 0
    rule, allows, not_allows = (
        next(number for number, line in enumerate(lines) if words in line)
        for words in ("Save the rule Bash(pytest", "It allows, for example:", "It does not allow, for example:")
    )
    assert rule < allows < not_allows
    assert 1 <= not_allows - allows - 1 <= 3
    assert any("pytest -q tests && rm -rf build" in line for line in lines[not_allows:])
    assert "Bash(pytest" in (desk.home / "allowed.json").read_text()


class Typist:
    """A person who presses these keys and no others."""

    def __init__(self, keys: str) -> None:
        self._keys = list(keys)

    def discard_input(self) -> None: ...

    async def discard_line(self) -> None: ...

    async def read_key(self) -> str:
        if not self._keys:
            await anyio.sleep_forever()
        return self._keys.pop(0)

    async def read_line(self) -> str:
        return ""


async def test_a_skipped_request_comes_back_after_the_others_and_is_left_open_when_there_are_none(
    studio: Studio,
) -> None:
    told: list[str] = []
    left_open = anyio.Event()

    def tell(text: str) -> None:
        told.append(text)
        if "stays open" in text:
            left_open.set()

    home, store = studio.settings.home, studio.settings.store
    asking = RequestPrompter(SilentView(), Typist("sys"), home=home, store=store, tell=tell)
    async with RunStore(store) as runs:
        timeline = Timeline("r", runs.begin_run("r"))
        timeline.append(
            RunStarted(agent="writer", request=Request(text="go"), agents=(Agent(name="writer"),)), scope=""
        )
        for id in ("1st", "2nd"):
            action = Action(run="r", agent="writer", tool="write_file", arguments={"path": f"{id}.txt"})
            asked = PermissionAsked(id=id, action=action, reason="no rule allows it")
            asking.handle_entry(timeline.append(asked, scope="writer", operation="writer"))
        await timeline.wait_written()

    async with anyio.create_task_group() as group:
        group.start_soon(asking.serve_requests)
        await left_open.wait()
        group.cancel_scope.cancel()

    requests = [text for text in told if "asks for permission" in text]
    assert ["1st" in text for text in requests] == [True, False, True]
    assert ["[1 more request after this one]" in text for text in requests] == [True, True, False]
    answered = find_posted_answer(store, "2nd")
    assert isinstance(answered, PermissionAnswered)
    assert (answered.decision, answered.by, answered.channel) == ("once", getpass.getuser(), "terminal")
    assert find_posted_answer(store, "1st") is None
    assert told[-1] == "1st stays open; see podium approvals."


@pytest.mark.parametrize("pieces", [["tell me why\r"], ["t", "ell me wh", "y", "\r"], ["q", "y", "\r"]])
def test_a_sentence_decides_nothing_whatever_keys_are_in_it(writer: Desk, pieces: list[str]) -> None:
    terminal = Terminal(writer, "run", "writer", "go")
    terminal.wait_for("[y] once")

    for piece in pieces:
        terminal.process.send(piece)
    terminal.wait_for("that key is not an answer and is ignored")
    terminal.wait_until(lambda lines: sum("[y] once" in line for line in lines) == 2)
    terminal.process.send("a")

    assert terminal.wait_exit() == 4
    assert not (writer.repo / "a.txt").exists()


def test_a_key_that_is_no_answer_is_ignored_and_the_next_key_counts(writer: Desk) -> None:
    terminal = Terminal(writer, "run", "writer", "go")
    terminal.wait_for("[y] once")

    terminal.process.send("q")
    terminal.wait_until(lambda lines: sum("[y] once" in line for line in lines) == 2)
    terminal.process.send("n")
    terminal.wait_for("Reason for the agent")
    terminal.process.send("\r")

    assert terminal.wait_exit() == 0
    assert any("that key is not an answer and is ignored" in line for line in terminal.lines)
    assert not (writer.repo / "a.txt").exists()


def test_keys_typed_before_the_question_do_not_count(writer: Desk) -> None:
    writer.write_agent(
        "writer",
        {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}], "delay": 1.0},
        "The end.",
        tools=["Write"],
    )
    terminal = Terminal(writer, "run", "writer", "go")
    terminal.wait_for("thinking")

    terminal.process.send("yyyy")
    terminal.wait_for("[y] once")
    terminal.process.send("a")

    assert terminal.wait_exit() == 4
    assert not (writer.repo / "a.txt").exists()


def test_nothing_in_a_command_acts_on_the_terminal(desk: Desk) -> None:
    desk.write_agent("sly", {"calls": [{"name": "bash", "arguments": {"command": EVIL}}]}, "The end.", tools=["Bash"])
    terminal = Terminal(desk, "run", "sly", "go", columns=120)

    lines = terminal.wait_for("[y] once")

    shown = "".join(lines)
    assert "sly asks for permission" in shown
    assert "\\x1b[2J\\x1b[1;1Hls \\u202eoops\\u202c; touch evil.txt" in shown
    terminal.process.send("n")
    terminal.wait_for("Reason for the agent")
    terminal.process.send("\r")
    terminal.wait_exit()
    assert not (desk.repo / "evil.txt").exists()


def test_a_question_is_answered_by_the_number_of_a_choice(desk: Desk) -> None:
    desk.write_agent(
        "asker",
        {"calls": [{"name": "ask_person", "arguments": {"question": "Which one?", "choices": ["red", "blue"]}}]},
        "The end.",
        tools=["ask_person"],
    )
    terminal = Terminal(desk, "run", "asker", "go")
    terminal.wait_for("Your answer:")

    terminal.process.send("3\r")
    lines = terminal.wait_for("'3' is not one of the choices for ")
    assert any("; choose from 1 (red), 2 (blue)" in line for line in lines)
    terminal.process.send("2\r")

    assert terminal.wait_exit() == 0
    assert f'answered by {getpass.getuser()} (terminal): "blue"' in desk.run_podium("logs", desk.run_id()).stdout


def test_without_a_terminal_it_is_refused(writer: Desk) -> None:
    done = writer.run_podium("run", "writer", "go")

    assert done.returncode == 0
    assert "denied by podium (unattended): " in done.stderr
    assert not (writer.repo / "a.txt").exists()


def test_the_length_of_a_long_command_is_shown(desk: Desk) -> None:
    long = "make " + "x" * 300
    desk.write_agent(
        "talker", {"calls": [{"name": "bash", "arguments": {"command": long}}]}, "The end.", tools=["Bash"]
    )
    terminal = Terminal(desk, "run", "talker", "go")

    lines = terminal.wait_for("[y] once")

    assert any("command (305 characters): make xxx" in line for line in lines)
    terminal.process.send("a")
    terminal.wait_exit()
