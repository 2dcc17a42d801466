#!/usr/bin/env python3
"""Write the tables of keys in the documentation from the tables of keys in the source: python tools/key_tables.py"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from podium.files.agent_keys import KEYS as AGENT_KEYS
from podium.files.settings_keys import KEYS
from podium.files.team_keys import MODE_KEYS, TEAM_KEYS, list_modes
from podium.values.field_reader import to_camel_case
from podium.values.hook_keys import HOOK_KEYS
from podium.values.struct_reader import FileKey, Keys

DOCS = Path(__file__).parents[1] / "docs"

COLUMNS: dict[str, Callable[[str, FileKey], str]] = {
    "value": lambda _, key: key.value,
    "meaning": lambda _, key: key.key.meaning,
    "default": lambda _, key: key.default,
    "modes": lambda name, _: ", ".join(modes) if 0 < len(modes := list_modes(name)) < len(MODE_KEYS) else "all",
}

TABLES: dict[tuple[str, str], tuple[Keys, Callable[[str], str]]] = {
    ("settings.md", "| key | value | meaning |"): (KEYS, str),
    ("settings.md", "| key in `worktrees` | value | meaning |"): (KEYS["worktrees"].keys, str),
    ("hooks.md", "| key | meaning | default |"): (HOOK_KEYS, str),
    ("agents.md", "| key | meaning | default |"): (AGENT_KEYS, to_camel_case),
    ("agents.md", "| key in `team` | value | meaning | default | modes |"): (TEAM_KEYS, str),
}
"""For each page and head of a table in it: the keys that are its rows, and how they are spelled there."""


def main() -> None:
    """Write all tables."""
    for page in {page for page, _ in TABLES}:
        path = DOCS / page
        path.write_text(write_tables(page, path.read_text(encoding="utf-8")), encoding="utf-8")


def write_tables(page: str, text: str) -> str:
    """Return the text of a page with its tables of keys written anew."""
    for (name, head), (keys, spell) in TABLES.items():
        if name == page:
            found = re.search(rf"^{re.escape(head)}\n\|[-|]+\|\n(?:\|.*\n)*", text, re.MULTILINE)
            if found is None:
                raise SystemExit(f"docs/{page} has no table with the head {head}")
            rows = [head, "|---" * head.count(" | ") + "|---|", *iter_rows(head, keys, spell)]
            text = text[: found.start()] + "".join(f"{row}\n" for row in rows) + text[found.end() :]
    return text


def iter_rows(head: str, keys: Keys, spell: Callable[[str], str]) -> Iterator[str]:
    """Yield a row for each key, with the columns that the head names."""
    columns = [COLUMNS[name.strip()] for name in head.strip("|").split("|")[1:]]
    for name, key in keys.items():
        cells = [f"`{spell(name)}`", *(column(name, key) for column in columns)]
        yield "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


if __name__ == "__main__":
    main()
