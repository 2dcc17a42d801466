"""Workers with checkouts in several repositories: creation, tools, sandbox, rules, commits, and crashes on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from anyio import fail_after, sleep

from podium.core.placement import WorkerOptions
from podium.store.reader import StoreReader
from podium.store.worktree_ledger import Ledger
from podium.testing import make_repository
from podium.values.event import (
    ActionBegan,
    ActionRefused,
    Decision,
    Noticed,
    RunEnded,
    RunStarted,
    ToolAnswered,
    WorkCommitted,
    WorkerPlaced,
)
from podium.workspace.worktrees.worktree_slots import find_slot

from ..workspace.merging import Repo
from .worker_lab import LONG, WorkerLab, bash, call, write

BRANCH = "feat/both"
TREES = ("repo-worker-feat-both", "other-worker-feat-both")


@pytest.fixture
def other(lab: WorkerLab) -> Repo:
    return Repo(lab.folder / "other")


def also(*repos: Repo) -> WorkerOptions:
    return WorkerOptions(also=tuple(str(one.path) for one in repos))


def tree(lab: WorkerLab) -> Path:
    """The worker's checkout of the other repository."""
    return lab.folder / TREES[1]


def answers(lab: WorkerLab, run: str) -> list[str]:
    return [event.text for event in lab.events(run, ToolAnswered)]


async def wait_answering(lab: WorkerLab, run: str, *decisions: Decision) -> RunEnded:
    """Answer the permission requests of a run in order, and wait for its end."""
    for number, decision in enumerate(decisions, 1):
        lab.answer(run, await lab.wait_asked(run, number), decision)
    return await lab.wait_ended(run)


async def test_a_worker_changes_and_commits_files_in_each_repository(lab: WorkerLab, other: Repo) -> None:
    there = tree(lab)
    other.commit({"AGENTS.md": "Use tabs in other.\n"})
    run = await lab.delegate(
        BRANCH,
        write("one.txt", "one\n"),
        write(f"{there}/two.txt", "two\n"),
        call("edit_file", path="../other-worker-feat-both/a.txt", old="7\n8", new="seven\n8"),
        call("read_file", path=f"{there}/a.txt", limit=1),
        bash(f"pwd; echo three > {there}/three.txt; cat {there}/two.txt"),
        call("bash", command="pwd; git status --short; sh run.sh || true", directory=str(there)),
        "done",
        options=also(other),
    )
    lab.start_commander()

    ended = await wait_answering(lab, run, "once", "once")

    assert ended.outcome == "succeeded", lab.logs(run)
    [placed] = lab.events(run, WorkerPlaced)
    assert [(one.root, one.path, one.base) for one in placed.also] == [(str(other.path), str(there), other.tip())]
    [committed] = lab.events(run, WorkCommitted)
    assert committed.files == ("one.txt",)
    [elsewhere] = committed.also
    assert (elsewhere.root, elsewhere.files) == (str(other.path), ("a.txt", "three.txt", "two.txt"))
    assert other.tip(BRANCH) == elsewhere.commit
    assert other.git("show", f"{BRANCH}:two.txt") == "two"
    assert lab.read_file(BRANCH, "one.txt") == "one"
    assert {lab.repo.git("status", "--short"), other.git("status", "--short")} == {""}
    said = answers(lab, run)
    assert said[1] == f"[in {there}]\nCreated two.txt with 1 line."
    assert said[4].startswith(f"{lab.folder / TREES[0]}\ntwo\n")
    assert said[5].startswith(f"[in {there}]\n{there}\n M a.txt\n?? three.txt\n")
    actions = [event.action for event in lab.events(run, ActionBegan)]
    assert [(one.directory.rpartition("/")[2], one.arguments.get("path")) for one in actions[:3]] == [
        (TREES[0], "one.txt"),
        (TREES[1], "two.txt"),
        (TREES[1], "a.txt"),
    ]
    [started] = lab.events(run, RunStarted)
    assert started.guidance is not None
    assert f"- {there} (repository other)" in started.guidance.instructions
    assert f"# Instructions for the repository in {there}" in started.guidance.instructions
    assert "Use tabs in other." in started.guidance.instructions
    await lab.wait_finished()
    lab.assert_clean_end(run)


async def test_rules_and_protected_files_hold_in_each_checkout_and_nothing_else_is_reached(
    lab: WorkerLab, other: Repo
) -> None:
    there = tree(lab)
    other.commit({".gitignore": ".env\n", ".worktreeinclude": ".env\n", "secret/x.txt": "hidden\n"})
    other.commit({"podium.yaml": "permissions: {deny: ['Read(docs/**)']}\n"})
    (other.path / ".env").write_text("SECRET=1\n")
    other.commit({"docs/x.md": "doc\n"})
    lab.write_settings("permissions: {deny: ['Read(secret/**)', 'Edit(secret/**)']}\n")
    outside = lab.folder / "outside.txt"
    outside.write_text("outside\n")
    (lab.repo.path / "secret").mkdir()
    # Some of these paths are in the sandbox's own /tmp, so what counts is seen from outside.
    targets = (f"{other.path}/a.txt", f"{other.path}/.git/refs/heads/main", f"{lab.repo.path}/a.txt", outside)
    tries = "; ".join(f"echo x > {path}" for path in (f"{there}/.git", f"{there}/.podium/x", *targets))
    before = (other.tip(), (other.path / "a.txt").read_text())
    run = await lab.delegate(
        BRANCH,
        call("read_file", path=f"{there}/secret/x.txt"),
        write(f"{there}/secret/y.txt"),
        call("read_file", path=f"{there}/docs/x.md"),
        write(f"{there}/.git"),
        call("read_file", path=str(other.path / "a.txt")),
        call("read_file", path=f"{there}/../outside.txt"),
        call("grep", pattern="hidden|SECRET", path=str(there)),
        call("bash", command="pwd", directory=str(other.path)),
        bash(f"cat {there}/.env {outside}; {tries}; true"),
        "done",
        options=also(other),
        tools=("Read", "Write", "Grep", "Bash"),
    )
    lab.start_commander()
    await wait_answering(lab, run, "deny", "once")

    said = answers(lab, run)
    refused = [event.action.arguments["path"] for event in lab.events(run, ActionRefused)]
    assert refused == ["secret/x.txt", "secret/y.txt", "docs/x.md", ".git"]
    assert "outside the checkout" in said[4]
    assert "outside the checkout" in said[5] or "leads out" in said[5]
    assert said[6] == f"[in {there}]\nNo line matches hidden|SECRET."
    assert said[7] == f"`directory` must be one of this task's checkouts: {lab.folder / TREES[0]}, {there}."
    assert (there / ".env").exists()
    assert "SECRET" not in said[8]
    assert "\noutside\n" not in said[8]
    assert before == (other.tip(), (other.path / "a.txt").read_text())
    assert (there / ".git").read_text().startswith("gitdir: ")
    assert not (there / ".podium").exists()
    assert outside.read_text() == "outside\n"
    assert [repo.git("status", "--short") for repo in (lab.repo, other)] == ["", ""]


@pytest.mark.slow
async def test_setup_runs_in_each_checkout_with_one_shared_slot(lab: WorkerLab, other: Repo) -> None:
    show = "echo $PODIUM_SLOT $PODIUM_PORT_1 $PODIUM_DATABASE"
    lab.write_settings(
        f"worktrees: {{setup: '{show} > setup.txt', teardown: '{show} > ../torn-$PODIUM_SLOT.txt || true'}}\n"
    )
    run = await lab.delegate(
        BRANCH,
        call("bash", command="printenv PODIUM_SLOT PODIUM_PORT_1 PODIUM_DATABASE", directory=str(tree(lab))),
        "done",
        options=also(other),
    )
    lab.start_commander()
    await lab.wait_ended(run)

    slot = find_slot(lab.home, lab.folder / TREES[0], lab.repo.path)
    assert slot is not None
    expected = f"{slot.number} {slot.ports[0]} podium_repo_{slot.number}"
    assert [(lab.folder / name / "setup.txt").read_text().strip() for name in TREES] == [expected] * 2
    assert answers(lab, run)[0].split("\n")[1:4] == expected.split()
    assert find_slot(lab.home, tree(lab), other.path) == slot


async def test_a_task_without_other_repositories_is_recorded_as_before(lab: WorkerLab) -> None:
    run = await lab.delegate(BRANCH, write("one.txt"), "done")
    lab.start_commander()
    await lab.wait_ended(run)

    with StoreReader(lab.store) as reader:
        lines = [row.line for row in reader.read_rows(run)]

    assert [line for line in lines if '"also"' in str(line)] == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda lab, other: [lab.repo.path], "is in the task's own repository"),
        pytest.param(lambda lab, other: [other.path, other.path], "was given more than once", marks=pytest.mark.slow),
        pytest.param(
            lambda lab, other: [_folder(lab.folder / "plain")], "is not in a git repository", marks=pytest.mark.slow
        ),
        pytest.param(lambda lab, other: [_empty(lab.folder / "empty")], "has no commits yet", marks=pytest.mark.slow),
        (lambda lab, other: [_nested(lab)], "the repositories of a task cannot be nested"),
        (lambda lab, other: [_checked_out(other)], "is checked out"),
    ],
    ids=["primary", "twice", "plain", "empty", "nested", "checked-out"],
)
async def test_an_unsuitable_repository_is_refused_before_anything_is_created(
    lab: WorkerLab, other: Repo, make: object, message: str
) -> None:
    folders = make(lab, other)  # type: ignore[operator]
    before = [lab.repo.visible_state(), other.visible_state()]
    arguments = [word for folder in folders for word in ("--also", str(folder))]

    said = await lab.run_podium("delegate", BRANCH, "do it", *arguments)

    assert said.returncode == 2, said.stderr
    assert message in said.stderr
    assert len(said.stderr.strip().splitlines()) == 1
    assert [lab.repo.visible_state(), other.visible_state()] == before
    assert await Ledger(lab.store).list_worktrees() == []


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _empty(path: Path) -> Path:
    return make_repository(path)


def _nested(lab: WorkerLab) -> Path:
    return Repo(lab.repo.path / "inner").path


def _checked_out(other: Repo) -> Path:
    other.git("switch", "-q", "-c", BRANCH)
    return other.path


@pytest.mark.parametrize(
    ("option", "message"),
    [
        pytest.param("--times=2", "--also cannot be combined with --times", marks=pytest.mark.slow),
        pytest.param("--read-only", "--also cannot be combined with --read-only", marks=pytest.mark.slow),
        ("--label=gpu", "a task in several repositories cannot run on a fleet host"),
    ],
)
async def test_options_that_need_a_single_repository_are_refused(
    lab: WorkerLab, other: Repo, option: str, message: str
) -> None:
    said = await lab.run_podium("delegate", BRANCH, "do it", "--also", str(other.path), option)

    assert said.returncode == 2
    assert message in said.stderr


async def test_a_branch_of_an_unfinished_worker_is_taken_in_all_its_repositories(lab: WorkerLab, other: Repo) -> None:
    await lab.delegate(BRANCH, "done", options=also(other))

    said = await lab.run_podium("delegate", BRANCH, "do it", "--repo", str(other.path))
    third = Repo(lab.folder / "third")
    crossed = await lab.run_podium("delegate", BRANCH, "do it", "--repo", str(third.path), "--also", str(other.path))

    assert (said.returncode, crossed.returncode) == (2, 2)
    assert f"branch '{BRANCH}' is used by a worker that was started in another repository" in said.stderr
    assert f"no worktree can be created in {other.path}: branch '{BRANCH}' is used by a worker" in crossed.stderr


async def test_if_the_second_checkout_cannot_be_created_the_first_is_removed(lab: WorkerLab, other: Repo) -> None:
    run = await lab.delegate(BRANCH, "done", options=also(other))
    tree(lab).mkdir()  # somebody else takes the path after the task was delegated
    lab.start_commander()

    ended = await lab.wait_ended(run)

    assert ended.failure is not None
    assert str(tree(lab)) in ended.failure.message
    assert not lab.worktree_path(BRANCH).exists()
    assert await Ledger(lab.store).list_worktrees() == []
    assert [one.git("branch", "--list", BRANCH) for one in (lab.repo, other)] == ["", ""]


async def test_creation_continues_after_a_kill_in_the_middle(lab: WorkerLab, other: Repo) -> None:
    gate = lab.folder / "gate"
    lab.write_settings(
        "sandbox: false\n"
        f"worktrees: {{setup: 'case $PWD in */other-*) echo started >> {gate}; "
        f"test -e {gate}.open || sleep 60;; esac'}}\n"
    )
    run = await lab.delegate(BRANCH, write(f"{tree(lab)}/two.txt", "two\n"), "done", options=also(other))
    first = lab.start_commander()
    with fail_after(LONG):
        while not gate.exists():  # noqa: ASYNC110 - another process creates the file
            await sleep(0.05)
    first.kill()
    first.wait()
    assert lab.events(run, WorkerPlaced) == []
    Path(f"{gate}.open").touch()

    lab.start_commander()
    ended = await lab.wait_ended(run)

    assert ended.outcome == "succeeded", lab.logs(run)
    assert gate.read_text() == "started\n" * 2
    assert other.git("show", f"{BRANCH}:two.txt") == "two"
    rows = await Ledger(lab.store).list_worktrees()
    assert [(row.path.name, row.state) for row in rows] == [(name, "ready") for name in TREES]


async def test_a_killed_worker_goes_on_in_all_its_checkouts(lab: WorkerLab, other: Repo) -> None:
    run = await lab.delegate(BRANCH, write(f"{tree(lab)}/two.txt", "two\n"), {"silent": True}, options=also(other))
    lab.start_commander()
    await lab.wait_called(2)
    (await lab.wait_worker(run)).kill()
    await lab.wait_worker(run, start=2)
    lab.stop(run)

    await lab.wait_ended(run)

    [committed] = lab.events(run, WorkCommitted)
    assert [one.files for one in committed.also] == [("two.txt",)]
    assert len(lab.events(run, WorkerPlaced)) == 1


@pytest.mark.slow
async def test_a_worker_that_follows_another_starts_from_its_work_in_each_repository(
    lab: WorkerLab, other: Repo
) -> None:
    await lab.delegate(
        "feat/one", write(f"{lab.folder}/other-worker-feat-one/two.txt", "two\n"), "done", options=also(other)
    )
    second = await lab.delegate(
        BRANCH,
        call("read_file", path=f"{tree(lab)}/two.txt"),
        "done",
        options=WorkerOptions(also=(str(other.path),), after=("feat/one",)),
    )
    lab.start_commander()

    assert (await lab.wait_ended(second)).outcome == "succeeded", lab.logs(second)

    assert "two" in answers(lab, second)[0]
    assert lab.events(second, Noticed) == []
