"""The first screen: what needs you, what works, what has finished, and a form to start a run."""

from __future__ import annotations

import re
import time

from playwright.sync_api import expect

from podium import Agent
from podium.testing import calls
from podium.values.event import (
    Checked,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    RunEnded,
    RunPaused,
    RunStarted,
    TurnStarted,
    WorkCommitted,
)
from podium.values.request import Request
from podium.values.usage import Usage
from podium.values.worker_task import WorkerTask

from .conftest import DESKTOP, PHONE, Site, Visitor, find_sideways_scroll


def test_a_run_moves_from_band_to_band_as_it_works(site: Site, visitor: Visitor) -> None:
    site.studio.agent("writer", says=[calls("bash", command="touch made.txt"), "It is made."], tools=("bash",))
    page = visitor.open(site, "/now")
    needs, working, finished = (page.get_by_role("region", name=name) for name in ("Needs you", "Working", "Finished"))
    expect(needs).to_contain_text("Nothing needs you.")
    expect(working).to_contain_text("podium run plan-build-review")
    expect(finished).to_contain_text("No run has finished yet.")

    run = site.start_run("writer", "Make the file")

    expect(working.get_by_role("article")).to_contain_text("waits for you")
    expect(working.get_by_role("article")).to_contain_text("waiting for permission to use bash")
    expect(working.get_by_role("img", name=re.compile(r"Entries in the last three minutes: [1-9]"))).to_be_visible()
    expect(needs.get_by_role("link")).to_contain_text(
        re.compile(r"permission\s*waiting \d+s\s*bash touch made.txt\s*writer")
    )
    assert working.get_by_role("link", name="writer").get_attribute("href") == f"#/run/{run}"
    needs.get_by_role("link").focus()
    message = working.get_by_role("link", name="Message")
    expect(message).to_have_attribute("href", f"#/run/{run}?tab=chat")
    site.write_run("other", RunStarted(agent="lead", request=Request(text="Elsewhere"), agents=(Agent(name="lead"),)))
    expect(working.get_by_role("article")).to_have_count(2)
    expect(needs.get_by_role("link")).to_be_focused()  # an update of the page does not take the focus away
    expect(working.get_by_role("article").filter(has_text="Elsewhere")).to_contain_text("interrupted, can resume")
    working.get_by_role("button", name="Pause").click()
    expect(page.get_by_text(re.compile("paus", re.I)).first).to_be_visible()
    [one] = site.list_requests()
    site.answer(run, one.asked.id, "deny")
    expect(needs).to_contain_text("Nothing needs you.")
    page.goto(f"{site.address}/#/run/{run}?tab=chat")
    expect(page.get_by_role("tab", name="Chat")).to_have_attribute("aria-selected", "true")


def test_a_finished_run_shows_its_result_its_changed_lines_and_its_checks(site: Site, visitor: Visitor) -> None:
    request = Request(text="Export to CSV")
    site.write_run(
        "done1",
        RunStarted(agent="builder", request=request, agents=(Agent(name="builder"),)),
        OperationStarted(agent="builder", trigger="request", request=request),
        WorkCommitted(branch="feat/csv", commit="c", added=12, removed=4),
        Checked(commands=("make lint",), passed=True),
        Checked(commands=("make test",), passed=False),
        OperationEnded(outcome="succeeded", text="The export works.\nDetails follow."),
        RunEnded(outcome="succeeded"),
    )
    page = visitor.open(site, "/now")

    row = page.get_by_role("region", name="Finished").get_by_role("link", name=re.compile("Export to CSV"))

    expect(row).to_contain_text("The export works.")
    expect(row).to_contain_text("+12 −4 · 1 of 2 checks passed · ")
    expect(row).not_to_contain_text("Details")


def test_a_run_that_waits_for_a_limit_counts_down(site: Site, visitor: Visitor) -> None:
    request = Request(text="Port the parser")
    task = WorkerTask(root="/srv/repo", path="/srv/tree", branch="feat/parser")
    site.write_run(
        "waits1",
        RunStarted(agent="builder", request=request, agents=(Agent(name="builder"),), errand=task),
        RunPaused(until=time.time() + 2 * 3600 + 90, reason="the limit of openai:gpt-5"),
    )
    page = visitor.open(site, "/now")

    card = page.get_by_role("region", name="Working").get_by_role("article").filter(has_text="feat/parser")

    expect(card).to_contain_text("waits for a limit")
    expect(card).to_contain_text(re.compile(r"continues in 2h 0?1m"))
    expect(card.get_by_role("button", name="Resume")).to_be_visible()
    page.goto(f"{site.address}/#/run/waits1")
    expect(page.get_by_text(re.compile("continues in 2h 0?1m"))).to_be_visible()


def test_a_worker_and_many_runs_fit_on_every_screen(site: Site, visitor: Visitor) -> None:
    task = WorkerTask(
        root="/srv/repo", path="/srv/tree", branch="podium/add-a-very-long-branch-name-" + "x" * 60, parent="p1"
    )
    started = RunStarted(
        agent="builder", request=Request(text="Build it " * 40), agents=(Agent(name="builder"),), errand=task
    )
    site.write_run(
        "first",
        started,
        TurnStarted(agent="builder", engine="openai:gpt-4o", prompt="Build it"),
        ModelReplied(model="gpt-4o", usage=Usage(calls=1, input_tokens=60_000, output_tokens=4_000)),
        WorkCommitted(branch=task.branch, commit="c", added=61, removed=3),
    )
    for number in range(60):
        site.write_run(f"w{number}", started)
    page = visitor.open(site, "/now", viewport=PHONE)

    cards = page.get_by_role("region", name="Working").get_by_role("article").filter(has_text=task.branch)

    expect(cards).to_have_count(61)
    busy = cards.filter(has_text="gpt-4o")
    expect(busy).to_contain_text("+61 −3")
    expect(busy.get_by_text("context 50% full")).to_have_attribute(
        "title", "builder: 64,000 of 128,000 tokens in the context window of openai:gpt-4o"
    )
    expect(cards.filter(has_text="context")).to_have_count(1)
    expect(cards.first.get_by_role("link", name="from run p1")).to_have_attribute("href", "#/run/p1")
    expect(cards.first).to_contain_text("queued")
    for size in (PHONE, DESKTOP):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        assert find_sideways_scroll(page) == 0


def test_a_run_starts_from_the_form(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, "/now")
    page.get_by_role("button", name="Start a run").click()
    form = page.get_by_role("dialog", name="Start a run")
    form.get_by_label("Agent or team").fill("nobody")
    form.get_by_label("Request").fill("Say hello")
    form.get_by_role("button", name="Start", exact=True).click()
    expect(form.get_by_role("alert")).to_contain_text("nobody")
    assert form.locator("#agents option").count() > 0

    form.get_by_label("Agent or team").fill("answer")
    form.get_by_label("Budget").fill("0.5")
    form.get_by_role("button", name="Start", exact=True).dblclick()

    expect(page.get_by_text(re.compile(r"Run \w+ started\."))).to_be_visible()
    page.goto(f"{site.address}/#/runs?text=hello")
    expect(page.get_by_role("row").filter(has_text="Say hello")).to_have_count(1)
