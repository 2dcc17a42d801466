"""The settings page of the documentation: its examples load without warnings, and it describes every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podium.files.settings import Settings
from podium.files.settings_files import read_settings_files
from podium.files.settings_keys import KEYS
from podium.values.hook import HOOK_EVENTS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "settings.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```text file=(\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_every_example_is_valid(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")

    assert read_settings_files(tmp_path).diagnostics == ()
    assert Settings.load({}, home=tmp_path).sources


NESTED_KEYS = [name for name, key in KEYS.items() if key.keys]
"""The keys whose value is a mapping, or contains mappings."""


def test_every_key_is_documented() -> None:
    assert [key for key in KEYS if f"| `{key}` |" not in PAGE] == []


@pytest.mark.parametrize("key", NESTED_KEYS)
def test_the_row_of_a_key_names_every_key_below_it(key: str) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{key}` |")]

    assert [name for name in KEYS[key].keys if not re.search(rf"\b{name}\b", row)] == []


def test_every_event_with_hooks_and_every_worktree_setting_has_a_row() -> None:
    hooks = (DOCS / "hooks.md").read_text(encoding="utf-8")

    assert [event for event in HOOK_EVENTS if f"| `{event}` |" not in hooks] == []
    assert [key for key in KEYS["worktrees"].keys if f"| `{key}` |" not in PAGE] == []


def test_every_key_that_a_repository_cannot_set_is_listed() -> None:
    section = PAGE.partition("## What a repository may not do")[2]
    spelled = [name for name, key in KEYS.items() if key.key.scope != "repository"]
    below = KEYS["permissions"].keys
    spelled += [f"permissions.{name}" for name, key in below.items() if key.key.scope != "repository"]

    assert [key for key in spelled if f"`{key}" not in section] == []
