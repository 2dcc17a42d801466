"""The frame of the dashboard: signing in, finding one's way with keys, and staying connected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from podium.testing import calls

from .conftest import DESKTOP, PHONE, WIDE, Site, Visitor, find_sideways_scroll, open_site


@pytest.fixture(scope="module", autouse=True)
def _fill_store(site: Site) -> None:
    """Make a run that has ended, one that waits for a person, and one that works."""
    site.studio.agent("teller", says=["All is well."])
    site.studio.agent("remover", says=[calls("bash", command="rm -rf build /srv/x"), "done"], tools=("bash",))
    site.studio.agent("asker", says=[calls("ask_person", question="Which?", choices=["a", "b"])], tools=("ask_person",))
    site.studio.agent("thinker", says=[{"silent": True}])
    site.run("teller", "Report on the harbour")
    for name in ("remover", "asker", "thinker"):
        site.start_run(name, f"Let the {name} work")


def test_a_person_signs_in_once_with_each_address(site: Site, visitor: Visitor) -> None:
    address = site.server.make_sign_in_address()
    page = visitor.open(site, signs_in=False)
    expect(page.get_by_text("Open the address that podium serve prints")).to_be_visible()

    page.get_by_label("Address or code").fill(address)
    page.get_by_label("Stay signed in on this device").check()
    page.get_by_role("button", name="Sign in").click()

    expect(page.locator("#connection")).to_have_text("live")
    again = page.context.new_page()
    visitor.watch(again, site.address)
    again.goto(site.address)
    expect(again.get_by_role("heading", name="Now")).to_be_visible()
    other = visitor.open(site, signs_in=False)
    other.goto(address)
    expect(other.get_by_text("the code is unknown, already used or expired")).to_be_visible()
    assert "code" not in other.url
    other.get_by_label("Address or code").fill("wrong")
    other.keyboard.press("Enter")
    expect(other.get_by_role("alert")).to_contain_text("the code is unknown, already used or expired")


def open_command_bar(page: Page) -> None:
    """Open the command bar and wait until it takes what is typed."""
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="A screen, a command, or a run's id or text")).to_be_focused()


def test_keys_lead_everywhere(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site)
    expect(page.get_by_role("region", name="Needs you").get_by_role("link")).to_have_count(2)

    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("deny and stop the run")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for key, screen in {"r": "Runs", "a": "Approvals", "n": "Now"}.items():
        page.keyboard.press("g")
        expect(page.get_by_text("go to:")).to_be_visible()
        page.keyboard.press(key)
        expect(page.get_by_role("heading", name=screen, exact=True, level=1)).to_be_visible()
        expect(
            page.get_by_role("link", name=re.compile(f"^{screen}")).and_(page.locator("[aria-current=page]"))
        ).to_be_visible()

    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    first = page.get_by_role("region", name="Needs you").get_by_role("link").first
    expect(first).to_be_focused()
    first.press("Enter")
    # Now has several headings of this level, which would make the locator ambiguous until the request is drawn.
    expect(page.get_by_role("region", name="Request", exact=True).get_by_role("heading", level=2)).to_be_focused()

    page.keyboard.press("/")
    expect(page.get_by_label("Search the runs")).to_be_focused()
    page.keyboard.type("harbour")
    expect(page.get_by_text("1 run", exact=True)).to_be_visible()
    expect(page.get_by_label("Search the runs")).to_be_focused()
    page.get_by_label("State").select_option("failed")
    expect(page.get_by_text("No run matches.")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Search the runs")).to_have_value("harbour")
    expect(page.get_by_text("No run matches.")).to_be_visible()

    open_command_bar(page)
    page.keyboard.type("go to now")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Now", exact=True)).to_be_visible()
    open_command_bar(page)
    page.keyboard.type("harbour")
    expect(page.get_by_role("option", name="Report on the harbour")).to_be_visible()
    page.keyboard.press("Escape")
    open_command_bar(page)
    page.keyboard.type("start")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Start a run").get_by_label("Agent or team")).to_be_focused()


def test_the_page_says_when_it_is_cut_off_and_catches_up(visitor: Visitor, tmp_path: Path) -> None:
    with open_site(tmp_path) as site:
        page = visitor.open(site, "/now")
        expect(page.get_by_text("No run has finished yet.")).to_be_visible()
    expect(page.locator("#connection")).to_have_text(re.compile(r"reconnecting since \d\d:\d\d:\d\d"))

    with open_site(tmp_path, port=int(site.address.rpartition(":")[2])) as again:
        again.studio.agent("teller", says=["All is well."])
        again.run("teller", "Written while nobody listened")

        expect(page.locator("#connection")).to_have_text("live")
        expect(page.get_by_role("link", name="Written while nobody listened")).to_have_count(1)
        page.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_screen_can_be_read_by_everybody_at_every_size(site: Site, visitor: Visitor, scheme: str) -> None:
    page = visitor.open(site, color_scheme=scheme)

    for place, words in {"now": "Finished", "runs": "Report on the harbour", "approvals": "rm -rf build"}.items():
        page.goto(f"{site.address}/#/{place}")
        expect(page.locator("main")).to_contain_text(words)
        require_accessible(page, place)
    for key, name in {"?": "Keys", "Control+k": "Search and commands"}.items():
        page.keyboard.press(key)
        expect(page.get_by_role("dialog", name=name)).to_be_visible()
        require_accessible(page, name)
        page.keyboard.press("Escape")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    for place in ("now", "runs", "approvals"):
        page.goto(f"{site.address}/#/{place}")
        page.wait_for_load_state()
        if scheme == "dark":  # on a phone, the same parts are only arranged differently
            require_accessible(page, f"{place} on a phone")
        for link in page.locator(".nav a:visible, .nav button:visible, main .button:visible").all():
            box = link.bounding_box()
            assert box is not None
            assert box["height"] >= 44, link.inner_text()
    for size in (PHONE, DESKTOP, WIDE):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        for place in ("now", "runs", "approvals"):
            page.goto(f"{site.address}/#/{place}")
            assert find_sideways_scroll(page) == 0, (place, size)


def require_accessible(page: Page, place: str) -> None:
    found = Axe().run(page).response["violations"]
    serious = [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]
    assert serious == [], place
