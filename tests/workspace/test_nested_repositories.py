"""Repositories that commands create are moved aside, wherever the folder for them is."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from podium.testing import make_repository
from podium.workspace.sandbox.checkout_survey import MOST, survey_checkout
from podium.workspace.sandbox.nested_repositories import MOST_TOLD, NestedRepositories

OTHER_FILE_SYSTEM = Path("/dev/shm")


@pytest.fixture(params=["same file system", "another file system"])
def aside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "same file system":
        yield tmp_path / "aside"
        return
    if OTHER_FILE_SYSTEM.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is on the same file system")
    with tempfile.TemporaryDirectory(dir=OTHER_FILE_SYSTEM) as folder:
        yield Path(folder)


def is_repository(folder: Path) -> bool:
    """Return whether git regards a folder as a separate repository."""
    told = ["git", "-C", str(folder), "rev-parse", "--git-dir"]
    return subprocess.run(told, capture_output=True, text=True, check=False).returncode == 0


async def test_nothing_is_lost_and_git_finds_no_repository_any_more(tmp_path: Path, aside: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "src").mkdir(parents=True)
    survey = await survey_checkout(checkout)
    nested = NestedRepositories(checkout, aside=aside, folders=survey.folders, unexamined=survey.unexamined)
    make_repository(checkout / "src" / "new")
    (checkout / "src" / "new" / "file").write_text("work")
    (checkout / "src" / "new" / ".git" / "description").write_text("described")

    [sentence] = nested.move_aside()

    assert sentence.startswith("src/new/.git was moved to ")
    assert nested.move_aside() == []
    assert (checkout / "src" / "new" / "file").read_text() == "work"
    kept = [*tmp_path.rglob("description"), *aside.rglob("description")]
    assert {path.read_text() for path in kept} == {"described"}
    assert not any(is_repository(path.parent) for path in kept if path.is_relative_to(checkout))
    assert not is_repository(checkout / "src" / "new")


async def test_nothing_is_moved_through_a_link(tmp_path: Path) -> None:
    checkout, other = tmp_path / "checkout", tmp_path / "other"
    (checkout / "src").mkdir(parents=True)
    survey = await survey_checkout(checkout)
    nested = NestedRepositories(
        checkout, aside=tmp_path / "aside", folders=survey.folders, unexamined=survey.unexamined
    )
    make_repository(other)
    (checkout / "src" / "link").symlink_to(other)
    (checkout / "linked").symlink_to(other)

    assert nested.move_aside() == []
    assert is_repository(other)


async def test_what_changes_right_after_it_was_examined_is_examined_again(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    survey = await survey_checkout(checkout)
    nested = NestedRepositories(
        checkout, aside=tmp_path / "aside", folders=survey.folders, unexamined=survey.unexamined
    )

    for number in range(50):
        folder = checkout / "same"
        folder.mkdir(exist_ok=True)
        (folder / ".git").write_text("gitdir: elsewhere\n")
        assert len(nested.move_aside()) == 1, number


async def test_names_that_are_not_valid_text_are_reported_as_text(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    survey = await survey_checkout(checkout)
    nested = NestedRepositories(
        checkout, aside=tmp_path / "aside", folders=survey.folders, unexamined=survey.unexamined
    )
    folder = os.fsencode(checkout) + b"/\xff\n\x1b[2J"
    subprocess.run([b"git", b"init", b"-q", folder], check=True)

    [sentence] = nested.move_aside()

    assert sentence.isprintable()
    assert sentence.encode().decode() == sentence
    assert not os.path.lexists(folder + b"/.git")


async def test_any_number_of_repositories_is_reported_in_a_few_sentences(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    survey = await survey_checkout(checkout)
    nested = NestedRepositories(
        checkout, aside=tmp_path / "aside", folders=survey.folders, unexamined=survey.unexamined
    )
    for number in range(100):
        (checkout / str(number)).mkdir()
        (checkout / str(number) / ".git").write_text("gitdir: elsewhere\n")

    told = nested.move_aside()

    assert len(told) == MOST_TOLD + 1
    moved = (
        f"{100 - MOST_TOLD} more repositories were found; where possible, they were moved to {tmp_path / 'aside'} "
        "or to a new folder next to their old path"
    )
    assert told[-1] == moved
    assert not list(checkout.glob("*/.git"))


@pytest.mark.slow
async def test_a_repository_is_found_behind_more_than_20_000_new_folders(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=OTHER_FILE_SYSTEM) as name:
        checkout = Path(name)
        survey = await survey_checkout(checkout)
        nested = NestedRepositories(
            checkout, aside=tmp_path / "aside", folders=survey.folders, unexamined=survey.unexamined
        )
        script = "for i in {1..150}; do mkdir $i; (cd $i && mkdir {1..140}); done; git init -q 150/140/last"
        subprocess.run(["bash", "-c", script], cwd=checkout, check=True)

        [sentence] = nested.move_aside()

        assert sentence.startswith("150/140/last/.git was moved to ")
        assert not is_repository(checkout / "150" / "140" / "last")


async def test_new_folders_that_are_too_many_to_search_are_moved_out_of_the_checkout(
    tmp_path: Path, aside: Path
) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "src").mkdir(parents=True)
    survey = await survey_checkout(checkout)
    nested = NestedRepositories(
        checkout, aside=aside, folders=survey.folders, unexamined=survey.unexamined, most_new=20
    )
    for number in range(30):
        (checkout / "src" / "many" / f"{number}" / "deep").mkdir(parents=True)
    make_repository(checkout / "src" / "many" / "29" / "deep" / "r")

    [sentence] = nested.move_aside()

    assert sentence.startswith("src/many could not be searched for git repositories, because there are too many")
    assert not (checkout / "src" / "many").exists()
    assert nested.move_aside() == []
    [kept] = [*aside.iterdir(), *(checkout / "src").iterdir()]
    assert kept.is_relative_to(aside) or kept.stat().st_mode & 0o777 == 0
    kept.chmod(0o700)
    assert len(list(kept.rglob("29/deep/r/.git/HEAD"))) == 1


async def test_a_new_folder_whose_path_is_too_long_to_list_is_moved_out_of_the_checkout(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    survey = await survey_checkout(checkout)
    nested = NestedRepositories(
        checkout, aside=tmp_path / "aside", folders=survey.folders, unexamined=survey.unexamined
    )
    script = "for i in {1..20}; do mkdir $1; cd $1; done; git init -q . 2>/dev/null || mkdir .git"
    subprocess.run(["bash", "-c", script, "bash", "d" * 240], cwd=checkout, check=True)

    told = nested.move_aside()

    assert any("could not be searched for git repositories" in sentence for sentence in told)
    assert list(checkout.iterdir()) == []


async def test_a_repository_is_found_below_a_folder_behind_many_files(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "a" / "b").mkdir(parents=True)
    subprocess.run(["bash", "-c", f"touch {{1..{MOST}}}"], cwd=checkout, check=True)
    survey = await survey_checkout(checkout)
    nested = NestedRepositories(
        checkout, aside=tmp_path / "aside", folders=survey.folders, unexamined=survey.unexamined
    )
    make_repository(checkout / "a" / "b" / "c")

    [sentence] = nested.move_aside()

    assert sentence.startswith("a/b/c/.git was moved to ")
