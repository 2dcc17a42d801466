"""Resolvers: a worker resolves a conflict in the merge train, and its branch is merged instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from podium.core.placement import WorkerOptions
from podium.store.worker_index import WorkerIndex
from podium.values.event import WorkerPlaced

from ..workspace.merging import LINES, replace_line
from .worker_lab import SILENT, WorkerLab, bash, make_scripted_agent, write

CONFLICTING_MOVES: dict[str, Sequence[Any]] = {
    "feat/one": [write("a.txt", replace_line(0, "one")), "one"],
    "feat/two": [write("a.txt", replace_line(0, "two")), "two"],
}


def write_resolver(lab: WorkerLab, *moves: Any) -> None:
    """Write a user-level agent that resolves conflicts with these script steps and makes no requests."""
    lab.write_agent(make_scripted_agent(*moves))
    lab.write_settings("permissions:\n  allow: [Write, Edit, Bash]\n")


async def run_workers(lab: WorkerLab, moves_by_branch: dict[str, Sequence[Any]]) -> None:
    """Run workers that follow these script steps, and wait until they have ended."""
    for run in await lab.delegate_all(moves_by_branch):
        lab.start_commander()
        assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_finished()


async def merge_as_json(lab: WorkerLab, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Merge with JSON output, and return the exit code, the output, and the messages for people."""
    said = await lab.run_podium("merge", *arguments, "--json")
    assert said.stdout, said.stderr
    return said.returncode, json.loads(said.stdout), said.stderr


async def run_resolver(lab: WorkerLab, *arguments: str, asks: int = 0) -> str:
    """Merge, let the resolver finish with all its requests allowed, and return the resolver's branch."""
    _, result, said = await merge_as_json(lab, *arguments, "--resolve", "--resolver", "hand")
    assert len(result["resolving"]) == 1, said
    [one] = result["resolving"]
    for number in range(1, asks + 1):
        lab.answer(one["id"], await lab.wait_asked(one["id"], number), "once")
    assert (await lab.wait_ended(one["id"])).outcome == "succeeded"
    await lab.wait_no_processes()
    return str(one["on"])


def merged_and_left_out(result: dict[str, Any]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the merged branches, and those left out with the reasons."""
    return (
        [one["branch"] for one in result["coupled"]],
        [(one["branch"], one["reason"]) for one in result["left_out"]],
    )


async def test_a_worker_resolves_a_conflict_and_its_branch_is_merged_instead(lab: WorkerLab) -> None:
    await run_workers(lab, CONFLICTING_MOVES)
    await run_workers(lab, {"feat/other": [write("other.txt"), "other"]})
    write_resolver(lab, write("a.txt", replace_line(0, "one and two")), "kept both")
    lab.write_settings("{}\n")

    said = await lab.run_podium("merge", "--all", "--yes", "--resolve", "--resolver", "hand")

    assert said.returncode == 6, said.stderr
    [line] = [line for line in said.stdout.splitlines() if line.startswith("resolving: ")]
    run = line.split()[3]
    assert line == f"resolving: feat/two: worker {run} on feat/two-resolved"
    assert (
        "when the worker has finished, merge feat/two-resolved instead of feat/two: podium merge feat/two-resolved"
        in said.stderr
    )
    asked = await lab.wait_asked(run)
    assert "<<<<<<< " in (lab.worktree_path("feat/two-resolved") / "a.txt").read_text()
    task = lab.events(run)[0].request.text
    assert task.splitlines()[0] == "Resolve the conflict between feat/two and main + feat/one + feat/other"
    assert "HEAD^2 is feat/two" in task
    assert "- a.txt\n" in task
    assert f">>>>>>> {lab.repo.tip('feat/two')}" in task
    assert "no markers" not in task

    code, result, told = await merge_as_json(lab, "--all", "--resolve")
    assert (code, result["coupled"], result["left_out"], result["resolving"]) == (0, [], [], [])
    assert "feat/two: skipped, because a worker is still resolving its conflict on feat/two-resolved" in told
    _, result, told = await merge_as_json(lab, "feat/two", "--resolve")
    assert result["resolving"] == []
    assert "feat/two: a resolver is already working on this branch" in told
    lab.answer(run, asked, "once")
    assert (await lab.wait_ended(run)).outcome == "succeeded"
    await lab.wait_no_processes()

    _, result, told = await merge_as_json(lab, "feat/two", "--resolve")
    assert "feat/two: already resolved on feat/two-resolved; merge it with: podium merge feat/two-resolved" in told
    code, result, told = await merge_as_json(lab, "--all", "--yes")
    assert (code, *merged_and_left_out(result)) == (0, ["feat/two-resolved"], [])
    assert "feat/two: feat/two-resolved is merged in its place, with the conflict resolved" in told
    assert (lab.repo.path / "a.txt").read_text() == replace_line(0, "one and two")
    assert (await lab.run_podium("merge", "--all")).stderr.startswith("nothing to merge: ")
    [placed] = lab.events(run, WorkerPlaced)
    assert (
        lab.commits("main", placed.base)[-1] == "Resolve the conflict between feat/two and main + feat/one + feat/other"
    )
    lab.assert_clean_end(run)


@pytest.mark.slow
async def test_conflict_markers_that_a_resolver_leaves_never_reach_the_target_and_another_may_try(
    lab: WorkerLab,
) -> None:
    await run_workers(lab, CONFLICTING_MOVES)
    write_resolver(lab, write("a.txt", replace_line(0, "one\n=======\ntwo")), "nearly")

    first = await run_resolver(lab, "--all", "--yes")
    before = lab.repo.tip()
    named, result, _ = await merge_as_json(lab, first, "--yes")
    code, rest, said = await merge_as_json(lab, "--all", "--yes")

    assert (named, *merged_and_left_out(result)) == (6, [], [("feat/two-resolved", "unresolved")])
    assert result["left_out"][0]["files"] == ["a.txt"]
    assert (code, *merged_and_left_out(rest)) == (6, [], [("feat/two", "conflict")])
    assert "feat/two-resolved: skipped, because conflict markers are left in a.txt\n" in said
    assert "in its place" not in said
    assert lab.repo.tip() == before
    write_resolver(lab, write("a.txt", replace_line(0, "both")), "kept both")
    second = await run_resolver(lab, "--all")
    code, result, _ = await merge_as_json(lab, "--all", "--yes")
    assert (first, second) == ("feat/two-resolved", "feat/two-resolved-2")
    assert (code, *merged_and_left_out(result)) == (0, ["feat/two-resolved-2"], [])
    assert (lab.repo.path / "a.txt").read_text() == replace_line(0, "both")
    assert merged_and_left_out((await merge_as_json(lab, "--all"))[1]) == ([], [])


@pytest.mark.slow
async def test_conflicts_without_markers_are_described_in_words_and_both_versions_can_be_read(lab: WorkerLab) -> None:
    lab.repo.commit({"image.bin": b"\0old"})
    lab.repo.branch("one", {"old.txt": None, "image.bin": b"\0one"})
    lab.repo.branch("two", {"old.txt": replace_line(0, "two"), "image.bin": b"\0two"})
    write_resolver(
        lab, bash("git show HEAD^2:image.bin > image.bin && git show HEAD^2:old.txt > new.txt && rm old.txt"), "ok"
    )

    on = await run_resolver(lab, "one", "two", "--yes", asks=1)
    code, result, _ = await merge_as_json(lab, on, "--yes")

    task = (await lab.run_podium("workers", "status", on, "--json")).stdout
    assert "old.txt deleted in main + one and modified in two" in task
    assert "Cannot merge binary files: image.bin (main + one vs. two)" in task
    assert "git show 'HEAD^1:old.txt' and git show 'HEAD^2:old.txt'" in json.loads(task)["task"]
    assert "<<<<<<<" not in task
    assert (code, *merged_and_left_out(result)) == (0, [on], [])
    assert (lab.repo.path / "image.bin").read_bytes() == b"\0two"
    assert (lab.repo.path / "new.txt").read_text() == replace_line(0, "two")
    assert not (lab.repo.path / "old.txt").exists()


@pytest.mark.slow
async def test_branches_built_on_a_resolved_branch_come_after_it_and_unmerged_commits_are_included(
    lab: WorkerLab,
) -> None:
    await run_workers(lab, CONFLICTING_MOVES)
    [run] = await lab.delegate_all(
        {"feat/more": [write("more.txt"), "more"]}, options=WorkerOptions(after=("feat/two",))
    )
    lab.start_commander()
    await lab.wait_ended(run)
    await lab.wait_finished()
    write_resolver(lab, write("a.txt", replace_line(0, "both")), "kept both")

    on = await run_resolver(lab, "--all")
    _, together, _ = await merge_as_json(lab, "--all")
    added = lab.repo.commit({"b.txt": replace_line(0, "added")}, at=lab.worktree_path("feat/two"))
    _, alone, told = await merge_as_json(lab, on)
    code, result, _ = await merge_as_json(lab, "--all", "--yes")

    assert merged_and_left_out(together) == (["feat/one", on, "feat/more"], [])
    assert merged_and_left_out(alone) == ([on], [])
    assert f"{on}: its conflict was resolved on top of " in told
    assert {file for one in alone["forecast"]["branches"] for file in one["files"]} == {"a.txt"}
    assert (code, *merged_and_left_out(result)) == (0, ["feat/one", on, "feat/two", "feat/more"], [])
    assert lab.repo.git("merge-base", "--is-ancestor", added, "main") == ""
    assert (lab.repo.path / "a.txt").read_text() == replace_line(0, "both")


async def test_without_a_conflict_no_resolver_is_started_and_an_unknown_one_is_refused_at_once(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})

    unknown = await lab.run_podium("merge", "good", "--resolve", "--resolver", "nobody")
    alone = await lab.run_podium("merge", "good", "--resolver", "worker")
    code, result, _ = await merge_as_json(lab, "good", "--yes", "--resolve")

    assert (unknown.returncode, alone.returncode) == (2, 2)
    assert 'agent "nobody" not found' in unknown.stderr
    assert "--resolver needs --resolve; give both" in alone.stderr
    assert (code, result["resolving"]) == (0, [])
    assert not lab.store.exists()


@pytest.mark.slow
async def test_a_resolver_that_failed_leaves_the_branch_to_another(lab: WorkerLab) -> None:
    await run_workers(lab, CONFLICTING_MOVES)
    write_resolver(lab, SILENT)
    _, result, _ = await merge_as_json(lab, "--all", "--yes", "--resolve", "--resolver", "hand")
    [one] = result["resolving"]
    await lab.wait_worker(one["id"])
    lab.stop(one["id"])
    await lab.wait_ended(one["id"])
    await lab.wait_no_processes()
    write_resolver(lab, write("a.txt", LINES), "neither")

    again = await run_resolver(lab, "--all")
    code, result, _ = await merge_as_json(lab, "--all", "--yes")

    assert (one["on"], again) == ("feat/two-resolved", "feat/two-resolved-2")
    assert (code, *merged_and_left_out(result)) == (0, ["feat/two-resolved-2"], [])


async def test_a_branch_that_fails_a_check_is_given_to_a_worker_with_what_the_check_printed(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})
    lab.repo.branch("bad", {"bad.txt": "bad\n"})
    write_resolver(lab, write("better.txt"), "mended")

    on = await run_resolver(lab, "good", "bad", "--check", "test ! -f bad.txt || { echo it is bad; exit 1; }")

    [run] = [row.run for row in WorkerIndex(lab.store).find_by_name(lab.root, on)]
    task = lab.events(run)[0].request.text
    assert task.splitlines()[0] == "Fix bad: a check fails when it is merged into main + good"
    assert "it is bad" in task
    assert lab.read_file(on, "better.txt") == "x"


@pytest.mark.slow
async def test_a_branch_that_fails_a_check_is_mended_by_a_worker_and_merged(lab: WorkerLab) -> None:
    await run_workers(lab, {"feat/good": [write("good.txt"), "good"]})
    await run_workers(lab, {"feat/bad": [write("bad.txt"), "bad"]})
    write_resolver(lab, bash("rm bad.txt"), write("better.txt"), "mended")
    check = ("--check", "test ! -f bad.txt || { echo it is bad; exit 1; }")

    on = await run_resolver(lab, "--all", *check)
    code, result, _ = await merge_as_json(lab, "--all", *check, "--yes")

    [run] = [row.run for row in WorkerIndex(lab.store).find_by_name(lab.root, on)]
    task = lab.events(run)[0].request.text
    assert task.splitlines()[0] == "Fix feat/bad: a check fails when it is merged into main + feat/good"
    assert "it is bad" in task
    assert (on, code, merged_and_left_out(result)) == ("feat/bad-resolved", 0, (["feat/good", "feat/bad-resolved"], []))
    assert result["moved"]
    assert (lab.repo.path / "better.txt").exists()
    assert not (lab.repo.path / "bad.txt").exists()


@pytest.mark.slow
async def test_a_branch_that_still_fails_its_check_stays_out_and_goes_to_another_worker(lab: WorkerLab) -> None:
    await run_workers(lab, {"feat/bad": [write("bad.txt"), "bad"]})
    write_resolver(lab, write("other.txt"), "not mended at all")
    check = ("--check", "test ! -f bad.txt")

    first = await run_resolver(lab, "--all", *check)
    second = await run_resolver(lab, "--all", *check)
    _, result, _ = await merge_as_json(lab, "--all", *check, "--yes")

    assert (first, second) == ("feat/bad-resolved", "feat/bad-resolved-2")
    assert (merged_and_left_out(result), result["moved"]) == (([], [("feat/bad-resolved-2", "check")]), False)
