"""`podium merge --pull-request`: real branches and a real remote; small programs play `gh` and `glab`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from anyio import fail_after, sleep

from podium.core.decision_state import DecisionState
from podium.values.errors import Mistake
from podium.values.event import DecisionCommitted, DecisionProposed
from podium.views.decision_record import DecisionRecord
from podium.workers.merging.pull_requests import describe_pull_request
from podium.workspace.merging.merge_train import MergedBranch, Train
from podium.workspace.travel.forge import ForgeKind, choose_forge
from podium.workspace.travel.remote_url import parse_remote_url

from ..workers.travel_lab import TravelLab
from ..workers.worker_lab import LONG, make_scripted_agent, open_worker_lab, write
from .worker_runs import invoke_podium

FORGE = """#!{python}
import json, pathlib, sys
words, calls, requests = sys.argv[1:], pathlib.Path({folder!r}) / "calls", pathlib.Path({folder!r}) / "requests"
body = sys.stdin.read()
with calls.open("a") as file:
    print(json.dumps([*words, body]), file=file)
named = dict(word[2:].split("=", 1) for word in words[2:] if "=" in word)
branch = named.get("head") or named.get("source-branch")
known = requests.read_text().splitlines() if requests.exists() else []
if words[1] == "list":
    urls = ["https://forge.example/" + one for one in known if one == branch]
    fork = {{"url": "https://forge.example/fork", "isCrossRepository": True}}
    if words[0] == "pr":
        print(json.dumps([fork, *({{"url": url, "isCrossRepository": False}} for url in urls)]))
    else:
        print(json.dumps([{{"web_url": url, "source_project_id": 1, "target_project_id": 1}} for url in urls]))
elif branch in known:
    sys.exit("a pull request already exists")
elif {failure!r}:
    sys.exit({failure!r})
else:
    with requests.open("a") as file:
        print(branch, file=file)
    print("Creating a request\\nhttps://forge.example/" + branch)
"""


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TravelLab]:
    async with open_worker_lab(TravelLab) as lab:
        monkeypatch.chdir(lab.repo.path)
        monkeypatch.setenv("PATH", f"{lab.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        yield lab


def install_forge(lab: TravelLab, name: str, failure: str = "") -> None:
    """Install a program that plays a forge's command line. With `failure`, it creates nothing and says that."""
    (lab.folder / "bin").mkdir(exist_ok=True)
    program = lab.folder / "bin" / name
    program.write_text(FORGE.format(python=sys.executable, folder=str(lab.folder), failure=failure))
    program.chmod(0o755)


def read_calls(lab: TravelLab, act: str) -> list[list[str]]:
    calls = [json.loads(line) for line in (lab.folder / "calls").read_text().splitlines()]
    return [call for call in calls if call[1] == act]


def remote_tip(lab: TravelLab, branch: str) -> str:
    return lab.repo.git("ls-remote", str(lab.remote), f"refs/heads/{branch}").partition("\t")[0]


async def test_a_branch_is_pushed_and_gets_one_request_that_describes_its_run(lab: TravelLab) -> None:
    install_forge(lab, "gh")
    run = await lab.delegate("feat/one", write("one.txt", "one\n"), "done, closes #1 @all\n```\n## Checks\nall passed")
    await invoke_podium(lab, "workers", "wait")
    before = lab.repo.tip()

    asked = await invoke_podium(lab, "merge", "feat/one", "--pull-request")
    assert (asked.exit_code, remote_tip(lab, "feat/one")) == (3, "")
    opened = await invoke_podium(lab, "merge", "feat/one", "--pull-request", "--yes", "--check", "true")
    lab.repo.commit({"two.txt": "two\n"}, at=lab.worktree_path("feat/one"))
    again = await invoke_podium(lab, "merge", "feat/one", "--pull-request", "--yes", "--json")

    assert (opened.exit_code, again.exit_code) == (0, 0), (opened.output, again.output)
    assert "feat/one: https://forge.example/feat/one (opened)" in opened.stdout
    [request] = json.loads(again.stdout)["pull_requests"]
    assert request == {"branch": "feat/one", "url": "https://forge.example/feat/one", "new": False}
    [created] = read_calls(lab, "create")
    assert created[:2] == ["pr", "create"]
    assert {"--head=feat/one", "--base=main", f"--repo={lab.remote}", "--body-file=-"} <= set(created)
    body = created[-1]
    assert f"run {run}, complete: agent" in body
    assert "passed on the result: true" in body
    assert "````\ndone, closes #1 @all\n```\n## Checks\nall passed\n````" in body
    assert remote_tip(lab, "feat/one") == lab.repo.tip("feat/one")
    assert (lab.repo.tip(), lab.repo.git("branch", "--list", "podium/merge-*")) == (before, "")


async def test_hostile_titles_and_branches_that_fail_the_check(lab: TravelLab) -> None:
    install_forge(lab, "glab")
    lab.write_settings("permissions: {allow: [Write]}\n")
    lab.write_agent(make_scripted_agent(write("good.txt"), "done"))
    task = "--web\x1b[31m --repo=evil/x\n--yes"
    delegated = await invoke_podium(lab, "delegate", "--agent", "hand", "--", "feat/good", task)
    assert delegated.exit_code == 0, delegated.output
    lab.repo.branch("feat/bad", {"bad.txt": "bad\n"})
    await invoke_podium(lab, "workers", "wait")

    said = await invoke_podium(
        lab, "merge", "feat/good", "feat/bad", "--pull-request", "--yes", "--check", "test ! -e bad.txt"
    )

    assert said.exit_code == 1, said.output
    [created] = read_calls(lab, "create")
    assert created[:2] == ["mr", "create"]
    assert "--title=feat/good: --web\\x1b[31m --repo=evil/x" in created
    assert [word for word in created if word.startswith("--repo=")] == [f"--repo={lab.remote}"]
    assert "\x1b" not in "".join(created)
    assert remote_tip(lab, "feat/bad") == ""


async def test_commits_of_others_on_the_remote_are_not_replaced(lab: TravelLab) -> None:
    install_forge(lab, "gh")
    lab.repo.branch("feat/one", {"one.txt": "mine\n"})
    lab.repo.branch("other", {"one.txt": "theirs\n"})
    lab.repo.git("push", "-q", "origin", "other:refs/heads/feat/one")
    theirs = remote_tip(lab, "feat/one")

    said = await invoke_podium(lab, "merge", "feat/one", "--pull-request", "--yes")

    assert (said.exit_code, remote_tip(lab, "feat/one")) == (1, theirs), said.output
    assert "cannot push to" in said.output
    assert not (lab.folder / "calls").exists()


async def test_a_forge_that_fails_is_reported_and_the_next_call_opens_the_request(lab: TravelLab) -> None:
    install_forge(lab, "gh", failure="HTTP 502\x1b[2J from https://me:secret@forge.example")
    lab.repo.branch("feat/one", {"one.txt": "mine\n"})

    failed = await invoke_podium(lab, "merge", "feat/one", "--pull-request", "--yes")
    install_forge(lab, "gh")
    opened = await invoke_podium(lab, "merge", "feat/one", "--pull-request", "--yes")

    text = f"{failed.output}{failed.exception}"
    assert failed.exit_code != 0
    assert "gh pr create failed: HTTP 502" in text
    assert "\x1b" not in text
    assert "secret" not in text
    assert opened.exit_code == 0
    assert "(opened)" in opened.stdout


async def test_a_merge_that_is_killed_while_the_forge_answers_opens_no_second_request(lab: TravelLab) -> None:
    install_forge(lab, "gh")
    program = lab.folder / "bin" / "gh"
    program.write_text(
        program.read_text().replace('    print("Creating', '    __import__("time").sleep(1000)\n    print("')
    )
    lab.repo.branch("feat/one", {"one.txt": "mine\n"})
    command = [sys.executable, "-P", "-m", "podium", "merge", "feat/one", "--pull-request", "--yes"]

    with subprocess.Popen(command, cwd=lab.repo.path, env=lab.environ, stderr=subprocess.DEVNULL) as process:
        with fail_after(LONG):
            while not (lab.folder / "requests").exists():
                assert process.poll() is None
                await sleep(0.01)
        process.kill()
    install_forge(lab, "gh")
    again = await invoke_podium(lab, "merge", "feat/one", "--pull-request", "--yes", "--json")

    assert again.exit_code == 0, again.output
    [request] = json.loads(again.stdout)["pull_requests"]
    assert request == {"branch": "feat/one", "url": "https://forge.example/feat/one", "new": False}
    assert len(read_calls(lab, "create")) == 1
    assert remote_tip(lab, "feat/one") == lab.repo.tip("feat/one")
    assert lab.repo.git("branch", "--list", "podium/merge-*") == ""


async def test_wrong_use_is_explained(lab: TravelLab) -> None:
    lab.repo.branch("feat/one", {"one.txt": "mine\n"})
    partial = await invoke_podium(lab, "merge", "feat/one", "--pull-request", "--only", "one.txt")
    lab.repo.git("remote", "remove", "origin")
    without = await invoke_podium(lab, "merge", "feat/one", "--pull-request")

    assert partial.exit_code == 2
    assert "--pull-request pushes whole branches" in partial.output
    assert "has no remote for pull requests" in f"{without.output}{without.exception}"


def install_programs(folder: Path, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in names.split():
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize(
    ("remote", "installed", "setting", "expected"),
    [
        ("git@github.com:team/shop.git", "gh glab", None, "github"),
        ("https://gitlab.example.org/team/shop.git", "gh glab", None, "gitlab"),
        ("https://git.example.org/team/shop.git", "glab", None, "gitlab"),
        ("https://git.example.org/team/shop.git", "gh glab", "github", "github"),
    ],
)
def test_the_forge_is_chosen_by_setting_host_and_program(
    remote: str,
    installed: str,
    setting: ForgeKind | None,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install_programs(tmp_path, installed, monkeypatch)

    forge = choose_forge(parse_remote_url(remote), setting=setting, outside=tmp_path / "repo", folder=tmp_path)

    assert forge.kind == expected


@pytest.mark.parametrize(
    ("remote", "installed", "why"),
    [
        ("https://git.example.org/team/shop.git", "gh glab", "set forge: github or forge: gitlab"),
        ("https://git.example.org/team/shop.git", "", "neither gh nor glab is installed"),
        ("git@github.com:team/shop.git", "glab", "gh is not installed"),
    ],
)
def test_a_forge_that_cannot_be_chosen_is_explained(
    remote: str, installed: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_programs(tmp_path, installed, monkeypatch)

    with pytest.raises(Mistake, match=why):
        choose_forge(parse_remote_url(remote), setting=None, outside=tmp_path / "repo", folder=tmp_path)


def test_the_description_lists_the_decisions_in_force_as_quoted_text() -> None:
    proposal = DecisionProposed(id="d1", topic="Which\nformat? @all", options=("CSV", "XML"), by="lead", repo="/r")
    committed = DecisionCommitted(decision="d1", option="CSV", how="majority")
    state = DecisionState(proposal=proposal, committed=committed)
    train = Train(
        target="main",
        base="a" * 40,
        commit="b" * 40,
        tree="c" * 40,
        ref=None,
        merged=(MergedBranch(branch="feat/a", commit="b" * 40, tree="c" * 40),),
        left_out=(),
    )

    decided = describe_pull_request("feat/a", train, None, [DecisionRecord(state=state)])
    open_one = describe_pull_request("feat/a", train, None, [DecisionRecord(state=DecisionState(proposal=proposal))])

    assert "## Decisions\n\n```\nd1: Which format? @all: CSV\n```\n" in decided.description
    assert "## Decisions" not in open_one.description
    assert "no check was run on the result" in decided.description
