"""The settings page of the documentation: its examples load without warnings, and it describes every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podium.config.settings_files import read_settings_files
from podium.config.settings_keys import KEYS, ROLE_READERS
from podium.setup.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```text file=(\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_every_example_is_valid(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")

    assert read_settings_files(tmp_path).diagnostics == ()
    assert Settings.load({}, home=tmp_path).sources


def test_every_key_is_documented() -> None:
    assert [key for key in KEYS if f"| `{key}` |" not in PAGE] == []
    assert [key for key in ROLE_READERS if key not in PAGE] == []
