"""Reviewing a worker in a real browser: its diff side by side, comments on lines, and merging a part of it."""

from __future__ import annotations

import re
from contextlib import closing
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from podium.store.mailbox import read_mailbox
from podium.store.store_connection import open_connection

from . import screen_data as data
from .conftest import PHONE, Site, Visitor, find_sideways_scroll
from .screen_checks import find_serious_problems

RUN = "ab01"
HALF_RUN = "ab02"
LINES = [f"line {number} of the file\n" for number in range(30)]
EVIL = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture(autouse=True)
def _home(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server's parts that read the environment find the site's home."""
    monkeypatch.setenv("PODIUM_HOME", str(site.studio.settings.home))


@pytest.fixture(scope="module", autouse=True)
def _data(site: Site) -> None:
    """Write a worker that has ended and one that was interrupted, with every kind of change."""
    data.write_workers(site)
    start: dict[str, str | bytes] = {"long.txt": "".join(LINES), "old.txt": "".join(LINES), "logo.png": b"\0\1"}
    data.make_branch(site.repo, "start", start)
    data.git(site.repo, "merge", "-q", "--ff-only", "start")
    changed = "".join(["first\n", *LINES[1:14], f"{EVIL}\n", *LINES[14:-1], "last"])
    for run, branch, answer in ((RUN, "feat/review", "It is done."), (HALF_RUN, "feat/half", None)):
        data.make_branch(
            site.repo, branch, {"long.txt": changed, "src/new.py": "x = 1\r\ny = 2\n", "logo.png": b"\0\2"}
        )
        data.git(site.repo, "checkout", "-q", branch)
        data.git(site.repo, "mv", "old.txt", "new.txt")
        data.git(site.repo, "commit", "-qm", "Rename it")
        data.git(site.repo, "checkout", "-qf", "main")
        data.write_worker(site, run, branch, "Write it", change=(5, 2), answer=answer)


def find_file(page: Page, name: str = "long.txt") -> Locator:
    file = page.get_by_role("region", name=name, exact=True)
    file.scroll_into_view_if_needed()
    return file


def press_line(page: Page, line: int, *, name: str = "long.txt", side: str = "new", **options: Any) -> None:
    find_file(page, name).locator(f"[data-side={side}][data-line='{line}']").click(**options)


@pytest.mark.slow
def test_lines_are_side_by_side_if_that_is_wanted_and_there_is_room(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/workers/{RUN}", color_scheme="dark")
    expect(page.get_by_role("button", name="Unified")).to_have_attribute("aria-pressed", "true")
    expect(find_file(page).locator("tr[data-mark='+']").first).to_contain_text("first")
    expect(page.get_by_text(data.git(site.repo, "rev-parse", "feat/review^{tree}"))).to_be_visible()
    expect(page.get_by_role("navigation", name="Changed files")).to_contain_text("src/")

    expect(find_file(page, "src/new.py").locator(".syntax-number")).to_have_text(["1", "2"])
    page.get_by_role("button", name="Split").click()
    page.reload()

    row = find_file(page).locator(".diff-split-row").first
    expect(row.locator("td")).to_have_text(
        ["1", re.compile("-"), "line 0 of the file", "1", re.compile(r"\+"), "first"]
    )
    expect(find_file(page)).to_contain_text("No newline at end of file")
    added = find_file(page, "src/new.py").locator(".diff-split-row").first
    expect(added.locator("td")).to_have_text(["", "1", re.compile(r"\+"), "x = 1\\r"])
    expect(added.locator(".syntax-number")).to_have_text("1")
    assert find_serious_problems(page) == []
    assert find_sideways_scroll(page) <= 0
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    expect(find_file(page).locator("tr[data-mark='-']").first).to_contain_text("line 0")
    expect(page.get_by_role("button", name="Split")).to_have_count(0)
    assert find_sideways_scroll(page) <= 0


def test_a_diff_that_is_out_of_date_is_not_merged_and_its_changed_files_are_not_viewed(
    site: Site, visitor: Visitor
) -> None:
    data.make_branch(site.repo, "feat/again", {"one.txt": "1\n", "two.txt": "2\n"})
    data.write_worker(site, "ab03", "feat/again", "Change it", change=(2, 0))
    page = visitor.open(site, "/workers/ab03")
    for name in ("one.txt", "two.txt"):
        find_file(page, name).get_by_label("Viewed").check()
    expect(page.get_by_text("2 of 2 viewed")).to_be_visible()
    page.get_by_role("button", name="Merge a part…").click()
    find_file(page, "one.txt").get_by_label("Take the whole file").check()
    data.git(site.repo, "checkout", "-q", "feat/again")
    (site.repo / "two.txt").write_text("two\n")
    data.git(site.repo, "commit", "-qam", "Change it again")
    data.git(site.repo, "checkout", "-q", "main")

    page.get_by_role("button", name="Preview the merge").click()

    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("feat/again has changed since its diff was shown; look at its changes again")
    problem.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("1 of 2 viewed")).to_be_visible()
    expect(find_file(page, "two.txt").get_by_label("Viewed")).not_to_be_checked()
    expect(page.get_by_role("link", name=re.compile("viewed one.txt"))).to_be_visible()
    expect(problem).to_have_count(0)


def read_messages(site: Site, run: str) -> list[str]:
    """Return the texts in the mailbox of a run that no process works on."""
    with closing(open_connection(site.store, create=False)) as connection:
        return [getattr(one.event, "text", "") for one in read_mailbox(connection, run, 0)]


def test_comments_are_kept_until_they_are_sent_as_one_message(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/workers/{HALF_RUN}")
    # With the keyboard: the first line of a file is a tab stop, and the arrow keys lead to the others.
    find_file(page).locator("[data-side=old][data-line='1']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("Why first?")
    page.keyboard.press("Control+Enter")
    expect(find_file(page).locator(".review-comment")).to_contain_text("Why first?")
    # With the mouse: the second line with Shift makes a range.
    press_line(page, 14)
    press_line(page, 15, modifiers=["Shift"])
    field = page.get_by_label("Comment on lines 14 to 15")
    field.fill(EVIL)
    page.get_by_role("button", name="Include the line above").click()
    expect(page.get_by_label("Comment on lines 13 to 15")).to_have_value(EVIL)

    page.reload()

    waiting = page.get_by_role("region", name="Comments to send")
    expect(waiting).to_contain_text("2 comments to send")
    expect(waiting.locator("pre").last).to_contain_text("line 12 of the file\nline 13 of the file\n<img src=x")
    expect(find_file(page).locator(".review-comment")).to_have_count(2)
    press_line(page, 2, name="src/new.py")
    page.get_by_role("button", name="Done").click()
    expect(waiting).to_contain_text("It gets them when you resume it.")
    waiting.get_by_label("Note").fill("Nearly done.")
    find_file(page).get_by_label("Viewed").check()
    waiting.get_by_role("button", name="Edit").first.click()
    waiting.get_by_role("textbox", name="Comment on line 1", exact=True).fill("Why the first?")
    assert find_serious_problems(page) == []
    waiting.get_by_role("button", name="Send 2 comments").click()
    expect(page.get_by_text("the message will be delivered when you resume it")).to_be_visible()
    expect(waiting).to_have_count(0)
    [sent] = read_messages(site, HALF_RUN)
    assert "feat/half: 2 comments." in sent
    assert (
        "Nearly done.\n\n1. long.txt, line 1:\n```\nfirst\n```\nWhy the first?\n\n2. long.txt, lines 13 to 15:" in sent
    )
    page.reload()
    expect(page.get_by_text("1 of 4 viewed")).to_be_visible()
    expect(page.locator(".review-comment, .review-send")).to_have_count(0)


def test_comments_on_a_worker_that_has_ended_start_another_one(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/workers/{RUN}", viewport=PHONE)
    press_line(page, 1, side="old")
    page.get_by_role("textbox", name="Comment on line 1 before the change").fill("Keep this line.")
    assert find_sideways_scroll(page) <= 0
    waiting = page.get_by_role("region", name="Comments to send")
    expect(waiting).to_contain_text("This worker has ended. A new worker with the same agent continues on a new branch")

    waiting.get_by_role("button", name="Start a worker with 1 comment").click()

    expect(page.get_by_role("heading", name="feat/review-review")).to_be_visible()
    expect(page.get_by_text("Continue the work on feat/review after a review")).to_be_visible()
    expect(page.get_by_text("Keep this line.")).to_be_visible()


@pytest.mark.slow
def test_a_part_can_be_chosen_on_a_phone(site: Site, visitor: Visitor) -> None:
    page = visitor.open(site, f"/workers/{RUN}", viewport=PHONE, color_scheme="dark")
    page.get_by_role("button", name="Merge a part…").click()
    page.get_by_label("Take this hunk at line 1", exact=True).check()
    expect(page.get_by_role("form", name="Merge a part")).to_contain_text("1 file chosen, in part")
    press_line(page, 1)
    expect(page.get_by_role("textbox", name="Comment on line 1")).to_be_focused()

    assert find_serious_problems(page) == []
    assert find_sideways_scroll(page) <= 0


def test_only_the_chosen_hunks_are_merged_and_the_rest_stays_on_the_branch(site: Site, visitor: Visitor) -> None:
    tip = data.git(site.repo, "rev-parse", "feat/review")
    page = visitor.open(site, f"/workers/{RUN}")
    page.get_by_role("button", name="Merge a part…").click()
    bar = page.get_by_role("form", name="Merge a part")
    expect(bar.get_by_role("button", name="Preview the merge")).to_be_disabled()
    file = find_file(page)
    file.get_by_label("Take the file").check()
    file.get_by_label("Take this hunk at line 12").uncheck()
    expect(file.get_by_label("Take the file")).not_to_be_checked()
    expect(find_file(page, "src/new.py").get_by_label("Take this hunk")).to_have_count(0)
    find_file(page, "new.txt").get_by_label("Take the whole file").check()
    expect(bar).to_contain_text("2 files chosen, 1 of them in part")
    assert find_serious_problems(page) == []

    bar.get_by_role("button", name="Preview the merge").click()
    result = page.get_by_role("region", name="Result of the merge")
    expect(result).to_contain_text("Merged onto main: a part of feat/review")
    result.get_by_role("button", name="Move main to this tree").click()
    page.get_by_role("dialog").get_by_role("button", name="Move main").click()
    expect(result).to_contain_text("main has this tree now.")

    expect(result.locator("dd", has_text=data.git(site.repo, "rev-parse", "main^{tree}"))).to_be_visible()
    changed = data.git(site.repo, "diff", "--name-status", "-M", "main^", "main").split("\n")
    assert changed == ["M\tlong.txt", "R100\told.txt\tnew.txt"]
    assert (site.repo / "long.txt").read_text() == "".join(["first\n", *LINES[1:-1], "last"])
    assert data.git(site.repo, "rev-parse", "feat/review") == tip
