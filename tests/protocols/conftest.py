"""A repository with scripted agents, and a server that all tests of a module share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podium.store.reader import StoreReader
from podium.testing import Move, format_script, make_repository

from ..web.conftest import Site, open_site

WRITE: dict[str, Any] = {
    "says": "I write it.",
    "calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "new\n"}}],
}
ASK = {"calls": [{"name": "ask_person", "arguments": {"question": "Which colour?"}}]}
SILENT = {"silent": True}


def write_agents(repo: Path) -> None:
    """Create a git repository with a few agents. Some of them have steps for a conversation of several requests."""
    make_repository(repo)
    write_agent(repo, "greeter", *["Hello there, friend."] * 4)
    write_agent(repo, "teller", {"says": "Once upon a time.", "pieces": 3, "pace": 0.2})
    write_agent(repo, "critic", *["Fine."] * 4)
    write_agent(repo, "writer", *(WRITE, "Wrote it.") * 4, tools=["write_file"])
    write_agent(repo, "asker", ASK, "Red it is.", tools=["ask_person"])
    write_agent(repo, "stuck", SILENT)
    write_agent(repo, "broken", {"fails": {"status": 400, "message": "no such luck"}})
    write_agent(repo, "pair", team={"mode": "sequential", "members": ["greeter", "critic"]})


def write_agent(repo: Path, name: str, *moves: Move | str | dict[str, Any], **keys: Any) -> None:
    """Write an agent that follows these script steps."""
    front = "\n".join(f"{key}: {json.dumps(value)}" for key, value in {"engine": "scripted", **keys}.items())
    folder = repo / ".podium" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    text = f"---\ndescription: The {name}.\n{front}\n---\n{format_script(*moves)}\n"
    (folder / f"{name}.md").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve one store and one repository with agents for all tests of a module."""
    folder = tmp_path_factory.mktemp("site")
    write_agents(folder / "repo")
    with open_site(folder) as site:
        yield site


def find_newest_run(store: Path) -> str:
    """Return the id of the run that was started last; empty if there is none."""
    with StoreReader(store) as reader:
        found = max(reader.read_run_list().readable, key=lambda one: one.first.at, default=None)
    return "" if found is None else found.id
