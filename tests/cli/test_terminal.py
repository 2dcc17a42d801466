from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pexpect  # type: ignore[import-untyped]  # it has no types
import pexpect.fdpexpect  # type: ignore[import-untyped]  # it has no types
import pyte
import pytest

from ..preloaded_podium import ForkedProcess, start_podium_in_terminal
from .conftest import SLOW, TOO_LONG, Desk

LONG = "A proposal that takes so many words that they do not fit on one line of a small terminal, to the end."


class TerminalProcess(pexpect.fdpexpect.fdspawn):  # type: ignore[misc]  # it has no types
    """A process in a terminal, with the methods of `pexpect.spawn` that the tests use."""

    def __init__(self, process: ForkedProcess, terminal: int, *, timeout: float) -> None:
        super().__init__(terminal, timeout=timeout)
        self._process = process
        self.pid = process.pid
        self.kill = process.send_signal
        self.wait = process.wait

    def __del__(self) -> None:
        self.close()

    def send(self, s: str | bytes) -> int:
        # A program that has just printed a prompt may not have set up its terminal yet.
        time.sleep(0.05)
        return int(super().send(s))

    def sendcontrol(self, letter: str) -> int:
        return self.send(bytes([ord(letter.upper()) & 0x1F]))

    def sendintr(self) -> int:
        return self.sendcontrol("c")

    def sendeof(self) -> int:
        return self.sendcontrol("d")

    def close(self, force: bool = True) -> None:
        """Close the terminal, which sends SIGHUP to the process. With `force`, kill it if that does not end it."""
        super().close()
        with suppress(TimeoutError):
            code = self._process.wait(1.0)
            self.exitstatus = code if code >= 0 else None
            return
        if force:
            self._process.kill()
            self._process.wait()


class Terminal:
    """A terminal with `podium` in it, as a person sees it."""

    def __init__(self, desk: Desk, *arguments: str, rows: int = 24, columns: int = 80, **variables: str) -> None:
        environment = {name: value for name, value in desk.environment.items() if name != "COLUMNS"}
        self.output = b""
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        process, terminal = start_podium_in_terminal(
            arguments,
            cwd=desk.repo,
            env={**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8", **variables},
            rows=rows,
            columns=columns,
        )
        self.process = TerminalProcess(process, terminal, timeout=TOO_LONG)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def wait_until(self, is_met: Callable[[list[str]], bool]) -> list[str]:
        """Return the screen as soon as it fulfils a condition."""
        while not is_met(self.lines):
            self._read_output()
        return self.lines

    def _read_output(self) -> None:
        data = self.process.read_nonblocking(65536, timeout=TOO_LONG)
        self.output += data
        self._stream.feed(data)

    def wait_for(self, words: str) -> list[str]:
        return self.wait_until(lambda lines: any(words in line for line in lines))

    def wait_exit(self) -> int:
        """Return the exit code, after all output was shown."""
        try:
            while True:
                self._read_output()
        except pexpect.EOF:
            self.process.close()
        assert self.process.exitstatus is not None
        return int(self.process.exitstatus)

    def colours(self) -> set[str]:
        """Return the colours on the screen."""
        return {sign.fg for row in self.screen.buffer.values() for sign in row.values()}


@pytest.fixture
def team(desk: Desk) -> Desk:
    desk.write_agent("lead", {"says": LONG, "pieces": 12, "pace": 0.1}, advisors=["legal", "desk"], handoff="last")
    desk.write_agent("legal", "some advice")
    desk.write_agent(
        "desk",
        {"calls": [{"name": "route_to", "arguments": {"agent": "ops", "reason": "load"}}]},
        agents=["ops"],
        router=True,
    )
    desk.write_agent("ops", "all \x1b[31mquiet [bold]here[/bold]")
    desk.write_agent("last", SLOW)
    return desk


def test_the_tree_of_agents_is_drawn_while_they_work(team: Desk) -> None:
    terminal = Terminal(team, "run", "lead", "do it")

    speaking = terminal.wait_for("answering")
    # The last row of a frame is drawn last.
    waiting = terminal.wait_until(lambda lines: any("last" in line and "thinking" in line for line in lines))

    assert "request to lead" in waiting[0]
    assert max(map(len, [*speaking, *waiting])) <= 80
    tree = [line.split() for line in waiting[1:6]]
    assert tree[0][:5] == ["●", "lead", "waiting", "for", "last"]
    assert tree[1][:5] == ["├─", "✓", "legal", "advice", "succeeded"]
    assert tree[2][:5] == ["├─", "✓", "desk", "advice", "succeeded"]
    assert tree[3][:6] == ["│", "└─", "✓", "ops", "route", "succeeded"]
    assert tree[4][:6] == ["└─", "●", "last", "handoff", "thinking", "scripted"]
    terminal.process.sendintr()
    assert terminal.wait_exit() == 130
    assert "podium resume " in terminal.lines[6]
    assert not terminal.screen.cursor.hidden


def test_the_tail_of_what_an_agent_says_is_shown_below_it(desk: Desk) -> None:
    desk.write_agent("lead", {"says": f"\x1b[31m[bold]{LONG}", "pieces": 30, "pace": 0.3})

    terminal = Terminal(desk, "run", "lead", "do it")
    lines = terminal.wait_for("A proposal")

    assert lines[1].split()[:3] == ["●", "lead", "answering"]
    assert lines[2].startswith("  \\x1b[31m[bold]A proposal")
    terminal.process.sendintr()
    assert terminal.wait_exit() == 130


def test_the_answer_comes_below_the_finished_tree(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")

    terminal = Terminal(desk, "run", "lead", "do it")

    assert terminal.wait_exit() == 0
    assert terminal.lines[1].startswith("✓ lead  ")
    assert terminal.lines[2].startswith(f"run {desk.run_id()}: succeeded in ")
    assert terminal.lines[3] == "the answer"
    assert "green" in terminal.colours()


def test_no_colour_is_honoured(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")

    terminal = Terminal(desk, "run", "lead", "do it", NO_COLOR="1")

    assert terminal.wait_exit() == 0
    assert terminal.colours() == {"default"}
    shown = Terminal(desk, "show", desk.run_id(), NO_COLOR="1")
    assert shown.wait_exit() == 0
    assert shown.colours() == {"default"}


def test_show_is_coloured_on_a_terminal(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")

    shown = Terminal(desk, "show", desk.run_id())

    assert shown.wait_exit() == 0
    assert shown.colours() == {"default", "green"}


@pytest.mark.parametrize(("options", "kind"), [(["--plain"], "xterm"), ([], "dumb")])
def test_plain_lines_are_printed_where_nothing_can_be_drawn(desk: Desk, options: list[str], kind: str) -> None:
    desk.write_agent("lead", "the answer")

    terminal = Terminal(desk, "run", "lead", "do it", *options, TERM=kind)

    assert terminal.wait_exit() == 0
    assert terminal.lines[1:5] == [
        "lead: started",
        "lead: calling scripted",
        'lead: says "the answer"',
        "lead: succeeded",
    ]


def test_a_narrow_and_low_terminal_is_enough(team: Desk) -> None:
    terminal = Terminal(team, "run", "lead", "do it", rows=5, columns=30)

    terminal.wait_for("waiting")
    terminal.process.sendintr()

    assert terminal.wait_exit() == 130
