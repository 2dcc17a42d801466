"""`podium merge`: what is foreseen, what is merged and checked, and when the target moves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator

import pytest

from ..workers.worker_lab import Yard, write
from .conftest import Desk
from .test_terminal import Terminal
from .worker_runs import opened, say


@pytest.fixture
async def yard(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Yard]:
    async with opened() as yard:
        monkeypatch.chdir(yard.repo.path)
        yield yard


def integrations(yard: Yard) -> list[str]:
    return yard.repo.git("branch", "--list", "podium/merge-*", "--format=%(refname:short)").splitlines()


async def test_all_that_workers_brought_is_merged_and_the_target_moves_on_a_yes(yard: Yard) -> None:
    await yard.hire("feat/base", write("base.txt", "base\n"), "done")
    await yard.hire("feat/more", write("more.txt", "more\n"), "done", follows=["feat/base"])
    await yard.hire("feat/clash", write("base.txt", "other\n"), "done")
    await yard.hire("feat/fails", write("f.txt"), {"fails": {"status": 400}})
    await say(yard, "workers", "wait")
    before = yard.repo.tip()

    asked = await say(yard, "merge", "--all")
    assert (asked.exit_code, yard.repo.tip()) == (3, before)
    [integration] = integrations(yard)
    agreed = await say(yard, "merge", "--all", "--yes", "--json")

    assert "forecast: feat/base and feat/clash both touch base.txt; they would clash in base.txt" in asked.stdout
    lines = [line for line in asked.stdout.splitlines() if line.startswith(("in:", "left out:"))]
    assert [line.split()[1] for line in lines[:2]] == ["feat/base", "feat/more"]
    assert lines[2].startswith("left out: feat/clash: conflict: ")
    assert lines[2].endswith("(base.txt)")
    assert "feat/fails: left aside, since its worker is failed" in asked.stderr
    assert f"{integration} has what was merged" in asked.stderr
    result = json.loads(agreed.stdout)
    assert f"  podium merge feat/base feat/more --onto main --tree {result['tree']} --yes\n" in asked.stderr
    assert (agreed.exit_code, result["moved"], result["commit"]) == (6, True, yard.repo.tip())
    assert (yard.repo.path / "more.txt").read_text() == "more\n"
    assert [one["reason"] for one in result["left_out"]] == ["conflict"]
    assert integrations(yard) == [integration]


async def test_a_later_worker_that_never_had_the_checkout_keeps_no_branch_out(yard: Yard) -> None:
    await yard.hire("feat/one", write("one.txt", "one\n"), "done")
    await say(yard, "workers", "wait")
    await say(yard, "worktrees", "remove", "feat/one", "--force")
    late = await yard.hire("feat/one", "done")
    yard.path("feat/one").mkdir()
    await say(yard, "workers", "wait")
    assert (await yard.ended(late)).outcome == "failed"

    merged = await say(yard, "merge", "--all", "--yes")

    assert (merged.exit_code, "left aside" in merged.stderr) == (0, False)
    assert (yard.repo.path / "one.txt").read_text() == "one\n"


async def test_a_branch_that_fails_a_check_is_left_out_and_checks_reach_nothing_outside(yard: Yard) -> None:
    yard.repo.branch("good", {"good.txt": "good\n"})
    yard.repo.branch("bad", {"bad.txt": "bad\n"})
    outside = yard.folder / "outside"

    said = await say(
        yard, "merge", "bad", "good", "--check", f"echo out > {outside}; test ! -f bad.txt || (echo no; false)", "--yes"
    )

    assert said.exit_code == 1, said.stderr
    assert "bad: no worker was on it; it is merged as it is" in said.stderr
    assert "left out: bad: check: " in said.stdout
    assert "    no" in said.stdout.splitlines()
    assert (yard.repo.path / "good.txt").exists()
    assert not (yard.repo.path / "bad.txt").exists()
    assert not outside.exists()


async def test_the_checks_of_the_settings_run_each_time(yard: Yard) -> None:
    yard.set("checks:\n  no-bad: [test, '!', -f, bad.txt]\n")
    yard.repo.branch("bad", {"bad.txt": "bad\n"})

    said = await say(yard, "merge", "bad", "--yes")

    assert (said.exit_code, integrations(yard)) == (1, [])
    assert "checking: no-bad" in said.stderr
    assert "left out: bad: check: no-bad [exit code 1] fails with it" in said.stdout


async def test_on_a_terminal_the_person_is_asked(yard: Yard) -> None:
    yard.repo.branch("good", {"good.txt": "good\n"})
    before = yard.repo.tip()
    desk = Desk(repo=yard.repo.path, home=yard.home, environment=yard.environ)

    refusing = Terminal(desk, "merge", "good")
    refusing.wait_for("as checked? [y/n]:")
    refusing.process.send("n\r")
    assert (refusing.end(), yard.repo.tip()) == (4, before)
    agreeing = Terminal(desk, "merge", "good")
    agreeing.wait_for("as checked? [y/n]:")
    agreeing.process.send("\ry\r")

    assert agreeing.end() == 0
    assert (yard.repo.path / "good.txt").exists()


async def test_what_was_agreed_to_by_its_tree_is_all_that_the_target_moves_to(yard: Yard) -> None:
    yard.repo.branch("good", {"good.txt": "good\n"})
    before = yard.repo.tip()
    asked = json.loads((await say(yard, "merge", "good", "--json")).stdout)
    yard.repo.git("switch", "-q", "good")
    (yard.repo.path / "good.txt").write_text("pushed after the review\n")
    yard.repo.git("commit", "-q", "-a", "-m", "later")
    yard.repo.git("switch", "-q", "main")

    moved_on = await say(yard, "merge", "good", "--tree", asked["tree"], "--yes")
    assert (moved_on.exit_code, yard.repo.tip()) == (6, before)
    short = await say(yard, "merge", "good", "--tree", "", "--yes")
    yard.repo.git("branch", "-f", "good", "good~1")
    agreed = await say(yard, "merge", "good", "--tree", asked["tree"], "--yes")

    assert f"not {asked['tree'][:12]}" in moved_on.stderr
    assert (short.exit_code, agreed.exit_code) == (2, 0)
    assert (yard.repo.path / "good.txt").read_text() == "good\n"


async def test_what_is_merged_already_needs_nothing(yard: Yard) -> None:
    yard.repo.git("branch", "same")

    named = await say(yard, "merge", "same")
    everything = await say(yard, "merge", "--all")

    assert (named.exit_code, integrations(yard)) == (0, [])
    assert "main has all of it already" in named.stderr
    assert everything.exit_code == 0
    assert everything.stderr == "no worker has brought anything that main does not have\n"


async def test_what_cannot_be_merged_is_told(yard: Yard) -> None:
    nothing = await say(yard, "merge")
    itself = await say(yard, "merge", "main")
    unknown = await say(yard, "merge", "nowhere")

    assert [one.exit_code for one in (nothing, itself, unknown)] == [2, 2, 2]
    assert "name the branches to merge, or say --all" in nothing.stderr
    assert "main cannot be merged onto itself" in itself.stderr
    assert "there is no worker 'nowhere' here; there are: none yet" in unknown.stderr


async def test_a_check_that_is_empty_is_refused_before_anything_is_merged(yard: Yard) -> None:
    said = await say(yard, "merge", "--all", "--check", " ", "--yes")

    assert (said.exit_code, said.stdout) == (2, "")
    assert "an empty --check checks nothing; give a command" in said.stderr


def test_without_a_commit_there_is_nothing_to_merge_onto(desk: Desk) -> None:
    subprocess.run(["git", "init", "-q", desk.repo], check=True)

    said = desk.podium("merge", "--all")

    assert said.returncode == 2
    assert said.stderr == f"podium: {desk.repo} has no commits yet, so that there is no branch; commit first\n"


async def test_changes_of_the_persons_own_are_not_touched(yard: Yard) -> None:
    yard.repo.branch("good", {"a.txt": "good\n"})
    (yard.repo.path / "a.txt").write_text("mine\n")
    before = yard.repo.tip()

    said = await say(yard, "merge", "good", "--yes")

    assert (said.exit_code, yard.repo.tip()) == (2, before)
    assert "commit or stash them" in said.stderr
    assert (yard.repo.path / "a.txt").read_text() == "mine\n"
