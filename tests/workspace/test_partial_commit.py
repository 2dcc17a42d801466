"""A part of a branch's changes becomes a commit of its own, and the rest can be merged later."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium.values.errors import Mistake
from podium.views.diff_hunks import DiffHunk, parse_diff
from podium.workspace.merging.merge_train import Train, TrainBranch, build_train
from podium.workspace.merging.partial_commit import (
    NOTE,
    ChosenFile,
    commit_part,
    list_changed_files,
    read_patch,
    splice_hunks,
)

from .merging import LINES, Repo, check_not_broken, replace_line


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


FAR = "".join(f"{number}\n" for number in range(40))


def change_lines(text: str, changes: Mapping[int, str]) -> str:
    """Return a text with some of its lines replaced."""
    lines = text.splitlines(keepends=True)
    return "".join(changes.get(number, line) for number, line in enumerate(lines))


async def take(repo: Repo, *chosen: ChosenFile, branch: str = "feat") -> str:
    """Return the commit with the chosen changes of the branch."""
    return await commit_part(repo.path, repo.tip(), repo.tip(branch), chosen, branch=branch)


def read(repo: Repo, commit: str, path: str) -> bytes:
    return subprocess.check_output(["git", "cat-file", "blob", f"{commit}:{path}"], cwd=repo.path)


def list_changes(repo: Repo, commit: str) -> list[str]:
    """Return the changed files of a commit, such as `M a.txt`."""
    return repo.git("diff-tree", "-r", "--name-status", "--no-renames", "main", commit).replace("\t", " ").splitlines()


async def test_some_hunks_of_a_file_are_taken_and_nothing_else_changes(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": change_lines(LINES, {0: "", 12: "12\nnew\n", 29: "last\n"}), "b.txt": "other\n"})
    before = repo.visible_state()

    part = await take(repo, ChosenFile(path="a.txt", hunks=(0, 2)))

    assert read(repo, part, "a.txt").decode() == change_lines(LINES, {0: "", 29: "last\n"})
    assert list_changes(repo, part) == ["M a.txt"]
    assert repo.git("rev-parse", f"{part}^") == repo.tip()
    assert repo.git("log", "-1", "--format=%an %s", part) == "Tester Take a part of feat"
    assert repo.git("log", "-1", f"--format=%(trailers:key={NOTE},valueonly)", part) == repo.tip("feat")
    assert repo.visible_state() == before


CASES: dict[str, tuple[bytes, bytes, tuple[int, ...], bytes]] = {
    "carriage returns stay": (
        FAR.replace("\n", "\r\n").encode(),
        change_lines(FAR, {0: "a\n", 39: "z\n"}).replace("\n", "\r\n").encode(),
        (1,),
        change_lines(FAR, {39: "z\n"}).replace("\n", "\r\n").encode(),
    ),
    "a carriage return alone is no line break": (
        b"a\rb\rc\n" + FAR.encode(),
        b"a\rX\rc\n" + change_lines(FAR, {39: "z\n"}).encode(),
        (0,),
        b"a\rX\rc\n" + FAR.encode(),
    ),
    "the line break at the end goes": (
        FAR.encode(),
        change_lines(FAR, {0: "a\n", 39: "39"}).encode(),
        (1,),
        change_lines(FAR, {39: "39"}).encode(),
    ),
    "the line break at the end comes": (
        FAR.removesuffix("\n").encode(),
        change_lines(FAR, {0: "a\n"}).encode(),
        (1,),
        FAR.encode(),
    ),
    "the line break at the end stays away": (
        FAR.removesuffix("\n").encode(),
        change_lines(FAR, {0: "a\n"}).encode(),
        (0,),
        change_lines(FAR, {0: "a\n"}).removesuffix("\n").encode(),
    ),
    "lines are only added": (
        FAR.encode(),
        change_lines(FAR, {0: "new\n0\n", 39: "39\nmore\n"}).encode(),
        (0,),
        change_lines(FAR, {0: "new\n0\n"}).encode(),
    ),
    "lines are only removed": (
        FAR.encode(),
        change_lines(FAR, {0: "", 1: "", 39: ""}).encode(),
        (1,),
        change_lines(FAR, {39: ""}).encode(),
    ),
    "bytes that are not UTF-8 stay": (
        b"caf\xe9\n" + FAR.encode(),
        b"caf\xe8\n" + change_lines(FAR, {39: "z\n"}).encode(),
        (0,),
        b"caf\xe8\n" + FAR.encode(),
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_bytes_of_a_file_are_those_of_its_hunks(repo: Repo, case: str) -> None:
    old, new, hunks, expected = CASES[case]
    repo.commit({"f.txt": old})
    repo.branch("feat", {"f.txt": new})

    part = await take(repo, ChosenFile(path="f.txt", hunks=hunks))

    assert read(repo, part, "f.txt") == expected


@pytest.fixture
def varied(repo: Repo) -> Repo:
    """A repository whose branch has every kind of change that makes sense only for a whole file."""
    repo.commit({"run.sh": "true\n", "gone.txt": "x\n", "logo.png": b"\x89\0\1", "link": "x\n", "sub/f": "x\n"})
    folder = repo.path.parent / "varied"
    repo.git("worktree", "add", "-q", "-b", "feat", str(folder))
    (folder / "old.txt").rename(folder / "name é\t.txt")
    (folder / "name é\t.txt").write_text(replace_line(3, "changed"))
    (folder / "run.sh").chmod(0o755)
    (folder / "run.sh").write_text("false\n")
    (folder / "gone.txt").unlink()
    (folder / "link").unlink()
    (folder / "link").symlink_to("a.txt")
    (folder / "sub" / "f").unlink()
    (folder / "sub").rmdir()
    repo.commit({"logo.png": b"\x89\0\2", "sub": "now a file\n", "new.txt": "no line break"}, at=folder)
    return repo


@pytest.mark.parametrize(
    ("path", "expected", "reason"),
    [
        ("name é\t.txt", ['A "name \\303\\251\\t.txt"', "D old.txt"], "was renamed"),
        ("run.sh", ["M run.sh"], "changed its mode"),
        ("gone.txt", ["D gone.txt"], "was deleted"),
        ("new.txt", ["A new.txt"], "was added"),
        ("logo.png", ["M logo.png"], "has no lines to choose from"),
        ("link", ["T link"], "became another kind of file"),
    ],
)
async def test_files_without_hunks_to_choose_from_are_taken_as_a_whole(
    varied: Repo, path: str, expected: list[str], reason: str
) -> None:
    part = await take(varied, ChosenFile(path=path))

    assert list_changes(varied, part) == expected
    if not expected[0].startswith("D"):
        entry = varied.git("--literal-pathspecs", "ls-tree", "feat", "--", path)
        assert varied.git("--literal-pathspecs", "ls-tree", part, "--", path) == entry
    with pytest.raises(Mistake, match=f"{reason}, so its hunks cannot be chosen one by one; choose the whole file"):
        await take(varied, ChosenFile(path=path, hunks=(0,)))


async def test_a_file_in_the_place_of_a_folder_is_taken_only_with_the_folder(varied: Repo) -> None:
    with pytest.raises(Mistake, match="a chosen file would replace sub/f, which was not chosen; choose both"):
        await take(varied, ChosenFile(path="sub"))

    part = await take(varied, ChosenFile(path="sub"), ChosenFile(path="sub/f"))

    assert list_changes(varied, part) == ["A sub", "D sub/f"]


async def test_if_everything_is_chosen_the_branch_itself_is_merged(varied: Repo) -> None:
    changed = await list_changed_files(varied.path, varied.tip(), varied.tip("feat"))

    assert await take(varied, *(ChosenFile(path=path) for path in changed)) == varied.tip("feat")


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ((), "no changes from feat were chosen; choose at least one file or hunk"),
        ((ChosenFile(path="a.txt", hunks=()),), "no hunk in a.txt was chosen"),
        ((ChosenFile(path="a.txt", hunks=(2,)),), "a.txt has no hunk 2; it has 2, numbered from 0"),
        ((ChosenFile(path="a.txt", hunks=(-1,)),), "a.txt has no hunk -1"),
        ((ChosenFile(path="b.txt"),), "'b.txt' is not a changed file; changed: a.txt"),
        ((ChosenFile(path="../\x1b.txt"),), "is not a changed file"),
    ],
)
async def test_a_choice_that_cannot_be_made_is_refused(repo: Repo, chosen: tuple[ChosenFile, ...], says: str) -> None:
    repo.branch("feat", {"a.txt": change_lines(LINES, {0: "a\n", 29: "z\n"})})

    with pytest.raises(Mistake, match=says):
        await take(repo, *chosen)


async def test_two_files_that_are_shown_alike_cannot_be_chosen(repo: Repo) -> None:
    folder = repo.path.parent / "bytes"
    repo.git("worktree", "add", "-q", "-b", "feat", str(folder))
    for name in (b"b\xfe.txt", b"b\xff.txt"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text(
            os.fsdecode(name).encode("unicode_escape").decode()
        )
    repo.commit({}, at=folder)

    with pytest.raises(Mistake, match="two changed files are both displayed as"):
        await take(repo, ChosenFile(path="b�.txt"))


async def train(repo: Repo, *branches: TrainBranch) -> Train:
    return await build_train(repo.path, branches, onto="main", integration="podium/merge", check=check_not_broken)


async def test_a_part_is_merged_and_the_rest_later_without_a_conflict(repo: Repo) -> None:
    everything = change_lines(LINES, {0: "first\n", 12: "12\nnew\n", 29: "last\n"})
    repo.branch("feat", {"a.txt": everything, "new.txt": "x\n"})
    part = await take(repo, ChosenFile(path="a.txt", hunks=(1,)))

    first = await train(repo, TrainBranch(branch="feat", commit=repo.tip("feat"), part=part))
    repo.git("merge", "-q", "--ff-only", first.commit)
    rest = await train(repo, repo.train_branch("feat"))

    assert [(one.branch, one.is_part) for one in first.merged] == [("feat", True)]
    assert repo.git("log", "-1", "--format=%s", first.commit) == "Merge a part of branch 'feat'"
    assert read(repo, first.commit, "a.txt").decode() == change_lines(LINES, {12: "12\nnew\n"})
    assert rest.left_out == ()
    assert repo.tree(rest.commit) == repo.tree("feat")


async def test_a_part_of_a_branch_that_has_moved_is_left_out(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": change_lines(LINES, {0: "a\n", 29: "z\n"})})
    shown = repo.tip("feat")
    part = await take(repo, ChosenFile(path="a.txt", hunks=(0,)))
    repo.branch("feat", {"b.txt": "more\n"}, start="feat")

    result = await train(repo, TrainBranch(branch="feat", commit=shown, part=part))

    assert [(one.branch, one.reason) for one in result.left_out] == [("feat", "moved")]


async def test_a_branch_that_builds_on_a_part_is_left_out(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": change_lines(LINES, {0: "a\n", 29: "z\n"})})
    repo.branch("more", {"more.txt": "x\n"}, start="feat")
    part = await take(repo, ChosenFile(path="a.txt", hunks=(0,)))

    result = await train(
        repo, TrainBranch(branch="feat", commit=repo.tip("feat"), part=part), repo.train_branch("more", "feat")
    )

    assert [(one.branch, one.reason) for one in result.left_out] == [("more", "dependency")]


LINE = st.sampled_from(
    [b"", b"a", b"b", b"same", b"same", b"\r", b"caf\xe9", b"@@ -1 +1 @@", b"-- a", b"diff --git a/x b/x"]
)
EDIT = st.tuples(st.integers(0, 59), st.lists(LINE, max_size=3))
"""The number of a line, and what stands in its place."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Repo(tmp_path_factory.mktemp("hunks") / "repo").path


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_choice_of_hunks_is_what_git_apply_makes_of_it(folder: Path, data: st.DataObject) -> None:
    lines, edits = data.draw(st.lists(LINE, max_size=60)), dict(data.draw(st.lists(EDIT, max_size=4)))
    changed = [line for number, one in enumerate(lines) for line in edits.get(number, [one])]
    ends = st.sampled_from([b"", b"\n"])
    old, new = (b"\n".join(text) + data.draw(ends) for text in (lines, changed))
    ids = [write_tree(folder, content) for content in (old, new)]
    patch = subprocess.check_output(["git", "diff", *ids], cwd=folder)
    hunks = [hunk for file in parse_diff(os.fsdecode(patch)).files if not file.binary for hunk in file.hunks]
    chosen = data.draw(st.sets(st.sampled_from(range(len(hunks))))) if hunks else set()

    spliced = splice_hunks(old, new, [hunk for number, hunk in enumerate(hunks) if number in chosen])

    assert spliced == apply_hunks(folder, ids[0], patch, chosen, hunks) if chosen else spliced == old
    assert not hunks or splice_hunks(old, new, hunks) == new


def write_tree(folder: Path, content: bytes) -> str:
    """Return a tree with one file."""
    blob = subprocess.check_output(["git", "hash-object", "-w", "--stdin"], cwd=folder, input=content).decode().strip()
    entry = f"100644 blob {blob}\tf.txt\n".encode()
    return subprocess.check_output(["git", "mktree"], cwd=folder, input=entry).decode().strip()


def apply_hunks(folder: Path, tree: str, patch: bytes, chosen: set[int], hunks: list[DiffHunk]) -> bytes:
    """Return what `git apply` makes of a patch with only the chosen hunks, at the places that they then have."""
    header, *parts = split_patch(patch)
    kept, moved = [header], 0
    for number, part in enumerate(parts):
        hunk = hunks[number]
        if number in chosen:
            counts = hunk.old_count, hunk.new_count
            start = hunk.old + moved + (counts[0] == 0) - (counts[1] == 0)
            line = f"@@ -{hunk.old},{counts[0]} +{start},{counts[1]} @@\n".encode()
            kept.append(line + part.partition(b"\n")[2])
            moved += counts[1] - counts[0]
    index = {**os.environ, "GIT_INDEX_FILE": str(folder / ".git" / "part")}
    subprocess.run(["git", "read-tree", tree], cwd=folder, env=index, check=True)
    apply = ["git", "apply", "--cached", "--whitespace=nowarn", "--unidiff-zero"]
    subprocess.run(apply, cwd=folder, env=index, check=True, input=b"".join(kept))
    return subprocess.check_output(["git", "cat-file", "blob", ":f.txt"], cwd=folder, env=index)


def split_patch(patch: bytes) -> list[bytes]:
    """Return the header of a patch of one file, and its hunks."""
    lines = patch.splitlines(keepends=True) if b"\r" not in patch else [one + b"\n" for one in patch.split(b"\n")[:-1]]
    starts = [place for place, line in enumerate(lines) if line.startswith(b"@@ ")]
    places = [0, *starts, len(lines)]
    return [b"".join(lines[begin:end]) for begin, end in pairwise(places)]


async def test_the_diff_that_pages_show_lists_the_hunks_in_the_same_order(repo: Repo) -> None:
    repo.branch("feat", {"a.txt": change_lines(LINES, {0: "a\n", 29: "z\n"})})

    [shown] = parse_diff(await read_patch(repo.path, repo.tip(), repo.tip("feat"))).files
    listed = await list_changed_files(repo.path, repo.tip(), repo.tip("feat"))

    assert list(listed["a.txt"].hunks) == shown.hunks
