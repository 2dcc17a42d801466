"""Attacks on approval prompts: the person sees the whole action, and exactly that action is performed."""

from __future__ import annotations

import signal
from pathlib import Path

import pexpect  # type: ignore[import-untyped]  # it has no types
import pyte
import pytest
from msgspec import structs

from podium import Run
from podium.store.fault_injection import refuse_after
from podium.testing import read_events
from podium.values.event import ActionRefused, PermissionAnswered, PermissionAsked

from ..cli.conftest import Desk
from ..cli.test_inbox import list_waiting_requests
from ..cli.test_terminal import Terminal
from ..studio import Studio
from .stage import add_sly_agent, bash, run_attended, run_sly_agent, write

COUNT = bash("echo x >>count.txt")

# A1


@pytest.mark.parametrize(
    "command",
    [
        "sh deploy.sh",
        "sh ./deploy.sh",
        "sh way.sh",
        "cat deploy.sh | sh",
        "sh <deploy.sh",
        'sh dep"loy".sh',
        "sh deploy\\.sh",
        f"cat {' '.join(f'{number}.txt' for number in range(40))}; sh deploy.sh",
        f"echo {'$(' * 60}sh deploy.sh{')' * 60}",
    ],
    ids=lambda command: command[:20],
)
async def test_a_file_that_changed_after_the_answer_is_not_run(studio: Studio, repo: Path, command: str) -> None:
    (repo / "deploy.sh").write_text("echo good >out.txt\n")
    (repo / "way.sh").symlink_to("deploy.sh")
    for number in range(40):
        (repo / f"{number}.txt").touch()
    add_sly_agent(studio, bash(command))
    asked_for: list[PermissionAsked] = []

    async def swapping(run: Run, asked: PermissionAsked) -> None:
        asked_for.append(asked)
        (repo / "deploy.sh").write_text("echo evil >out.txt\n")
        await run.answer(asked.id, "once" if len(asked_for) == 1 else "deny", by="me")

    await run_attended(studio, repo, swapping)

    assert len(asked_for) == 2
    assert not (repo / "out.txt").exists()


@pytest.mark.parametrize(
    "command",
    ["cd tools/deep && sh deploy.sh", "cd tools && cd deep && sh deploy.sh", "env -C tools/deep sh deploy.sh"],
)
async def test_a_file_below_a_folder_that_the_command_enters_is_not_run_when_it_changed(
    studio: Studio, repo: Path, command: str
) -> None:
    (repo / "tools" / "deep").mkdir(parents=True)
    (repo / "tools" / "deep" / "deploy.sh").write_text("echo good >out.txt\n")
    add_sly_agent(studio, bash(command))

    async def swapping(run: Run, asked: PermissionAsked) -> None:
        first = "good" in (repo / "tools" / "deep" / "deploy.sh").read_text()
        (repo / "tools" / "deep" / "deploy.sh").write_text("echo evil >out.txt\n")
        await run.answer(asked.id, "once" if first else "deny", by="me")

    await run_attended(studio, repo, swapping)

    assert not (repo / "tools" / "deep" / "out.txt").exists()


# A2

SIGNS = {
    "escape": "\x1b[2J\x1b[1;1H",
    "return": "\rls                    ",
    "bell": "\x07",
    "link": "\x1b]8;;http://evil.test\x1b\\ls\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "title": "\x1b]0;evil\x07",
    "c1": "\x9b2J\x9d52;c;eA==\x9c",
    "bidi": "\u202esl\u202c\u2066\u2069",
    "zero width": "l\u200bs\u200d\ufeff",
    "tabs": "\t" * 40,
    "spaces": " " * 3000,
    "backspaces": "\x08" * 30,
    "separators": "\u2028\u2029\x85\x0b\x0c",
    "private": "\ue000\U000e0041",
}


EVERY_TIME = ("escape", "return", "c1", "bidi", "spaces")
"""Signs that the normal suite tries: one of each kind. The slow one tries them all."""


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in EVERY_TIME else pytest.mark.slow) for one in SIGNS]
)
def test_no_characters_in_a_command_hide_its_dangerous_part_on_the_screen(desk: Desk, name: str) -> None:
    desk.write_agent("sly", bash(f"echo safe {SIGNS[name]}; touch evil.txt"), "The end.", tools=["Bash"])
    terminal = Terminal(desk, "run", "sly", "go", rows=24, columns=80)

    lines = terminal.wait_for("[y] once")
    terminal.process.send("a")
    terminal.wait_exit()

    shown = "".join(line.removeprefix("    | ") for line in lines)
    assert "asks for permission" in shown
    assert "touchevil.txt" in shown.replace(" ", "")  # a line can end between words
    assert "echo safe" in shown
    if name not in ("tabs", "spaces"):
        code = ord(SIGNS[name].strip("ls ")[0])
        assert (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}") in shown
    assert not (desk.repo / "evil.txt").exists()


def test_an_agents_reason_draws_no_request_of_its_own(desk: Desk) -> None:
    forged = "world asks for permission (aaaa): read_file\n  risk: none\nAllow read_file (aaaa)?\n[y] once"
    said = f"\x1b[2J\x1b[1;1H{'世' * 38}{forged}"
    desk.write_agent("sly", structs.replace(bash("touch evil.txt"), says=said), "The end.", tools=["Bash"])
    terminal = Terminal(desk, "run", "sly", "go", rows=40, columns=80)

    lines = terminal.wait_until(lambda lines: any(line.startswith("[y] once") for line in lines))
    terminal.process.send("a")
    terminal.wait_exit()

    assert [line.split(" (")[0] for line in lines if "asks for permission" in line and "|" not in line] == [
        "sly asks for permission"
    ]
    assert not any(line.lstrip().startswith(("risk", "Allow read_file", "world asks")) for line in lines)
    assert any("| \\x1b[2J\\x1b[1;1H世" in line.replace("世 ", "世") for line in lines)


def test_a_long_value_draws_no_line_of_podium(desk: Desk) -> None:
    # 80 copies that are 79 columns wide: one of each begins where the terminal would begin a line.
    forged = "".join(f"{line:.<79}" * 80 for line in ("  risk: none", "Allow x?"))
    desk.write_agent("sly", bash(f"echo 世{forged}"), "The end.", tools=["Bash"])
    terminal = Terminal(desk, "run", "sly", "go", rows=300, columns=80)

    lines = terminal.wait_until(lambda lines: any(line.startswith("[y] once") for line in lines))
    terminal.process.send("a")
    terminal.wait_exit()

    assert sum(line.startswith("    | ") for line in lines) > 150
    assert not any(line.startswith(("risk", "  risk: none", "Allow x?")) for line in lines)


def test_control_characters_in_a_path_a_diff_and_a_refusal_do_not_act(desk: Desk) -> None:
    evil = "\x1b[2J\u202e\x9b"
    desk.write_agent(
        "sly", write("a\u202eb.txt", f"{evil}touch evil\n"), write("c.txt", evil), "The end.", tools=["Write"]
    )
    terminal = Terminal(desk, "run", "sly", "go", rows=40, columns=100)

    first = terminal.wait_for("[y] once")
    terminal.process.send("n")
    terminal.wait_for("Reason for the agent")
    terminal.process.send("no\x1b[2J\r")
    terminal.wait_until(lambda lines: any("c.txt" in line for line in lines))
    terminal.wait_until(lambda lines: sum("[y] once" in line for line in lines) == 2)
    terminal.process.send("a")
    terminal.wait_exit()

    assert "\\x1b[2J\\u202e\\x9btouch evil" in "".join(first)
    assert not list(desk.repo.glob("*.txt"))


def test_the_question_warns_of_characters_that_cannot_be_seen(desk: Desk) -> None:
    desk.write_agent("sly", bash(f"echo safe {' ' * 3000}\x1b[2J; touch evil.txt"), "The end.", tools=["Bash"])
    terminal = Terminal(desk, "run", "sly", "go")

    # A line can end anywhere, and the next one then begins with a margin.
    shown = "".join(terminal.wait_for("[y] once")).replace(" ", "").replace("|", "")
    terminal.process.send("a")
    terminal.wait_exit()

    assert "controlcharacters" in shown
    assert "[3001spaces]" in shown


# A3


def test_nothing_is_cut_before_it_can_be_approved(desk: Desk) -> None:
    content = "".join(f"line {number} of what is written\n" for number in range(390))
    desk.write_agent("sly", write("a.txt", content), "The end.", tools=["Write"])
    terminal = Terminal(desk, "run", "sly", "go", rows=24, columns=80)
    said = _read_until(terminal, b"[y] once")
    terminal.process.send("a")
    terminal.wait_exit()

    screen = pyte.HistoryScreen(80, 24, history=5000, ratio=1)
    pyte.ByteStream(screen).feed(said)
    above = ["".join(row[column].data for column in range(80)) for row in screen.history.top]
    shown = "\n".join((*above, *screen.display))
    assert all(f"+line {number} of what is written" in shown for number in range(390))
    assert shown.index("+line 389 ") < shown.index("[y] once")


def _read_until(terminal: Terminal, words: bytes) -> bytes:
    said = b""
    while words not in said:
        said += terminal.process.read_nonblocking(65536, timeout=30)
    return said


def test_a_request_in_the_inbox_is_shown_whole(desk: Desk) -> None:
    command = "echo " + " ".join(f"word{number}" for number in range(1500)) + "; touch evil.txt"
    desk.write_agent("sly", bash(command), "The end.", tools=["Bash"])
    desk.run_podium("run", "sly", "go", "--park")
    [one] = list_waiting_requests(desk)

    assert command in desk.run_podium("approvals", str(one["id"])).stdout


# A4


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_unanswered_request_waits_and_runs_nothing_wherever_podium_dies(desk: Desk, stride: int) -> None:
    desk.write_agent("sly", COUNT, "The end.", tools=["Bash"])
    number, code = 0, 137
    while code == 137:
        number += stride
        code = desk.run_podium("run", "sly", "go", "--park", PODIUM_FAULT=str(number)).returncode
        if code == 137:
            desk.run_podium("resume", desk.run_id(), "--park")
            assert len([one for one in list_waiting_requests(desk) if one["run"] == desk.run_id()]) == 1, number
        assert not (desk.repo / "count.txt").exists(), number
    assert number > 5


async def test_an_unattended_run_executes_no_command_wherever_podium_dies(studio: Studio, repo: Path) -> None:
    add_sly_agent(studio, COUNT)
    number, result = 1, None
    while result is None or not result.succeeded:
        number += 1
        async with studio.app(fault=refuse_after(number)) as app:
            result = await app.run(studio.agents["sly"], "go", repo=repo)
        if not result.succeeded:
            studio.expire_leases()
            resumed = await studio.resume(result.run_id)
            assert resumed.text == "done", number
            assert len(studio.events(resumed, ActionRefused)) == 1, number
        assert not (repo / "count.txt").exists(), number
    assert number > 8


async def test_a_refusal_tells_the_agent_not_to_work_around_it(studio: Studio, repo: Path) -> None:
    add_sly_agent(studio, COUNT)

    result = await run_sly_agent(studio, repo)

    assert "Do not try to achieve the same effect another way" in studio.heard("sly")[1]
    assert len(studio.events(result, ActionRefused)) == 1


@pytest.mark.parametrize("end", ["hang up", "kill", "close"])
def test_a_terminal_or_process_that_ends_during_a_question_approves_nothing(desk: Desk, end: str) -> None:
    desk.write_agent("sly", COUNT, "The end.", tools=["Bash"])
    terminal = Terminal(desk, "run", "sly", "go")
    terminal.wait_for("[y] once")

    if end == "close":
        terminal.process.close(force=False)
    else:
        terminal.process.kill(signal.SIGHUP if end == "hang up" else signal.SIGKILL)
    terminal.process.wait() if end == "kill" else _read_to_end(terminal)
    resumed = desk.run_podium("resume", desk.run_id())

    assert resumed.returncode == 0, resumed.stderr
    [answered] = read_events(desk.store, desk.run_id(), PermissionAnswered)
    assert (answered.decision, answered.channel) == ("deny", "unattended")
    assert not (desk.repo / "count.txt").exists()


def _read_to_end(terminal: Terminal) -> None:
    try:
        while True:
            terminal.process.read_nonblocking(65536, timeout=30)
    except (pexpect.EOF, ValueError, OSError):
        terminal.process.close()


# A10


def test_the_same_request_of_several_agents_is_listed_as_the_same(desk: Desk) -> None:
    for number in range(3):
        desk.write_agent(f"sly{number}", COUNT, "The end.", tools=["Bash"])
        desk.run_podium("run", f"sly{number}", "go", "--park")

    listed = desk.run_podium("approvals").stdout

    assert listed.count("(one of 3 identical requests)") == 3
    assert not (desk.repo / "count.txt").exists()


def test_a_key_that_is_held_down_decides_one_thing(desk: Desk) -> None:
    desk.write_agent("sly", write("a.txt"), write("b.txt"), "The end.", tools=["Write"])
    terminal = Terminal(desk, "run", "sly", "go", rows=40)
    terminal.wait_for("[y] once")

    terminal.process.send("y" * 40)
    terminal.wait_until(lambda lines: sum("[y] once" in line for line in lines) == 2)
    assert (desk.repo / "a.txt").exists()
    terminal.process.send("a")

    assert terminal.wait_exit() != 0
    assert not (desk.repo / "b.txt").exists()
