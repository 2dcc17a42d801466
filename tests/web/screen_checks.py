"""What the tests of the screens do on every page: open it, wait for its data, and look for faults."""

from __future__ import annotations

import re
from typing import Any

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from playwright.sync_api import Page, expect

from .conftest import Site


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
