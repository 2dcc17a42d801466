"""The settings page of the documentation: its examples load without warnings, and it describes every key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podium.config.settings_files import read_settings_files
from podium.config.settings_keys import (
    ENGINE_KEYS,
    INSTALL_KEYS,
    KEYS,
    LIMIT_KEYS,
    PERMISSION_KEYS,
    PROVIDER_KEYS,
    ROLE_KEYS,
    SERVER_KEYS,
    WORKTREE_KEYS,
)
from podium.policy.rule_entry import KINDS
from podium.setup.settings import Settings
from podium.values.field_reader import BUDGET_KEYS
from podium.values.hook import HOOK_EVENTS
from podium.values.hook_keys import HOOK_KEYS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "settings.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```text file=(\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_every_example_is_valid(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")

    assert read_settings_files(tmp_path).diagnostics == ()
    assert Settings.load({}, home=tmp_path).sources


NESTED_KEYS = {
    "models": ROLE_KEYS,
    "budget": (*BUDGET_KEYS, "per_day", "per_repository_day"),
    "permissions": (*KINDS, "mode", "match", "not_match"),
    "approvals": ("timeout",),
    "worktrees": WORKTREE_KEYS,
    "providers": PROVIDER_KEYS,
    "limits": LIMIT_KEYS,
    "installs": INSTALL_KEYS,
    "hooks": HOOK_KEYS,
    "mcpServers": SERVER_KEYS,
    "engines": ENGINE_KEYS,
    "notify": ("command",),
}
"""The keys below each key whose value is a mapping, or a list of mappings."""


def test_every_key_is_documented() -> None:
    assert [key for key in KEYS if f"| `{key}` |" not in PAGE] == []


@pytest.mark.parametrize("key", NESTED_KEYS)
def test_the_row_of_a_key_names_every_key_below_it(key: str) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{key}` |")]

    assert [name for name in NESTED_KEYS[key] if not re.search(rf"\b{name}\b", row)] == []


def test_every_event_with_hooks_and_every_worktree_setting_has_a_row() -> None:
    hooks = (DOCS / "hooks.md").read_text(encoding="utf-8")

    assert [event for event in HOOK_EVENTS if f"| `{event}` |" not in hooks] == []
    assert [key for key in WORKTREE_KEYS if f"| `{key}` |" not in PAGE] == []


def test_every_key_that_a_repository_cannot_set_is_listed() -> None:
    section = PAGE.partition("## What a repository may not do")[2]
    spelled = [name for name, key in KEYS.items() if key.scope != "repository"]
    spelled += [f"permissions.{name}" for name, key in PERMISSION_KEYS.items() if key.scope != "repository"]

    assert [key for key in spelled if f"`{key}" not in section] == []
