"""`podium decisions`: the decisions of a repository, from all its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from podium import Agent, App, Settings
from podium.testing import format_script, make_repository, run_git
from podium.values.event import DecisionProposed

from .conftest import Desk


def decide(desk: Desk, topic: str, option: str = "", *, repo: Path | None = None, **keys: Any) -> str:
    """Make a decision in a run of its own and return its id; without an option, leave it open."""
    proposal = DecisionProposed(**({"id": "", "topic": topic, "options": ("tea", "coffee")} | keys))
    call = {"name": "decide", "arguments": {"option": option, "reason": "It is cheap.\n# Cheap"}}
    moves = [{"calls": [call]}] if option else [{"silent": True}]
    lead = Agent(name="lead", engine="scripted", prompt=format_script(*moves))

    async def make() -> str:
        async with App(Settings.load()) as app:
            async with app.start(lead, topic, repo=repo or desk.repo, decision=proposal) as run:
                found = ""
                with run.entries() as entries:
                    async for entry in entries:
                        if isinstance(entry.event, DecisionProposed):
                            found = entry.event.id
                            if not option:
                                break
                return found

    return anyio.run(make)


def test_decisions_of_all_runs_are_listed_newest_first(desk: Desk) -> None:
    first = decide(desk, "Which drink?", "tea")
    second = decide(desk, "Which drink now?", "coffee", supersedes=first)
    third = decide(desk, "Which cup?")

    lines = desk.invoke("decisions").stdout.splitlines()

    assert [line.split()[0] for line in lines] == [third, second, first]
    assert "proposed" in lines[0]
    assert lines[0].endswith("Which cup? -> tea | coffee")
    assert "accepted" in lines[1]
    assert lines[1].endswith("Which drink now? -> coffee (decided by lead)")
    assert f"superseded by {second}" in lines[2]
    in_force = desk.invoke("decisions", "--in-force").stdout.splitlines()
    assert [line.split()[0] for line in in_force] == [second]


def test_programs_get_every_field(desk: Desk) -> None:
    first = decide(desk, "Which drink?", "tea")
    second = decide(desk, "Which drink now?", "coffee", supersedes=first)

    listed = json.loads(desk.invoke("decisions", "--json").stdout)["decisions"]
    shown = json.loads(desk.invoke("decisions", second[:6], "--json").stdout)["decision"]

    assert [(one["id"], one["status"], one["superseded_by"], one["supersedes"]) for one in listed] == [
        (second, "accepted", None, first),
        (first, "superseded", second, None),
    ]
    assert (shown["option"], shown["how"], shown["participants"]) == ("coffee", "decided by lead", ["person", "lead"])
    assert shown["text"].startswith("# Which drink now?")
    assert (shown["committed_by"], shown["vote"]["eligible"], shown["vote"]["closes_at"]) == ("lead", {}, None)


def test_one_decision_is_shown_as_a_record(desk: Desk) -> None:
    first = decide(desk, "Which drink?", "tea", evidence="Coffee costs \x1b[31m3.")
    second = decide(desk, "Which drink now?", "coffee", supersedes=first)

    old, new = desk.invoke("decisions", first).stdout, desk.invoke("decisions", "show", second).stdout

    assert f"- Status: superseded by `{second}`\n" in old
    assert "> Coffee costs \\x1b[31m3." in old
    assert f"- Supersedes: `{first}`\n" in new
    assert "> It is cheap.\n> \\# Cheap\n" in new


def test_the_run_of_a_decision_is_named_like_any_other(desk: Desk) -> None:
    first, second = decide(desk, "Which drink?", "tea"), decide(desk, "Which cup?", "coffee")
    newer, older = desk.runs()

    shown = [desk.invoke("decisions", name).output for name in (f"{older.id}/{first}", f"last/{second}")]

    assert [text.splitlines()[0] for text in shown] == ["# Which drink?", "# Which cup?"]
    assert f"decision '{newer.id}/{first}' not found" in desk.invoke("decisions", f"{newer.id}/{first}").stderr
    assert "run 'zzz' not found" in desk.invoke("decisions", f"zzz/{first}").stderr


def test_decisions_belong_to_their_repository_and_all_its_worktrees(desk: Desk, tmp_path: Path) -> None:
    other, worktree = tmp_path / "other", tmp_path / "worktree"
    make_repository(other, {})
    run_git(other, "worktree", "add", "-q", worktree)
    here = decide(desk, "Which drink?", "tea")
    there = decide(desk, "Which cup?", "tea", repo=worktree)

    assert desk.invoke("decisions").stdout.split()[0] == here
    for folder in (other, worktree):
        assert desk.invoke("decisions", "--repo", str(folder)).stdout.split()[0] == there
        assert desk.invoke("decisions", "--repo", str(folder), there).stdout.startswith("# Which cup?")
    assert desk.invoke("decisions", there).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 0, "no decisions yet; make one with: podium decide"),
        (("--in-force",), 0, "no decisions yet"),
        (("nope",), 2, "decision 'nope' not found in "),
    ],
)
def test_without_decisions_the_command_says_so(desk: Desk, arguments: tuple[str, ...], code: int, said: str) -> None:
    result = desk.invoke("decisions", *arguments)

    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr
    assert not desk.store.exists()
