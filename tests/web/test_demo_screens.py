"""The runs of `podium demo` show something on every screen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from .conftest import DESKTOP, TOO_LONG, Visitor
from .screen_checks import read_api, wait_loaded
from .test_serve import serve


@pytest.mark.slow
def test_the_demo_fills_every_screen(visitor: Visitor, tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PODIUM_HOME": str(tmp_path / "own")}
    subprocess.run([sys.executable, "-m", "podium", "demo", "--keep"], env=environ, capture_output=True, check=True)
    [kept] = [one for one in tmp_path.iterdir() if (one / "shop").is_dir()]

    with serve(kept, repo=kept / "shop") as (printed, _):
        page = visitor.browser.new_context(viewport=DESKTOP).new_page()  # type: ignore[arg-type]
        page.set_default_timeout(TOO_LONG)
        visitor.watch(page, printed["address"])
        page.goto(printed["sign_in"])
        expect(page.locator("#connection")).to_have_text("live")
        plan = read_api(page, "/api/plans")["plans"][0]["run"]
        decision = read_api(page, "/api/decisions")["decisions"][0]
        for place, words in {
            "now": "succeeded",
            "runs": "succeeded",
            f"run/{plan}": "Answer|Partial results",
            "plans": "steps done",
            f"plans/{plan}": "steps done",
            "decisions": "in force",
            f"decisions/{decision['run']}/{decision['id']}": "votes for",
            "workers": "complete|Each worker does a task",
            "cost": "rehearsed",
            f"cost/{plan}": "Time of the run",
            "teams": "From this repository",
            "settings": "Notifications",
            "approvals": "Nothing waits for you",
        }.items():
            page.goto(f"{printed['address']}/#/{place}")
            wait_loaded(page)
            expect(page.locator("main")).to_contain_text(re.compile(words))
            expect(page.get_by_role("alert")).to_have_count(0)
