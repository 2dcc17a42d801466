"""The overview of all runs, as text and as a screen on which requests are answered."""

from __future__ import annotations

import getpass
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from podium.cli.output.status_screen import GUARD_SECONDS, StatusScreen
from podium.store.reader import StoreReader
from podium.store.request_list import list_open_requests
from podium.testing import read_events
from podium.values.event import PlanStepReviewed, QuestionAnswered, QuestionAsked

from ..collaboration import make_plan, make_step
from .conftest import Desk

WRITE: dict[str, Any] = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}]}
LONG: dict[str, Any] = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n" * 200}}]}


def park_run(desk: Desk, move: dict[str, Any]) -> None:
    desk.write_agent("writer", move, "The end.", tools=["Write"])
    assert desk.run_podium("run", "writer", "Write it", "--park").returncode == 3


def test_an_empty_overview_says_what_will_appear(desk: Desk) -> None:
    shown = desk.invoke("status").stdout

    assert (
        "Needs you (0)\n  nothing is waiting for you; requests, questions, plans and decisions appear here\n" in shown
    )
    assert "Working (0)\n  no agents are working; start a run with:" in shown


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


class Clock:
    """A clock that only moves when a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def open_screen(desk: Desk, size: tuple[int, int] = (100, 60)) -> AsyncIterator[tuple[Pilot[None], Clock]]:
    """Open the screen, and let enough time pass for keys to count."""
    clock = Clock()
    screen = StatusScreen(desk.store, clock=clock)
    async with screen.run_test(size=size) as pilot:
        await pilot.pause()
        clock.now += GUARD_SECONDS
        yield pilot, clock


async def press_keys(pilot: Pilot[None], *keys: str) -> str:
    """Press these keys, and return the last line of the screen."""
    await pilot.press(*keys)
    await pilot.pause()
    return read_screen(pilot)[1]


@pytest.mark.parametrize(("key", "answer", "word"), [("y", "once", "approved"), ("n", "deny", "denied")])
async def test_a_request_is_answered_on_the_screen(desk: Desk, key: str, answer: str, word: str) -> None:
    park_run(desk, WRITE)

    async with open_screen(desk) as (pilot, _):
        assert "+new" in read_screen(pilot)[0]
        assert f"is {word}" in await press_keys(pilot, key)
        await pilot.press("q")

    assert desk.run_podium("approvals").stdout == ""
    desk.run_podium("resume", desk.run_id())
    assert (desk.repo / "a.txt").exists() == (answer == "once")
    assert f"by {getpass.getuser()} (terminal)" in desk.invoke("logs", desk.run_id()).stdout


async def test_a_key_that_comes_too_early_or_before_all_is_read_answers_nothing(desk: Desk) -> None:
    park_run(desk, LONG)

    async with open_screen(desk, (80, 24)) as (pilot, clock):
        clock.now -= 0.01
        early = await press_keys(pilot, "y")
        clock.now += 0.01
        unread = await press_keys(pilot, "y")
        read = await press_keys(pilot, *["space"] * 60, "y")

    assert "the request has only just appeared" in early
    assert "the request continues below; press space to read it first" in unread
    assert "is approved" in read


def read_waiting(desk: Desk) -> list[str]:
    """Return the ids of the open requests, oldest first."""
    return [one["id"] for one in json.loads(desk.run_podium("approvals", "--json").stdout)["waiting"]]


async def test_a_key_answers_only_the_request_that_is_selected_and_shown(desk: Desk) -> None:
    park_run(desk, WRITE)
    park_run(desk, WRITE)
    above, below = read_waiting(desk)

    async with open_screen(desk, (120, 200)) as (pilot, clock):
        first = read_screen(pilot)[0]
        at_once = await press_keys(pilot, "down", "y")
        second = read_screen(pilot)[0]
        clock.now += GUARD_SECONDS
        later = await press_keys(pilot, "y")
        after_it = await press_keys(pilot, "y")

    assert (above in first, below in first, above in second, below in second) == (True, False, False, True)
    assert "the request has only just appeared" in at_once
    assert "is approved" in later
    assert "the request has only just appeared" in after_it  # another request is shown, whose time begins anew
    assert read_waiting(desk) == [above]


# Plans, decisions and reviews


PLAN = make_plan(make_step("s1", "ada"))
DECIDE = ("decide", "Which drink?", "--option", "tea", "--option", "coffee", "--evidence", "Coffee costs 3.")


def park_work(desk: Desk, **options: object) -> None:
    """Run a collaborating team until it waits for a person."""
    desk.write_agent("lead", PLAN, team={"mode": "collaborate", "members": ["ada"], **options})
    desk.write_agent("ada", "The work is done.\nACCEPT")
    assert desk.invoke("run", "lead", "ship it", "--park").exit_code == 3


# These are fixtures, because a command cannot run within the event loop of a test.


@pytest.fixture
def plan_desk(desk: Desk) -> Desk:
    park_work(desk, approve_plan="person")
    return desk


@pytest.fixture
def review_desk(desk: Desk) -> Desk:
    park_work(desk, review_by="person")
    return desk


@pytest.fixture
def decision_desk(desk: Desk) -> Desk:
    assert desk.invoke(*DECIDE).exit_code == 3
    return desk


@pytest.fixture
def cups_desk(desk: Desk) -> Desk:
    options = [word for number in range(1, 13) for word in ("--option", f"cup {number}")]
    assert desk.invoke("decide", "Which cup?", *options).exit_code == 3
    return desk


def read_answer(desk: Desk) -> tuple[QuestionAsked, QuestionAnswered]:
    """Resume the run, and return its first question and the answer to it."""
    desk.run_podium("resume", desk.run_id(), "--park")
    asked = read_events(desk.store, desk.run_id(), QuestionAsked)[0]
    return asked, read_events(desk.store, desk.run_id(), QuestionAnswered)[0]


def must_be_bound(asked: QuestionAsked, given: QuestionAnswered) -> None:
    assert (given.id, given.digest, given.by) == (asked.id, asked.digest, getpass.getuser())
    assert (given.channel, bool(given.digest)) == ("terminal", True)


async def test_a_plan_is_shown_in_full_and_approved_on_the_screen(plan_desk: Desk) -> None:
    async with open_screen(plan_desk) as (pilot, _):
        details = read_screen(pilot)[0]
        said = await press_keys(pilot, "y")

    assert "│ s1. ada" in details
    assert "│     - it works" in details
    assert "y approves the plan" in details
    assert "is answered: approve" in said
    asked, given = read_answer(plan_desk)
    must_be_bound(asked, given)
    assert given.text == "approve"
    assert "plan 1 committed" in plan_desk.invoke("logs", plan_desk.run_id()).stdout


async def test_a_plan_is_sent_back_with_a_note(plan_desk: Desk) -> None:
    async with open_screen(plan_desk) as (pilot, clock):
        await press_keys(pilot, "n")
        early = await press_keys(pilot, *"2 steps", "enter")
        clock.now += GUARD_SECONDS
        said = await press_keys(pilot, "enter")

    assert "press Enter again" in early
    assert "is answered: 2 steps" in said
    asked, given = read_answer(plan_desk)
    must_be_bound(asked, given)
    assert given.text == "2 steps"


async def test_a_note_cannot_approve_and_escape_leaves_the_request_open(plan_desk: Desk) -> None:
    async with open_screen(plan_desk) as (pilot, clock):
        await press_keys(pilot, "n", *"Approve")
        clock.now += GUARD_SECONDS
        refused = await press_keys(pilot, "enter")
        left = await press_keys(pilot, "escape")
        assert pilot.app.focused is pilot.app.query_one(OptionList)

    assert "would be taken as an approval" in refused
    assert "stays open" in left
    assert "Approve lead's plan (" in plan_desk.invoke("approvals").stdout


@pytest.mark.parametrize(("keys", "passed"), [(("y",), True), (("n", "!", "enter"), False), (("n", "enter"), False)])
async def test_a_review_is_answered_on_the_screen(review_desk: Desk, keys: tuple[str, ...], passed: bool) -> None:
    async with open_screen(review_desk) as (pilot, clock):
        assert "ada says:\n  │ > The work is done." in read_screen(pilot)[0]
        await press_keys(pilot, keys[0])
        clock.now += GUARD_SECONDS
        said = await press_keys(pilot, *keys[1:])

    assert "is answered" in said
    asked, given = read_answer(review_desk)
    must_be_bound(asked, given)
    assert (given.text == "met") is passed
    with StoreReader(review_desk.store) as reader:
        events = [entry.event for entry in reader.read_entries(review_desk.run_id())]
    reviewed = next(one for one in events if isinstance(one, PlanStepReviewed))
    assert (reviewed.passed, reviewed.is_person) == (passed, True)
    assert reviewed.findings[0].reason == ("!" if "!" in keys else "")


async def test_an_option_of_a_decision_is_chosen_by_its_number(decision_desk: Desk) -> None:
    async with open_screen(decision_desk) as (pilot, clock):
        assert "> Coffee costs 3." in read_screen(pilot)[0]
        neither = await press_keys(pilot, "y")
        wrong = await press_keys(pilot, "3")
        clock.now -= GUARD_SECONDS
        early = await press_keys(pilot, "2")
        clock.now += GUARD_SECONDS
        said = await press_keys(pilot, "2")

    assert "press the number of a choice" in neither
    assert "'3' is not" in wrong
    assert "only just appeared" in early
    assert "is answered: coffee" in said
    asked, given = read_answer(decision_desk)
    must_be_bound(asked, given)
    assert decision_desk.run_podium("decisions").stdout.count("coffee (decided by person)") == 1


@pytest.mark.slow
async def test_an_option_beyond_nine_is_typed(cups_desk: Desk) -> None:
    async with open_screen(cups_desk, (100, 120)) as (pilot, clock):
        await press_keys(pilot, "a", *"13")
        clock.now += GUARD_SECONDS
        wrong = await press_keys(pilot, "enter")
        said = await press_keys(pilot, "backspace", "2", "enter")

    assert "'13' is not" in wrong
    assert "is answered: cup 12" in said
    assert read_answer(cups_desk)[1].text == "cup 12"


async def test_a_note_for_a_request_that_was_answered_elsewhere_answers_nothing(plan_desk: Desk) -> None:
    [one] = list_open_requests(plan_desk.store)

    async with open_screen(plan_desk) as (pilot, clock):
        await press_keys(pilot, "n", *"no")
        assert plan_desk.invoke("answer", one.asked.id, "approve").exit_code == 0
        clock.now += GUARD_SECONDS
        said = await press_keys(pilot, "enter")

    assert "answered" in said
    assert read_answer(plan_desk)[1].text == "approve"


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
