"""`podium watch` on the command line: what is shown, wrong use, hostile sources, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from podium.store.issue_rows import IssueClaim, IssueClaims
from podium.system.identity import read_host_id

from ..workspace.played_forge import PlayedForge, github_issue
from .conftest import Desk, read_until_exit, wait_for


@pytest.fixture
def forge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedForge:
    forge = PlayedForge(tmp_path / "forge")
    monkeypatch.setenv("PATH", forge.path)
    return forge


def write_issue(desk: Desk, name: str, text: str) -> Path:
    path = desk.repo / "issues" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_dry_run_shows_what_would_be_taken_and_changes_nothing(desk: Desk) -> None:
    desk.write_agent("fixer", "done")
    write_issue(desk, "1.md", "---\nauthor: bob\n---\n# Red\x1b[31m\n")
    write_issue(desk, "2.md", "# Two\n")

    said = desk.invoke("watch", "issues", "--dry-run", "--limit", "1")
    printed = json.loads(desk.invoke("watch", "issues", "--dry-run", "--json").stdout)

    assert said.exit_code == 0
    assert said.stdout == "1.md by bob would be picked up: Red\\x1b[31m\n"
    assert "1 new issue would have to wait" in said.stderr
    assert "triage would choose between fixer and a person" in said.stderr
    assert [one["issue"] for one in printed["issues"]] == ["1.md", "2.md"]
    assert not desk.store.exists()


def test_ten_thousand_issues_on_a_forge_are_not_all_read(desk: Desk, forge: PlayedForge) -> None:
    strangers = {number: {"author_association": "NONE"} for number in (2, 60)}
    forge.write_issues([github_issue(number, **strangers.get(number, {})) for number in range(1, 10_001)])

    desk.home.rmdir()
    said = desk.invoke("watch", "github:team/shop", "--dry-run", "--agent", "worker")

    assert said.stdout.splitlines()[0] == "#1 by alice would be picked up: A bug"
    assert len(said.stdout.splitlines()) == 5
    assert "57 new issues or more would have to wait" in said.stderr
    assert len(forge.calls) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("nowhere",), 2, '"nowhere" is not a folder, so it cannot be a source of issues'),
        ((), 2, "use a folder, github:OWNER/REPOSITORY"),
        (("github:shop",), 2, "does not name a project; use github:OWNER/REPOSITORY"),
        (("issues", "--once", "--agent", "nobody"), 2, 'agent "nobody" not found'),
        (("issues", "--every", "soon"), 2, "--every 'soon' is not an interval"),
        (("issues", "--wait"), 2, "--wait needs --once"),
        (("issues", "--limit", "0"), 2, "--limit"),
        (("issues", "--forget", "7"), 2, "issue '7' from folder:"),
        (("gitlab:a/b", "--once"), 7, "glab is not installed"),
    ],
)
def test_wrong_use_is_explained(
    desk: Desk, arguments: tuple[str, ...], code: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk.repo / "issues").mkdir()
    monkeypatch.setenv("PATH", os.defpath)

    said = desk.invoke("watch", *arguments)

    assert (said.exit_code, why in said.stderr) == (code, True), said.stderr
    assert len(said.stderr.splitlines()) <= 2


def test_a_forge_that_is_logged_out_is_one_sentence(desk: Desk, forge: PlayedForge) -> None:
    forge.play(says="To get started with GitHub CLI, please run:  gh auth login\x1b[31m")

    said = desk.invoke("watch", "github:team/shop", "--dry-run", "--agent", "worker")

    assert said.exit_code == 1
    assert said.stderr == (
        "podium: gh api repos/team/shop/issues failed: To get started with GitHub CLI, please run: gh auth "
        "login\\x1b[31m\n"
    )


def add_claim(desk: Desk, issue: str, **fields: object) -> IssueClaim:
    source = f"folder:{read_host_id(desk.home)}:{desk.repo / 'issues'}"
    given: dict[str, object] = {"source": source, "issue": issue, "token": "abcd", "claimed": 5.0, "root": "/r"}
    claim = IssueClaim(**(given | {"title": "A title", "body": ""} | fields))  # type: ignore[arg-type]  # of any type
    IssueClaims(desk.store).add(claim)
    return claim


def test_taken_issues_are_listed_and_can_be_forgotten(desk: Desk) -> None:
    write_issue(desk, "1.md", "# One\n")
    done = add_claim(desk, "1.md", state="succeeded", agent="fixer", comment="posted")
    add_claim(desk, "2.md", state="work", agent="fixer", claimed=4.0)

    listed = desk.invoke("watch", "--list")
    printed = json.loads(desk.invoke("watch", "issues", "--list", "--json").stdout)
    active = desk.invoke("watch", "issues", "--forget", "2")
    forgotten = desk.invoke("watch", "issues", "--forget", "1")
    again = desk.invoke("watch", "issues", "--dry-run")

    first, second = listed.stdout.splitlines()
    assert first.startswith("1.md")
    assert f"succeeded  fixer  {done.run}  comment posted  A title" in first
    assert "work" in second
    assert printed["issues"][0]["run"] == done.run
    assert (active.exit_code, "is being worked on" in active.stderr) == (2, True)
    assert (forgotten.exit_code, "1.md would be picked up" in again.stdout) == (0, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_watch_cleanly_also_while_the_forge_hangs(
    desk: Desk, forge: PlayedForge, number: signal.Signals
) -> None:
    forge.play(hangs=True)
    desk.write_agent("fixer", "done")

    with desk.start_podium("watch", "github:team/shop", "--agent", "fixer", PATH=forge.path) as process:
        wait_for(process.stderr, "watching github:team/shop every 60s; stop it with Ctrl-C")
        while not forge.calls:
            assert process.poll() is None
        process.send_signal(number)
        _, errors = read_until_exit(process)

    assert process.returncode == 128 + number
    assert errors == "stopped watching; work that was started continues in the background; see podium ps\n"


def test_a_forge_that_fails_later_is_said_and_the_watch_goes_on(desk: Desk, forge: PlayedForge) -> None:
    desk.write_agent("fixer", "done")
    options = ("--agent", "fixer", "--every", "1s")

    with desk.start_podium("watch", "github:team/shop", *options, PATH=forge.path) as process:
        wait_for(process.stderr, "watching")
        while not forge.calls:
            assert process.poll() is None
        forge.play(says="HTTP 502\x1b[31m")
        failed = wait_for(process.stderr, "HTTP 502")
        forge.play()
        forge.write_issues([github_issue(3, author_association="NONE")])
        wait_for(process.stderr, "#3 by alice was skipped")
        process.send_signal(signal.SIGTERM)
        read_until_exit(process)

    assert failed == "gh api repos/team/shop/issues failed: HTTP 502\\x1b[31m\n"
    assert process.returncode == 143


def test_nothing_new_is_said(desk: Desk) -> None:
    (desk.repo / "issues").mkdir()

    said = desk.invoke("watch", "issues", "--once")

    assert (said.exit_code, said.stdout) == (0, "")
    assert said.stderr == f"no new issues in folder:{desk.repo / 'issues'}\n"
