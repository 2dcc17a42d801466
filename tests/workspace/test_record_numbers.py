"""Decision records get their numbers on the target, so records of branches made side by side never collide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from podium.values.event import DecisionCommitted, DecisionProposed, Entry, Event, VoteClosed
from podium.views.decision_record import ADR_FOLDER, collect_decisions, render_adr_files
from podium.workspace.merging.fast_forward import fast_forward
from podium.workspace.merging.merge_train import Train, build_train

from .merging import Repo, check_not_broken, replace_line


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


def decide(id: str, topic: str, **keys: Any) -> list[Event]:
    return [
        DecisionProposed(id=id, topic=topic, options=("a", "b"), **keys),
        VoteClosed(decision=id, why="decided"),
        DecisionCommitted(decision=id, option="a", how="decided by person"),
    ]


def read_records(repo: Repo, commit: str) -> dict[str, str]:
    """Return the texts of the decision records of a commit, by file name."""
    paths = repo.git("ls-tree", "--name-only", commit, f"{ADR_FOLDER}/").splitlines()
    return {path.rpartition("/")[2]: repo.git("show", f"{commit}:{path}") for path in paths}


def branch_with_records(repo: Repo, name: str, *events: Event, start: str = "main") -> None:
    """Create a branch with the records of these decisions, as the result of a team's work."""
    entries = [Entry(run=name, seq=seq, at=1e9 + seq, scope="lead", event=one) for seq, one in enumerate(events, 1)]
    existing = {f"{ADR_FOLDER}/{file}": f"{text}\n" for file, text in read_records(repo, start).items()}
    repo.branch(name, render_adr_files(collect_decisions(entries), existing), start=start)


async def run_train(repo: Repo, *names: str) -> Train:
    branches = [repo.train_branch(name) for name in names]
    return await build_train(repo.path, branches, onto="main", integration="podium/merge", check=check_not_broken)


async def merge_onto_main(repo: Repo, name: str) -> Train:
    train = await run_train(repo, name)
    assert train.left_out == ()
    await fast_forward(repo.path, "main", commit=train.commit, expected_tree=train.tree, expected_old=train.base)
    return train


def make_two_branches(repo: Repo) -> None:
    """Create two branches, each with two decisions of which the second replaces the first."""
    for name in ("tea", "soup"):
        second = decide(f"{name}-2", f"Which {name} now?", supersedes=f"{name}-1")
        branch_with_records(repo, name, *decide(f"{name}-1", f"Which {name}?"), *second)


def must_link_records(records: dict[str, str], old: str, new: str) -> None:
    """Check that two records, given by file name, have titles with their numbers and link to each other."""
    for name in (old, new):
        assert records[name].startswith(f"# {name[:4]}. Which ")
    assert f"- Status: superseded by [{new[:4]}]({new})\n" in records[old]
    assert f"- Supersedes: [{old[:4]}]({old})\n" in records[new]


def must_have_both_results(repo: Repo, commit: str) -> None:
    records = read_records(repo, commit)
    names = ["0001-which-tea.md", "0002-which-tea-now.md", "0003-which-soup.md", "0004-which-soup-now.md"]
    assert list(records) == names
    must_link_records(records, names[0], names[1])
    must_link_records(records, names[2], names[3])


async def test_branches_merged_one_after_the_other_share_no_number(repo: Repo) -> None:
    make_two_branches(repo)
    reviewed = repo.tip("soup")

    await merge_onto_main(repo, "tea")
    train = await merge_onto_main(repo, "soup")

    must_have_both_results(repo, "main")
    assert (repo.path / ADR_FOLDER / "0003-which-soup.md").is_file()
    assert repo.tip("soup") == reviewed
    merge, numbered = repo.git("rev-list", "--first-parent", "--max-count=1", "main"), f"{train.commit}^2"
    assert merge == train.commit
    assert repo.git("rev-parse", f"{numbered}^") == reviewed
    assert repo.git("show", "-s", "--format=%s", numbered) == "Renumber the decision records of soup"


async def test_branches_in_one_train_share_no_number(repo: Repo) -> None:
    make_two_branches(repo)

    train = await run_train(repo, "tea", "soup")

    assert train.left_out == ()
    must_have_both_results(repo, train.commit)
    assert repo.git("fsck", "--strict") == ""


async def test_records_with_the_same_title_do_not_conflict(repo: Repo) -> None:
    for name in ("one", "two", "three"):
        branch_with_records(repo, name, *decide(name, "Which drink?"))

    train = await run_train(repo, "one", "two", "three")

    assert train.left_out == ()
    records = read_records(repo, train.commit)
    assert list(records) == [f"000{number}-which-drink.md" for number in (1, 2, 3)]
    assert [re.findall(r"Decision: `(\w+)`", text)[0] for text in records.values()] == ["one", "two", "three"]


async def test_a_record_on_the_target_links_to_the_new_number_of_the_one_that_replaces_it(repo: Repo) -> None:
    branch_with_records(repo, "first", *decide("d1", "Which cup?"))
    await merge_onto_main(repo, "first")
    branch_with_records(repo, "other", *decide("d2", "Which drink?"))
    branch_with_records(repo, "later", *decide("d3", "Which cup now?", supersedes="d1"))

    train = await run_train(repo, "other", "later")

    records = read_records(repo, train.commit)
    assert list(records) == ["0001-which-cup.md", "0002-which-drink.md", "0003-which-cup-now.md"]
    must_link_records(records, "0001-which-cup.md", "0003-which-cup-now.md")


async def test_a_record_links_to_one_that_came_to_the_target_by_another_branch(repo: Repo) -> None:
    branch_with_records(repo, "first", *decide("d1", "Which cup?"))
    branch_with_records(repo, "later", *decide("d2", "Which cup now?", supersedes="d1"))

    train = await run_train(repo, "first", "later")

    records = read_records(repo, train.commit)
    must_link_records(records, "0001-which-cup.md", "0002-which-cup-now.md")
    assert train.tree == train.merged[-1].tree == repo.tree(train.commit)


async def test_a_branch_that_builds_on_a_renumbered_one_follows_its_numbers(repo: Repo) -> None:
    branch_with_records(repo, "other", *decide("d1", "Which drink?"))
    branch_with_records(repo, "base", *decide("d2", "Which cup?"))
    branch_with_records(repo, "on-base", *decide("d3", "Which cup now?", supersedes="d2"), start="base")
    branches = [repo.train_branch("other"), repo.train_branch("base"), repo.train_branch("on-base", "base")]

    train = await build_train(repo.path, branches, onto="main", integration="podium/merge", check=check_not_broken)

    assert train.left_out == ()
    records = read_records(repo, train.commit)
    assert list(records) == ["0001-which-drink.md", "0002-which-cup.md", "0003-which-cup-now.md"]
    must_link_records(records, "0002-which-cup.md", "0003-which-cup-now.md")


async def test_records_without_a_collision_and_files_of_the_user_keep_their_numbers(repo: Repo) -> None:
    repo.commit({f"{ADR_FOLDER}/0001-use-git.md": "# 1. Use git\n"})
    branch_with_records(repo, "feat", *decide("d1", "Which cup?"))
    repo.branch("hand", {f"{ADR_FOLDER}/0001-use-make.md": "# 1. Use make\n"})

    train = await run_train(repo, "feat", "hand")

    assert list(read_records(repo, train.commit)) == ["0001-use-git.md", "0001-use-make.md", "0002-which-cup.md"]
    assert repo.git("rev-parse", f"{train.merged[0].commit}^2") == repo.tip("feat")


async def test_a_record_that_the_target_deleted_does_not_come_back(repo: Repo) -> None:
    branch_with_records(repo, "first", *decide("d1", "Which cup?"))
    await merge_onto_main(repo, "first")
    branch_with_records(repo, "later", *decide("d2", "Which drink?"))
    repo.commit({f"{ADR_FOLDER}/0001-which-cup.md": None, f"{ADR_FOLDER}/0001-use-git.md": "# 1. Use git\n"})

    train = await run_train(repo, "later")

    assert list(read_records(repo, train.commit)) == ["0001-use-git.md", "0002-which-drink.md"]


async def test_a_conflict_names_the_commit_that_was_reviewed(repo: Repo) -> None:
    make_two_branches(repo)
    repo.branch("tea", {"a.txt": replace_line(0, "tea")}, start="tea")
    repo.branch("soup", {"a.txt": replace_line(0, "soup")}, start="soup")

    train = await run_train(repo, "tea", "soup")

    [left_out] = train.left_out
    assert (left_out.reason, left_out.files, left_out.commit) == ("conflict", ("a.txt",), repo.tip("soup"))
    assert "soup" in left_out.output
