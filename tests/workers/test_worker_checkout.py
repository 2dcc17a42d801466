"""Where workers get their checkouts, and that they get none where all of them take too much."""

from __future__ import annotations

import json
import re

from podium.store.sqlite.worktree_ledger import Ledger
from podium.values.event import WorkerPlaced

from .worker_lab import Yard, write

FOLDER = "worktrees: {folder: '../trees/{repo}/{branch}'}\n"
BIG = write("big.txt", "x" * 29_900)


async def test_a_worker_works_in_the_folder_that_the_settings_named_when_it_was_delegated(yard: Yard) -> None:
    yard.set(FOLDER)
    run = await yard.hire("feat/one", write("one.txt"), "done")
    yard.set(FOLDER.replace("../trees", "../others"))
    yard.command()

    ended = await yard.ended(run)

    [placed] = yard.events(run, WorkerPlaced)
    assert placed.path == str(yard.folder / "trees" / "repo" / "feat-one")
    assert ended.outcome == "succeeded"
    assert yard.file("feat/one", "one.txt") == "x"
    assert not (yard.folder / "others").exists()


async def test_a_folder_that_leads_into_the_repository_by_now_is_not_used(yard: Yard) -> None:
    yard.set(FOLDER)
    run = await yard.hire("feat/one", "done")
    (yard.folder / "trees").symlink_to(yard.repo.path)
    yard.command()

    ended = await yard.ended(run)

    assert ended.failure is not None
    assert "would be inside the repository" in ended.failure.message
    assert yard.repo.git("branch", "--list", "feat/one") == ""


async def test_a_branch_that_exists_is_worked_on_only_where_it_has_the_base_that_was_named(yard: Yard) -> None:
    other = yard.repo.branch("other", {"other.txt": "x\n"})
    yard.repo.branch("old", {"old.txt": "x\n"})
    yard.repo.branch("young", {"young.txt": "x\n"}, start="other")

    refused = await yard.podium("delegate", "old", "go on", "--base", "other")
    taken = await yard.podium("delegate", "young", "go on", "--base", "other", "--json")

    assert refused.returncode == 2
    assert "old exists already and has not all of other, which it should begin with" in refused.stderr
    run = json.loads(taken.stdout)["id"]
    await yard.ended(run)
    await yard.over()
    [placed] = yard.events(run, WorkerPlaced)
    assert placed.base == other


async def test_a_branch_that_exists_without_what_its_worker_follows_is_not_worked_on(yard: Yard) -> None:
    yard.repo.branch("old", {"old.txt": "x\n"})
    first = await yard.hire("feat/one", write("one.txt"), "done")
    second = await yard.hire("old", "done", follows=["feat/one"])
    yard.command()

    assert (await yard.ended(first)).outcome == "succeeded"
    ended = await yard.ended(second)

    assert ended.failure is not None
    assert "old exists already and has not all of feat/one" in ended.failure.message
    assert not yard.path("old").exists()


async def test_a_worker_is_refused_when_it_is_delegated_once_the_quota_is_reached(yard: Yard) -> None:
    run = await yard.hire("feat/one", BIG, "done")
    yard.command()
    await yard.ended(run)
    await yard.over()
    yard.set("worktrees: {quota: 20kB}\n")

    said = await yard.podium("delegate", "feat/two", "more work", "--repo", yard.root)
    read = await yard.podium("delegate", "feat/two", "look", "--read-only", "--repo", yard.root)

    assert said.returncode == 2
    assert re.search(r"take 30\S* kB of the 20 kB that worktrees\.quota allows; the largest: ", said.stderr)
    assert f"{yard.path('feat/one')} (30" in said.stderr
    assert "podium worktrees cleanup makes room, and a higher quota would do as well" in said.stderr
    assert read.returncode == 0, read.stderr


async def test_a_worker_that_was_delegated_before_fails_when_the_quota_is_reached_meanwhile(yard: Yard) -> None:
    yard.set("workers: 1\nworktrees: {quota: 20kB}\n")
    first = await yard.hire("feat/one", BIG, "done")
    second = await yard.hire("feat/two", "never said")
    yard.command()

    ended = [await yard.ended(run) for run in (first, second)]

    assert [one.outcome for one in ended] == ["succeeded", "failed"]
    assert ended[1].failure is not None
    assert re.search(r"no worktree can be made, because .* take 30\S* kB of the 20 kB", ended[1].failure.message)
    assert not yard.path("feat/two").exists()


async def test_what_a_checkout_takes_is_remembered_when_its_worker_ends(yard: Yard) -> None:
    run = await yard.hire("feat/one", BIG, "done")
    yard.command()
    await yard.ended(run)
    await yard.over()

    [noted] = await Ledger(yard.store).list_worktrees()

    assert 29_900 <= noted.size < 31_000
