"""Plans, decisions, workers, costs, teams and settings in a real browser, on a real store and repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from podium.store.reader import StoreReader
from podium.values.usage import Usage, sum_usage
from podium.views.run_state.model_usage import usage_of_event

from ..collaboration import Play, add_team, make_plan, make_step, use_tool
from . import screen_data as data
from .conftest import DESKTOP, PHONE, WIDE, Site, Visitor, find_sideways_scroll, open_site
from .screen_checks import find_serious_problems, go, read_api

PLACES = (
    "plans",
    f"plans/{data.PLAN_RUN}",
    "decisions",
    f"decisions/{data.DECIDED_RUN}/d1",
    f"decisions/{data.VOTE_RUN}/d3",
    "workers",
    f"workers/{data.CSV_RUN}",
    "workers?view=merge",
    "cost",
    f"cost/{data.BUDGET_RUN}",
    "teams",
    "teams?view=new",
    "teams/plan-build-review",
    "settings",
)


@pytest.fixture(autouse=True)
def _home(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server's parts that read the environment find the site's home."""
    monkeypatch.setenv("PODIUM_HOME", str(site.studio.settings.home))


@pytest.fixture(scope="module", autouse=True)
def _data(site: Site) -> None:
    data.write_workers(site)
    data.write_plan(site)
    data.write_decisions(site)
    data.write_costs(site)


def test_every_screen_fits_and_can_be_read_by_everybody(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site)

    for place in PLACES:
        go(page, site, place)
        assert find_serious_problems(page) == [], place
        for viewport in (DESKTOP, PHONE):
            page.set_viewport_size(viewport)  # type: ignore[arg-type]
            assert find_sideways_scroll(page) <= 0, place
        page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
    go(page, site, f"plans/{data.PLAN_RUN}")
    page.get_by_role("button", name="Graph").click()
    page.emulate_media(color_scheme="dark")
    assert find_serious_problems(page) == []


@pytest.mark.slow
@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "dark"), (PHONE, "light"), (WIDE, "dark")])
def test_the_other_schemes_and_sizes_fit_and_can_be_read_too(
    site: Site, visitor: Visitor, viewport: Any, scheme: Any
) -> None:
    page = visitor.open(site, viewport=viewport, color_scheme=scheme)

    for place in PLACES:
        go(page, site, place)
        assert find_sideways_scroll(page) <= 0, place
        assert find_serious_problems(page) == [], place


def test_without_data_every_screen_says_what_will_appear(visitor: Visitor, tmp_path: Path) -> None:
    with open_site(tmp_path) as empty:
        page = visitor.open(empty, viewport=PHONE)
        for place, title, command in (
            ("plans", "No plans yet", "podium run plan-build-review"),
            ("decisions", "No decisions yet", "podium decide"),
            ("workers", "No workers yet", "podium delegate"),
            ("cost", "No costs yet", "podium run answer"),
        ):
            go(page, empty, place)
            expect(page.get_by_text(title)).to_be_visible()
            expect(page.locator(".empty code")).to_contain_text(command)
            assert find_sideways_scroll(page) <= 0, place
        go(page, empty, "plans/nope")
        expect(page.get_by_role("alert")).to_contain_text("nope")


# Plans


def read_column(page: Page, title: str) -> list[str]:
    cards = page.get_by_role("region", name=title, exact=True).get_by_role("article")
    return [str(one.get_attribute("aria-label")).removeprefix("Step ") for one in cards.all()]


def test_the_board_has_every_step_in_the_column_of_its_state(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/plans")

    page.get_by_role("link", name=re.compile("Export to CSV")).first.click()

    expect(page.get_by_text("1 of 7 steps done")).to_be_visible()
    expect(page.get_by_role("article", name="Step ship")).to_be_visible()
    columns = {
        title: read_column(page, title) for title in ("Planned", "Ready", "Running", "Review", "Done", "Blocked")
    }
    assert columns == {
        "Planned": ["docs"],
        "Ready": ["announce"],
        "Running": ["write"],
        "Review": ["check"],
        "Done": ["parse"],
        "Blocked": ["quote", "ship"],
    }
    done = page.get_by_role("article", name="Step parse")
    expect(done.get_by_role("listitem").first).to_have_text(re.compile("met: it exports.*grep -q csv app.py"))
    check = page.get_by_role("article", name="Step check")
    expect(check).to_contain_text("read_file")
    expect(check.get_by_role("meter", name="Tokens of the step's budget")).to_have_attribute("aria-valuenow", "25")
    for words in ("0.0s of 10m 00s", "12,500 of 50,000", "0 of 3 changed"):
        expect(check).to_contain_text(words)
    failed = page.get_by_role("article", name="Step quote")
    expect(failed).to_contain_text("it did not pass its review 3 times")
    expect(failed.get_by_role("listitem")).to_have_text(re.compile("not met: quote works.*ada: quotes are doubled"))
    expect(failed.locator(".badge")).to_have_text("failed")
    expect(page.get_by_role("article", name="Step write")).to_contain_text("attempt 2")
    expect(page.get_by_role("article", name="Step ship")).to_contain_text("asks before every action")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("artifact '000")).to_be_visible()


def test_the_graph_has_an_arrow_for_every_dependency(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/plans/{data.PLAN_RUN}")

    page.get_by_role("button", name="Graph").click()

    graph = page.get_by_role("group", name="Steps and the steps that they depend on")
    expect(graph.locator(".graph-node")).to_have_count(len(data.STEPS))
    expect(graph.locator("path.graph-line")).to_have_count(sum(len(step.depends_on) for step in data.STEPS))
    left = {
        name: graph.locator(".graph-node", has_text=name).first.bounding_box() for name in ("parse", "docs", "ship")
    }
    assert left["parse"]["x"] < left["docs"]["x"] < left["ship"]["x"]  # type: ignore[index]


def test_a_draft_leads_to_its_approval_and_the_board_follows_the_work_to_the_decision(
    site: Site, visitor: Visitor
) -> None:
    blocker = use_tool("raise_blocker", topic="Tabs or spaces?", options=["tabs", "spaces"], evidence="the guide")
    plan = make_plan(make_step("s1", "ann"), make_step("s2", "bert", "s1"))
    vote = use_tool("cast_ballot", option="tabs", reason="one key")
    play = Play(plan=plan, vote=vote, **{"ann/step:s1": [blocker, "done"]})
    add_team(site.studio, play, "ann", "bert", approve_plan="person")
    page = visitor.open(site, "/plans")

    run = site.start_run("lead", "indent everything")

    page.get_by_role("link", name=re.compile("indent everything")).click()
    expect(page.get_by_text("This is a draft that waits for your approval.")).to_be_visible()
    assert read_column(page, "Planned") == ["s1", "s2"]
    page.get_by_role("link", name="Review it in Approvals").click()
    page.get_by_role("button", name=re.compile("^(Approve|approve)")).first.click()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()

    page.goto(f"{site.address}/#/plans/{run}")
    expect(page.get_by_text("2 of 2 steps done")).to_be_visible()
    assert read_column(page, "Done") == ["s1", "s2"]
    page.get_by_role("article", name="Step s1").get_by_role("link", name="decision").click()
    expect(page.get_by_role("heading", name="Tabs or spaces?")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="ann")).to_contain_text("votes for tabs")
    expect(page.get_by_text("in force")).to_be_visible()


# Decisions


def test_a_decision_shows_ballots_reasons_and_what_superseded_it(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/decisions")
    expect(page.get_by_role("link", name=re.compile("Quote every field"))).to_contain_text("not decided yet")

    page.get_by_role("link", name=re.compile(r"Which separator\?")).click()

    expect(page.get_by_role("heading", name="Which separator?")).to_be_visible()
    ballots = page.locator("section", has=page.get_by_role("heading", name="Ballots")).get_by_role("listitem")
    expect(ballots.nth(0)).to_have_text(re.compile("ada.*votes for comma.*everybody reads it"))
    expect(ballots.nth(2)).to_have_text(re.compile("cy.*abstains"))
    expect(ballots.nth(0).get_by_role("link")).to_have_attribute("href", re.compile(r"#/run/\w+\?entry=\d+$"))
    expect(ballots.nth(3)).to_have_text(re.compile("dan.*ballot for tab refused.*the vote is closed"))
    expect(page.get_by_text("More than half of all voters must agree.")).to_be_visible()
    expect(page.get_by_text("It is the default.", exact=True)).to_be_visible()
    page.get_by_text("Text as a decision record").click()
    expect(page.locator("pre")).to_contain_text("# Which separator?")
    page.get_by_role("link", name="Which separator now?").click()
    expect(page.get_by_role("heading", name="Which separator now?")).to_be_visible()
    expect(page.get_by_role("link", name="Which separator?", exact=True)).to_be_visible()


def test_an_open_vote_counts_down_and_names_who_is_missing(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, has_clock=True)
    # The page sets its clock by the server's, which does not go forward with it, whenever it loads the overview.
    page.route("**/api/overview", lambda route: route.abort())
    go(page, site, f"decisions/{data.VOTE_RUN}/d3")

    expect(page.get_by_role("timer")).to_have_text(re.compile(r"closes in 5\dm \d\ds"))
    expect(page.get_by_text("Missing voters: bob, cy")).to_be_visible()
    expect(page.get_by_text("Needed: 2 of 3 votes for one option")).to_be_visible()
    page.clock.fast_forward(2 * 3600_000)
    expect(page.get_by_role("timer")).to_have_text("closes as soon as the voters have finished")


# Cost


def read_cells(page: Page, row: str) -> dict[str, str]:
    cells = page.locator(f"{row} td[data-column]").all()
    return {str(one.get_attribute("data-column")): " ".join(one.inner_text().split()) for one in cells}


def show_usage(usage: Usage) -> dict[str, str]:
    """Return the numbers as the page writes them."""
    rehearsed = f" + {usage.rehearsed_calls:,} rehearsed" if usage.rehearsed_calls else ""
    unpriced = f" {usage.unpriced:,} without a known price" if usage.unpriced else ""
    return {
        "calls": f"{usage.calls:,}{rehearsed}",
        "input_tokens": f"{usage.input_tokens:,}",
        "cached_tokens": f"{usage.cached_tokens:,}",
        "output_tokens": f"{usage.output_tokens:,}",
        "usd": f"${usage.usd:.4f}{unpriced}",
    }


def test_costs_equal_the_sums_of_the_timelines_to_the_cent(site: Site, visitor: Visitor) -> None:
    with StoreReader(site.store) as reader:
        usages = {
            one.id: sum_usage(usage_of_event(entry.event) for entry in reader.read_entries(one.id))
            for one in reader.list_runs()
        }
    page = visitor.open(site, "/cost")
    expect(page.locator("tr[data-run]")).to_have_count(len(usages))
    for wrap in page.locator(".cost-wrap").all():
        assert wrap.evaluate("one => one.scrollWidth - one.clientWidth") <= 0

    for run, usage in usages.items():
        assert show_usage(usage).items() <= read_cells(page, f"tr[data-run='{run}']").items()
    whole = sum_usage(usages.values())
    assert show_usage(whole).items() <= read_cells(page, ".cost-total").items()
    found = read_api(page, "/api/costs")
    for part in ("agents", "models"):
        assert f"{sum(one['usage']['usd'] for one in found[part]):.4f}" == f"{whole.usd:.4f}"
    assert f"{sum(one['money'][-1] for one in found['history']['series']):.4f}" == f"{whole.usd:.4f}"
    assert usages["cc01"].rehearsed_calls == 3
    page.get_by_role("button", name="Rehearsed tokens").click()
    expect(page.locator(".chart-area")).to_have_count(1)


def test_the_cost_of_a_run_has_its_budget_its_agents_and_its_time(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/cost/{data.BUDGET_RUN}")
    with StoreReader(site.store) as reader:
        total = sum_usage(usage_of_event(entry.event) for entry in reader.read_entries(data.BUDGET_RUN))

    expect(page.locator(".chart-area")).to_have_count(2)
    expect(page.get_by_role("img", name=f"Money by agent over time, ${total.usd:.2f} in total")).to_be_visible()
    expect(page.locator(".chart-budget-text")).to_have_text("budget $2.00")
    expect(page.get_by_text(f"${total.usd:.2f} of the budget of $2.00 used.")).to_be_visible()
    page.get_by_text("The chart as a table").click()
    last = page.get_by_role("group", name="Running totals").locator("tbody tr").last
    expect(last.get_by_role("cell").last).to_have_text(f"${total.usd:.2f}")
    assert read_cells(page, "tr[data-name='Total']")["usd"] == f"${total.usd:.4f}"
    assert read_cells(page, "tr[data-name='m']")["usd"] == f"${total.usd:.4f}"
    expect(page.locator("dl.split div", has_text="Waiting for a person")).to_contain_text("0 %")


# Teams


@pytest.fixture
def team_in_repo(site: Site) -> Iterator[str]:
    folder = site.repo / ".podium" / "agents"
    folder.mkdir(parents=True)
    team = "team:\n  mode: sequential\n  members: [scribe, critic]"
    (folder / "pair.md").write_text(f"---\nname: pair\ndescription: Two who write\n{team}\n---\nLead.\n")
    for name in ("scribe", "critic"):
        (folder / f"{name}.md").write_text(f"---\nname: {name}\ndescription: A {name}\n---\nYou are a {name}.\n")
    yield "pair"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def test_a_team_shows_its_members_its_workflow_and_starts_a_run(
    site: Site, visitor: Visitor, team_in_repo: str
) -> None:
    page = visitor.open(site, "/teams")
    own = page.locator("section", has=page.get_by_role("heading", name="From this repository"))
    expect(page.get_by_role("heading", name="Built-in")).to_be_visible()

    own.get_by_role("link", name=re.compile("pair")).click()

    expect(page.get_by_text("Two who write")).to_be_visible()
    members = page.locator("section", has=page.get_by_role("heading", name="Members")).get_by_role("listitem")
    expect(members).to_have_text([re.compile("scribe.*A scribe"), re.compile("critic.*A critic")])
    graph = page.get_by_role("group", name="Agents and how they are connected")
    expect(graph.locator(".graph-node")).to_have_count(3)
    expect(graph.locator("path.graph-line")).to_have_count(2)
    page.get_by_text("Connections in words").click()
    expect(page.locator(".edges li").first).to_contain_text("pair")
    page.get_by_label("Request").fill("Write a poem")
    page.get_by_text("Limits and model").click()
    page.get_by_label("Model").fill("nobody:nothing")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert")).to_contain_text("model provider 'nobody' not found")
    expect(page.get_by_label("Request")).to_have_value("Write a poem")
    page.get_by_label("Model").fill("")
    page.get_by_role("button", name="Start").click()
    expect(page).to_have_url(re.compile(r"#/run/\w+$"))
    run = page.url.rpartition("/")[2]
    expect(page.get_by_text(f"Run {run} started.")).to_be_visible()
    assert (found := read_api(page, f"/api/runs/{run}"))["agent"] == "pair"
    assert found["request"] == "Write a poem"


def test_a_router_shows_the_agents_that_it_chooses_from(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/teams/triage")

    expect(page.get_by_role("heading", name="Members")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".graph-node").nth(2)).to_be_visible()


# Settings


def test_settings_show_health_and_a_revoked_browser_is_signed_out(site: Site, visitor: Visitor) -> None:
    phone = visitor.open(site, "/workers", viewport=PHONE)
    page = visitor.open(site, "/settings")
    health = page.locator("section", has=page.get_by_role("heading", name="Health"))
    expect(health.get_by_role("listitem").filter(has_text="python")).to_contain_text("ok")
    expect(health.get_by_role("listitem").filter(has_text="engine")).to_contain_text("note")
    expect(page.get_by_text(str(site.repo), exact=True)).to_be_visible()
    tokens = page.locator("section", has=page.get_by_role("heading", name="Tokens")).get_by_role("listitem")
    own = tokens.filter(has_text="this browser")
    expect(own).to_have_count(1)
    expect(own.get_by_role("button", name="Revoke")).to_have_count(0)
    before = tokens.count()

    # The phone signed in just before this page.
    tokens.filter(has_not_text="this browser").last.get_by_role("button", name="Revoke").click()

    expect(tokens).to_have_count(before - 1)
    phone.goto(f"{site.address}/#/cost")
    expect(phone.get_by_role("heading", name=re.compile("Podium|Sign in"))).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name=re.compile("Podium|Sign in"))).to_be_visible()


# Hostile text

HARMLESS = "<b>bold</b><img src=x>"
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>![p](http://attacker.test/p.png) \u202eoops\x1b[2J"
SEEN = "<img src=x onerror=alert(1)><script>alert(2)</script>![p](http://attacker.test/p.png) \\u202eoops\\x1b[2J"


def test_text_from_agents_is_text_on_every_screen(site: Site, visitor: Visitor, team_in_repo: str) -> None:
    data.write_hostile_runs(site, EVIL)
    folder = site.repo / ".podium" / "agents"
    pair = (folder / "pair.md").read_text()
    (folder / "pair.md").write_text(pair.replace("Two who write", repr(HARMLESS)).replace("Lead.", EVIL))
    (folder / "critic.md").write_text(f"---\nname: critic\ndescription: {HARMLESS!r}\n---\n{EVIL}\n")
    site.server.context.tokens.create_token(EVIL, ("read",), seconds=60, channel="page")
    page = visitor.open(site)

    for place, times in {
        "plans": 1,
        "plans/ee01": 16,
        "decisions": 3,
        "decisions/ee01/d9": 16,
        "workers": 4,
        "workers/ee02": 4,
        "workers?view=merge": 1,
        "cost": 4,
        "settings": 1,
    }.items():
        go(page, site, place)
        expect(page.locator("main")).to_have_text(re.compile(rf"(?:{re.escape(SEEN)}.*){{{times}}}"))
        assert "\u202e" not in page.locator("main").inner_text(), place
        assert find_sideways_scroll(page) <= 0, place
    for place in ("teams", f"teams/{team_in_repo}"):
        go(page, site, place)
        expect(page.locator("main")).to_contain_text(HARMLESS)
    expect(page.locator("pre").filter(has_text=SEEN)).to_have_count(2)
    assert page.locator("main img, main script").count() == 0
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    for place in ("plans/ee01", "decisions/ee01/d9", "workers", "workers/ee02", "cost"):
        go(page, site, place)
        assert find_sideways_scroll(page) <= 0, place
