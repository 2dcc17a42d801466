"""The layout of ten states in both schemes is the one that was reviewed.

The references are the places, sizes and colours of landmarks, with a tolerance, and not pictures: the same fonts are
drawn with other edges on other machines and with other versions of the browser, so that pictures differ where nobody
sees a difference. After a change that was meant, look at the screens and write the references again with:

    PODIUM_WRITE_LAYOUT=1 .venv/bin/python -m pytest tests/web/test_layout.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from podium.values.action import Action
from podium.values.event import PermissionAsked

from . import screen_data as data
from .conftest import DESKTOP, Site, Visitor
from .screen_checks import go

REFERENCE = Path(__file__).parent / "layout.json"
TOLERANCE = 12
"""How many pixels a landmark may be away from its place: the fonts of machines differ by so much."""

STATES = {
    "now": "now",
    "approvals": "approvals",
    "runs": "runs",
    "run": f"run/{data.PLAN_RUN}",
    "plan": f"plans/{data.PLAN_RUN}",
    "decision": f"decisions/{data.DECIDED_RUN}/d1",
    "workers": "workers",
    "cost": f"cost/{data.BUDGET_RUN}",
    "team": "teams/plan-build-review",
    "new-team": "teams?view=new",
}
QUICK = ("now", "approvals")

LANDMARKS = (
    ".nav, .nav-link[aria-current], .bar, main, main h1, main h2, main section, .card, .table-wrap, .toolbar, "
    ".board-column, .graph, .chart, .request, .answers .button, .empty, .run-lanes"
)
MEASURE = """
(landmarks) => {
  const found = {};
  for (const one of document.querySelectorAll(landmarks)) {
    const box = one.getBoundingClientRect();
    if (!box.width || box.top > innerHeight) continue;
    const { color, backgroundColor: background } = getComputedStyle(one);
    const name = `${one.tagName.toLowerCase()}.${one.className}`;
    (found[name] ||= []).push({ box: [box.x, box.y, box.width].map(Math.round), color, background });
  }
  return found;
}
"""


@pytest.fixture(scope="module", autouse=True)
def _data(site: Site) -> None:
    data.write_workers(site)
    data.write_plan(site)
    data.write_decisions(site)
    data.write_costs(site)
    action = Action(run="ff01", agent="lead", tool="bash", arguments={"command": "make deploy"}, directory="/srv")
    asked = PermissionAsked(id="ff", action=action, reason="no rule allows it")
    site.write_run("ff01", *data.start(site, "Deploy the shop"), asked)


def measure(site: Site, visitor: Visitor, state: str, scheme: Any) -> Any:
    page = visitor.open(site, color_scheme=scheme, viewport=DESKTOP)
    go(page, site, STATES[state])
    expect(page.locator("main")).not_to_have_text("")
    page.evaluate("document.fonts.ready")
    return page.evaluate(MEASURE, LANDMARKS)


def find_differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    differences = [f"{name} is missing" for name in expected if name not in found]
    differences += [f"{name} is new" for name in found if name not in expected]
    for name in expected.keys() & found.keys():
        if len(expected[name]) != len(found[name]):
            differences.append(f"{name}: {len(found[name])} instead of {len(expected[name])}")
        for before, after in zip(expected[name], found[name], strict=False):
            if any(abs(one - other) > TOLERANCE for one, other in zip(before["box"], after["box"], strict=True)):
                differences.append(f"{name} is at {after['box']} instead of {before['box']}")
            if (before["color"], before["background"]) != (after["color"], after["background"]):
                differences.append(f"{name} has other colours: {after} instead of {before}")
    return differences


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in STATES])
def test_the_layout_is_the_one_that_was_reviewed(site: Site, visitor: Visitor, state: str, scheme: str) -> None:
    found = measure(site, visitor, state, scheme)

    references = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    if os.environ.get("PODIUM_WRITE_LAYOUT"):
        references[f"{state} {scheme}"] = found
        REFERENCE.write_text(json.dumps(references, indent=0, sort_keys=True) + "\n")
    assert find_differences(references[f"{state} {scheme}"], found) == []
