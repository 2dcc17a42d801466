"""Branches, setup commands and squads that try to cause harm outside the sandbox."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from podium.files.discovery import load_roster
from podium.runs.assembly.worktree_setup import make_worktree_hook
from podium.store.worktree_ledger import Ledger
from podium.values.event import ToolAnswered
from podium.workspace.git.repository import Repository
from podium.workspace.worktrees.worktree import Worktrees

from ..cli.conftest import Desk
from ..cli.worker_runs import invoke_podium, open_lab
from ..studio import Studio
from ..workers.worker_lab import WorkerLab
from .stage import add_sly_agent, bash, call, run_sly_agent, set_rules

HARM = """\
echo x > out/canary; echo x > {outside}/canary; echo x > .git/hooks/post-commit
echo 'gitdir: sub' > .git; git config core.fsmonitor 'touch {outside}/canary'; git update-ref refs/heads/main HEAD~1
for place in sub .; do (cd $place; git init -q .; git config core.fsmonitor 'touch {outside}/canary; false'); done
setsid sh -c 'sleep 0.2; echo x > {outside}/canary' &
exit 0
"""


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerLab]:
    async with open_lab() as lab:
        monkeypatch.chdir(lab.repo.path)
        yield lab


def add_poisoned_branch(lab: WorkerLab, outside: Path) -> None:
    """Add a branch with a submodule, a link that leads outside, attributes with drivers, and a hostile check."""
    files = {
        "check.sh": HARM.format(outside=outside),
        ".gitattributes": "* merge=evil diff=evil\n",
        ".gitmodules": f'[submodule "sub"]\n\tpath = sub\n\turl = "ext::touch {outside}/canary"\n',
    }
    lab.repo.branch("poisoned", files)
    folder = lab.folder / "poisoning"
    lab.repo.git("worktree", "add", "-q", str(folder), "poisoned")
    (folder / "out").symlink_to(outside)
    (folder / "sub").mkdir()
    for told in (
        ("add", "out"),
        ("update-index", "--add", "--cacheinfo", f"160000,{lab.repo.tip()},sub"),
        ("-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-q", "-m", "more"),
    ):
        subprocess.run(["git", "-C", folder, *told], check=True)
    lab.repo.git("worktree", "remove", "--force", str(folder))


async def test_a_poisoned_branch_does_no_harm_when_it_is_checked_and_merged(lab: WorkerLab) -> None:
    outside = lab.folder / "outside"
    outside.mkdir()
    add_poisoned_branch(lab, outside)
    hooks = sorted((lab.repo.path / ".git" / "hooks").iterdir())

    said = await invoke_podium(lab, "merge", "poisoned", "--check", "sh check.sh", "--yes")
    lab.repo.git("status")

    assert said.exit_code == 0, said.stderr
    assert (lab.repo.path / "check.sh").exists()
    assert list(outside.iterdir()) == []
    assert sorted((lab.repo.path / ".git" / "hooks").iterdir()) == hooks
    assert lab.repo.git("status", "--short") == ""


async def test_a_setup_command_is_held_by_the_sandbox(repo: Path, tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    outside.mkdir()
    worktrees = Worktrees(repository=Repository.at(repo), ledger=Ledger(home / "podium.db"))
    checkout = await worktrees.create("feat")
    (checkout.path / "sub").mkdir()
    (checkout.path / "out").symlink_to(outside)
    before = {path: path.read_bytes() for path in (repo / ".git").rglob("*") if path.is_file()}
    hook = make_worktree_hook(
        ("sh", "-c", HARM.format(outside=outside)), what="setup", home=home, store=home / "podium.db"
    )
    assert hook is not None

    await hook(checkout)
    subprocess.run(["git", "status"], cwd=checkout.path / "sub", check=True, capture_output=True)

    assert list(outside.iterdir()) == []
    assert {path: path.read_bytes() for path in (repo / ".git").rglob("*") if path.is_file()} == before


def test_a_setup_command_of_a_repository_does_not_run_before_it_is_trusted(desk: Desk) -> None:
    (desk.repo / "podium.yaml").write_text("worktrees: {setup: [touch, ran]}\n")

    said = desk.invoke("config", "show", "--json")

    assert '"worktrees.setup"' in said.stdout
    assert "podium trust" in said.stdout + said.stderr


def test_a_hostile_squad_is_read_in_time_and_gives_no_rights(tmp_path: Path) -> None:
    squad, secret = tmp_path / "repo" / ".squad", tmp_path / "secret.md"
    secret.write_text("SECRET")
    members = [f"m{number}" for number in range(300)]
    rows = "\n".join(f"| {name} | Dev | `agents/{name}/charter.md` | active |" for name in members)
    for name in ("pipe", "link", "huge", "local"):
        (squad / "agents" / name).mkdir(parents=True)
        rows += f"\n| {name} | Dev | `agents/{name}/charter.md` | active |"
    (squad / "team.md").write_text(f"# T\n\n## Members\n\n| Name | Role | Charter | Status |\n|-|-|-|-|\n{rows}\n")
    os.mkfifo(squad / "agents" / "pipe" / "charter.md")
    (squad / "agents" / "link" / "charter.md").symlink_to(secret)
    (squad / "agents" / "huge" / "charter.md").write_text("x" * 2_000_000)
    (squad / "agents" / "local" / "charter.md").write_text(
        "# Local\n\n\x1b]0;title\x07\u202e\n\n## Model\n\nPreferred: lmstudio:x\n\n## Tools\n\nBash\n"
    )

    begun = time.monotonic()
    roster = load_roster(tmp_path / "repo", tmp_path / "home")

    found = [agent for agent in roster.agents.values() if agent.path.startswith(".squad/")]
    assert time.monotonic() - begun < 2
    assert "SECRET" not in repr(found)
    assert {agent.source for agent in found} == {"repo"}
    assert all(not agent.permissions.allow for agent in found if agent.permissions)


async def test_a_huge_file_holds_nothing_up(studio: Studio, repo: Path) -> None:
    set_rules(studio, mode="bypass")
    add_sly_agent(
        studio,
        bash("truncate -s 1G huge.txt && ls -s huge.txt"),
        call("read_file", path="huge.txt"),
        call("grep", pattern="needle"),
        bash("cat huge.txt | head -c 10 | wc -c"),
    )

    begun = time.monotonic()
    result = await run_sly_agent(studio, repo)

    assert result.text == "done"
    assert time.monotonic() - begun < 20
    assert max(len(event.text) for event in studio.events(result, ToolAnswered)) < 100_000
