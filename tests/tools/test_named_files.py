"""The files that a command refers to: which of them an approval covers, and which of them are scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.core.gate import InvalidCall
from podium.tools import command_files as named_files
from podium.tools.command_files import hash_named_files, read_approved_scripts


@pytest.mark.parametrize(
    ("command", "scripts"),
    [
        ("sh deploy.sh", ["deploy.sh"]),
        ("./deploy.sh now", ["deploy.sh"]),
        ("bash -x deploy.sh && cat notes.txt", ["deploy.sh"]),
        ("cd tools && python3 run.py", ["tools/run.py"]),
        ("cat deploy.sh", []),
        ("echo x >> notes.txt", []),
        ("env -i sh deploy.sh", ["deploy.sh"]),
    ],
)
def test_scripts_are_distinguished_from_other_files(tmp_path: Path, command: str, scripts: list[str]) -> None:
    (tmp_path / "tools").mkdir()
    for name in ("deploy.sh", "notes.txt", "tools/run.py"):
        (tmp_path / name).write_text("x")

    sealed = read_approved_scripts(command, hash_named_files(command, tmp_path), tmp_path)

    assert list(sealed) == scripts


def test_a_script_that_changed_is_not_sealed(tmp_path: Path) -> None:
    (tmp_path / "deploy.sh").write_text("harmless")
    inputs = hash_named_files("sh deploy.sh", tmp_path)
    (tmp_path / "deploy.sh").write_text("evil")

    with pytest.raises(InvalidCall, match=r"deploy.sh has changed since it was approved"):
        read_approved_scripts("sh deploy.sh", inputs, tmp_path)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("deploy.sh", "tools/deep/deploy.sh", "tools/run.py", "a b.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("echo good")
    for number in range(50):
        (tmp_path / f"{number}.txt").write_text("x")
    return tmp_path


NAMES_THE_SCRIPT = [
    "sh deploy.sh",
    'dep"loy".sh',
    "sh dep'loy'.sh",
    "sh deploy\\.sh",
    "./de\\ploy.sh",
    "sh $'deploy.sh'",
    "cat " + " ".join(f"{number}.txt" for number in range(50)) + " && sh deploy.sh",
    "cd tools && cd .. && sh deploy.sh",
    "sudo env A=1 bash -x deploy.sh",
    "bash -o pipefail deploy.sh",
    "bash -c 'sh deploy.sh'",
    "x=1 sh ./deploy.sh",
    "(sh deploy.sh)",
    "sh < deploy.sh",
]


@pytest.mark.parametrize("command", NAMES_THE_SCRIPT)
def test_an_approval_covers_a_script_however_the_command_names_it(checkout: Path, command: str) -> None:
    before = hash_named_files(command, checkout)
    (checkout / "deploy.sh").write_text("echo evil")

    assert "deploy.sh" in before
    assert hash_named_files(command, checkout) != before


@pytest.mark.parametrize(
    "command",
    [
        "cd tools && cd deep && sh deploy.sh",
        "cd tools/deep && ./deploy.sh",
        "cd tools; cd 'deep'; sh dep\"loy.sh\"",
        "env -C tools env -C deep sh deploy.sh",
        "(cd tools && (cd deep && sh deploy.sh))",
        "pushd tools && cd ./deep && sh deploy.sh",
    ],
)
def test_a_script_is_found_and_sealed_in_every_folder_that_the_command_enters(checkout: Path, command: str) -> None:
    inputs = hash_named_files(command, checkout)

    assert "tools/deep/deploy.sh" in inputs
    assert "tools/deep/deploy.sh" in read_approved_scripts(command, inputs, checkout)


@pytest.mark.parametrize("command", NAMES_THE_SCRIPT[:-1])
def test_a_script_is_sealed_however_the_command_names_it(checkout: Path, command: str) -> None:
    assert "deploy.sh" in read_approved_scripts(command, hash_named_files(command, checkout), checkout)


def test_a_script_with_a_space_in_its_name_is_found(checkout: Path) -> None:
    assert list(read_approved_scripts("sh 'a b.sh'", hash_named_files("sh 'a b.sh'", checkout), checkout)) == ["a b.sh"]


@pytest.mark.parametrize("command", ["echo " + "$(" * 60 + "sh deploy.sh" + ")" * 60, "ls; " * 500 + "sh deploy.sh"])
def test_a_command_that_is_too_large_to_be_read_is_approved_for_an_unchanged_checkout_only(
    checkout: Path, command: str
) -> None:
    before = hash_named_files(command, checkout)
    (checkout / "deploy.sh").write_text("echo evil")

    assert list(before) == ["."]
    assert hash_named_files(command, checkout) != before


def test_a_command_that_names_too_much_is_approved_for_an_unchanged_checkout_only(
    checkout: Path,
) -> None:
    for number in range(30):
        (checkout / f"folder{number}").mkdir()
    command = f"ls {' '.join(f'folder{number}' for number in range(30))} {' '.join(map(str, range(700)))}; sh deploy.sh"
    before = hash_named_files(command, checkout)
    (checkout / "deploy.sh").write_text("echo evil")

    assert list(before) == ["."]
    assert hash_named_files(command, checkout) != before


def test_a_large_file_is_covered_by_its_size_and_times(checkout: Path) -> None:
    large = checkout / "data.bin"
    large.write_bytes(bytes(named_files.LARGEST_FILE + 1))
    before = hash_named_files("wc data.bin", checkout)
    large.write_bytes(b"x" + bytes(named_files.LARGEST_FILE))

    assert "data.bin" in before
    assert hash_named_files("wc data.bin", checkout) != before
