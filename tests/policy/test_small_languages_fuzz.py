"""Generated scripts that need no permission start no process and open no file for writing."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from podium.policy import Rules, check
from podium.policy.safe_options import READING

from .script_fuzz import PROGRAMS, find_deeds, generate_bundles, generate_commands, generate_option_commands

FIXED_SEED = 7
COUNT = 23_000
MORE = 6_000
"""How many commands are generated from the fixed seed, and from a random one that is printed."""


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    missing = [name for name in ("strace", *PROGRAMS) if shutil.which(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(
            f"{', '.join(missing)} must be installed to run generated scripts; `make test-slow` does it as root"
        )


def find_allowed(commands: list[str]) -> list[str]:
    return [command for command in commands if check(command, Rules()).decision == "allow"]


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_no_generated_script_that_needs_no_permission_does_more_than_read_and_print(tmp_path: Path) -> None:
    commands = list(dict.fromkeys(generate_commands(FIXED_SEED, COUNT)))

    allowed = find_allowed(commands)
    deeds = find_deeds(allowed, tmp_path)

    assert len(commands) >= 20_000
    assert len(allowed) >= 2_000
    assert min(Counter(command.split()[0] for command in allowed)[program] for program in PROGRAMS) >= 100
    assert deeds == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_script_from_a_random_seed_that_needs_no_permission_does_more_than_read_and_print(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")

    deeds = find_deeds(find_allowed(generate_commands(seed, MORE)), tmp_path)

    assert deeds == [], f"seed {seed}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_bundle_of_letters_that_needs_no_permission_makes_a_program_do_more_than_read(tmp_path: Path) -> None:
    programs = [program for program in list_reading_programs() if program not in ("tail", "sleep", "ps")]

    allowed = find_allowed([command for program in programs for command in generate_bundles(program)])
    deeds = find_deeds(allowed, tmp_path)

    assert len(allowed) >= 2_000
    assert deeds == []


BUILTINS = {"cd", "type", "command", "true", "false", ":", "echo", "test", "printf", "pwd"}
SCRIPTS = {"zcat", "which", "shasum"}
"""Programs that are scripts themselves, and start other programs or open a folder in an odd way."""


def list_reading_programs() -> list[str]:
    return [
        program
        for program, use in READING.items()
        if "reads" in use.split() or use.startswith("@")
        if program not in BUILTINS | SCRIPTS and shutil.which(program)
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_generated_options_that_need_no_permission_make_a_program_do_more_than_read(tmp_path: Path) -> None:
    programs = list_reading_programs()

    allowed = find_allowed(list(dict.fromkeys(generate_option_commands(FIXED_SEED, MORE, programs))))
    finite = [command for command in allowed if not command.startswith("tail")]
    deeds = find_deeds(finite, tmp_path)

    assert len(programs) >= 40
    assert len(finite) >= 500
    assert deeds == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        'gawk \'BEGIN{y = /"/; system("touch ran"); z = /"/}\' a.txt',
        'mawk \'BEGIN{y = /"/; system("touch ran"); z = /"/}\' a.txt',
        "gawk '{print > \"ran\"}' a.txt",
        "mawk '{print | \"cat\"}' a.txt",
        "sed 's/X[/]/g;/e#/p' a.txt",
        "sed -n 'w ran' a.txt",
        "sed -i p a.txt",
        "printf 'abc%n' PATH",
        "printf -v x y",
        "find . -delete",
        "find . -exec true ';'",
        "find . -fprint ran",
        "sort -o ran a.txt",
    ],
)
def test_a_command_that_acts_is_noticed_and_needs_permission(tmp_path: Path, command: str) -> None:
    deeds = find_deeds(["sed p a.txt", command, "find . -ls"], tmp_path)

    assert {deed.command for deed in deeds} == {command}
    assert find_allowed([command]) == []
