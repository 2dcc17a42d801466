"""The overview of all runs, as text and as a screen on which requests are answered."""

from __future__ import annotations

import getpass
import json
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from podium.cli.terminal.status_screen import StatusScreen

from ..collaboration import make_plan, make_step
from .conftest import Desk

WRITE: dict[str, Any] = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}]}
LONG: dict[str, Any] = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n" * 200}}]}


def park_run(desk: Desk, move: dict[str, Any]) -> None:
    desk.write_agent("writer", move, "The end.", tools=["Write"])
    assert desk.run_podium("run", "writer", "Write it", "--park").returncode == 3


def test_an_empty_overview_says_what_will_appear(desk: Desk) -> None:
    shown = desk.invoke("status").stdout

    assert "Needs you (0)\n  nothing; requests, questions, plans and decisions appear here\n" in shown
    assert "Working (0)\n  nobody; start a run with:" in shown


def test_the_overview_shows_what_waits_who_works_and_what_has_ended(desk: Desk) -> None:
    plan = make_plan(make_step("s1", "ada"))
    desk.write_agent("lead", plan, team={"mode": "collaborate", "members": ["ada"]})
    desk.write_agent("ada", "ACCEPT\n1: MET")
    # The lead reviews the work of its only member with its one reply, which gives no verdict.
    desk.invoke("run", "lead", "ship it")
    park_run(desk, WRITE)

    shown = desk.invoke("status").stdout.splitlines()
    fields = json.loads(desk.invoke("status", "--json").stdout)

    assert shown[0] == "Needs you (1)"
    assert "permission  writer  write_file a.txt" in shown[1]
    assert "paused  writer" in shown[4]
    assert "0/1 steps  ship it" in shown[7]
    assert [one["kind"] for one in fields["waiting"]] == ["permission"]
    assert fields["ended"][0]["steps"] == {"done": 0, "total": 1}


def test_watching_needs_a_terminal(desk: Desk) -> None:
    said = desk.invoke("status", "--watch")

    assert said.exit_code == 2
    assert "--watch needs a terminal; use podium status or podium status --json" in said.stderr


def read_screen(pilot: Pilot[None]) -> tuple[str, str]:
    """Return the text of the details and of the last line."""
    app = pilot.app
    return str(app.query_one("#text", Static).content), str(app.query_one("#totals", Static).content)


@pytest.mark.parametrize(("key", "answer", "word"), [("y", "once", "approved"), ("n", "deny", "denied")])
async def test_a_request_is_answered_on_the_screen(desk: Desk, key: str, answer: str, word: str) -> None:
    park_run(desk, WRITE)
    screen = StatusScreen(desk.store)

    async with screen.run_test(size=(100, 40)) as pilot:
        await pilot.pause()
        details, _ = read_screen(pilot)
        assert "+new" in details
        screen._selected_at = 0.0
        await pilot.press(key)
        await pilot.pause()
        assert f"is {word}" in read_screen(pilot)[1]
        await pilot.press("q")

    assert desk.run_podium("approvals").stdout == ""
    desk.run_podium("resume", desk.run_id())
    assert (desk.repo / "a.txt").exists() == (answer == "once")
    assert f"by {getpass.getuser()} (terminal)" in desk.invoke("logs", desk.run_id()).stdout


async def test_a_key_that_comes_too_early_or_before_all_is_read_answers_nothing(desk: Desk) -> None:
    park_run(desk, LONG)
    screen = StatusScreen(desk.store)

    async with screen.run_test(size=(80, 24)) as pilot:
        await pilot.press("y")
        await pilot.pause()
        early = read_screen(pilot)[1]
        screen._selected_at = 0.0
        await pilot.press("y")
        await pilot.pause()
        unread = read_screen(pilot)[1]
        for _ in range(60):
            await pilot.press("space")
        await pilot.press("y")
        await pilot.pause()
        read = read_screen(pilot)[1]

    assert "the request has only just appeared" in early
    assert "the request continues below; press space to read it first" in unread
    assert "is approved" in read


async def test_the_screen_follows_the_store_and_keeps_the_selection(desk: Desk) -> None:
    park_run(desk, WRITE)
    screen = StatusScreen(desk.store)

    async with screen.run_test(size=(100, 40)) as pilot:
        await pilot.press("down")
        chosen = screen._selected_id()
        desk.write_agent("a", "x")
        desk.run_podium("run", "a", "Say x")
        await screen.action_refresh()
        await pilot.pause()

        assert screen._selected_id() == chosen == screen._overview.active[0].id
        assert screen.query_one(OptionList).option_count == 6
