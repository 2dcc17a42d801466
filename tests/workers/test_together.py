"""Workers together: several at once, each on its branch, and those that follow others."""

from __future__ import annotations

import json

import pytest
from anyio import to_thread

from podium.values.errors import Mistake
from podium.values.event import ModelReplied, PermissionAnswered, WorkCommitted, WorkerPlaced
from podium.workspace.merging.merge_train import train

from ..cli.conftest import Desk
from ..cli.test_terminal import Terminal
from ..workspace.merging import passing
from .worker_lab import Yard, bash, write


def is_asked(lines: list[str], path: str) -> bool:
    """Whether the last thing that is asked on a screen is about a file, and can be answered."""
    begin = max((place for place, line in enumerate(lines) if "asks for permission" in line), default=len(lines))
    return any(line.endswith(f"path: {path}") for line in lines[begin:]) and any(
        "[y]" in line for line in lines[begin:]
    )


async def test_three_workers_ask_twice_each_and_are_answered_in_three_ways(yard: Yard) -> None:
    first = await yard.hire("feat/one", write("one.txt"), write("one-more.txt"), "one is done", allow=())
    second = await yard.hire("feat/two", write("two.txt"), bash("echo two >>two.txt"), "two is done", allow=())
    third = await yard.hire("feat/three", write("three.txt"), write("other.txt"), "done without it", allow=())
    yard.command()
    chat = Terminal(Desk(repo=yard.repo.path, home=yard.home, environment=yard.environ), "chat")

    for number in (1, 2):
        told = await yard.podium("approve", (await yard.asked(second, number)).id)
        assert told.returncode == 0, told.stderr
    told = await yard.podium("deny", (await yard.asked(third)).id, "--why", "not that file")
    assert told.returncode == 0, told.stderr
    yard.answer(third, await yard.asked(third, 2), "once")
    for path in ("one.txt", "one-more.txt"):
        await to_thread.run_sync(chat.wait_until, lambda lines, path=path: is_asked(lines, path))
        chat.process.send("y")
    await yard.ended(first)
    chat.process.sendeof()
    assert await to_thread.run_sync(chat.end) == 0

    for run in (first, second, third):
        assert (await yard.ended(run)).outcome == "succeeded"
    await yard.over()
    assert yard.file("feat/one", "one.txt") == "x"
    assert yard.file("feat/one", "one-more.txt") == "x"
    assert yard.file("feat/two", "two.txt") == "x\ntwo"
    assert yard.repo.git("diff", "--name-only", "main...feat/three") == "other.txt"
    assert [answered.by for answered in yard.events(first, PermissionAnswered)] == ["terminal"] * 2
    assert [answered.comment for answered in yard.events(third, PermissionAnswered)] == ["not that file", ""]
    heard = [received.call.messages[-1].text for received in yard.server.calls]
    assert any("not that file" in text for text in heard)
    assert yard.repo.git("status", "--porcelain") == ""
    for run, branch in ((first, "feat/one"), (second, "feat/two"), (third, "feat/three")):
        [placed] = yard.events(run, WorkerPlaced)
        [committed] = yard.events(run, WorkCommitted)
        assert (placed.branch, placed.base) == (branch, yard.repo.tip())
        assert committed.commits == (yard.repo.tip(branch),)
        told = await yard.podium("verify", run)
        assert told.returncode == 0, told.stdout
    yard.check(first, second, third)


async def test_delegating_at_the_command_line_is_enough(yard: Yard) -> None:
    task = f"Write it\n```script\n{json.dumps([write('one.txt'), 'written'])}\n```"

    told = await yard.podium("delegate", "feat/one", task, "--auto-approve", "Write", "--json")

    assert told.returncode == 0, told.stderr
    run = json.loads(told.stdout)["id"]
    assert (await yard.ended(run)).outcome == "succeeded"
    await yard.deserted()
    assert yard.file("feat/one", "one.txt") == "x"
    assert yard.commits("feat/one") == ["Write it"]
    yard.check(run)


async def test_a_worker_begins_with_what_those_before_it_brought_together(yard: Yard) -> None:
    one = await yard.hire("feat/one", write("one.txt"), "one")
    two = await yard.hire("feat/two", write("two.txt"), "two")
    both = await yard.hire(
        "feat/both", bash("mkdir both"), bash("cp one.txt two.txt both"), "both", follows=["feat/one", "feat/two"]
    )
    yard.command()

    for run in (one, two, both):
        assert (await yard.ended(run)).outcome == "succeeded"

    await yard.over()
    assert yard.file("feat/both", "both/two.txt") == "x"
    [placed] = yard.events(both, WorkerPlaced)
    [committed] = yard.events(both, WorkCommitted)
    assert yard.repo.git("rev-parse", f"{placed.base}^@").split() == [
        yard.repo.tip("feat/one"),
        yard.repo.tip("feat/two"),
    ]
    assert committed.files == ("both/one.txt", "both/two.txt")
    yard.check(one, two, both)


async def test_what_a_worker_brought_is_followed_also_when_its_branch_is_gone(yard: Yard) -> None:
    one = await yard.hire("feat/one", write("one.txt"), "one")
    yard.command()
    await yard.ended(one)
    await yard.over()
    left = yard.repo.tip("feat/one")
    yard.repo.git("worktree", "remove", "--force", str(yard.path("feat/one")))
    yard.repo.git("branch", "-D", "feat/one")

    two = await yard.hire("feat/two", "two", follows=["feat/one"])
    yard.command()

    assert (await yard.ended(two)).outcome == "succeeded"
    await yard.over()
    assert [placed.base for placed in yard.events(two, WorkerPlaced)] == [left]


async def test_what_a_person_adds_to_a_followed_branch_is_followed_too(yard: Yard) -> None:
    one = await yard.hire("feat/one", write("one.txt"), "one")
    yard.command()
    await yard.ended(one)
    await yard.over()
    yard.repo.git("commit", "--allow-empty", "-m", "by hand", at=yard.path("feat/one"))

    two = await yard.hire("feat/two", "two", follows=["feat/one"])
    yard.command()

    assert (await yard.ended(two)).outcome == "succeeded"
    await yard.over()
    assert [placed.base for placed in yard.events(two, WorkerPlaced)] == [yard.repo.tip("feat/one")]


async def test_who_follows_one_that_failed_fails_with_that_reason(yard: Yard) -> None:
    first = await yard.hire("feat/one", {"fails": {"status": 400, "message": "no such model"}})
    second = await yard.hire("feat/two", "two", follows=["feat/one"])
    third = await yard.hire("feat/three", "three", follows=["feat/two"])
    yard.command()

    ends = [await yard.ended(run) for run in (first, second, third)]

    await yard.over()
    assert [end.outcome for end in ends] == ["failed"] * 3
    assert "feat/one, which it was to follow, failed" in str(ends[1].failure)
    assert "no such model" in str(ends[1].failure)
    assert "feat/two, which it was to follow, failed" in str(ends[2].failure)
    assert not yard.path("feat/two").exists()
    yard.check(first, second, third)


async def test_who_follows_branches_that_clash_fails_and_says_where(yard: Yard) -> None:
    await yard.hire("feat/one", write("same.txt", "one\n"), "one")
    await yard.hire("feat/two", write("same.txt", "two\n"), "two")
    both = await yard.hire("feat/both", "both", follows=["feat/one", "feat/two"])
    yard.command()

    ended = await yard.ended(both)

    await yard.over()
    assert "clash in same.txt" in str(ended.failure)
    yard.check(both)


async def test_a_circle_of_workers_is_refused(yard: Yard) -> None:
    await yard.hire("feat/one", "one")
    await yard.hire("feat/two", "two", follows=["feat/one"])

    with pytest.raises(Mistake, match="cannot wait for itself"):
        await yard.hire("feat/three", "three", follows=["feat/three"])
    with pytest.raises(Mistake, match="a worker is on 'feat/one' already"):
        await yard.hire("feat/one", "one", follows=["feat/two"])
    with pytest.raises(Mistake, match="no worker was ever on 'feat/four'"):
        await yard.hire("feat/five", "five", follows=["feat/four"])


async def test_what_workers_brought_goes_onto_a_train_and_what_does_not_fit_is_left_out(yard: Yard) -> None:
    branches = ("feat/good", "feat/clash", "feat/broken")
    moves = ([write("same.txt", "a\n"), "good"], [write("same.txt", "b\n"), "clash"], [write("broken.txt"), "broken"])
    runs = await yard.hire_all(dict(zip(branches, moves, strict=True)))
    yard.command()
    for run in runs:
        assert (await yard.ended(run)).outcome == "succeeded"
    await yard.over()

    cars = [yard.repo.car(one) for one in branches]
    made = await train(yard.repo.path, cars, onto="main", integration="podium/train", check=passing)

    assert [one.branch for one in made.coupled] == ["feat/good"]
    assert {one.branch: one.reason for one in made.left_out} == {"feat/clash": "conflict", "feat/broken": "check"}
    assert made.left_out[0].files == ("same.txt",)
    assert yard.file("podium/train", "same.txt") == "a"


async def test_a_worker_that_waits_for_its_turn_can_be_paused_and_others_go_before_it(yard: Yard) -> None:
    first = await yard.hire("feat/one", "one")
    second = await yard.hire("feat/two", "two")
    assert (await yard.podium("pause", first)).returncode == 0
    yard.command()

    assert (await yard.ended(second)).outcome == "succeeded"
    await yard.over()
    assert yard.events(first, ModelReplied) == []
    assert (await yard.podium("resume", first)).returncode == 0

    assert (await yard.ended(first)).outcome == "succeeded"
    await yard.deserted()
