"""Plans, decisions, workers, costs, teams and settings in a real browser, on a real store and repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from podium.store.sqlite.reader import StoreReader
from podium.values.usage import Usage, sum_usage
from podium.views.run_view import usage_of_event

from ..collaboration import Play, add_team, make_plan, make_step, use_tool
from . import screen_data as data
from .conftest import DESKTOP, PHONE, WIDE, Site, Visitor, find_sideways_scroll, open_site

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
    "teams",
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


def find_serious_problems(page: Page) -> list[str]:
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in ("serious", "critical")
    ]


def wait_loaded(page: Page) -> None:
    """Wait until a screen shows its data."""
    expect(page.locator("main h1")).to_be_visible()
    expect(page.get_by_text(re.compile(r"^Loading"))).to_have_count(0)


def go(page: Page, site: Site, place: str) -> None:
    page.goto(f"{site.address}/#/{place}")
    wait_loaded(page)


def read_api(page: Page, path: str) -> Any:
    script = """path => fetch(path, {headers: {Authorization: `Bearer ${sessionStorage.getItem("podium-token")}`}})
        .then(reply => reply.json())"""
    return page.evaluate(script, path)


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_every_screen_fits_and_can_be_read_by_everybody(
    site: Site, visitor: Visitor, viewport: Any, scheme: Any
) -> None:
    page = visitor.open(site, viewport=viewport, color_scheme=scheme)

    for place in PLACES:
        go(page, site, place)
        assert find_sideways_scroll(page) <= 0, place
        assert find_serious_problems(page) == [], place
    go(page, site, f"plans/{data.PLAN_RUN}")
    page.get_by_role("button", name="Graph").click()
    assert find_sideways_scroll(page) <= 0
    assert find_serious_problems(page) == []


def test_the_other_schemes_and_a_wide_window_fit_too(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, viewport=PHONE, color_scheme="light")
    go(page, site, f"workers/{data.CSV_RUN}")
    assert find_serious_problems(page) == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    for place in PLACES:
        go(page, site, place)
        assert find_sideways_scroll(page) <= 0, place
    go(page, site, f"plans/{data.PLAN_RUN}")
    assert find_serious_problems(page) == []


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
    expect(check).to_contain_text("at most 10m 00s, 50,000 tokens, 3 files")
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
    expect(ballots.nth(3)).to_have_text(re.compile("dan.*ballot for tab refused.*the vote is closed"))
    expect(page.get_by_text("More than half of all voters must agree.")).to_be_visible()
    expect(page.get_by_text("It is the default.")).to_be_visible()
    page.get_by_text("Text as a decision record").click()
    expect(page.locator("pre")).to_contain_text("# Which separator?")
    page.get_by_role("link", name="Which separator now?").click()
    expect(page.get_by_role("heading", name="Which separator now?")).to_be_visible()
    expect(page.get_by_role("link", name="Which separator?", exact=True)).to_be_visible()


def test_an_open_vote_counts_down_and_names_who_is_missing(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site)
    page.clock.install()
    go(page, site, f"decisions/{data.VOTE_RUN}/d3")

    expect(page.get_by_role("timer")).to_have_text(re.compile(r"closes in 5\dm \d\ds"))
    expect(page.get_by_text("Missing voters: bob, cy")).to_be_visible()
    expect(page.get_by_text("Needed: 2 of 3 votes for one option")).to_be_visible()
    page.clock.fast_forward(2 * 3600_000)
    expect(page.get_by_role("timer")).to_have_text("closes as soon as the voters have finished")


# Workers


def test_the_list_of_workers_says_who_needs_a_person(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/workers")

    finished = page.locator("section", has=page.get_by_role("heading", name="Finished"))
    expect(finished.get_by_role("link", name=re.compile("feat/csv"))).to_have_text(
        re.compile(r"complete.*Export to CSV.*\+3 −1.*\$0.50")
    )
    expect(finished.get_by_role("link", name=re.compile("reader"))).to_contain_text("the model refused")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Worker", exact=True)).to_be_visible()


def test_a_diff_has_its_files_its_lines_and_ticks_that_stay(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/workers/{data.CSV_RUN}")

    app, notes = page.get_by_role("region", name="app.py"), page.get_by_role("region", name="notes.md")
    expect(app.locator("tr[data-mark='+']")).to_have_text(re.compile(r"2\+ added    return 'a,b'$"))
    expect(app.locator("tr[data-mark='-']")).to_contain_text("return ''")
    expect(notes).to_contain_text("# Notes\\r")
    expect(notes).to_contain_text("שלום")
    app.get_by_label("Viewed").check()
    expect(app.locator("tr")).to_have_count(0)
    expect(page.get_by_text("1 of 2 viewed")).to_be_visible()

    page.reload()

    expect(page.get_by_text("1 of 2 viewed")).to_be_visible()
    expect(page.get_by_role("region", name="app.py").get_by_label("Viewed")).to_be_checked()


def test_a_diff_of_5000_lines_is_drawn_piece_by_piece(site: Site, visitor: Visitor) -> None:
    repo = site.repo
    files: dict[str, str | bytes] = {f"small{number:02}.py": "one\n" for number in range(30)}
    files |= {"long.py": "".join(f"value_{number} = {number}\n" for number in range(5000)), "logo.png": b"\0\1"}
    data.make_branch(repo, "feat/long", files)
    data.write_worker(site, "bb04", "feat/long", "Write much", change=(5030, 0))
    page = visitor.open(site, "/workers/bb04")

    long = page.get_by_role("region", name="long.py")
    expect(long).to_contain_text("value_0 = 0")
    assert page.locator(".diff tr").count() < 1000
    page.get_by_role("navigation", name="Changed files").get_by_role("link", name=re.compile("small29.py")).click()
    expect(page.get_by_role("region", name="small29.py").locator("tr[data-mark='+']")).to_be_in_viewport()
    expect(page.get_by_role("region", name="logo.png")).to_contain_text("Binary file")
    long.locator("tbody").last.scroll_into_view_if_needed()
    expect(long).to_contain_text("value_4999 = 4999")
    assert page.locator(".diff tr").count() < 2500


def choose_branches(page: Page, *branches: str) -> None:
    boxes = page.get_by_role("group", name=re.compile("^Branches")).get_by_role("checkbox")
    expect(boxes.first).to_be_visible()
    for box in boxes.all():
        box.set_checked(box.get_attribute("value") in branches)


def test_a_merge_is_previewed_and_moves_the_target_only_after_a_second_yes(site: Site, visitor: Visitor) -> None:
    before = data.git(site.repo, "rev-parse", "main")
    page = visitor.open(site, "/workers")
    page.get_by_role("link", name="Merge…").click()
    forecast = page.locator("section", has=page.get_by_role("heading", name="Overlap forecast"))
    expect(forecast).to_contain_text("feat/csv and feat/tsv both change app.py; they would conflict in app.py")
    choose_branches(page, "feat/csv", "feat/tsv")
    page.get_by_label("Checks").fill("grep -q export app.py")

    page.get_by_role("button", name="Preview the merge").click()

    result = page.get_by_role("region", name="Result of the merge")
    expect(result).to_contain_text("Merged onto main: feat/csv")
    expect(result.get_by_role("listitem").filter(has_text="feat/tsv")).to_contain_text("left out")
    expect(result).to_contain_text("Checks that passed: grep -q export app.py")
    tree = data.git(site.repo, "rev-parse", "feat/csv^{tree}")
    expect(result.locator("dd", has_text=tree)).to_be_visible()
    result.get_by_role("button", name="Move main to this tree").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert data.git(site.repo, "rev-parse", "main") == before
    result.get_by_role("button", name="Move main to this tree").click()
    page.get_by_role("dialog").get_by_role("button", name="Move main").click()
    expect(result).to_contain_text("main has this tree now.")
    assert data.git(site.repo, "rev-parse", "main^{tree}") == tree


def test_a_failing_check_leaves_a_branch_out_and_says_why(site: Site, visitor: Visitor) -> None:
    data.make_branch(site.repo, "feat/bad", {"bad.py": "x\n"})
    data.write_worker(site, "bb05", "feat/bad", "Break it", change=(1, 0))
    page = visitor.open(site, "/workers?view=merge")
    choose_branches(page)
    expect(page.get_by_role("button", name="Preview the merge")).to_be_disabled()
    choose_branches(page, "feat/bad")
    page.get_by_label("Checks").fill("echo it is broken; false")

    page.get_by_role("button", name="Preview the merge").click()

    result = page.get_by_role("region", name="Result of the merge")
    expect(result).to_contain_text("Nothing was merged; main stays as it is.")
    left_out = result.get_by_role("listitem").filter(has_text="feat/bad")
    expect(left_out).to_contain_text("left out")
    left_out.get_by_text("Output").click()
    expect(left_out.locator("pre")).to_contain_text("it is broken")
    expect(result.get_by_role("button", name="Move main to this tree")).to_have_count(0)


def test_an_interrupted_worker_gets_messages_and_is_cancelled_after_a_question(site: Site, visitor: Visitor) -> None:
    data.make_branch(site.repo, "feat/half", {"half.py": "x\n"})
    data.write_worker(site, "bb06", "feat/half", "Do half", answer=None)
    page = visitor.open(site, "/workers/bb06")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_disabled()

    page.get_by_label("Message to the worker").fill("use tabs")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("Message to the worker")).to_have_value("")
    page.get_by_role("button", name="Cancel the worker…").click()
    page.get_by_role("dialog").get_by_role("button", name="Let it work").click()
    assert read_api(page, "/api/runs/bb06")["state"] == "resumable"
    page.get_by_role("button", name="Cancel the worker…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the worker").click()

    expect(page.get_by_text("stopping run bb06")).to_be_visible()
    with StoreReader(site.store) as reader:
        assert len(reader.read_mailbox_refs("bb06")) >= 1


def test_a_refused_delegation_stays_in_the_form_with_the_reason(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/workers")
    page.get_by_role("button", name="Delegate").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Branch", exact=True).fill("no good..name")
    form.get_by_label("Task").fill("Do it")
    form.get_by_label(re.compile("^Agent")).fill("worker")

    form.get_by_role("button", name="Delegate").click()

    expect(form.get_by_role("alert")).to_contain_text("no good..name")
    expect(form.get_by_label("Task")).to_have_value("Do it")


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

    for run, usage in usages.items():
        assert show_usage(usage).items() <= read_cells(page, f"tr[data-run='{run}']").items()
    assert show_usage(sum_usage(usages.values())).items() <= read_cells(page, ".cost-total").items()
    assert usages["cc01"].rehearsed_calls == 3
    expect(page.locator(".chart-segment").first).to_be_visible()
    page.get_by_role("button", name="Rehearsed tokens").click()
    expect(page.locator(".chart-segment title")).to_contain_text(["cc01"])


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


def test_a_router_shows_the_agents_that_it_chooses_from(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/teams/triage")

    expect(page.get_by_role("heading", name="Members")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    assert page.locator(".graph-node").count() > 2


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
    count = tokens.count()

    for _ in range(count - 1):
        before = tokens.count()
        tokens.get_by_role("button", name="Revoke").first.click()
        expect(tokens).to_have_count(before - 1)

    phone.goto(f"{site.address}/#/cost")
    expect(phone.get_by_role("heading", name=re.compile("Podium|Sign in"))).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name=re.compile("Podium|Sign in"))).to_be_visible()
