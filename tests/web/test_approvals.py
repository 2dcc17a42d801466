"""Requests in the dashboard: everything is shown before it can be answered, and every answer counts once."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest
from msgspec import structs
from playwright.sync_api import Page, expect

from podium import Agent
from podium.runs.queries.request_details import PermissionDetails, QuestionDetails, describe_in_full
from podium.testing import calls
from podium.values.action import Action, RiskFact
from podium.values.event import (
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunStarted,
)
from podium.values.request import Request
from podium.values.worker_task import WorkerTask

from .conftest import DESKTOP, PHONE, Site, Visitor, find_sideways_scroll

HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script>",
    "![pixel](http://attacker.test/p.png) [click](javascript:alert(3))",
    "\x1b[2J\x1b[1;1Hls \u202eoops\u202c\u200b \x07\x9b31m \x1b]8;;http://attacker.test\x07link\x1b]8;;\x07",
    f"ls{' ' * 3000}; rm -rf /",
)
EVIL = " ".join(HOSTILE)

WHOLE_REQUEST = "The whole request"


@pytest.fixture(autouse=True)
def _end_runs(site: Site) -> Any:
    """End the runs of a test, so that the next test finds no open requests."""
    yield
    site.stop_runs()
    for one in site.list_requests():
        site.answer(one.summary.id, one.asked.id, "deny")


def add_shell_agent(site: Site, name: str, command: str, **more: Any) -> None:
    site.studio.agent(name, says=[calls("bash", command=command), "done"], tools=("bash",), **more)


def show_to_end(page: Page) -> None:
    """Scroll a request to its end."""
    page.get_by_role("region", name=WHOLE_REQUEST).locator(".end").scroll_into_view_if_needed()


def approve_button(page: Page) -> Any:
    return page.get_by_role("button", name="Approve once")


def test_a_request_appears_everywhere_and_is_answered_once_wherever_that_is(site: Site, visitor: Visitor) -> None:
    add_shell_agent(site, "toucher", "touch seen.txt")
    desk, phone = visitor.open(site, "/approvals"), visitor.open(site, "/now", viewport=PHONE)
    expect(desk.get_by_text("Nothing waits for you.")).to_be_visible()
    expect(phone.get_by_text("Nothing needs you.")).to_be_visible()

    first = site.start_run("toucher")

    expect(phone.get_by_role("link", name="touch seen.txt")).to_be_visible()
    expect(desk.get_by_role("region", name=WHOLE_REQUEST)).to_contain_text("command: touch seen.txt")
    for page in (desk, phone):
        expect(page).to_have_title("(1) Podium")
        expect(page.get_by_role("status").filter(has_text="1 request needs you")).to_be_visible()
    [one] = site.list_requests()
    site.answer(first, one.asked.id, by="ada")
    expect(desk.get_by_text(re.compile(r"Approved once by ada \(terminal\), \d+s ago"))).to_be_visible()
    expect(approve_button(desk)).to_have_count(0)
    expect(phone.get_by_text("Nothing needs you.")).to_be_visible()
    expect(desk).to_have_title("Podium")
    desk.get_by_role("button", name="Dismiss").click()
    expect(desk.get_by_text("Nothing waits for you.")).to_be_visible()

    second = site.start_run("toucher", "again")
    phone.get_by_role("link", name="touch seen.txt").click()
    show_to_end(phone)
    approve_button(phone).dblclick()

    expect(phone.get_by_text("Approved once: bash touch seen.txt.")).to_be_visible()
    expect(desk.get_by_text(re.compile(r"Approved once by \S+ \(page\)"))).to_be_visible()
    assert site.list_requests() == []
    assert [one.decision for one in site.wait_for_events(second, PermissionAnswered)] == ["once"]
    phone.goto(f"{site.address}/#/approvals/{one.asked.id}")
    expect(phone.get_by_text("Approved once by ada (terminal)")).to_be_visible()


def test_nothing_can_be_answered_before_it_was_shown_to_its_end(site: Site, visitor: Visitor) -> None:
    long = "\n".join(f"echo {number}" for number in range(200))
    add_shell_agent(site, "long", f"{long}\ntouch last.txt")
    page = visitor.open(site, "/approvals", has_clock=True)

    run = site.start_run("long")

    expect(page.get_by_text("Scroll to the end to answer.")).to_be_visible()
    page.clock.run_for(5_000)
    for key in ("y", "r", "x", "Enter"):
        page.keyboard.press(key)
    answers = page.locator(".answers button")
    expect(answers).to_have_count(5)
    assert all(one.is_disabled() for one in answers.all())
    show_to_end(page)
    expect(approve_button(page)).to_be_enabled()
    assert len(site.list_requests()) == 1

    # A request that has just appeared is not answered by a key that was meant for the one before it.
    add_shell_agent(site, "short", "touch short.txt")
    page.clock.pause_at(page.evaluate("Date.now() / 1000 + 60"))
    short = site.start_run("short")
    while not page.get_by_role("link", name="touch short.txt").is_visible():
        page.clock.run_for(100)
    page.keyboard.press("y")
    expect(page.get_by_role("region", name=WHOLE_REQUEST)).to_contain_text("touch short.txt")
    page.keyboard.press("y")
    page.keyboard.press("Enter")
    page.clock.run_for(300)
    page.keyboard.press("y")
    expect(approve_button(page)).to_be_disabled()
    assert site.wait_for_events(run, PermissionAnswered)
    assert [one.summary.id for one in site.list_requests()] == [short]
    page.clock.run_for(300)
    expect(approve_button(page)).to_be_enabled()
    approve_button(page).focus()
    page.keyboard.press("Enter")
    assert len(site.list_requests()) == 1
    page.keyboard.press("y")
    page.clock.run_for(1_000)
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert site.list_requests() == []


def test_a_request_names_the_plan_step_that_it_belongs_to(site: Site, visitor: Visitor) -> None:
    owner = "lead/plan_step:parse/member:ada#1"
    started = RunStarted(agent="lead", request=Request(text="go"), agents=(Agent(name="lead"),))
    task = WorkerTask(root="/srv/repo", path="/srv/tree", branch="feat/parse", parent="planned1", operation=owner)
    action = Action(run="planned1", agent="ada", tool="bash", arguments={"command": "make"})
    site.write_run("planned1", started, (owner, PermissionAsked(id="s1", action=action, reason="no rule")))
    site.write_run("worker1", structs.replace(started, errand=task), PermissionAsked(id="s2", action=action, reason=""))
    site.write_run("alone1", started, PermissionAsked(id="s3", action=action, reason=""))

    found = {one.asked.id: describe_in_full(one) for one in site.list_requests()}
    page = visitor.open(site, "/approvals/s2")

    assert [(found[id].step, found[id].plan_run) for id in ("s1", "s2", "s3")] == [
        ("parse", "planned1"),
        ("parse", "planned1"),
        ("", ""),
    ]
    link = page.get_by_role("region", name=WHOLE_REQUEST).get_by_role("link", name="parse")
    expect(link).to_have_attribute("href", "#/plans/planned1")


def test_hostile_text_is_shown_escaped_in_full_wherever_it_stands(site: Site, visitor: Visitor) -> None:
    action = Action(run="evil", agent=EVIL, tool=EVIL, arguments={"command": EVIL, EVIL: EVIL}, directory=EVIL)
    started = RunStarted(agent=EVIL, request=Request(text=EVIL), agents=(Agent(name="lead"),), repo=EVIL)
    asked = PermissionAsked(
        id="e1",
        action=action,
        reason=EVIL,
        shown=f"+{EVIL}",
        always=EVIL,
        denied=(EVIL,),
        risks=(RiskFact(kind="deletes", examples=(EVIL,)),),
        agent_reason=EVIL,
    )
    question = QuestionAsked(id="e2", text=EVIL, choices=HOSTILE, shown=EVIL, digest="d", kind="plan")
    site.write_run("evil", started, asked, question, scope=EVIL.replace("/", ""))
    [permission, plan] = [describe_in_full(one) for one in site.list_requests()]
    assert isinstance(permission, PermissionDetails)
    assert isinstance(plan, QuestionDetails)

    page = visitor.open(site, "/approvals/e1")

    expect(page.locator("[data-part=lines] > div")).to_have_count(len(permission.lines))
    shown = page.locator("[data-part=lines] > div").all_text_contents()
    assert [text.strip() for text in shown] == [line.strip() for line in permission.lines]
    assert "[3000 spaces]" in "".join(shown)
    show_to_end(page)
    page.get_by_role("button", name="Always…").click()
    expect(page.locator("[data-part=rule]")).to_have_text(permission.always, use_inner_text=False)
    require_harmless(page)
    page.keyboard.press("Escape")
    page.goto(f"{site.address}/#/approvals/e2")
    expect(page.locator("[data-part=question]")).to_contain_text("onerror=alert(1)")
    assert page.locator("[data-part=question]").text_content() == plan.question
    assert page.locator("[data-part=shown]").text_content() == plan.shown
    assert page.locator(".choice").all_text_contents() == plan.choices
    require_harmless(page)
    for place in ("now", "runs"):
        page.goto(f"{site.address}/#/{place}")
        expect(page.locator("main a", has_text="onerror=alert(1)").first).to_be_visible()
        require_harmless(page)
    for size in (PHONE, DESKTOP):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        for place in ("now", "runs", "approvals", "approvals/e1", "approvals/e2"):
            page.goto(f"{site.address}/#/{place}")
            expect(page.locator("main")).to_contain_text("onerror=alert(1)")
            assert find_sideways_scroll(page) == 0, place
    page.goto(f"{site.address}/#/approvals/e2")
    show_to_end(page)
    page.locator(".answers button").nth(2).click()
    expect(page.get_by_text("Answered")).to_be_visible()
    assert [one.asked.id for one in site.list_requests()] == ["e1"]


def require_harmless(page: Page) -> None:
    """Fail if text became an element, or if a character that hides or reorders text reached the page as it was."""
    assert (
        page.locator("main img, main script, main iframe, main a[href*=attacker], main a[href^=javascript]").count()
        == 0
    )
    text = page.locator("body").inner_text()
    assert {one for one in text if unicodedata.category(one) in ("Cc", "Cf") and one not in "\n\t"} == set()


def test_every_answer_is_given_with_its_key_and_only_when_it_is_meant(site: Site, visitor: Visitor) -> None:
    add_shell_agent(site, "checker", "cargo check -q")
    add_shell_agent(site, "remover", "rm -rf build")
    page = visitor.open(site, "/approvals")

    always = site.start_run("checker")
    expect(approve_button(page)).to_be_enabled()
    page.keyboard.press("p")
    expect(page.locator("[data-part=rule]")).to_have_text("Bash(cargo check *)")
    allowed, others = (
        page.get_by_role("region", name=name, exact=True).get_by_role("listitem")
        for name in ("It allows, for example", "It does not allow, for example")
    )
    expect(allowed).to_have_text(["cargo check -q", "cargo check -q docs", "cargo check docs"])
    expect(others.first).to_have_text("cargo check -q && rm -rf build")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("y")
    page.keyboard.press("Escape")
    assert len(site.list_requests()) == 1
    page.keyboard.press("p")
    page.get_by_role("button", name="Save the rule and allow").click()
    expect(page.get_by_text("The rule Bash(cargo check *) is saved.")).to_be_visible()

    noted = site.start_run("remover", "one")
    expect(page.get_by_text("deletes or discards: build").first).to_be_visible()
    expect(page.get_by_role("button", name="Always…")).to_have_count(0)
    expect(approve_button(page)).to_be_enabled()
    page.keyboard.press("n")
    page.get_by_label("Note for the agent").fill("not yet")
    page.keyboard.press("y")
    page.get_by_role("button", name="Deny", exact=True).click()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()

    paused = site.start_run("remover", "two")
    expect(approve_button(page)).to_be_enabled()
    page.keyboard.press("x")
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()

    stopped = site.start_run("remover", "three")
    expect(approve_button(page)).to_be_enabled()
    page.keyboard.press("g")
    page.keyboard.press("a")  # the second key of "go to Approvals", not "stop the run"
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("a")
    page.get_by_role("dialog").get_by_role("button", name="Deny and stop the run").click()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()

    given = [read_answer(site, run) for run in (always, noted, paused, stopped)]
    assert [one.decision for one in given] == ["always", "deny", "deny_and_pause", "abort"]
    assert [one.comment for one in given] == ["", "not yety", "", ""]
    assert {one.channel for one in given} == {"page"}


@pytest.mark.parametrize("step", ["j", pytest.param("Tab", marks=pytest.mark.slow)])
def test_a_key_answers_the_request_that_has_the_focus_and_is_shown(site: Site, visitor: Visitor, step: str) -> None:
    add_shell_agent(site, "pusher", "git push --force")
    add_shell_agent(site, "tester", "cargo check -q")
    first = site.start_run("pusher")
    page = visitor.open(site, "/approvals")
    expect(approve_button(page)).to_be_enabled()
    second = site.start_run("tester")
    expect(page.get_by_text("2 waiting")).to_be_visible()
    items = page.get_by_role("region", name="Requests").get_by_role("link")
    items.first.focus()

    page.keyboard.press(step)
    page.keyboard.press("y")

    expect(items.nth(1)).to_be_focused()
    expect(items.nth(1)).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("region", name=WHOLE_REQUEST)).to_contain_text("cargo check -q")
    assert len(site.list_requests()) == 2
    expect(approve_button(page)).to_be_enabled()
    page.keyboard.press("y")
    assert read_answer(site, second).decision == "once"
    assert [one.summary.id for one in site.list_requests()] == [first]


def test_the_focus_follows_the_request_that_is_shown_when_the_page_chooses_another(
    site: Site, visitor: Visitor
) -> None:
    add_shell_agent(site, "pusher", "git push --force")
    add_shell_agent(site, "tester", "cargo check -q")
    first = site.start_run("pusher")
    site.wait_for_events(first, PermissionAsked)
    second = site.start_run("tester")
    page = visitor.open(site, "/approvals")
    expect(page.get_by_text("2 waiting")).to_be_visible()
    items = page.get_by_role("region", name="Requests").get_by_role("link")
    items.first.focus()
    page.keyboard.press("j")
    expect(items.nth(1)).to_have_attribute("aria-current", "true")

    page.keyboard.press("g")
    page.keyboard.press("a")

    expect(page.get_by_role("region", name=WHOLE_REQUEST)).to_contain_text("git push --force")
    expect(items.first).to_be_focused()
    expect(items.first).to_have_attribute("aria-current", "true")
    expect(approve_button(page)).to_be_enabled()
    page.keyboard.press("y")
    assert read_answer(site, first).decision == "once"
    assert [one.summary.id for one in site.list_requests()] == [second]


def read_answer(site: Site, run: str) -> PermissionAnswered:
    """Return the only answer to the only request of a run, as soon as the run has received it."""
    [answer] = site.wait_for_events(run, PermissionAnswered)
    assert isinstance(answer, PermissionAnswered)
    return answer


def test_identical_requests_are_approved_together_and_questions_are_answered(site: Site, visitor: Visitor) -> None:
    add_shell_agent(site, "same", "make all")
    add_shell_agent(site, "other", "make  all")
    asks = calls("ask_person", question="Which\ncolour?", choices=["red", "blue"])
    asks_again = calls("ask_person", question="Which\nother colour?", choices=["red", "blue"])
    site.studio.agent("asker", says=[asks, asks_again, "done"], tools=("ask_person",))
    runs = [site.start_run("same"), site.start_run("same")]
    page = visitor.open(site, "/approvals")
    expect(page.get_by_role("button", name="Approve all 2 identical once")).to_be_enabled()
    site.start_run("other")
    expect(page.get_by_text("3 waiting")).to_be_visible()

    page.get_by_role("button", name="Approve all 2 identical once").click()

    expect(page.get_by_text("2 identical requests approved once.")).to_be_visible()
    assert [read_answer(site, run).decision for run in runs] == ["once", "once"]
    expect(page.get_by_text("1 waiting")).to_be_visible()
    expect(approve_button(page)).to_be_enabled()
    page.keyboard.press("y")

    asked = site.start_run("asker")
    expect(page.locator("[data-part=question]")).to_have_text("Which\ncolour?", use_inner_text=True)
    expect(page.get_by_role("button", name="blue 2")).to_be_enabled()
    page.keyboard.press("2")
    expect(page.get_by_text('Answered "blue"')).to_be_visible()
    expect(page.get_by_role("button", name="blue 2")).to_be_enabled()
    page.get_by_label("Or in your own words").fill("y, green")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Nothing waits for you.")).to_be_visible()
    assert [one.text for one in site.wait_for_events(asked, QuestionAnswered, 2)] == ["blue", "y, green"]
