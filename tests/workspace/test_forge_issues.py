"""Issues on GitHub and GitLab: small programs play `gh` and `glab`, also hanging, flooding and failing ones."""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from podium.values.errors import DependencyMissing, Mistake, OutsideFailed
from podium.watch.sources.forge_issues import ForgeIssues, ForgeProject, GithubIssues, GitlabIssues, choose_source
from podium.watch.sources.issue_source import Issue
from podium.workspace.travel.forge import ReplyTooLong

from .played_forge import PlayedForge, github_issue, gitlab_issue

pytestmark = pytest.mark.anyio


@pytest.fixture
def forge(tmp_path: Path) -> PlayedForge:
    return PlayedForge(tmp_path / "forge")


def open_github(forge: PlayedForge, *, seconds: float = 60.0) -> GithubIssues:
    project = ForgeProject(
        kind="github",
        host="github.com",
        path="team/shop",
        program=str(forge.bin / "gh"),
        folder=forge.folder,
        seconds=seconds,
    )
    return GithubIssues(project=project)


def open_gitlab(forge: PlayedForge) -> GitlabIssues:
    project = ForgeProject(
        kind="gitlab", host="lab.example", path="a/b/shop", program=str(forge.bin / "glab"), folder=forge.folder
    )
    return GitlabIssues(project=project)


async def find_none(ids: Sequence[str]) -> set[str]:
    return set()


async def list_issues(source: ForgeIssues, *, labels: Sequence[str] = ()) -> list[Issue]:
    return [one async for page in source.list_pages(find_none, labels=labels) for one in page.issues]


async def test_github_issues_are_read_without_pull_requests(forge: PlayedForge) -> None:
    forge.write_issues(
        [
            github_issue(1, labels=[{"name": "agent"}], body="Fix\r\nit \x1b[31m"),
            github_issue(2, labels=["agent"], pull_request={"url": "x"}),
            github_issue(3, labels=["agent"], user=None, body=None, author_association="NONE"),
            github_issue(4, labels=["other"]),
        ]
    )

    issues = await list_issues(open_github(forge), labels=["agent"])

    assert [(one.id, one.author, one.is_by_member) for one in issues] == [("1", "alice", True), ("3", "", False)]
    assert (issues[0].body, issues[0].labels) == ("Fix\nit \\x1b[31m", ("agent",))
    [call] = forge.calls
    assert call[:3] == ["api", call[1], "--hostname=github.com"]
    assert call[1].startswith("repos/team/shop/issues?state=open&sort=created&direction=asc&per_page=64&page=1")


async def test_gitlab_issues_are_taken_of_members_who_can_push(forge: PlayedForge) -> None:
    forge.write_issues([gitlab_issue(1), gitlab_issue(2, author={"id": 6, "username": "mallory"})])
    forge.play(members=["5"])
    source = open_gitlab(forge)

    issues = await list_issues(source)

    assert [await source.is_by_member(one) for one in issues] == [True, False]
    assert forge.calls[0][1].startswith("projects/a%2Fb%2Fshop/issues?state=opened&order_by=created_at&sort=asc")
    assert source.name == "gitlab:lab.example/a/b/shop"
    forge.play(says="glab: 500 Internal Server Error")
    with pytest.raises(OutsideFailed, match="500"):
        await source.is_by_member(issues[0])


@pytest.mark.parametrize("open_source", [open_github, open_gitlab])
async def test_a_comment_is_passed_on_standard_input_and_found_by_its_marker(
    forge: PlayedForge, open_source: Callable[[PlayedForge], ForgeIssues]
) -> None:
    source = open_source(forge)

    posted = await source.post_comment("7", "<!-- mark -->\n--web @all", url="https://x/7", marker="mark")

    assert forge.comments == [{"id": 1, "issue": "7", "body": "<!-- mark -->\n--web @all"}]
    assert not any("@all" in word for word in forge.calls[0][:-1])
    assert await source.find_comment("7", url="https://x/7", marker="mark") == posted
    assert await source.find_comment("7", url="https://x/7", marker="other") == ""


async def test_of_ten_thousand_issues_no_page_is_read_in_vain(forge: PlayedForge) -> None:
    forge.write_issues([github_issue(number) for number in range(10_000)])

    async for page in open_github(forge).list_pages(find_none):
        assert len(page.issues) == 64
        break

    assert len(forge.calls) == 1


async def test_a_forge_that_repeats_the_same_page_is_read_once(forge: PlayedForge) -> None:
    forge.write_issues([github_issue(number) for number in range(64)])
    forge.play(repeats=True)

    issues = await list_issues(open_github(forge))

    assert (len(issues), len(forge.calls)) == (64, 2)


async def test_a_page_that_is_too_long_is_read_in_halves(forge: PlayedForge) -> None:
    forge.write_issues([github_issue(number, body="x" * 500_000) for number in range(40)])

    issues = await list_issues(open_github(forge))

    assert [int(one.id) for one in issues] == list(range(40))
    sizes = [call[1].partition("per_page=")[2].partition("&")[0] for call in forge.calls]
    assert sizes == ["64", "32", "32"]


async def test_a_program_that_prints_without_end_takes_no_memory(forge: PlayedForge) -> None:
    forge.play(floods=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(ReplyTooLong, match="gh api repos/team/shop/issues printed more than 16,777,216 bytes"):
        await list_issues(open_github(forge))

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000


async def test_a_program_that_hangs_is_ended(forge: PlayedForge) -> None:
    forge.play(hangs=True)

    with pytest.raises(OutsideFailed, match=r"did not finish within 0\.5 s"):
        await list_issues(open_github(forge, seconds=0.5))


async def test_what_a_program_says_when_it_fails_is_one_sentence(forge: PlayedForge) -> None:
    forge.play(says="To get started with GitHub CLI, please run:\n  gh auth login\x1b[2J\n" + "x" * 1000)

    with pytest.raises(OutsideFailed, match="issues failed: To get started") as failed:
        await list_issues(open_github(forge))

    assert len(str(failed.value)) <= 400
    assert str(failed.value).isprintable()


async def test_a_reply_that_is_not_json_is_said(forge: PlayedForge) -> None:
    (forge.folder / "issues.json").write_text('[{"number": "x", "labels": []}]')

    with pytest.raises(OutsideFailed, match="gh printed a reply that cannot be read"):
        await list_issues(open_github(forge))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("github:team/shop", "github:team/shop"),
        ("github:github.example.com/team/shop", "github:github.example.com/team/shop"),
        ("gitlab:a/b/c", "gitlab:a/b/c"),
        ("gitlab:lab.example.com/a/b", "gitlab:lab.example.com/a/b"),
    ],
)
def test_a_project_is_named_by_its_forge_and_path(
    forge: PlayedForge, given: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(forge.bin))
    monkeypatch.chdir(tmp_path)  # the played programs run with the interpreter of this checkout

    source = choose_source(given, folder=tmp_path, outside=tmp_path / "repo", home=tmp_path, host="h")

    assert source.name == name


@pytest.mark.parametrize(
    "given", ["github:shop", "github:a/b/c", "github:-a/b", "github:a/..", "gitlab:a", "github:a/b c", "nowhere", ""]
)
def test_what_is_not_a_source_is_explained(given: str, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="use"):
        choose_source(given, folder=tmp_path, outside=tmp_path, home=tmp_path, host="h")


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DependencyMissing, match="glab is not installed"):
        choose_source("gitlab:a/b", folder=tmp_path, outside=tmp_path, home=tmp_path, host="h")
