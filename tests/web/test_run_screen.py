"""The run screen: tree, timeline, log, drawer, chat, commands, live updates and replay at any entry."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped] # it has no types
from playwright.sync_api import Locator, Page, expect

from podium.store.reader import StoreReader
from podium.testing import read_entries, read_events
from podium.values.event import BudgetChanged, Event, MessageReceived, PermissionAsked, RunStarted, StopAsked
from podium.views.run_state.page_state import PageState
from podium.views.run_state.tree import OperationNode, RunView

from ..views.test_run_state import as_document, omit_zeros
from .conftest import PHONE, Site, Visitor, find_sideways_scroll
from .run_timelines import write_busy_run, write_live_run

E = TypeVar("E", bound=Event)

BUSY = "b05700000000"
LONG = "105600000000"
ENTRIES = 900


@pytest.fixture(scope="module", autouse=True)
def _runs(site: Site) -> None:
    """Write the runs that the tests look at, and add an agent that asks for permission."""
    write_busy_run(site, BUSY, ENTRIES)
    write_busy_run(site, LONG, 10_000)
    call = {"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}
    write = {"says": "I will write it.", "calls": [call]}
    site.studio.agent("writer", says=[write, "The file is written."] * 9, tools=("Write",))


def find_event(site: Site, run: str, kind: type[E]) -> E:
    """Return the only event of this kind."""
    [found] = read_events(site.store, run, kind)
    return found


def find_figure(page: Page, name: str) -> Locator:
    return page.locator(".run-figure", has_text=name).locator("strong")


def open_tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


# Looking


def test_a_run_shows_its_operations_their_tools_and_every_entry(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/run/{BUSY}")

    expect(page.get_by_role("heading", level=1)).to_have_text("Rewrite the importer and test it")
    expect(page).to_have_title("lead: Rewrite the importer and test it")
    expect(page.locator(".run-title .badge")).to_have_text("succeeded")
    expect(page.get_by_role("region", name="Answer")).to_contain_text("The importer is rewritten and tested.")
    view = RunView.from_entries(read_entries(site.store, BUSY))
    expect(find_figure(page, "Tokens")).to_have_text(f"{view.usage.tokens:,}")
    expect(find_figure(page, "Spend")).to_have_text(f"${view.usage.usd:.2f}")
    expect(page.locator(".run-labels li")).to_have_text(
        ["lead", *(f"worker-{number}" for number in range(1, 9)), "Votes", "Merges"]
    )

    page.locator(".run-node button", has_text="worker-3").click()
    operation = page.get_by_role("article", name="Operation of worker-3")
    expect(operation.get_by_role("heading", name="5 tool calls")).to_be_visible()
    tool = operation.locator(".run-tool").first
    expect(tool).to_contain_text("pytest -q tests/part_1.py")
    tool.locator("summary").click()
    expect(tool.locator(".run-code").first).to_contain_text('"command": "pytest -q tests/part_1.py"')
    expect(tool.locator(".run-code").last).to_have_text("1 passed")

    open_tab(page, "Log")
    expect(page.locator(".run-entry").last).to_contain_text("succeeded")
    assert page.locator(".run-entry").count() < 60
    page.get_by_label("Show streamed text").check()
    expect(page.get_by_role("list", name=f"{ENTRIES} entries")).to_be_visible()


def test_an_entry_opens_in_a_drawer_with_its_output_and_its_json(site: Site, visitor: Visitor) -> None:
    entries = read_entries(site.store, BUSY)
    asked = next(entry for entry in entries if isinstance(entry.event, PermissionAsked))
    page = visitor.open(site, f"/run/{BUSY}?entry={asked.seq}", permissions=["clipboard-read", "clipboard-write"])

    drawer = page.get_by_role("complementary", name=f"Entry {asked.seq}")
    expect(drawer).to_contain_text("asks for permission (")
    expect(drawer).to_contain_text('bash {"command": "pytest -q tests/part_')
    drawer.get_by_role("tab", name="JSON").click()
    shown = json.loads(drawer.locator(".run-code").inner_text())
    assert shown == json.loads(msgspec.json.encode(asked))
    drawer.get_by_role("tab", name="Diff").click()
    expect(drawer).to_contain_text("This entry has no diff.")

    drawer.get_by_role("button", name="Copy link").click()
    expect(page.locator(".toast")).to_contain_text("link copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"{site.address}/#/run/{BUSY}?at={asked.seq}&entry={asked.seq}"
    drawer.get_by_role("button", name="Next entry").click()
    expect(page.get_by_role("complementary", name=f"Entry {asked.seq + 1}")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".run-drawer")).to_have_count(0)
    assert page.url.endswith(f"#/run/{BUSY}")


def test_the_drawer_shows_the_hash_of_an_entry_and_the_one_before_it(site: Site, visitor: Visitor) -> None:
    with StoreReader(site.store) as reader:
        first, second = (row.hash.hex() for row in reader.read_rows(BUSY, most=2))
    page = visitor.open(site, f"/run/{BUSY}?entry=2")
    hashes = page.locator(".run-drawer .facts .hash")

    expect(hashes).to_have_text([second, first])

    page.locator(".run-drawer").get_by_role("button", name="Previous entry").click()
    expect(hashes).to_have_text([first, "0" * 64])


def test_the_timeline_zooms_and_a_click_opens_the_entry_below_it(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/run/{BUSY}")
    canvas, span = page.locator(".run-lanes canvas"), page.locator(".run-span")
    expect(page.locator(".run-axis span").first).to_be_visible()
    whole = span.inner_text()
    place = canvas.bounding_box()
    assert place is not None

    # The flag of the plan is at the beginning of the first lane.
    canvas.click(position={"x": 3, "y": 12})
    expect(page.locator(".run-drawer")).to_contain_text("plans iteration 1 for worker-1")
    page.keyboard.press("Escape")

    page.mouse.move(place["x"] + 100, place["y"] + 40)
    page.mouse.down()
    page.mouse.move(place["x"] + 200, place["y"] + 40, steps=4)
    page.mouse.up()
    expect(span).not_to_have_text(whole)
    brushed = span.inner_text()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    expect(span).not_to_have_text(brushed)
    page.get_by_role("button", name="Whole run").click()
    expect(span).to_have_text(whole)
    page.locator(".run-lanes").focus()
    page.keyboard.press("+")
    expect(span).not_to_have_text(whole)


STATES_IN_PIXELS = """
async () => {
  const { RunLog } = await import("/parts/run_log.mjs");
  const draw = await import("/parts/run_draw.mjs");
  const { listLanes } = await import("/run_state.mjs");
  const log = new RunLog(location.hash.split("/").pop());
  await log.load();
  const { view, activity } = log;
  const lanes = listLanes(activity);
  const whole = { from: view.started_at, to: view.at, until: view.at, seq: Infinity };
  const scene = { lanes, open: [], width: 600, scroll: 0, ...whole };
  const seen = lanes.map((lane) => [lane.name, [...new Set(draw.fillColumns(scene, lane))].sort()]);
  const past = { ...scene, seq: 2, until: view.started_at + 0.1 };
  return { seen, markers: Object.keys(activity.marked).sort(), later: draw.fillColumns(past, lanes[1]).some(Boolean) };
}
"""


def test_lanes_show_what_each_agent_did_and_only_up_to_the_moment_shown(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/run/{BUSY}")

    found = page.evaluate(STATES_IN_PIXELS)

    states = dict(found["seen"])
    assert states["lead"] == [1]  # idle: its members work
    assert states["worker-1"] == [0, 1, 2, 3, 5]  # nothing, idle, thinking, a tool, and waiting for a person
    assert found["markers"] == ["ballot", "commit", "decision", "error", "handoff", "plan", "proposal"]
    assert not found["later"]


# Replay (U5)


def list_rows(node: OperationNode | None) -> list[tuple[str, str, str]]:
    """Return what the tree shows of each operation: its path, agent and activity."""
    return [] if node is None else [(one.path, one.agent, one.activity) for one in node.walk()]


def read_rows(page: Page) -> list[tuple[str, str, str]]:
    rows = page.locator(".run-node button").evaluate_all(
        """rows => rows.map((row) => {
          const [agent, text] = [row.querySelector("strong"), row.querySelector(".run-node-text")];
          return [row.dataset.path, agent.textContent, text.textContent];
        })"""
    )
    return [(path, agent, text) for path, agent, text in rows]


def test_the_run_at_a_past_entry_is_what_python_folds_up_to_it(site: Site, visitor: Visitor) -> None:
    entries = read_entries(site.store, BUSY)
    page = visitor.open(site, f"/run/{BUSY}?at=400")
    slider = page.get_by_role("slider", name="Entry")
    expect(page.locator(".run-replay-state")).to_contain_text("Replay at")
    expect(page.locator("#connection")).to_have_text(re.compile(r"^replay at \d\d:\d\d:\d\d$"))

    for seq in (400, 2, 9, 250, 333, 640, 899):
        slider.evaluate("(e, v) => { e.value = v; e.dispatchEvent(new Event('input', { bubbles: true })); }", str(seq))
        view = RunView.from_entries(entries[:seq])

        expect(find_figure(page, "Entries")).to_have_text(str(seq))
        expect(find_figure(page, "Tokens")).to_have_text(f"{view.usage.tokens:,}")
        expect(page.locator(".run-title .badge")).to_have_text("paused" if view.is_paused else view.phase)
        shown = read_rows(page)
        assert [(path, agent) for path, agent, _ in shown] == [(path, agent) for path, agent, _ in list_rows(view.root)]
        for (_, _, text), (_, _, activity) in zip(shown, list_rows(view.root), strict=True):
            assert activity in text or activity in ("cancelled", "succeeded")

    assert "?at=899" in page.url
    page.reload()
    expect(find_figure(page, "Entries")).to_have_text("899")
    expect(page.get_by_role("region", name="Answer")).to_be_visible()
    page.get_by_role("button", name="Previous entry").click()
    expect(find_figure(page, "Entries")).to_have_text("898")
    expect(page.get_by_role("region", name="Answer")).to_have_count(0)
    page.get_by_role("button", name="Back to the end").click()
    expect(find_figure(page, "Entries")).to_have_text(str(ENTRIES))


REPLAYED = """
async (run) => {
  const { RunLog } = await import("/parts/run_log.mjs");
  const log = new RunLog(run);
  await log.load();
  const past = await log.viewAt(4321);
  const again = await log.viewAt(4321);
  for (let seq = 1; seq < 10000; seq += 1000) await Promise.all([log.viewAt(seq), log.viewAt(seq + 1)]);
  log.replay.chunks.clear();
  const later = await log.viewAt(4321);
  const entry = (await log.readEntry(4321)).seq;
  const missing = await log.readEntry(10001).catch((problem) => problem.message);
  return { views: [past, again, later], now: log.view, entry, missing };
}
"""


def test_the_state_at_an_entry_is_loaded_and_loaded_again_when_it_was_forgotten(site: Site, visitor: Visitor) -> None:
    entries = read_entries(site.store, LONG)
    page = visitor.open(site, "/now")

    found = page.evaluate(REPLAYED, LONG)

    assert (found["entry"], found["missing"]) == (4321, "the entry does not exist")
    for views, seq in ((found["views"], 4321), ([found["now"]], 10_000)):
        state = PageState()
        for entry in entries[:seq]:
            state.apply(entry)
        for view in views:
            assert omit_zeros(view) == as_document(state)["view"]


CAUGHT_UP = """
async (run) => {
  const { RunLog } = await import("/parts/run_log.mjs");
  const { get } = await import("/api.mjs");
  const log = new RunLog(run);
  const { document } = await get(`/api/runs/${run}/state?at=8500`);
  log.show(document, "running");
  const [first, second] = [log.catchUp(), log.catchUp()];
  await Promise.all([first, second]);
  const near = log.last;
  log.show((await get(`/api/runs/${run}/state?at=20`)).document, "running");
  await log.catchUp();
  return { near, far: log.last, view: log.view };
}
"""


def test_a_page_catches_up_from_wherever_it_is(site: Site, visitor: Visitor) -> None:
    entries = read_entries(site.store, LONG)
    page = visitor.open(site, "/now")

    found = page.evaluate(CAUGHT_UP, LONG)

    assert (found["near"], found["far"]) == (10_000, 10_000)
    state = PageState()
    for entry in entries:
        state.apply(entry)
    assert omit_zeros(found["view"]) == as_document(state)["view"]


# Live


def test_a_run_is_followed_live_and_answers_messages_and_commands(site: Site, visitor: Visitor, tmp_path: Path) -> None:
    run = site.start_run("writer", "Write the file.")
    page = visitor.open(site, f"/run/{run}")
    expect(page.locator(".run-waiting")).to_have_text("1 request needs you")
    expect(page.locator(".run-node .badge")).to_have_text("waiting")

    # A message with a file.
    note = tmp_path / "note.txt"
    note.write_text("Mind the gap.")
    page.get_by_role("button", name="Message", exact=True).click()
    page.get_by_role("textbox", name="Message to writer").fill("Use <b>tabs</b>, please.")
    page.locator("input[type=file]").set_input_files(note)
    expect(page.locator(".run-files")).to_contain_text("note.txt")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".run-chat-list")).to_contain_text("Use <b>tabs</b>, please.")
    sent = find_event(site, run, MessageReceived)
    assert (sent.to, [one.name for one in sent.attachments]) == ("writer", ["note.txt"])

    # A budget.
    page.get_by_role("button", name="Budget").click()
    page.get_by_label("Tokens").fill("90000")
    page.get_by_role("button", name="Change the budget").click()
    expect(find_figure(page, "Tokens")).to_contain_text("of 90,000")
    assert find_event(site, run, BudgetChanged).budget.tokens == 90_000

    # The answer of somebody else, and the end.
    [asked] = [one for one in site.list_requests() if one.summary.id == run]
    site.answer(run, asked.asked.id)
    expect(page.get_by_role("region", name="Answer")).to_contain_text("The file is written.")
    expect(page.locator(".run-title .badge")).to_have_text("succeeded")
    expect(page.locator(".run-waiting")).to_have_count(0)


@pytest.mark.slow
def test_what_happened_while_the_stream_was_cut_is_shown_when_it_is_back(site: Site, visitor: Visitor) -> None:
    (site.repo / "a.txt").unlink(missing_ok=True)
    page = visitor.open(site, "/now")
    page.route("**/api/events*", lambda route: route.abort())
    run = site.start_run("writer", "Write it meanwhile.")
    page.goto(f"{site.address}/#/run/{run}")
    page.reload()  # the stream is opened again, in vain
    expect(page.locator("#connection")).to_contain_text("reconnecting")
    expect(page.locator(".run-waiting")).to_be_visible()
    open_tab(page, "Log")
    page.locator(".run-entry button", has_text="asks for permission").click()
    page.locator(".run-drawer").get_by_role("tab", name="Diff").click()
    expect(page.locator(".run-diff .added")).to_have_text("+x")

    [asked] = [one for one in site.list_requests() if one.summary.id == run]
    site.answer(run, asked.asked.id)
    site._runs[-1].result(timeout=10)
    page.unroute("**/api/events*")

    expect(page.locator(".run-title .badge")).to_have_text("succeeded")
    last = len(read_entries(site.store, run))
    expect(page.locator(".run-replay-count")).to_have_text(f"{last} of {last}")


def test_stopping_needs_a_second_click(site: Site, visitor: Visitor) -> None:
    run = site.start_run("writer", "Write it again.")
    page = visitor.open(site, f"/run/{run}")

    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Keep running").click()
    assert not any(isinstance(entry.event, StopAsked) for entry in read_entries(site.store, run))
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop the run").click()

    expect(page.locator(".run-title .badge")).to_have_text("stopped")
    assert find_event(site, run, StopAsked)


def test_a_run_is_paused_and_forked_at_the_entry_shown(site: Site, visitor: Visitor) -> None:
    run = site.start_run("writer", "Write it once more.")
    page = visitor.open(site, f"/run/{run}")
    expect(page.locator(".run-waiting")).to_be_visible()

    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".toast")).to_contain_text(f"pausing run {run}")
    page.get_by_role("slider", name="Entry").evaluate(
        "e => { e.value = 3; e.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    page.get_by_role("button", name="Fork here").click()
    expect(page.get_by_role("dialog", name="Fork this run")).to_contain_text("up to entry 3")
    page.get_by_label("Message to the first agent").fill("Write another file.")
    page.get_by_role("button", name="Fork", exact=True).click()

    expect(page.get_by_role("link", name=f"{run}@3")).to_be_visible()
    forked = re.search(r"#/run/(\w+)", page.url)
    assert forked is not None
    started = read_entries(site.store, forked[1])[0].event
    assert isinstance(started, RunStarted)
    assert started.forked_from == f"{run}@3"
    assert find_event(site, forked[1], MessageReceived).text == "Write another file."


def test_a_failed_run_says_why_and_can_be_retried(site: Site, visitor: Visitor) -> None:
    site.studio.agent("failing", says=[{"fails": {"status": 400, "message": "no <i>paper</i>"}}])
    run = site.run("failing", "Print it.").run_id
    page = visitor.open(site, f"/run/{run}")
    expect(page.locator(".run-title .badge")).to_have_text("failed")
    expect(page.get_by_role("alert")).to_contain_text("no <i>paper</i>")
    expect(page.locator(".run-legend")).to_contain_text("error")

    page.get_by_role("button", name="Retry").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()

    expect(page.get_by_role("link", name=f"{run}@")).to_be_visible()
    assert not page.url.endswith(run)


# Size and speed (U5, U6, U8)


def measure_contention() -> float:
    """Return how many times longer than on an idle machine computing takes now."""
    wall, cpu = time.perf_counter(), time.thread_time()
    while time.thread_time() - cpu < 0.1:
        pass
    return max(1.0, (time.perf_counter() - wall) / 0.1)


OPEN = """
async ([run, text]) => {
  window.tasks = [];
  const note = (list) => list.getEntries().forEach((one) => tasks.push(one.duration));
  new PerformanceObserver(note).observe({ entryTypes: ["longtask"] });
  const start = performance.now();
  location.hash = `#/run/${run}`;
  await new Promise((done) => {
    const isShown = () => document.querySelector(".run-replay-count")?.textContent === text;
    const look = () => (isShown() ? done() : requestAnimationFrame(look));
    look();
  });
  return performance.now() - start;
}
"""


def measure_heap(page: Page) -> float:
    """Return the size of the page's JavaScript heap in megabytes, without garbage."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


@pytest.mark.slow
def test_a_run_with_ten_thousand_entries_opens_in_under_a_second(site: Site, visitor: Visitor) -> None:
    attempts = []
    for _ in range(3):  # the machine may be busy: one good attempt is enough
        contention = measure_contention()
        page = visitor.open(site, "/now")
        taken = page.evaluate(OPEN, [LONG, "10,000 of 10,000"]) / contention
        longest = max([0, *page.evaluate("tasks")]) / contention
        assert page.locator("*").count() < 1000
        assert measure_heap(page) < 50
        attempts.append((taken, longest))
        if taken < 1000 and longest < 200:
            return

    raise AssertionError(f"milliseconds until it was shown, and of the longest task: {attempts}")


WATCH = """
() => {
  window.tasks = [];
  window.draws = 0;
  const note = (list) => list.getEntries().forEach((one) => tasks.push(one.duration));
  new PerformanceObserver(note).observe({ entryTypes: ["longtask"] });
  const count = document.querySelector(".run-replay-count");
  const watcher = new MutationObserver(() => { window.draws += 1; });
  watcher.observe(count, { characterData: true, childList: true, subtree: true });
}
"""


@pytest.mark.parametrize("seconds", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_a_thousand_entries_a_second_stay_smooth(site: Site, visitor: Visitor, seconds: int) -> None:
    run = f"11fe000000{seconds:02}"
    future = site.portal.start_task_soon(
        lambda: write_live_run(site, run, before=200, entries=seconds * 1000, rate=1000)
    )
    page = visitor.open(site, "/now")
    page.goto(f"{site.address}/#/run/{run}")
    page.locator(".run-replay-count").wait_for()
    page.evaluate(WATCH)
    contention = measure_contention()
    future.result()

    total = f"{200 + seconds * 1000 + 2:,}"
    expect(page.locator(".run-replay-count")).to_have_text(f"{total} of {total}")
    expect(page.locator(".run-title .badge")).to_have_text("succeeded")
    assert max([0, *page.evaluate("tasks")]) < 200 * contention
    assert page.evaluate("draws") <= 10 * (seconds + 2)
    assert page.locator("*").count() < 1000
    assert measure_heap(page) < 50


@pytest.mark.slow
def test_a_hundred_thousand_entries_stay_smooth(site: Site, visitor: Visitor) -> None:
    run = "100000000000"
    write_busy_run(site, run, 100_000)
    page = visitor.open(site, "/now")
    page.context.set_default_timeout(60_000)
    page.evaluate(OPEN, [run, "100,000 of 100,000"])
    contention = measure_contention()
    page.locator(".run-lanes").focus()
    for _ in range(8):
        page.keyboard.press("+")
    for seq in ("500", "50123", "99000", "20777"):
        page.get_by_role("slider", name="Entry").evaluate(
            "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', { bubbles: true })); }", seq
        )
        expect(find_figure(page, "Entries")).to_have_text(f"{int(seq):,}")

    assert max([0, *page.evaluate("tasks")]) < 200 * contention
    assert page.locator("*").count() < 1000
    assert measure_heap(page) < 50


def test_many_agents_fit_on_a_phone(site: Site, visitor: Visitor) -> None:
    run = "3a9000000000"
    write_busy_run(site, run, 3000, agents=120, is_over=False)

    page = visitor.open(site, f"/run/{run}", viewport=PHONE)

    expect(page.locator(".run-title .badge")).to_have_text("interrupted, can resume")
    assert page.locator(".run-labels li").count() < 20
    assert page.locator(".run-node").count() < 40
    assert find_sideways_scroll(page) == 0
    page.locator(".run-lanes").evaluate("e => { e.scrollTop = e.scrollHeight; }")
    expect(page.locator(".run-labels li", has_text="worker-120")).to_be_visible()
    page.locator(".run-tree").evaluate("e => { e.scrollTop = e.scrollHeight; }")
    expect(page.locator(".run-node", has_text="worker-120")).to_be_visible()


def find_access_problems(page: Page) -> list[tuple[str, str, str]]:
    found = Axe().run(page).response
    assert len(found["passes"]) > 10
    return [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in found["violations"]]


@pytest.mark.slow
def test_the_run_screen_is_accessible_in_light_and_dark(site: Site, visitor: Visitor) -> None:
    # The page's own policy forbids to add the script that checks it.
    page = visitor.open(site, f"/run/{BUSY}", bypass_csp=True, color_scheme="dark")

    page.locator(".run-node button", has_text="worker-3").click()
    page.locator(".run-tool summary").first.click()
    assert find_access_problems(page) == []
    page.emulate_media(color_scheme="light")
    open_tab(page, "Log")
    page.locator(".run-entry button").nth(3).click()
    expect(page.locator(".run-drawer .facts")).to_be_visible()
    assert find_access_problems(page) == []
