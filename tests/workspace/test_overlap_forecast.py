"""The overlap forecast: what branches change, what they share, and what would conflict. Nothing is modified."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from podium.cli.output.merge_report import format_forecast
from podium.values.errors import Mistake
from podium.workspace.merging.overlap_forecast import forecast_merges, read_branch_changes

from .merging import LINES, Repo, replace_line

ODD = 'new\nline "quoted" \t tab'


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


async def test_the_changes_of_a_branch_are_counted_from_its_merge_base(repo: Repo) -> None:
    first = repo.branch("feat", {"a.txt": replace_line(3, "x"), "new/one.txt": "1\n2\n"})
    second = repo.branch("feat", {"b.txt": None}, start="feat")
    repo.commit({"later.txt": "on main\n"})

    found = await read_branch_changes(repo.path, "main", "feat")

    assert [(one.path, one.added, one.removed) for one in found.files] == [
        ("a.txt", 1, 1),
        ("b.txt", 0, 30),
        ("new/one.txt", 2, 0),
    ]
    assert (found.added, found.removed) == (3, 31)
    assert found.commits == (first, second)


async def test_renamed_binary_and_oddly_named_files_are_counted(repo: Repo) -> None:
    repo.branch("feat", {"old.txt": None, "sub/fresh.txt": LINES + "more\n", "b.bin": b"\0\1\2", ODD: "1\n"})

    found = {one.path: one for one in (await read_branch_changes(repo.path, "main", "feat")).files}

    assert (found["sub/fresh.txt"].was, found["sub/fresh.txt"].added) == ("old.txt", 1)
    assert (found["b.bin"].is_binary, found["b.bin"].added) == (True, 0)
    assert found[ODD].added == 1
    assert len(found) == 3


async def test_a_file_name_that_is_not_text_is_escaped(repo: Repo) -> None:
    repo.branch("feat", {b"caf\xe9.txt".decode(errors="surrogateescape"): "1\n"})

    found = await read_branch_changes(repo.path, "main", "feat")

    assert [one.path for one in found.files] == ["caf\\xe9.txt"]


async def test_a_branch_with_no_commit_in_common_brings_all_of_its_files(repo: Repo) -> None:
    empty = repo.git("hash-object", "-w", "-t", "tree", "/dev/null")
    repo.git("branch", "stranger", repo.git("commit-tree", empty, "-m", "alone"))
    repo.branch("stranger", {"own.txt": "1\n"}, start="stranger")

    found = await read_branch_changes(repo.path, "main", "stranger")
    told = await forecast_merges(repo.path, {"stranger": "main"}, onto="main")

    assert [one.path for one in found.files] == ["own.txt"]
    assert len(found.commits) == 2
    assert [one.text for one in told.onto_target[0].conflicts] == ["main and stranger have no commit in common"]


@pytest.mark.parametrize("name", ["nope", "main~0", "--upload-pack=x", "", "a\0b", "refs/heads/main"])
async def test_a_name_that_is_no_branch_is_refused(repo: Repo, name: str) -> None:
    with pytest.raises(Mistake, match=r"branch '.*' not found"):
        await read_branch_changes(repo.path, "main", name)


async def test_pairs_that_share_files_or_conflict_are_reported_and_nothing_is_touched(repo: Repo) -> None:
    repo.branch("top", {"a.txt": replace_line(0, "top")})
    repo.branch("end", {"a.txt": replace_line(29, "end")})
    repo.branch("also", {"a.txt": replace_line(0, "also")})
    repo.branch("apart", {"b.txt": replace_line(0, "apart")})
    repo.commit({"b.txt": replace_line(0, "main")})
    before = repo.visible_state()

    told = await forecast_merges(repo.path, dict.fromkeys(("top", "end", "also", "apart"), "main"), onto="main")

    assert [(one.first, one.second, one.files, one.merges) for one in told.pairs] == [
        ("top", "end", ("a.txt",), True),
        ("top", "also", ("a.txt",), False),
        ("end", "also", ("a.txt",), True),
    ]
    assert [(one.first, one.files, one.merges) for one in told.onto_target] == [
        ("top", (), True),
        ("end", (), True),
        ("also", (), True),
        ("apart", ("b.txt",), False),
    ]
    assert told.pairs[1].conflicts[0].kind == "contents"
    assert told.changes["apart"].added == 1
    assert repo.visible_state() == before


async def test_a_file_renamed_twice_is_shared_and_clashes(repo: Repo) -> None:
    repo.branch("one", {"old.txt": None, "one.txt": LINES})
    repo.branch("two", {"old.txt": None, "two.txt": LINES})

    told = await forecast_merges(repo.path, {"one": "main", "two": "main"}, onto="main")

    assert told.pairs[0].files == ("old.txt",)
    assert [(one.kind, set(one.files)) for one in told.pairs[0].conflicts] == [
        ("rename/rename", {"old.txt", "one.txt", "two.txt"})
    ]
    assert told.pairs[0].conflicts[0].text.endswith("old.txt renamed to one.txt in one and to two.txt in two.")


async def test_binary_files_and_odd_names_clash_by_name(repo: Repo) -> None:
    repo.commit({"b.bin": b"\0\1", ODD: "0\n"})
    repo.branch("one", {"b.bin": b"\0one", ODD: "1\n"})
    repo.branch("two", {"b.bin": b"\0two", ODD: "2\n"})

    told = await forecast_merges(repo.path, {"one": "main", "two": "main"}, onto="main")

    assert told.pairs[0].files == ("b.bin", ODD)
    assert {(one.kind, one.files) for one in told.pairs[0].conflicts} == {
        ("binary", ("b.bin",)),
        ("contents", ("b.bin",)),
        ("contents", (ODD,)),
    }


async def test_branches_may_clash_without_a_file_in_common(repo: Repo) -> None:
    repo.branch("file", {"thing": "a file\n"})
    repo.branch("folder", {"thing/inside.txt": "a folder\n"})

    told = await forecast_merges(repo.path, {"file": "main", "folder": "main"}, onto="main")

    assert [(one.files, one.merges) for one in told.pairs] == [((), False)]


async def test_a_conflict_is_attributed_to_the_branch_that_it_comes_from(repo: Repo) -> None:
    first = repo.branch("feat/a", {"a.txt": replace_line(3, "x")})
    repo.branch("feat/b", {"a.txt": replace_line(3, "y")})
    second = repo.branch("feat/c", {"c.txt": "1\n"}, start="feat/a")
    repo.branch("feat/d", {"d.txt": "1\n"}, start="feat/c")
    bases = {"feat/a": "main", "feat/b": "main", "feat/c": first, "feat/d": second}

    told = await forecast_merges(repo.path, bases, onto="main")

    assert [(one.first, one.second, one.files, one.through) for one in told.pairs] == [
        ("feat/a", "feat/b", ("a.txt",), None),
        ("feat/b", "feat/c", (), "feat/a"),
        ("feat/b", "feat/d", (), "feat/a"),
    ]
    assert list(format_forecast(told))[-1] == (
        "feat/b and feat/d have no files in common; they would conflict in a.txt, because of changes in feat/a"
    )


async def test_a_branch_that_the_target_contains_is_reported_as_such(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": replace_line(3, "x")})
    repo.git("merge", "--quiet", "--ff-only", "feat")

    told = await forecast_merges(repo.path, {"feat": "main~1"}, onto="main")

    assert list(format_forecast(told)) == ["feat: 1 file, +1 -1, 1 commit; already in main"]


async def test_the_forecast_for_twenty_branches_is_what_git_merges(repo: Repo) -> None:
    names = [f"b{number:02}" for number in range(20)]
    for number, name in enumerate(names):
        repo.branch(name, {"a.txt": replace_line(number % 7 * 4, name), f"own-{number}.txt": "1\n"})

    told = await forecast_merges(repo.path, dict.fromkeys(names, "main"), onto="main")

    alike = {(one, two) for one, two in combinations(names, 2) if (int(one[1:]) - int(two[1:])) % 7 == 0}
    assert len(told.pairs) == 190
    assert {(one.first, one.second) for one in told.pairs if not one.merges} == alike
    assert all(one.merges for one in told.onto_target)
