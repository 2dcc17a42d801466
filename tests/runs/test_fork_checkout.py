"""Where a fork works: in a checkout of its own, with the files as they were at its position."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from pathlib import Path

import pytest
from msgspec import structs

from podium import App, Mistake
from podium.core.engine import EngineSession, EngineSessionSpec, Finished, Piece, Text
from podium.core.scope import Scope
from podium.files.settings_document import WorktreeSettings
from podium.runs.fork_checkouts import create_fork_checkout
from podium.runs.queries.run_lookup import find_main_folder
from podium.store.fault_injection import refuse_after
from podium.store.worktree_ledger import Ledger
from podium.testing import Move, calls
from podium.values.errors import StoreFailed
from podium.values.event import Noticed, RunStarted, SnapshotTaken, ToolAnswered, WorkerReturned, WorkerSent
from podium.workspace.git.snapshot import SNAPSHOT_REFS, keep_snapshot, take_snapshot

from ..studio import Studio
from ..workspace.merging import Repo
from .timelines import WrittenTimeline


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


class WritingEngine:
    """An engine that changes a file twice and takes a snapshot after each change, as a team does."""

    name = "writing"
    is_restored = False

    def __init__(self, repo: Path) -> None:
        self._repo = repo

    def open(self, spec: EngineSessionSpec) -> AbstractAsyncContextManager[EngineSession]:
        return nullcontext(self)

    def ask(self, prompt: str, turn: Scope) -> AbstractAsyncContextManager[AsyncIterator[Piece]]:
        return aclosing(self._write(turn))

    async def _write(self, turn: Scope) -> AsyncGenerator[Piece]:
        for name in ("first", "second"):
            (self._repo / "a.txt").write_text(f"{name}\n")
            commit = await take_snapshot(self._repo)
            await keep_snapshot(self._repo, turn.timeline.run, name, {"": commit})
            turn.record(SnapshotTaken(name=name, commits={"": commit}))
        yield Text("written")
        yield Finished()


def write(name: str) -> Move:
    return calls("write_file", path=name, content=f"{name}\n")


@pytest.fixture
async def app(studio: Studio, repo: Repo) -> AsyncIterator[App]:
    studio.settings = structs.replace(studio.settings, permission_mode="accept-edits")
    studio.agent("writer", says=[write("one.txt"), write("two.txt"), "done"], tools=("Write",))
    async with studio.app(engines={"writing": WritingEngine(repo.path)}) as app:
        yield app


def started(studio: Studio, run: str) -> RunStarted:
    event = studio.entries(run)[0].event
    assert isinstance(event, RunStarted)
    return event


def notices(studio: Studio, run: str) -> list[str]:
    return [event.text for event in studio.events(run, Noticed)]


# Snapshots


async def test_a_fork_has_the_files_of_its_snapshot_on_a_branch_of_its_own(
    app: App, studio: Studio, repo: Repo
) -> None:
    source = (await app.run(studio.agent("lead", engine="writing"), "go", repo=repo.path)).run_id
    repo.git("gc", "-q", "--prune=now")

    first, second = await app.fork(source, at="first"), await app.fork(source)

    folders = [Path(started(studio, fork).repo) for fork in (first, second)]
    assert [(folder / "a.txt").read_text() for folder in folders] == ["first\n", "second\n"]
    assert [repo.git("branch", "--show-current", at=folder) for folder in folders] == [
        f"podium/fork/{first}",
        f"podium/fork/{second}",
    ]
    assert folders[0] == repo.path.parent / f"repo-worker-podium-fork-{first}"
    assert notices(studio, first) == notices(studio, second) == []
    assert (repo.path / "a.txt").read_text() == "second\n"
    assert repo.git("branch", "--show-current") == "main"


async def test_the_checkout_of_a_fork_is_in_the_list_of_worktrees(app: App, studio: Studio, repo: Repo) -> None:
    source = (await app.run(studio.agent("lead", engine="writing"), "go", repo=repo.path)).run_id

    fork = await app.fork(source, at="first")

    [row] = await Ledger(studio.settings.store).list_worktrees()
    assert (row.branch, row.run, str(row.path)) == (f"podium/fork/{fork}", fork, started(studio, fork).repo)
    assert find_main_folder(started(studio, fork)) == str(repo.path)


async def test_a_fork_of_a_fork_survives_the_removal_of_the_first_ones_checkout(
    app: App, studio: Studio, repo: Repo
) -> None:
    source = (await app.run(studio.agent("lead", engine="writing"), "go", repo=repo.path)).run_id
    first = await app.fork(source)
    repo.git("worktree", "remove", "--force", started(studio, first).repo)

    second = await app.fork(first, at="first")

    assert (Path(started(studio, second).repo) / "a.txt").read_text() == "first\n"


# Without snapshots


async def run_writer(app: App, studio: Studio, repo: Repo) -> tuple[str, list[int]]:
    """Run an agent that writes two files, and return the numbers of the entries after each."""
    run = (await app.run(studio.agents["writer"], "go", repo=repo.path)).run_id
    return run, [entry.seq for entry in studio.entries(run) if isinstance(entry.event, ToolAnswered)]


async def test_if_nothing_was_changed_later_a_fork_starts_with_the_current_files(
    app: App, studio: Studio, repo: Repo
) -> None:
    source, (_, second) = await run_writer(app, studio, repo)

    fork = await app.fork(source, at=str(second))

    folder = Path(started(studio, fork).repo)
    assert sorted(path.name for path in folder.glob("*.txt")) == sorted(path.name for path in repo.path.glob("*.txt"))
    assert notices(studio, fork) == [
        f"no snapshot was taken before this point: the checkout starts with the current files in {repo.path}"
    ]
    assert repo.git("status", "--porcelain") == "?? one.txt\n?? two.txt"
    assert repo.git("rev-parse", f"podium/fork/{fork}^") == repo.tip()


async def test_if_something_was_changed_later_a_fork_starts_at_the_current_commit(
    app: App, studio: Studio, repo: Repo
) -> None:
    source, (first, _) = await run_writer(app, studio, repo)

    fork = await app.fork(source, at=str(first))
    async with app.resume(fork) as live:
        result = await live.result()

    folder = Path(started(studio, fork).repo)
    assert result.text == "done"
    assert ((folder / "one.txt").exists(), (folder / "two.txt").exists()) == (False, True)
    assert notices(studio, fork) == [
        f"no snapshot was taken before this point: the checkout starts at commit {repo.tip()[:12]} in {repo.path}, "
        "without uncommitted changes"
    ]


async def test_what_was_changed_after_the_snapshot_is_said_to_be_missing(app: App, studio: Studio, repo: Repo) -> None:
    timeline = WrittenTimeline()
    run, (first, _) = await run_writer(app, studio, repo)
    timeline.record("lead", SnapshotTaken(name="plan", commits={"": repo.tip()}))
    entries = [*timeline.entries, *studio.entries(run)[timeline.last :]]
    kept = [entry for entry in entries if 1 < entry.seq <= first]

    checkout = await create_fork_checkout(studio.settings, repo.path, entries, kept, run="fork1")

    assert checkout.notices == (
        "the checkout has the files of the snapshot plan; later changes, up to the position of the fork, are missing",
    )


async def test_without_git_a_fork_works_in_the_same_folder_and_says_so(
    app: App, studio: Studio, tmp_path: Path
) -> None:
    (tmp_path / "plain").mkdir()
    source = (await app.run(studio.agent("lead", says=["done"]), "go", repo=tmp_path / "plain")).run_id

    fork = await app.fork(source, at="2")

    assert started(studio, fork).repo == find_main_folder(started(studio, fork)) == str(tmp_path / "plain")
    [notice] = notices(studio, fork)
    assert notice.startswith(f"this fork has no checkout of its own and works directly in {tmp_path / 'plain'}: ")


async def test_a_run_without_a_folder_has_forks_without_one(app: App, studio: Studio) -> None:
    source = (await app.run(studio.agent("lead", says=["done"]), "go")).run_id

    fork = await app.fork(source, at="2")

    assert (started(studio, fork).repo, notices(studio, fork)) == ("", [])


async def test_a_fork_works_in_the_same_part_of_the_repository(app: App, studio: Studio, repo: Repo) -> None:
    repo.commit({"shop/.podium/agents/x.md": "x", "shop/b.txt": "b\n"})
    source = (await app.run(studio.agent("lead", says=["done"]), "go", repo=repo.path / "shop")).run_id

    fork = await app.fork(source, at="2")

    folder = Path(started(studio, fork).repo)
    assert folder.name == "shop"
    assert (folder / "b.txt").read_text() == "b\n"
    assert find_main_folder(started(studio, fork)) == str(repo.path / "shop")


# What goes wrong


async def test_a_folder_that_is_gone_is_an_error(app: App, studio: Studio, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    source = (await app.run(studio.agent("lead", says=["done"]), "go", repo=tmp_path / "plain")).run_id
    (tmp_path / "plain").rmdir()

    with pytest.raises(Mistake, match="where the run worked, no longer exists"):
        await app.fork(source, at="2")


async def test_a_checkout_whose_setup_fails_leaves_no_fork_behind(studio: Studio, repo: Repo) -> None:
    agent = studio.agent("lead", says=["done"])
    studio.settings = structs.replace(studio.settings, sandbox=False, worktrees=WorktreeSettings(setup=("false",)))
    async with studio.app() as app:
        source = await app.run(agent, "go", repo=repo.path)

        with pytest.raises(Mistake, match=r"the setup command in .* failed"):
            await app.fork(source.run_id, at="2")

    assert await Ledger(studio.settings.store).list_worktrees() == []
    assert len(repo.git("worktree", "list").splitlines()) == 1


async def test_a_fork_that_cannot_be_written_leaves_no_checkout_behind(studio: Studio, repo: Repo) -> None:
    agent = studio.agent("lead", says=["done"])
    async with studio.app() as app:
        source = await app.run(agent, "go", repo=repo.path)

    async with studio.app(fault=refuse_after(1)) as app:
        with pytest.raises(StoreFailed, match="a fault was requested"):
            await app.fork(source.run_id, at="3")

    assert await Ledger(studio.settings.store).list_worktrees() == []
    assert len(repo.git("worktree", "list").splitlines()) == 1


# Workers that had returned


async def test_the_commits_of_workers_that_had_returned_are_kept(studio: Studio, repo: Repo) -> None:
    own, shared = (
        repo.branch("feat/a", {"new.txt": "a\n"}),
        repo.branch("podium/source/lead-members-1", {"b.txt": "b\n"}),
    )
    timeline = WrittenTimeline()
    for run, branch, commit in (("w1", "feat/a", own), ("w2", "podium/source/lead-members-1", shared)):
        timeline.settle(f"lead/{run}/worker", WorkerSent(run=run, branch=branch, is_shared=run == "w2"))
        timeline.settle(f"lead/worker:{run}", WorkerReturned(run=run, outcome="succeeded", commit=commit))

    await create_fork_checkout(studio.settings, repo.path, timeline.entries, timeline.entries[1:], run="fork1")
    repo.git("branch", "-D", "feat/a")
    repo.git("branch", "-D", "podium/source/lead-members-1")
    repo.git("gc", "-q", "--prune=now")

    kept = repo.git("for-each-ref", "--format=%(objectname)", f"{SNAPSHOT_REFS}/fork1/fork").splitlines()
    assert set(kept) == {repo.tip(), own, shared}
    assert repo.tip("podium/fork1/lead-members-1") == shared
