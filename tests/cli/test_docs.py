from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from podium.cli.command_table import NAMES, find_command_module
from podium.cli.output import exit_codes
from podium.cli.output.text import BROKEN_PIPE

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### `podium (\w+)[^`]*`\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_documented_with_its_options_and_an_example(name: str) -> None:
    command: click.Command = getattr(import_module(f"podium.cli.{find_command_module(name)}"), f"{name}_command")
    options = [option for one in command.params if isinstance(one, click.Option) for option in one.opts]

    section = SECTIONS[name]

    assert f"$ podium {name}" in section or f"| podium {name}" in section
    assert [option for option in options if f"`{option}" not in section] == []


def test_no_unknown_command_is_documented() -> None:
    assert set(SECTIONS) == set(NAMES)


def test_every_exit_code_is_documented() -> None:
    codes = [value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)]
    table = PAGE.partition("## Exit codes")[2].partition("\n## ")[0]

    documented = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")}

    assert documented == {*codes, 130, 143, BROKEN_PIPE} - {exit_codes.SIGNALLED}
