"""Untracked secrets are found whatever else the repository contains."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from podium.testing import make_repository
from podium.workspace.sandbox.checkout_survey import survey_checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def write_files(checkout: Path, *names: str) -> None:
    for name in names:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("x")


def track(checkout: Path, *names: str) -> None:
    write_files(checkout, *(name for name in names if not (checkout / name).exists()))
    subprocess.run(["git", "-C", checkout, "add", "-f", "--", *names], check=True)


@pytest.mark.parametrize("folder", ["", "app/"])
async def test_a_file_that_marks_virtual_environments_exposes_no_secret(checkout: Path, folder: str) -> None:
    track(checkout, f"{folder}pyvenv.cfg", f"{folder}lib/python3.12/site-packages/x.py")
    write_files(checkout, f"{folder}.env", f"{folder}deep/.env", f"{folder}lib/python3.12/site-packages/.env")

    survey = await survey_checkout(checkout)

    assert survey.secrets == tuple(
        sorted((f"{folder}.env", f"{folder}deep/.env", f"{folder}lib/python3.12/site-packages/.env"))
    )


async def test_only_the_ignored_packages_of_a_virtual_environment_are_left_out(checkout: Path) -> None:
    track(checkout, ".gitignore")
    (checkout / ".gitignore").write_text("/.venv/\nnode_modules/\n")
    packages = "lib/python3.12/site-packages"
    write_files(checkout, *(f"{env}/{name}" for env in (".venv", "other") for name in ("pyvenv.cfg", ".env")))
    write_files(checkout, f".venv/{packages}/certifi/cacert.pem", f"other/{packages}/certifi/cacert.pem")
    write_files(checkout, "node_modules/x/test.pem")

    survey = await survey_checkout(checkout)

    assert survey.secrets == (".venv/.env", "other/.env", f"other/{packages}/certifi/cacert.pem")


@pytest.mark.parametrize("name", ["node_modules", ".tox", "__pycache__"])
async def test_a_folder_that_git_tracks_something_in_is_not_left_out_for_its_name(checkout: Path, name: str) -> None:
    track(checkout, ".gitignore", f"{name}/README")
    (checkout / ".gitignore").write_text(f"{name}/\n")
    write_files(checkout, f"{name}/.env")

    assert (await survey_checkout(checkout)).secrets == (f"{name}/.env",)


async def test_in_a_folder_for_secrets_each_file_counts_by_itself(checkout: Path) -> None:
    track(checkout, ".aws/README", ".aws/deep/config")
    write_files(checkout, ".aws/credentials", ".aws/deep/key", ".aws/whole/a", ".aws/whole/b", ".kube/config")

    survey = await survey_checkout(checkout)

    assert survey.secrets == (".aws/credentials", ".aws/deep/key", ".aws/whole", ".kube")


async def test_files_are_tracked_by_the_repository_that_a_subfolder_belongs_to(checkout: Path) -> None:
    track(checkout, "app/test.pem")
    write_files(checkout, "app/.env", "test.pem")

    assert (await survey_checkout(checkout / "app")).secrets == (".env",)


@pytest.mark.parametrize("how", ["file", "commondir"])
async def test_another_repository_does_not_say_what_is_tracked_here(tmp_path: Path, how: str) -> None:
    other, unpacked = tmp_path / "other", tmp_path / "unpacked"
    make_repository(other)
    track(other, ".env")
    write_files(unpacked, ".env")
    if how == "file":
        (unpacked / ".git").write_text(f"gitdir: {other / '.git'}\n")
    else:
        make_repository(unpacked)
        (unpacked / ".git" / "commondir").write_text(str(other / ".git"))

    assert (await survey_checkout(unpacked)).secrets == (".env",)


async def test_a_secret_in_what_looks_like_a_repository_is_found(checkout: Path) -> None:
    track(checkout, "config/HEAD", "config/objects/x", "config/refs/x")
    write_files(checkout, "config/.env", "config/deep/.env")

    survey = await survey_checkout(checkout)

    assert survey.secrets == ("config/.env", "config/deep/.env")
    assert survey.protected == ("config",)
