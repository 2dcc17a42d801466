"""Workers in a real browser: their list, their diffs, merging their branches, and steering them."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.sync_api import Page, Route, expect

from podium.store.reader import StoreReader
from podium.values.event import Event, OperationEnded, RunEnded, WorkEnded

from . import screen_data as data
from .conftest import PHONE, Site, Visitor
from .screen_checks import read_api

ORCHESTRATED, FAILED, PLANNED = "a0a0", "a1a1", "a2a2"
"""The runs of teams: one that succeeded, one that failed, and one with a plan and a result."""


@pytest.fixture(autouse=True)
def _home(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server's parts that read the environment find the site's home."""
    monkeypatch.setenv("PODIUM_HOME", str(site.studio.settings.home))


@pytest.fixture(scope="module", autouse=True)
def _data(site: Site) -> None:
    data.write_workers(site)


def test_the_list_of_workers_says_who_needs_a_person(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/workers")

    finished = page.locator("section", has=page.get_by_role("heading", name="Finished"))
    expect(finished.get_by_role("link", name="feat/csv")).to_have_text(
        re.compile(r"complete.*Export to CSV.*\+3 −1.*2 of 2 checks passed.*\$0.50.*context 75% full")
    )
    reader = finished.get_by_role("link", name=re.compile("reader"))
    expect(reader).to_contain_text("the model refused")
    expect(reader).not_to_contain_text("context")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Worker", exact=True)).to_be_visible()


def test_a_card_also_shows_the_columns_that_the_page_does_not_know(site: Site, visitor: Visitor) -> None:
    def add_column(route: Route) -> None:
        found = route.fetch().json()
        found["columns"].append({"name": "restarts", "heading": "Restarts", "kind": "number"})
        found["workers"] = [one | {"restarts": 1200} for one in found["workers"]]
        route.fulfill(json=found)

    page = visitor.open(site)
    page.route("**/api/workers", add_column)

    page.goto(f"{site.address}/#/workers")

    expect(page.get_by_role("link", name="feat/csv")).to_contain_text("Restarts 1,200")


def test_a_diff_has_its_files_its_lines_and_ticks_that_stay(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/workers/{data.CSV_RUN}")

    app, notes = page.get_by_role("region", name="app.py"), page.get_by_role("region", name="notes.md")
    expect(app.locator("tr[data-mark='+']")).to_have_text(re.compile(r"2\+ added    return 'a,b'$"))
    expect(app.locator("tr[data-mark='-']")).to_contain_text("return ''")
    expect(app.locator("tr[data-mark='+'] .syntax-string")).to_have_text("'a,b'")
    expect(notes).to_contain_text("# Notes\\r")
    expect(notes).to_contain_text("שלום")
    app.get_by_label("Viewed").check()
    expect(app.locator("tr")).to_have_count(0)
    expect(page.get_by_text("1 of 2 viewed")).to_be_visible()

    page.reload()

    expect(page.get_by_text("1 of 2 viewed")).to_be_visible()
    expect(page.get_by_role("region", name="app.py").get_by_label("Viewed")).to_be_checked()


def test_a_worker_in_several_repositories_says_what_the_page_does_not_show(site: Site, visitor: Visitor) -> None:
    data.make_branch(site.repo, "feat/both", {"one.txt": "one\n"})
    data.write_worker(site, "bb07", "feat/both", "Change both", change=(1, 0), also=site.repo.parent / "other")

    page = visitor.open(site, "/workers/bb07")

    expect(page.locator(".facts")).to_contain_text(f"Also in{site.repo.parent / 'other'}-worker, 1 file committed")
    expect(page.get_by_text("podium workers diff feat/both")).to_be_visible()
    expect(page.get_by_role("region", name="one.txt")).to_be_visible()


@pytest.mark.slow
def test_a_diff_of_5000_lines_is_drawn_piece_by_piece(site: Site, visitor: Visitor) -> None:
    repo = site.repo
    files: dict[str, str | bytes] = {f"small{number:02}.py": "one\n" for number in range(30)}
    files |= {"long.py": "".join(f"value_{number} = {number}\n" for number in range(5000)), "logo.png": b"\0\1"}
    data.make_branch(repo, "feat/long", files | {"end.txt": "the end"})
    data.git(repo, "checkout", "-q", "feat/long")
    data.git(repo, "mv", "app.py", "main.py")
    data.git(repo, "update-index", "--chmod=+x", "main.py")
    data.git(repo, "commit", "-qm", "Rename it")
    data.git(repo, "checkout", "-qf", "main")
    data.write_worker(site, "bb04", "feat/long", "Write much", change=(5030, 0))
    page = visitor.open(site, "/workers/bb04")

    long = page.get_by_role("region", name="long.py")
    expect(long).to_contain_text("value_0 = 0")
    assert page.locator(".diff tr").count() < 1000
    page.get_by_role("navigation", name="Changed files").get_by_role("link", name=re.compile("small29.py")).click()
    expect(page.get_by_role("region", name="small29.py").locator("tr[data-mark='+']")).to_be_in_viewport()
    expect(page.get_by_role("region", name="logo.png")).to_contain_text("Binary file")
    expect(page.get_by_role("region", name="end.txt")).to_contain_text("No newline at end of file")
    expect(page.get_by_role("region", name="main.py")).to_contain_text("renamed, from app.py, mode 100644 to 100755")
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


def write_team(site: Site, run: str, outcome: Literal["succeeded", "failed"], *events: Event) -> None:
    """Write the run of a team with this outcome."""
    ends: list[Event] = [OperationEnded(outcome=outcome), RunEnded(outcome=outcome)]
    site.write_run(run, *data.start(site, "Ship it"), *events, *ends)


def test_what_may_be_merged_is_the_result_of_a_team_and_the_last_work_of_members(site: Site, visitor: Visitor) -> None:
    first, second = f"podium/{ORCHESTRATED}/worker-1", f"podium/{ORCHESTRATED}/worker-2"
    step, failed, result = f"podium/{PLANNED}/ada-1", f"podium/{FAILED}/worker-1", f"podium/{PLANNED}/result"
    for branch in (first, second, step, failed, result):
        data.make_branch(site.repo, branch, {f"{branch.replace('/', '-')}.py": "x\n"})
    tip = data.git(site.repo, "rev-parse", result)
    write_team(site, ORCHESTRATED, "succeeded")
    write_team(site, FAILED, "failed")
    write_team(site, PLANNED, "succeeded", WorkEnded(done=("s1",), branch=result, commit=tip))
    member = "lead/member:worker#"
    data.write_worker(site, "bb21", first, "First", parent=ORCHESTRATED, operation=f"{member}1")
    data.write_worker(site, "bb22", second, "Second", parent=ORCHESTRATED, operation=f"{member}2")
    data.write_worker(site, "bb23", failed, "Fail", parent=FAILED, operation=f"{member}1")
    data.write_worker(site, "bb24", step, "Step", parent=PLANNED, operation="lead/plan_step:s1/member:ada#1")

    page = visitor.open(site, "/workers?view=merge")

    group = page.get_by_role("group", name=re.compile("^Branches"))
    boxes = group.get_by_role("checkbox")
    expect(boxes.first).to_be_visible()
    listed = [box.get_attribute("value") for box in boxes.all()]
    assert {second, result} <= set(listed)
    assert not {first, step, failed} & set(listed)
    expect(group).to_contain_text(f"the result of lead in run {PLANNED}; steps done: s1")
    page.get_by_text("Not listed: 3").click()
    skipped = page.get_by_role("listitem")
    expect(skipped.filter(has_text=first)).to_contain_text(
        f"it is an earlier attempt of worker in run {ORCHESTRATED}; the later one is on {second}"
    )
    expect(skipped.filter(has_text=failed)).to_contain_text(
        f"it is the work of worker for the team of lead in run {FAILED}, which did not succeed"
    )
    expect(skipped.filter(has_text=step)).to_contain_text(f"it belongs to step s1 of lead in run {PLANNED}")
    forecast = page.locator("section", has=page.get_by_role("heading", name="Overlap forecast"))
    expect(forecast).to_contain_text(result)
    expect(forecast).not_to_contain_text(step)


@pytest.mark.slow
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


def test_a_task_is_delegated_to_a_worker_on_its_own_branch(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/workers", viewport=PHONE)
    page.get_by_role("button", name="Delegate").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Branch", exact=True).fill("feat/poem")
    form.get_by_label("Task").fill("Write a poem")

    form.get_by_role("button", name="Delegate").click()

    expect(page).to_have_url(re.compile(r"#/workers/\w+$"))
    expect(page.get_by_role("heading", name="feat/poem")).to_be_visible()
    expect(page.get_by_text("Write a poem")).to_be_visible()
    expect(page.get_by_text("Answer", exact=True)).to_be_visible(timeout=30_000)
    expect(page.get_by_text("complete", exact=True)).to_be_visible()


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
