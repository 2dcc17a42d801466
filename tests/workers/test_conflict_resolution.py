"""Resolvers: a conflict of the merge train goes to a worker, and what it leaves is merged in its place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from podium.store.sqlite.worker_index import WorkerIndex
from podium.values.event import WorkerPlaced

from ..workspace.merging import LINES, edited
from .worker_lab import SILENT, Yard, bash, hand, write

CLASHING: dict[str, Sequence[Any]] = {
    "feat/one": [write("a.txt", edited(0, "one")), "one"],
    "feat/two": [write("a.txt", edited(0, "two")), "two"],
}


def fixer(yard: Yard, *moves: Any) -> None:
    """Write an agent of the person's that resolves with these moves, and asks nothing."""
    yard.agent(hand(*moves))
    yard.set("permissions:\n  allow: [Write, Edit, Bash]\n")


async def done(yard: Yard, crew: dict[str, Sequence[Any]]) -> None:
    """Have workers make these moves, to their end."""
    for run in await yard.hire_all(crew):
        yard.command()
        assert (await yard.ended(run)).outcome == "succeeded"
    await yard.over()


async def merged(yard: Yard, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Merge for a program: the exit code, what came of it, and what was said to people."""
    said = await yard.podium("merge", *arguments, "--json")
    assert said.stdout, said.stderr
    return said.returncode, json.loads(said.stdout), said.stderr


async def sent(yard: Yard, *arguments: str, asks: int = 0) -> str:
    """Merge, and have the one resolver that is sent come to its end, allowed what it asks; the branch it was on."""
    _, result, said = await merged(yard, *arguments, "--resolve", "--resolver", "hand")
    assert len(result["resolving"]) == 1, said
    [one] = result["resolving"]
    for number in range(1, asks + 1):
        yard.answer(one["id"], await yard.asked(one["id"], number), "once")
    assert (await yard.ended(one["id"])).outcome == "succeeded"
    await yard.deserted()
    return str(one["on"])


def branches(result: dict[str, Any]) -> tuple[list[str], list[tuple[str, str]]]:
    """What is in, and what is not and why."""
    return (
        [one["branch"] for one in result["coupled"]],
        [(one["branch"], one["reason"]) for one in result["left_out"]],
    )


async def test_a_worker_resolves_what_clashed_and_its_branch_is_merged_in_its_place(yard: Yard) -> None:
    await done(yard, CLASHING)
    await done(yard, {"feat/other": [write("other.txt"), "other"]})
    fixer(yard, write("a.txt", edited(0, "one and two")), "kept both")
    yard.set("{}\n")

    said = await yard.podium("merge", "--all", "--yes", "--resolve", "--resolver", "hand")

    assert said.returncode == 6, said.stderr
    [line] = [line for line in said.stdout.splitlines() if line.startswith("resolving: ")]
    run = line.split()[3]
    assert line == f"resolving: feat/two: worker {run} on feat/two-resolved"
    assert "when it is done, podium merge feat/two-resolved takes it in place of feat/two" in said.stderr
    asked = await yard.asked(run)
    assert "<<<<<<< " in (yard.path("feat/two-resolved") / "a.txt").read_text()
    task = yard.events(run)[0].request.text
    assert task.splitlines()[0] == "Resolve the conflict of feat/two with main + feat/one + feat/other"
    assert "HEAD^2 is feat/two" in task
    assert "- a.txt\n" in task
    assert f">>>>>>> {yard.repo.tip('feat/two')}" in task
    assert "no marks" not in task

    code, result, told = await merged(yard, "--all", "--resolve")
    assert (code, result["coupled"], result["left_out"], result["resolving"]) == (0, [], [], [])
    assert "feat/two: left aside, since feat/two-resolved is to resolve it and is not done" in told
    _, result, told = await merged(yard, "feat/two", "--resolve")
    assert result["resolving"] == []
    assert "feat/two: a worker is on it already" in told
    yard.answer(run, asked, "once")
    assert (await yard.ended(run)).outcome == "succeeded"
    await yard.deserted()

    _, result, told = await merged(yard, "feat/two", "--resolve")
    assert "feat/two: feat/two-resolved has it resolved; podium merge feat/two-resolved takes that" in told
    code, result, told = await merged(yard, "--all", "--yes")
    assert (code, *branches(result)) == (0, ["feat/two-resolved"], [])
    assert "feat/two: feat/two-resolved goes along in its place, resolved" in told
    assert (yard.repo.path / "a.txt").read_text() == edited(0, "one and two")
    assert (await yard.podium("merge", "--all")).stderr == "no worker has brought anything that main does not have\n"
    [placed] = yard.events(run, WorkerPlaced)
    assert yard.commits("main", placed.base)[-1] == "Resolve the conflict of feat/two with main + feat/one + feat/other"
    yard.check(run)


async def test_marks_that_a_resolver_leaves_never_reach_the_target_and_another_may_try(yard: Yard) -> None:
    await done(yard, CLASHING)
    fixer(yard, write("a.txt", edited(0, "one\n=======\ntwo")), "nearly")

    first = await sent(yard, "--all", "--yes")
    before = yard.repo.tip()
    named, result, _ = await merged(yard, first, "--yes")
    code, rest, said = await merged(yard, "--all", "--yes")

    assert (named, *branches(result)) == (6, [], [("feat/two-resolved", "unresolved")])
    assert result["left_out"][0]["files"] == ["a.txt"]
    assert (code, *branches(rest)) == (6, [], [("feat/two", "conflict")])
    assert "feat/two-resolved: left aside, since marks of its conflict are left in a.txt\n" in said
    assert "in its place" not in said
    assert yard.repo.tip() == before
    fixer(yard, write("a.txt", edited(0, "both")), "kept both")
    second = await sent(yard, "--all")
    code, result, _ = await merged(yard, "--all", "--yes")
    assert (first, second) == ("feat/two-resolved", "feat/two-resolved-2")
    assert (code, *branches(result)) == (0, ["feat/two-resolved-2"], [])
    assert (yard.repo.path / "a.txt").read_text() == edited(0, "both")
    assert branches((await merged(yard, "--all"))[1]) == ([], [])


async def test_what_cannot_be_marked_is_told_in_words_and_both_versions_can_be_read(yard: Yard) -> None:
    yard.repo.commit({"image.bin": b"\0old"})
    yard.repo.branch("one", {"old.txt": None, "image.bin": b"\0one"})
    yard.repo.branch("two", {"old.txt": edited(0, "two"), "image.bin": b"\0two"})
    fixer(yard, bash("git show HEAD^2:image.bin > image.bin && git show HEAD^2:old.txt > new.txt && rm old.txt"), "ok")

    on = await sent(yard, "one", "two", "--yes", asks=1)
    code, result, _ = await merged(yard, on, "--yes")

    task = (await yard.podium("workers", "status", on, "--json")).stdout
    assert "old.txt deleted in main + one and modified in two" in task
    assert "Cannot merge binary files: image.bin (main + one vs. two)" in task
    assert "git show 'HEAD^1:old.txt' and git show 'HEAD^2:old.txt'" in json.loads(task)["task"]
    assert "<<<<<<<" not in task
    assert (code, *branches(result)) == (0, [on], [])
    assert (yard.repo.path / "image.bin").read_bytes() == b"\0two"
    assert (yard.repo.path / "new.txt").read_text() == edited(0, "two")
    assert not (yard.repo.path / "old.txt").exists()


async def test_what_builds_on_a_resolved_branch_goes_behind_it_and_what_was_not_merged_goes_along(yard: Yard) -> None:
    await done(yard, CLASHING)
    [run] = await yard.hire_all({"feat/more": [write("more.txt"), "more"]}, follows=["feat/two"])
    yard.command()
    await yard.ended(run)
    await yard.over()
    fixer(yard, write("a.txt", edited(0, "both")), "kept both")

    on = await sent(yard, "--all")
    _, together, _ = await merged(yard, "--all")
    added = yard.repo.commit({"b.txt": edited(0, "added")}, at=yard.path("feat/two"))
    _, alone, told = await merged(yard, on)
    code, result, _ = await merged(yard, "--all", "--yes")

    assert branches(together) == (["feat/one", on, "feat/more"], [])
    assert branches(alone) == ([on], [])
    assert f"{on}: it was resolved on top of " in told
    assert {file for one in alone["forecast"]["branches"] for file in one["files"]} == {"a.txt"}
    assert (code, *branches(result)) == (0, ["feat/one", on, "feat/two", "feat/more"], [])
    assert yard.repo.git("merge-base", "--is-ancestor", added, "main") == ""
    assert (yard.repo.path / "a.txt").read_text() == edited(0, "both")


async def test_without_a_conflict_nobody_is_sent_and_an_unknown_resolver_is_told_at_once(yard: Yard) -> None:
    yard.repo.branch("good", {"good.txt": "good\n"})

    unknown = await yard.podium("merge", "good", "--resolve", "--resolver", "nobody")
    alone = await yard.podium("merge", "good", "--resolver", "worker")
    code, result, _ = await merged(yard, "good", "--yes", "--resolve")

    assert (unknown.returncode, alone.returncode) == (2, 2)
    assert 'there is no agent "nobody"' in unknown.stderr
    assert "--resolver says who it is that --resolve sends; give both" in alone.stderr
    assert (code, result["resolving"]) == (0, [])
    assert not yard.store.exists()


async def test_a_resolver_that_failed_leaves_the_branch_to_another(yard: Yard) -> None:
    await done(yard, CLASHING)
    fixer(yard, SILENT)
    _, result, _ = await merged(yard, "--all", "--yes", "--resolve", "--resolver", "hand")
    [one] = result["resolving"]
    await yard.worker(one["id"])
    yard.stop(one["id"])
    await yard.ended(one["id"])
    await yard.deserted()
    fixer(yard, write("a.txt", LINES), "neither")

    again = await sent(yard, "--all")
    code, result, _ = await merged(yard, "--all", "--yes")

    assert (one["on"], again) == ("feat/two-resolved", "feat/two-resolved-2")
    assert (code, *branches(result)) == (0, ["feat/two-resolved-2"], [])


async def test_a_branch_that_fails_a_check_is_given_to_a_worker_too(yard: Yard) -> None:
    await done(yard, {"feat/good": [write("good.txt"), "good"]})
    await done(yard, {"feat/bad": [write("bad.txt"), "bad"]})
    fixer(yard, bash("rm bad.txt"), write("better.txt"), "mended")
    check = ("--check", "test ! -f bad.txt || { echo it is bad; exit 1; }")

    on = await sent(yard, "--all", *check)
    code, result, _ = await merged(yard, "--all", *check, "--yes")

    [run] = [hired.run for hired in WorkerIndex(yard.store).find_by_name(yard.root, on)]
    task = yard.events(run)[0].request.text
    assert task.splitlines()[0] == "Mend feat/bad, with which a check fails on main + feat/good"
    assert "it is bad" in task
    assert (on, code, branches(result)) == ("feat/bad-resolved", 0, (["feat/good", "feat/bad-resolved"], []))
    assert result["moved"]
    assert (yard.repo.path / "better.txt").exists()
    assert not (yard.repo.path / "bad.txt").exists()


async def test_what_still_fails_its_check_stays_out_and_goes_to_another_worker(yard: Yard) -> None:
    await done(yard, {"feat/bad": [write("bad.txt"), "bad"]})
    fixer(yard, write("other.txt"), "not mended at all")
    check = ("--check", "test ! -f bad.txt")

    first = await sent(yard, "--all", *check)
    second = await sent(yard, "--all", *check)
    _, result, _ = await merged(yard, "--all", *check, "--yes")

    assert (first, second) == ("feat/bad-resolved", "feat/bad-resolved-2")
    assert (branches(result), result["moved"]) == (([], [("feat/bad-resolved-2", "check")]), False)
