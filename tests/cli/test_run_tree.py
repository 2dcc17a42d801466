from __future__ import annotations

import re

import pytest
from msgspec import structs

from podium.cli.output.run_tree import (
    ASCII_SYMBOLS,
    UNICODE_SYMBOLS,
    TreeSymbols,
    build_tree_rows,
    choose_symbols,
    format_plain_row,
)
from podium.testing import read_entries
from podium.values.event import Entry, LimitReached
from podium.views.run_state.tree import RunView

from .conftest import Desk

AMOUNTS = re.compile(r"\d+\.\ds( +[\d,]+ tokens)?$")


@pytest.fixture
def entries(desk: Desk) -> list[Entry]:
    """Return the entries of a run with two advisors and a handoff."""
    desk.write_agent("lead", "a plan", advisors=["law", "ops"], handoff="last")
    desk.write_agent("law", "a doubt")
    desk.write_agent("ops", {"fails": {"status": 400, "message": "no more"}})
    desk.write_agent("last", {"says": "the last word, and more words", "pieces": 2, "pace": 0.3})
    desk.invoke("run", "lead", "do it")
    return read_entries(desk.store, desk.run_id())


def draw_tree(
    entries: list[Entry], *, symbols: TreeSymbols = UNICODE_SYMBOLS, is_live: bool = True, is_brief: bool = False
) -> list[str]:
    view = RunView.from_entries(entries)
    rows = build_tree_rows(view, now=view.at, most=40, symbols=symbols, is_live=is_live, is_brief=is_brief)
    return [" ".join(AMOUNTS.sub("", format_plain_row(row)).split()) for row in rows]


def take_entries_until(entries: list[Entry], text: str) -> list[Entry]:
    """Return the entries up to the first one with this text."""
    place = next(place for place, entry in enumerate(entries) if text in str(entry.event))
    return entries[: place + 1]


def test_an_active_run_shows_which_agent_waits_and_which_answers(entries: list[Entry]) -> None:
    assert draw_tree(take_entries_until(entries, "TextStreamed")) == [
        "● lead waiting for last scripted",
        "├─ ✓ law advice succeeded scripted",
        "├─ ✗ ops advice failed scripted",
        "│ the script returned 400: no more",
        "└─ ● last handoff answering scripted",
        "the last word,",
    ]


def test_an_agent_that_waits_for_a_limit_shows_the_time_that_is_left(entries: list[Entry]) -> None:
    begun = take_entries_until(entries, "TextStreamed")
    last = begun[-1]
    limit = LimitReached(agent="last", model="m", provider="openai", until=last.at + 86_399)
    waiting = structs.replace(last, seq=last.seq + 1, event=limit)

    assert "└─ ● last handoff limit resets in 23 h 59 min scripted" in draw_tree([*begun, waiting])


def test_a_brief_tree_has_only_what_is_at_work(entries: list[Entry]) -> None:
    assert draw_tree(take_entries_until(entries, "TextStreamed"), is_brief=True)[1:2] == [
        "└─ ● last handoff answering scripted"
    ]


def test_a_run_that_was_left_shows_what_is_unfinished(entries: list[Entry]) -> None:
    assert (
        draw_tree(take_entries_until(entries, "TextStreamed"), is_live=False)[-1]
        == "└─ ● last handoff unfinished scripted"
    )


def test_before_anything_has_begun_there_is_nothing_to_show(entries: list[Entry]) -> None:
    assert draw_tree(entries[:1]) == []


def test_a_terminal_that_knows_only_ascii_gets_ascii(entries: list[Entry]) -> None:
    assert draw_tree(entries, symbols=ASCII_SYMBOLS)[0] == "+ lead succeeded scripted"
    assert all(row.isascii() for row in draw_tree(entries, symbols=ASCII_SYMBOLS))
    assert [choose_symbols("utf-8"), choose_symbols("ascii"), choose_symbols("latin-1"), choose_symbols(None)] == [
        UNICODE_SYMBOLS,
        *[ASCII_SYMBOLS] * 3,
    ]
