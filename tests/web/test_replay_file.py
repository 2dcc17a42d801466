"""A run as a file: the page replays it without a server."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import Page, expect

from podium.cli.commands.show import show_command
from podium.store.reader import StoreReader
from podium.testing import read_entries
from podium.values.errors import Mistake
from podium.views.run_state.tree import RunView

from .conftest import DESKTOP, Site, Visitor
from .run_timelines import write_busy_run

RUN = "f11e00000000"
ENTRIES = 1500
"""More than the page loads together."""


@pytest.fixture
def page(site: Site, visitor: Visitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    """Return a tab in which the file of a run is open."""
    if not read_entries(site.store, RUN):
        write_busy_run(site, RUN, ENTRIES)
    monkeypatch.setenv("PODIUM_STORE", str(site.store))
    file = tmp_path / "replay.html"
    done = CliRunner().invoke(show_command, [RUN, "--html", str(file)], catch_exceptions=False)
    assert done.stderr == f"run {RUN} is in {file}; open this file in a browser\n"
    page = visitor.browser.new_context(viewport=DESKTOP, offline=True).new_page()  # type: ignore[arg-type]
    visitor.watch(page, "file:")
    page.goto(file.as_uri())
    return page


def test_a_file_that_cannot_be_written_is_named(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not read_entries(site.store, RUN):
        write_busy_run(site, RUN, ENTRIES)
    monkeypatch.setenv("PODIUM_STORE", str(site.store))
    (tmp_path / "taken").write_text("a file")

    with pytest.raises(Mistake, match=r"taken/replay\.html cannot be written: "):
        CliRunner().invoke(show_command, [RUN, "--html", f"{tmp_path}/taken/replay.html"], catch_exceptions=False)


def test_only_its_owner_can_read_the_file_of_a_run(page: Page, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "replay.html").stat().st_mode) == 0o600


def test_a_file_shows_a_run_and_replays_it_at_any_entry(site: Site, page: Page) -> None:
    entries = read_entries(site.store, RUN)

    expect(page.get_by_role("heading", level=1)).to_have_text("Rewrite the importer and test it")
    expect(page.locator(".run-title .badge")).to_have_text("succeeded")
    expect(page.locator(".run-labels li").first).to_have_text("lead")
    expect(page.locator(".run-commands")).to_be_hidden()
    for seq in (700, 1, 1000, 1001, 1499):
        page.get_by_role("slider", name="Entry").evaluate(
            "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', { bubbles: true })); }", str(seq)
        )
        view = RunView.from_entries(entries[:seq])
        figures = page.locator(".run-figure")
        expect(figures.filter(has_text="Entries").locator("strong")).to_have_text(f"{seq:,}")
        expect(figures.filter(has_text="Tokens").locator("strong")).to_have_text(f"{view.usage.tokens:,}")

    page.get_by_role("tab", name="Log", exact=True).click()
    page.locator(".run-entry button").last.click()
    drawer = page.locator(".run-drawer")
    expect(drawer.locator(".hash").first).to_have_text(entry_hash(site, 1499))


def entry_hash(site: Site, seq: int) -> str:

    with StoreReader(site.store) as reader:
        return reader.read_rows(RUN, seq - 1, 1)[0].hash.hex()
