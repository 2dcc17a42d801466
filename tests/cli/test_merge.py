"""`podium merge`: the forecast, merging and checking branches, and a target that moves meanwhile."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import AsyncIterator

import pytest

from podium.core.placement import WorkerOptions
from podium.testing import make_repository

from ..workers.worker_lab import WorkerLab, write
from ..workspace.merging import LINES, replace_line
from .conftest import Desk
from .test_terminal import Terminal
from .worker_runs import invoke_podium, open_lab


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerLab]:
    async with open_lab() as lab:
        monkeypatch.chdir(lab.repo.path)
        yield lab


def list_integration_branches(lab: WorkerLab) -> list[str]:
    return lab.repo.git("branch", "--list", "podium/merge-*", "--format=%(refname:short)").splitlines()


async def test_programs_in_a_branch_are_named(lab: WorkerLab) -> None:
    planted = ("app/env/pyvenv.cfg", "app/env/bin/git", "lib/x.pth", "tools/.venv/README")
    for name in (*planted, "tools/.venv/pyvenv.cfg"):
        (lab.repo.path / name).parent.mkdir(parents=True, exist_ok=True)
        (lab.repo.path / name).write_text("home = /usr/bin\n")
    lab.repo.git("add", "-f", ".")
    lab.repo.git("commit", "-qm", "Track environments")
    await lab.delegate("feat/tools", *(write(name) for name in (*planted, "src/a.py")), "done")
    await invoke_podium(lab, "workers", "wait")

    asked = await invoke_podium(lab, "merge", "feat/tools")
    encoded = await invoke_podium(lab, "merge", "feat/tools", "--json")

    assert f"programs changed: {', '.join(sorted(planted))}" in asked.stdout
    assert json.loads(encoded.stdout)["programs"] == sorted(planted)


async def test_all_work_of_workers_is_merged_and_the_target_moves_only_with_yes(lab: WorkerLab) -> None:
    await lab.delegate("feat/base", write("base.txt", "base\n"), "done")
    await lab.delegate("feat/more", write("more.txt", "more\n"), "done", options=WorkerOptions(after=("feat/base",)))
    await lab.delegate("feat/clash", write("base.txt", "other\n"), "done")
    await lab.delegate("feat/fails", write("f.txt"), {"fails": {"status": 400}})
    await invoke_podium(lab, "workers", "wait")
    before = lab.repo.tip()

    asked = await invoke_podium(lab, "merge", "--all")
    assert (asked.exit_code, lab.repo.tip()) == (3, before)
    [integration] = list_integration_branches(lab)
    agreed = await invoke_podium(lab, "merge", "--all", "--yes", "--json")

    assert "forecast: feat/base and feat/clash both change base.txt; they would conflict in base.txt" in asked.stdout
    lines = [line for line in asked.stdout.splitlines() if line.startswith(("merged:", "left out:"))]
    assert [line.split()[1] for line in lines[:2]] == ["feat/base", "feat/more"]
    assert lines[2].startswith("left out: feat/clash: conflict: ")
    assert lines[2].endswith("(base.txt)")
    assert "feat/fails: skipped, because the worker on this branch has not completed its task (failed)" in asked.stderr
    assert f"{integration} contains the merged result" in asked.stderr
    result = json.loads(agreed.stdout)
    assert f"  podium merge feat/base feat/more --onto main --tree {result['tree']} --yes\n" in asked.stderr
    assert (agreed.exit_code, result["moved"], result["commit"]) == (6, True, lab.repo.tip())
    assert (lab.repo.path / "more.txt").read_text() == "more\n"
    assert [one["reason"] for one in result["left_out"]] == ["conflict"]
    assert f"  git branch -D {integration}\n" in asked.stderr
    assert (list_integration_branches(lab), result["integration_branches"]) == ([], [])


@pytest.mark.slow
async def test_a_later_worker_that_never_had_the_checkout_keeps_no_branch_out(lab: WorkerLab) -> None:
    await lab.delegate("feat/one", write("one.txt", "one\n"), "done")
    await invoke_podium(lab, "workers", "wait")
    await invoke_podium(lab, "worktrees", "remove", "feat/one", "--force")
    late = await lab.delegate("feat/one", "done")
    lab.worktree_path("feat/one").mkdir()
    await invoke_podium(lab, "workers", "wait")
    assert (await lab.wait_ended(late)).outcome == "failed"

    merged = await invoke_podium(lab, "merge", "--all", "--yes")

    assert (merged.exit_code, "skipped, because" in merged.stderr) == (0, False)
    assert (lab.repo.path / "one.txt").read_text() == "one\n"


async def test_a_branch_that_fails_a_check_is_left_out_and_checks_reach_nothing_outside(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})
    lab.repo.branch("bad", {"bad.txt": "bad\n"})
    outside = lab.folder / "outside"

    said = await invoke_podium(
        lab, "merge", "bad", "good", "--check", f"echo out > {outside}; test ! -f bad.txt || (echo no; false)", "--yes"
    )

    assert said.exit_code == 1, said.stderr
    assert "bad: not a worker's branch; merging its current commit" in said.stderr
    assert "left out: bad: check: " in said.stdout
    assert "    no" in said.stdout.splitlines()
    assert (lab.repo.path / "good.txt").exists()
    assert not (lab.repo.path / "bad.txt").exists()
    assert not outside.exists()


async def test_the_checks_of_the_settings_run_each_time(lab: WorkerLab) -> None:
    lab.write_settings("checks:\n  no-bad: [test, '!', -f, bad.txt]\n")
    lab.repo.branch("bad", {"bad.txt": "bad\n"})

    said = await invoke_podium(lab, "merge", "bad", "--yes")
    named = await invoke_podium(lab, "merge", "bad", "--check", "no-bad", "--yes")

    assert (said.exit_code, list_integration_branches(lab)) == (1, [])
    assert "checking: no-bad" in said.stderr
    assert named.stdout == said.stdout
    assert "left out: bad: check: no-bad [exit code 1] fails after the merge" in said.stdout


async def test_a_check_that_fails_on_the_target_too_is_told_as_such(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})
    lab.repo.branch("fix", {"fixed.txt": "fixed\n"})
    lab.repo.branch("bad", {"bad.txt": "bad\n"})

    said = await invoke_podium(
        lab,
        "merge",
        "good",
        "fix",
        "bad",
        "--check",
        "(test -f fixed.txt && test ! -f bad.txt) 2>&1 | tail -1",
        "--yes",
    )

    lines = [line for line in said.stdout.splitlines() if line.startswith(("merged:", "left out:"))]
    assert [line.split()[:3] for line in lines] == [
        ["merged:", "fix", "at"],
        ["left", "out:", "good:"],
        ["left", "out:", "bad:"],
    ]
    assert lines[1].endswith("fails after the merge; it fails on main, too; not from this branch")
    assert lines[2].endswith("fails after the merge")


def list_changes(stdout: str) -> list[list[str]]:
    """Return the words of the lines about the changes to the target."""
    lines = stdout.splitlines()
    [start] = [place for place, line in enumerate(lines) if line.startswith("changes to main: ")]
    return [line.split() for line in lines[start:]]


async def test_what_would_change_in_the_target_is_shown_before_it_moves(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"a.txt": replace_line(3, "three"), "new.txt": "1\n2\n", "logo.png": b"\x00\x01"})
    lab.repo.branch("more", {"moved.txt": LINES, "old.txt": None})

    said = await invoke_podium(lab, "merge", "good", "more")
    fields = json.loads((await invoke_podium(lab, "merge", "good", "more", "--json")).stdout)

    assert list_changes(said.stdout) == [
        ["changes", "to", "main:", "4", "files,", "+3", "-1"],
        ["+1", "-1", "a.txt"],
        ["binary", "logo.png"],
        ["+0", "-0", "old.txt", "→", "moved.txt"],
        ["+2", "-0", "new.txt"],
    ]
    assert (fields["changes"]["added"], fields["changes"]["removed"]) == (3, 1)
    moved = {"path": "moved.txt", "was": "old.txt", "added": 0, "removed": 0, "binary": False}
    assert moved in fields["changes"]["files"]


async def test_the_list_of_changes_has_an_end(lab: WorkerLab) -> None:
    lab.repo.branch("good", {f"file-{number:03}.txt": "x\n" for number in range(50)})

    said = await invoke_podium(lab, "merge", "good", "--yes")

    changes = list_changes(said.stdout)
    assert changes[0] == ["changes", "to", "main:", "50", "files,", "+50", "-0"]
    assert len(changes) == 22
    assert changes[-1] == ["and", "30", "more", "files"]


async def test_a_name_of_a_changed_file_does_not_act_on_the_terminal_or_imitate_a_line(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"new\x1b[31m\nmerged: other": "x\n"})
    lab.repo.branch("bad", {"new\x1b[31m\nmerged: other": "y\n"})

    said = await invoke_podium(lab, "merge", "good", "bad")

    assert "\x1b" not in said.stdout
    assert [line for line in said.stdout.splitlines() if line.startswith("merged: other")] == []
    assert list_changes(said.stdout)[1:] == [["+1", "-0", "new\\x1b[31m", "merged:", "other"]]


async def test_a_tree_is_called_checked_only_if_checks_ran_on_it(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})
    desk = Desk(repo=lab.repo.path, home=lab.home, environment=lab.environ)

    bare, checked = (
        Terminal(desk, "merge", "good", *more, columns=160) for more in ((), ("--check", "test -f good.txt"))
    )
    questions = [" ".join(terminal.wait_for("? [y/n]:")) for terminal in (bare, checked)]
    for terminal in (bare, checked):
        terminal.process.send("n\r")
        terminal.wait_exit()
    moved = await invoke_podium(lab, "merge", "good", "--check", "test -f good.txt", "--check", "true", "--yes")
    lab.repo.branch("more", {"more.txt": "more\n"})
    unchecked = await invoke_podium(lab, "merge", "more", "--yes")

    tree = lab.repo.tree("main~1")[:12]
    assert f"to the tree {tree} (not checked)? [y/n]:" in questions[0]
    assert f"to the tree {tree}, as checked? [y/n]:" in questions[1]
    assert "checked with: test -f good.txt, true\n" in moved.stdout
    assert moved.stderr.endswith(f"with the tree {tree}, as checked\n")
    assert "checked with" not in unchecked.stdout
    assert unchecked.stderr.endswith(f"with the tree {lab.repo.tree('main')[:12]} (not checked)\n")


async def test_on_a_terminal_the_person_is_asked(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})
    before = lab.repo.tip()
    desk = Desk(repo=lab.repo.path, home=lab.home, environment=lab.environ)

    refusing = Terminal(desk, "merge", "good")
    refusing.wait_for("to the tree ")
    refusing.wait_for("? [y/n]:")
    refusing.process.send("n\r")
    assert (refusing.wait_exit(), lab.repo.tip()) == (4, before)
    agreeing = Terminal(desk, "merge", "good")
    agreeing.wait_for("to the tree ")
    agreeing.wait_for("? [y/n]:")
    agreeing.process.send("\ry\r")

    assert agreeing.wait_exit() == 0
    assert (lab.repo.path / "good.txt").exists()


@pytest.mark.parametrize(("key", "code"), [("n\r", 4), ("\x03", 130)])
async def test_a_merge_that_the_person_refuses_leaves_no_branch(lab: WorkerLab, key: str, code: int) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})
    before = lab.repo.visible_state()
    terminal = Terminal(Desk(repo=lab.repo.path, home=lab.home, environment=lab.environ), "merge", "good")

    terminal.wait_for("? [y/n]:")
    [integration] = list_integration_branches(lab)
    terminal.process.send(key)

    assert terminal.wait_exit() == code
    assert any(f"main was not moved, and {integration} was removed" in line for line in terminal.lines)
    assert lab.repo.visible_state() == before


async def test_refusing_a_merge_leaves_the_branches_that_are_in_use_or_were_kept_for_review(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})
    await invoke_podium(lab, "merge", "good")
    [kept] = list_integration_branches(lab)
    terminal = Terminal(Desk(repo=lab.repo.path, home=lab.home, environment=lab.environ), "merge", "good", columns=120)

    terminal.wait_for("? [y/n]:")
    [_, second] = list_integration_branches(lab)
    lab.repo.git("switch", "-q", second)
    terminal.process.send("n\r")

    assert terminal.wait_exit() == 4
    assert any(f"{second} was kept, because it is in use" in line for line in terminal.lines)
    assert list_integration_branches(lab) == [kept, second]


async def test_a_merge_that_nobody_can_confirm_is_listed_until_its_result_is_merged(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})
    lab.repo.branch("more", {"more.txt": "more\n"})
    await invoke_podium(lab, "merge", "good")
    [first] = list_integration_branches(lab)

    again = await invoke_podium(lab, "merge", "good", "more")
    [kept, second] = list_integration_branches(lab)
    same = await invoke_podium(lab, "merge", "good", "more", "--json")
    third = [branch for branch in list_integration_branches(lab) if branch != first]
    moved = await invoke_podium(lab, "merge", "good", "more", "--yes")

    assert kept == first
    assert again.stderr.endswith(
        "integration branches still exist; when you no longer need them, remove them with:\n"
        f"  git branch -D {first} {second}\n"
    )
    assert json.loads(same.stdout)["integration_branches"] == [first, *third]
    assert (len(third), second in third) == (1, False)
    assert moved.exit_code == 0, moved.stderr
    assert moved.stderr.endswith(f"  git branch -D {first}\n")
    assert list_integration_branches(lab) == [first]


async def test_the_command_that_removes_a_branch_names_a_repository_that_is_elsewhere(
    lab: WorkerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})
    monkeypatch.chdir(lab.folder)

    said = await invoke_podium(lab, "merge", "good", "--repo", str(lab.repo.path))

    [branch] = list_integration_branches(lab)
    command = f"git -C {lab.repo.path} branch -D {branch}"
    assert said.stderr.endswith(f"  {command}\n")
    subprocess.run(command.split(), check=True)
    assert list_integration_branches(lab) == []


async def test_the_target_moves_only_to_the_tree_that_was_agreed_to(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"good.txt": "good\n"})
    before = lab.repo.tip()
    asked = json.loads((await invoke_podium(lab, "merge", "good", "--json")).stdout)
    lab.repo.git("switch", "-q", "good")
    (lab.repo.path / "good.txt").write_text("pushed after the review\n")
    lab.repo.git("commit", "-q", "-a", "-m", "later")
    lab.repo.git("switch", "-q", "main")

    moved_on = await invoke_podium(lab, "merge", "good", "--tree", asked["tree"], "--yes")
    assert (moved_on.exit_code, lab.repo.tip()) == (6, before)
    short = await invoke_podium(lab, "merge", "good", "--tree", "", "--yes")
    lab.repo.git("branch", "-f", "good", "good~1")
    agreed = await invoke_podium(lab, "merge", "good", "--tree", asked["tree"], "--yes")

    assert f"not in the given tree {asked['tree'][:12]}" in moved_on.stderr
    assert f"git branch -D {asked['branch']} podium/merge-" in moved_on.stderr
    assert (short.exit_code, agreed.exit_code) == (2, 0)
    assert (lab.repo.path / "good.txt").read_text() == "good\n"


async def test_what_is_merged_already_needs_nothing(lab: WorkerLab) -> None:
    lab.repo.git("branch", "same")

    named = await invoke_podium(lab, "merge", "same")
    everything = await invoke_podium(lab, "merge", "--all")

    assert (named.exit_code, list_integration_branches(lab)) == (0, [])
    assert "main already contains the result" in named.stderr
    assert "nothing to merge: same has no commits that main lacks\n" in named.stdout
    assert "merged" not in named.stdout
    assert everything.exit_code == 0
    assert everything.stderr == "nothing to merge: no finished branch has changes that main lacks\n"


async def test_branches_that_cannot_be_merged_are_refused(lab: WorkerLab) -> None:
    nothing = await invoke_podium(lab, "merge")
    itself = await invoke_podium(lab, "merge", "main")
    unknown = await invoke_podium(lab, "merge", "nowhere")

    assert [one.exit_code for one in (nothing, itself, unknown)] == [2, 2, 2]
    assert "give the branches to merge, or use --all" in nothing.stderr
    assert "main cannot be merged onto itself" in itself.stderr
    assert "worker 'nowhere' not found" in unknown.stderr


async def test_a_check_that_is_empty_is_refused_before_anything_is_merged(lab: WorkerLab) -> None:
    said = await invoke_podium(lab, "merge", "--all", "--check", " ", "--yes")

    assert (said.exit_code, said.stdout) == (2, "")
    assert "--check is empty; give a command that must pass" in said.stderr


def test_without_a_commit_there_is_nothing_to_merge_onto(desk: Desk) -> None:
    make_repository(desk.repo)

    said = desk.run_podium("merge", "--all")

    assert said.returncode == 2
    assert said.stderr == f"podium: {desk.repo} has no commits yet, so it has no branches; commit first\n"


async def test_changes_of_the_persons_own_are_not_touched(lab: WorkerLab) -> None:
    lab.repo.branch("good", {"a.txt": "good\n"})
    (lab.repo.path / "a.txt").write_text("mine\n")
    before = lab.repo.tip()

    said = await invoke_podium(lab, "merge", "good", "--yes")

    assert (said.exit_code, lab.repo.tip()) == (2, before)
    assert "commit or stash them" in said.stderr
    assert (lab.repo.path / "a.txt").read_text() == "mine\n"
    [branch] = list_integration_branches(lab)
    assert f"{branch} contains the merged result" in said.stderr
    assert f"  git branch -D {branch}\n" in said.stderr


async def test_only_some_files_of_a_branch_are_merged_and_the_rest_later(lab: WorkerLab) -> None:
    lab.repo.branch("feat", {"src/new.py": "x\n", "src/more.py": "y\n", "b.txt": replace_line(3, "three")})

    unknown = await invoke_podium(lab, "merge", "feat", "--only", "docs")
    several = await invoke_podium(lab, "merge", "--all", "--only", "src")
    asked = await invoke_podium(lab, "merge", "feat", "--only", "src/", "--check", "test ! -e wrong")

    assert (unknown.exit_code, several.exit_code) == (2, 2)
    assert "feat has no changes in 'docs'; changed: b.txt, src/more.py, src/new.py" in unknown.stderr
    assert "--only works with exactly one branch; give one branch, and do not use --all" in several.stderr
    assert "merged: a part of feat at " in asked.stdout
    assert "changes to main: 2 files, +2 -0" in asked.stdout
    assert (asked.exit_code, lab.repo.git("log", "-1", "--format=%s", "main")) == (3, "first")
    assert "podium merge feat --onto main --check 'test ! -e wrong' --only src/ --tree " in asked.stderr
    command = shlex.split(asked.stderr.partition("  podium ")[2].splitlines()[0])
    moved = await invoke_podium(lab, *command)
    again = await invoke_podium(lab, "merge", "feat", "--only", "src", "--yes")
    assert "main already contains the result" in again.stderr
    assert list_integration_branches(lab) == []
    assert not (lab.repo.path / "b.txt").read_text().count("three")
    rest = await invoke_podium(lab, "merge", "feat", "--yes")
    assert (moved.exit_code, rest.exit_code) == (0, 0)
    assert lab.repo.tree("main") == lab.repo.tree("feat")
