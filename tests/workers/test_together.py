"""Several workers at once, each on its own branch, and workers that wait for others."""

from __future__ import annotations

import getpass
import json

import pytest
from anyio import to_thread

from podium.core.placement import WorkerOptions
from podium.testing import format_script
from podium.values.errors import Mistake
from podium.values.event import ModelReplied, PermissionAnswered, WorkCommitted, WorkerPlaced
from podium.workspace.merging.merge_train import build_train

from ..cli.conftest import Desk
from ..cli.test_terminal import Terminal
from ..workspace.merging import check_not_broken
from .worker_lab import WorkerLab, bash, write


def is_prompt_shown(lines: list[str], path: str) -> bool:
    """Return whether the last prompt on a screen is about a file and can be answered."""
    begin = max((place for place, line in enumerate(lines) if "asks for permission" in line), default=len(lines))
    return any(line.endswith(f"path: {path}") for line in lines[begin:]) and any(
        "[y]" in line for line in lines[begin:]
    )


async def test_three_workers_ask_twice_each_and_are_answered_in_three_ways(lab: WorkerLab) -> None:
    first = await lab.delegate("feat/one", write("one.txt"), write("one-more.txt"), "one is done", allow=())
    second = await lab.delegate("feat/two", write("two.txt"), bash("echo two >>two.txt"), "two is done", allow=())
    third = await lab.delegate("feat/three", write("three.txt"), write("other.txt"), "done without it", allow=())
    lab.start_commander()
    chat = Terminal(Desk(repo=lab.repo.path, home=lab.home, environment=lab.environ), "chat")

    for number in (1, 2):
        told = await lab.run_podium("approve", (await lab.wait_asked(second, number)).id)
        assert told.returncode == 0, told.stderr
    told = await lab.run_podium("deny", (await lab.wait_asked(third)).id, "--why", "not that file")
    assert told.returncode == 0, told.stderr
    lab.answer(third, await lab.wait_asked(third, 2), "once")
    for path in ("one.txt", "one-more.txt"):
        await to_thread.run_sync(chat.wait_until, lambda lines, path=path: is_prompt_shown(lines, path))
        chat.process.send("y")
    await lab.wait_ended(first)
    chat.process.sendeof()
    assert await to_thread.run_sync(chat.wait_exit) == 0

    for run in (first, second, third):
        assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()
    assert lab.read_file("feat/one", "one.txt") == "x"
    assert lab.read_file("feat/one", "one-more.txt") == "x"
    assert lab.read_file("feat/two", "two.txt") == "x\ntwo"
    assert lab.repo.git("diff", "--name-only", "main...feat/three") == "other.txt"
    answers = [(answered.by, answered.channel) for answered in lab.events(first, PermissionAnswered)]
    assert answers == [(getpass.getuser(), "chat")] * 2
    assert [answered.comment for answered in lab.events(third, PermissionAnswered)] == ["not that file", ""]
    heard = [received.call.messages[-1].text for received in lab.server.calls]
    assert any("not that file" in text for text in heard)
    assert lab.repo.git("status", "--porcelain") == ""
    for run, branch in ((first, "feat/one"), (second, "feat/two"), (third, "feat/three")):
        [placed] = lab.events(run, WorkerPlaced)
        [committed] = lab.events(run, WorkCommitted)
        assert (placed.branch, placed.base) == (branch, lab.repo.tip())
        assert committed.commits == (lab.repo.tip(branch),)
        told = await lab.run_podium("verify", run)
        assert told.returncode == 0, told.stdout
    lab.assert_clean_end(first, second, third)


async def test_delegating_at_the_command_line_is_enough(lab: WorkerLab) -> None:
    task = f"Write it\n{format_script(write('one.txt'), 'written')}"

    told = await lab.run_podium("delegate", "feat/one", task, "--auto-approve", "Write", "--json")

    assert told.returncode == 0, told.stderr
    run = json.loads(told.stdout)["id"]
    assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_no_processes()
    assert lab.read_file("feat/one", "one.txt") == "x"
    assert lab.commits("feat/one") == ["Write it"]
    lab.assert_clean_end(run)


async def test_a_worker_starts_from_the_merged_work_of_those_it_follows(lab: WorkerLab) -> None:
    one = await lab.delegate("feat/one", write("one.txt"), "one")
    two = await lab.delegate("feat/two", write("two.txt"), "two")
    both = await lab.delegate(
        "feat/both",
        bash("mkdir both"),
        bash("cp one.txt two.txt both"),
        "both",
        options=WorkerOptions(after=("feat/one", "feat/two")),
    )
    lab.start_commander()

    for run in (one, two, both):
        assert (await lab.wait_ended(run)).outcome == "succeeded"

    await lab.wait_finished()
    assert lab.read_file("feat/both", "both/two.txt") == "x"
    [placed] = lab.events(both, WorkerPlaced)
    [committed] = lab.events(both, WorkCommitted)
    assert lab.repo.git("rev-parse", f"{placed.base}^@").split() == [
        lab.repo.tip("feat/one"),
        lab.repo.tip("feat/two"),
    ]
    assert committed.files == ("both/one.txt", "both/two.txt")
    lab.assert_clean_end(one, two, both)


@pytest.mark.slow
async def test_the_work_of_a_worker_can_be_followed_even_when_its_branch_is_gone(lab: WorkerLab) -> None:
    one = await lab.delegate("feat/one", write("one.txt"), "one")
    lab.start_commander()
    await lab.wait_ended(one)
    await lab.wait_finished()
    left = lab.repo.tip("feat/one")
    lab.repo.git("worktree", "remove", "--force", str(lab.worktree_path("feat/one")))
    lab.repo.git("branch", "-D", "feat/one")

    two = await lab.delegate("feat/two", "two", options=WorkerOptions(after=("feat/one",)))
    lab.start_commander()

    assert (await lab.wait_ended(two)).outcome == "succeeded"
    await lab.wait_finished()
    assert [placed.base for placed in lab.events(two, WorkerPlaced)] == [left]


@pytest.mark.slow
async def test_commits_that_a_person_adds_to_a_followed_branch_are_included(lab: WorkerLab) -> None:
    one = await lab.delegate("feat/one", write("one.txt"), "one")
    lab.start_commander()
    await lab.wait_ended(one)
    await lab.wait_finished()
    lab.repo.git("commit", "--allow-empty", "-m", "by hand", at=lab.worktree_path("feat/one"))

    two = await lab.delegate("feat/two", "two", options=WorkerOptions(after=("feat/one",)))
    lab.start_commander()

    assert (await lab.wait_ended(two)).outcome == "succeeded"
    await lab.wait_finished()
    assert [placed.base for placed in lab.events(two, WorkerPlaced)] == [lab.repo.tip("feat/one")]


async def test_a_worker_that_follows_a_failed_one_fails_with_that_reason(lab: WorkerLab) -> None:
    first = await lab.delegate("feat/one", {"fails": {"status": 400, "message": "no such model"}})
    second = await lab.delegate("feat/two", "two", options=WorkerOptions(after=("feat/one",)))
    third = await lab.delegate("feat/three", "three", options=WorkerOptions(after=("feat/two",)))
    lab.start_commander()

    ends = [await lab.wait_ended(run) for run in (first, second, third)]

    await lab.wait_finished()
    assert [end.outcome for end in ends] == ["failed"] * 3
    assert "it depends on feat/one, which failed" in str(ends[1].failure)
    assert "no such model" in str(ends[1].failure)
    assert "it depends on feat/two, which failed" in str(ends[2].failure)
    assert not lab.worktree_path("feat/two").exists()
    lab.assert_clean_end(first, second, third)


async def test_a_worker_that_follows_conflicting_branches_fails_and_names_the_files(lab: WorkerLab) -> None:
    await lab.delegate("feat/one", write("same.txt", "one\n"), "one")
    await lab.delegate("feat/two", write("same.txt", "two\n"), "two")
    both = await lab.delegate("feat/both", "both", options=WorkerOptions(after=("feat/one", "feat/two")))
    lab.start_commander()

    ended = await lab.wait_ended(both)

    await lab.wait_finished()
    assert "conflict in same.txt" in str(ended.failure)
    lab.assert_clean_end(both)


async def test_a_circle_of_workers_is_refused(lab: WorkerLab) -> None:
    await lab.delegate("feat/one", "one")
    await lab.delegate("feat/two", "two", options=WorkerOptions(after=("feat/one",)))

    with pytest.raises(Mistake, match="cannot wait for itself"):
        await lab.delegate("feat/three", "three", options=WorkerOptions(after=("feat/three",)))
    with pytest.raises(Mistake, match="branch 'feat/one' already has a worker"):
        await lab.delegate("feat/one", "one", options=WorkerOptions(after=("feat/two",)))
    with pytest.raises(Mistake, match="cannot wait for branch 'feat/four': it has never had a worker"):
        await lab.delegate("feat/five", "five", options=WorkerOptions(after=("feat/four",)))


async def test_a_train_merges_the_branches_of_workers_and_leaves_out_those_that_do_not_fit(lab: WorkerLab) -> None:
    branches = ("feat/good", "feat/clash", "feat/broken")
    moves = ([write("same.txt", "a\n"), "good"], [write("same.txt", "b\n"), "clash"], [write("broken.txt"), "broken"])
    runs = await lab.delegate_all(dict(zip(branches, moves, strict=True)))
    lab.start_commander()
    for run in runs:
        assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()

    train_branches = [lab.repo.train_branch(one) for one in branches]
    result = await build_train(
        lab.repo.path, train_branches, onto="main", integration="podium/train", check=check_not_broken
    )

    assert [one.branch for one in result.merged] == ["feat/good"]
    assert {one.branch: one.reason for one in result.left_out} == {"feat/clash": "conflict", "feat/broken": "check"}
    assert result.left_out[0].files == ("same.txt",)
    assert lab.read_file("podium/train", "same.txt") == "a"


@pytest.mark.slow
async def test_a_worker_that_waits_for_its_turn_can_be_paused_and_others_go_before_it(lab: WorkerLab) -> None:
    first = await lab.delegate("feat/one", "one")
    second = await lab.delegate("feat/two", "two")
    assert (await lab.run_podium("pause", first)).returncode == 0
    lab.start_commander()

    assert (await lab.wait_ended(second)).outcome == "succeeded"
    await lab.wait_finished()
    assert lab.events(first, ModelReplied) == []
    assert (await lab.run_podium("resume", first)).returncode == 0

    assert (await lab.wait_ended(first)).outcome == "succeeded"
    await lab.wait_no_processes()
