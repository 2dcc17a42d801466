"""The tables of keys are the one place that says what a file can contain: docs and schemas for editors follow them."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from podium.cli.root import podium
from podium.files.agent_keys import KEYS as AGENT_KEYS
from podium.files.settings_document import SPELLED, SettingsDocument
from podium.files.settings_keys import KEYS
from podium.values.key_schema import build_file_schema

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SETTINGS = re.findall(r"^```text file=\S+\n(.*?)^```", (DOCS / "settings.md").read_text(), re.MULTILINE | re.DOTALL)
AGENTS = [
    found
    for page in ("agents.md", "teams.md", "hooks.md")
    for found in re.findall(r"^```markdown\n---\n(.*?)^---$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("page", ["settings.md", "hooks.md", "agents.md"])
def test_the_tables_in_the_docs_are_those_that_the_keys_make(page: str) -> None:
    write_tables = runpy.run_path(str(ROOT / "tools/key_tables.py"))["write_tables"]
    text = (DOCS / page).read_text(encoding="utf-8")

    assert write_tables(page, text) == text


def test_every_field_of_a_settings_document_is_set_by_a_key() -> None:
    tops = {
        SPELLED.get(name, name).partition(".")[0] for name in SettingsDocument.__struct_fields__ if name != "explicit"
    }

    assert tops == set(KEYS)


@pytest.mark.parametrize("text", SETTINGS)
def test_the_schema_accepts_the_settings_in_the_docs(text: str) -> None:
    assert list_errors("settings", yaml.safe_load(text)) == []


@pytest.mark.parametrize("text", AGENTS)
def test_the_schema_accepts_the_agents_in_the_docs(text: str) -> None:
    assert list_errors("agent", yaml.safe_load(text) or {}) == []


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("settings", {"modle": "openai"}),
        ("settings", {"workers": 0}),
        ("settings", {"forge": "gitea"}),
        ("settings", {"providers": {"openai": {"concurrent": "many"}}}),
        ("settings", {"approvals": {"timeout": "soon"}}),
        ("agent", {"maxTurns": "many"}),
        ("agent", {"team": {"mode": "reflect", "max_iteration": 3}}),
        ("agent", {"memory": "somewhere"}),
    ],
)
def test_the_schema_refuses_what_podium_reports(kind: str, written: dict[str, Any]) -> None:
    assert list_errors(kind, written) != []


@pytest.mark.parametrize("kind", ["settings", "agent"])
def test_the_schema_of_a_file_is_printed_for_editors(kind: str) -> None:
    printed = CliRunner().invoke(podium, ["config", "schema", kind])

    assert printed.exit_code == 0
    assert json.loads(printed.stdout) == read_schema(kind)


def list_errors(kind: str, written: object) -> list[str]:
    return [error.message for error in Draft202012Validator(read_schema(kind)).iter_errors(written)]


def read_schema(kind: str) -> Any:
    title, keys = ("Podium settings", KEYS) if kind == "settings" else ("Podium agent", AGENT_KEYS)
    return json.loads(json.dumps(build_file_schema(title, keys)))
