"""A team that is made in the page is saved like `podium team save` saves one, and can be started at once."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from podium.files.presets import load_presets

from .api_client import ApiClient
from .conftest import PHONE, Site, Visitor, find_sideways_scroll
from .screen_checks import read_api


@pytest.fixture(scope="module", autouse=True)
def _scribe(site: Site) -> None:
    folder = site.repo / ".podium" / "agents"
    folder.mkdir(parents=True)
    (folder / "scribe.md").write_text("---\nname: scribe\ndescription: Writes it down\n---\nYou write.\n")


@pytest.fixture(autouse=True)
def _home(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_HOME", str(site.studio.settings.home))


def open_form(site: Site, visitor: Visitor) -> Page:
    page = visitor.open(site, "/teams", viewport=PHONE)
    page.get_by_role("link", name="New team").click()
    expect(page.get_by_role("checkbox", name=re.compile("^scribe"))).to_be_visible()
    return page


def test_a_team_of_built_ins_and_members_of_the_repository_is_saved_and_started(site: Site, visitor: Visitor) -> None:
    page = open_form(site, visitor)
    expect(page.get_by_role("button", name="Save the team")).to_be_disabled()
    assert page.get_by_role("checkbox", name=re.compile("plan-build-review")).count() == 0
    page.get_by_role("textbox", name=re.compile("^Name")).fill("API review")
    page.get_by_role("combobox", name=re.compile("^Mode ")).select_option("sequential")
    page.get_by_role("combobox", name=re.compile("^Lead ")).fill("answer")
    page.get_by_label("Search the agents").fill("sceptic")
    page.get_by_role("checkbox", name=re.compile("sceptic")).check()
    page.get_by_label("Search the agents").fill("")
    page.get_by_role("checkbox", name=re.compile("^scribe")).check()
    page.get_by_role("button", name="Move scribe forward").click()
    assert find_sideways_scroll(page) == 0

    page.get_by_role("button", name="Save the team").click()

    expect(page).to_have_url(re.compile("#/teams/api-review$"))
    expect(page.get_by_role("heading", name="API review")).to_be_visible()
    saved = load_presets(site.studio.settings.home).get("API review")
    assert saved is not None
    assert saved.mode == "sequential"
    assert [one.name for one in saved.workers] == ["scribe", "sceptic"]
    assert saved.workers[0].prompt.strip() == "You write."
    page.get_by_label("Request").fill("Look at it")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page).to_have_url(re.compile(r"#/run/\w+$"))
    assert read_api(page, f"/api/runs/{page.url.rpartition('/')[2]}")["agent"] == "api-review"


def test_a_team_that_would_replace_another_is_saved_only_after_a_question(site: Site, visitor: Visitor) -> None:
    with ApiClient(site) as client:
        client.command("/api/teams", {"name": "pair", "members": ["answer"], "mine": True})
    page = open_form(site, visitor)
    page.get_by_role("textbox", name=re.compile("^Name")).fill("pair")
    page.get_by_role("checkbox", name=re.compile("^scribe")).check()
    page.get_by_role("button", name="Save the team").click()
    question = page.get_by_role("dialog", name="Save the team?")
    expect(question).to_contain_text("Your own team pair differs from this one and would be replaced.")
    question.get_by_role("button", name="Cancel").click()
    assert [one.name for one in load_presets(site.studio.settings.home).get("pair").workers] == ["answer"]  # type: ignore[union-attr]

    page.get_by_role("button", name="Save the team").click()
    page.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()

    expect(page).to_have_url(re.compile("#/teams/pair$"))
    assert [one.name for one in load_presets(site.studio.settings.home).get("pair").workers] == ["scribe"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "***"}, "is not a valid team name; use a name with ASCII letters or digits"),
        ({"members": []}, "the team new has no members, so there is nothing to save; add one"),
        ({"members": ["nobody"]}, 'agent "nobody" not found; available:'),
        ({"members": ["debate"]}, "has team, which only agent files support; copy the agent files instead"),
        (
            {"lead": "debate"},
            "debate already leads a team or is a router; choose another agent as lead, or save the team without a lead",
        ),
        ({"options": {"max_rounds": 3}}, "max_rounds has no effect in orchestrate mode, only in discuss"),
        ({"options": {"dispatch": "no"}}, "new cannot be saved: new.manner.dispatch: "),
        ({"options": {"rounds": 3}}, 'unknown option "rounds"'),
        ({"model": "a b"}, '"a b" is not a model name; use e.g. sonnet'),
        ({"worktrees": "some"}, "new cannot be saved: new.worktrees: "),
    ],
)
def test_a_wrong_team_is_refused_in_one_sentence_and_nothing_is_saved(
    site: Site, change: dict[str, object], says: str
) -> None:
    with ApiClient(site) as client:
        reply = client.command("/api/teams", {"name": "new", "members": ["answer"], "mine": True, **change}, status=422)

    assert says in reply["detail"]
    assert load_presets(site.studio.settings.home).get("new") is None


def test_a_team_for_the_repository_becomes_its_squad(site: Site) -> None:
    body = {"name": "Harbour", "members": ["scribe"], "description": "Ships"}
    with ApiClient(site) as client:
        lost = client.command("/api/teams", body, status=409)
        saved = client.command("/api/teams", {**body, "agreed": True})

        assert "A squad folder cannot store the description" in lost["detail"]
        assert saved["name"] == "harbour"
        assert client.read("/api/teams/harbour")["kind"] == "squad"
