"""Where workers get their checkouts, by what the settings say when they are delegated."""

from __future__ import annotations

from podium.event import WorkerPlaced

from .yard import Yard, write

FOLDER = "worktrees: {folder: '../trees/{repo}/{branch}'}\n"


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
