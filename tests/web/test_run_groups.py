"""The list of runs in the groups of `podium ps`, with filters."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from podium.store.group_rows import Groups

from . import screen_data as data
from .api_client import ApiClient
from .conftest import PHONE, Site, Visitor, find_sideways_scroll


@pytest.fixture(scope="module", autouse=True)
def _data(site: Site) -> None:
    """Write two runs in the repository, and one without a repository."""
    for number, request in enumerate(("Paint the bridge", "Count the ships")):
        site.write_run(f"ab{number:02}", *data.start(site, request), data.reply(calls=1, usd=0.25), *data.end())
    site.studio.agent("teller", says=["All is well."])
    site.run("teller", "Tell it")


def find_section(page: Page, name: str) -> Locator:
    return page.locator("tbody", has=page.get_by_role("button", name=name, exact=True))


def choose(page: Page, what: str, command: str) -> None:
    page.get_by_role("button", name=f"Commands for {what}").click()
    page.get_by_role("menuitem", name=command).click()


def test_groups_are_closed_renamed_pinned_and_archived(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/runs")
    repo = find_section(page, "repo")
    expect(repo.locator("tr[data-run]")).to_have_count(2)
    expect(repo).to_contain_text("$0.25")
    expect(page.locator("tbody")).to_have_count(2)

    repo.get_by_role("button", name="repo", exact=True).click()
    expect(repo.locator("tr[data-run]")).to_have_count(0)
    page.reload()
    expect(repo.get_by_role("button", name="repo", exact=True)).to_have_attribute("aria-expanded", "false")
    repo.get_by_role("button", name="repo", exact=True).click()
    choose(page, "the group repo", "Rename…")
    page.get_by_role("dialog").get_by_label("Name").fill("Harbour")
    page.get_by_role("dialog").get_by_role("button", name="Rename").click()
    expect(page.get_by_text("is now called 'Harbour'")).to_be_visible()
    harbour = find_section(page, "Harbour")
    choose(page, "the group Harbour", "Pin to the top")
    expect(harbour.locator(".section-row")).to_contain_text("pinned")
    choose(page, "run ab00", "Archive")
    expect(harbour.locator("tr[data-run]")).to_have_count(1)
    expect(page.get_by_text("1 archived run not shown.")).to_be_visible()
    page.get_by_label("archived too").check()
    expect(harbour.locator("tr[data-run='ab00']")).to_contain_text("archived")
    choose(page, "run ab00", "Show again")
    choose(page, "run ab00", "Pin to the top")

    expect(harbour.locator("tr[data-run]").first).to_contain_text("ab00")
    with Groups(site.store) as groups:
        arrangement = groups.load_arrangement()
    assert arrangement.find_group("Harbour").is_pinned
    assert arrangement.get_listed_run("ab00").is_pinned
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert find_sideways_scroll(page) == 0


def test_filters_are_in_the_address_and_can_be_combined(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/runs?text=ships&state=succeeded&agent=lead&period=3600")
    expect(page.get_by_text("1 run", exact=True)).to_be_visible()
    expect(page.get_by_label("Agent")).to_have_value("lead")
    expect(page.locator("tr[data-run='ab01']")).to_be_visible()

    page.get_by_label("needs you").check()
    expect(page.get_by_text("No run matches.")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").click()

    expect(page.get_by_text("3 runs", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile("#/runs$"))


def test_the_page_draws_the_columns_that_the_api_names_and_those_that_it_does_not_know(
    site: Site, visitor: Visitor
) -> None:
    def add_columns(route: Route) -> None:
        found = route.fetch().json()
        found["columns"] += [
            {"name": "weather", "heading": "Weather", "kind": "text"},
            {"name": "waves", "heading": "Waves", "kind": "number"},
        ]
        found["runs"] = [one | {"weather": "fog\u202e", "waves": 1200} for one in found["runs"]]
        route.fulfill(json=found)

    page = visitor.open(site)
    page.route("**/api/runs?*", add_columns)

    page.goto(f"{site.address}/#/runs")

    heads = ["State", "Run", "Cost", "Took", "Started", "Weather", "Waves", "Commands"]
    expect(page.locator(".runs-table thead th")).to_have_text(heads)
    row = page.locator("tr[data-run='ab01'] td")
    expect(row.nth(5)).to_have_text("fog\\u202e")
    expect(row.nth(6)).to_have_text("1,200")
    expect(row.nth(6)).to_have_class("number")


@pytest.mark.parametrize(
    ("target", "body", "status", "says"),
    [
        ("nothing", {"pinned": True}, 422, "group or run 'nothing' not found; run podium group list to see the groups"),
        ("ab01", {}, 422, "nothing would change; give name, pinned or archived"),
        ("ab01", {"name": "  "}, 422, "the name is empty"),
        ("ab01", {"size": 1}, 400, ""),
    ],
)
def test_a_wrong_change_of_a_group_is_refused(
    site: Site, target: str, body: dict[str, object], status: int, says: str
) -> None:
    with ApiClient(site) as client:
        reply = client.command(f"/api/groups/{target}", body, status=status)

    assert says in reply["detail"]


def test_a_run_moves_to_another_group(site: Site) -> None:
    with ApiClient(site) as client:
        moved = client.command("/api/runs/ab01/group", {"group": "default"})

        assert moved["text"].startswith("run ab01 is now in group 'default'")
        assert client.read("/api/groups")["runs"]["ab01"]["group"] == "g1"
        client.command("/api/runs/ab01/group", {"group": "none"}, status=422)
