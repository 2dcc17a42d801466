"""Pages with more than fits on a screen, and votes without a majority."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from podium.values.event import BallotCast, DecisionCommitted, VoteClosed

from . import screen_data as data
from .conftest import DESKTOP, Site, Visitor, find_sideways_scroll, open_site
from .screen_checks import go, wait_loaded


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("many")) as site:
        yield site


@pytest.mark.slow
def test_two_hundred_workers_are_listed_and_only_those_in_sight_are_drawn(site: Site, visitor: Visitor) -> None:
    data.git(site.repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first")
    data.git(site.repo, "branch", "-M", "main")
    for number in range(200):
        data.write_worker(site, f"w{number:03}", "", f"Task {number}", name=f"reader-{number}", answer=None)

    page = visitor.open(site, "/workers", viewport=DESKTOP)
    wait_loaded(page)

    cards = page.locator("main .card")
    expect(cards).to_have_count(200)
    drawn = cards.evaluate_all(
        "cards => cards.filter(one => one.firstElementChild.checkVisibility({contentVisibilityAuto: true})).length"
    )
    assert 0 < drawn < 100
    assert find_sideways_scroll(page) == 0


def test_a_tie_says_who_decided(site: Site, visitor: Visitor) -> None:
    site.write_run(
        "tied",
        *data.start(site, "Decide"),
        data.propose(site, "t1", "Tabs or spaces?", options=("tabs", "spaces"), eligible=("ada", "bob")),
        BallotCast(decision="t1", voter="ada", option="tabs", reason="one key"),
        BallotCast(decision="t1", voter="bob", option="spaces", reason="they align"),
        VoteClosed(decision="t1", why="complete"),
        DecisionCommitted(decision="t1", option="spaces", how="decided by lead (tie)", by="lead"),
        *data.end(),
    )

    page = visitor.open(site)
    go(page, site, "decisions/tied/t1")

    expect(page.locator("main")).to_contain_text(re.compile("decided by lead \\(tie\\)"))
    expect(page.locator("main")).to_contain_text("they align")
