"""How many tokens the tools add to every prompt: a quarter of the characters of the JSON that the OpenAI wire sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podium.core.engine import Tool
from podium.engines.model.openai_wire import _encode_tool
from podium.engines.model.stream_events import encode
from podium.files.discovery import load_roster
from podium.tools.toolset import Toolbox

from ..engines.outside import fail_if_called

MOST_TOKENS = {
    "read_file": 75,
    "glob": 65,
    "grep": 115,
    "git_diff": 60,
    "write_file": 65,
    "edit_file": 100,
    "bash": 75,
    "run_checks": 50,
    "web_fetch": 50,
    "ask_person": 70,
    "report_status": 55,
}
MOST_TOKENS_A_READER = 430
"""For an agent whose file lists no tools."""
MOST_TOKENS_AN_AGENT = 700


def count_tokens(*tools: Tool) -> int:
    return sum(-(-len(encode(_encode_tool(tool))) // 4) for tool in tools)


def select_tools(directory: Path, names: tuple[str, ...] | None, without: tuple[str, ...] = ()) -> list[Tool]:
    """Return the tools that an agent with this list is offered, as the model sees them."""
    box = Toolbox({directory: {"test": ("pytest",)}})
    chosen: list[Any] = [*box.select_acting_tools(names, without), *box.select_plain_tools(names, without)]
    return [
        Tool(name=one.name, description=one.description, parameters=one.parameters, answer=fail_if_called)
        for one in chosen
    ]


@pytest.mark.parametrize(("name", "most"), MOST_TOKENS.items())
def test_no_tool_costs_more_tokens_than_it_did(tmp_path: Path, name: str, most: int) -> None:
    [tool] = select_tools(tmp_path, (name,))

    assert count_tokens(tool) <= most


def test_the_tools_of_an_agent_that_lists_none_cost_half_of_what_they_did(tmp_path: Path) -> None:
    assert count_tokens(*select_tools(tmp_path, None)) <= MOST_TOKENS_A_READER


def test_no_built_in_agent_pays_more_than_the_limit_for_its_tools(tmp_path: Path) -> None:
    agents = load_roster(None, tmp_path).agents.values()
    costs = {one.name: count_tokens(*select_tools(tmp_path, one.tools, one.disallowed_tools)) for one in agents}

    assert costs
    assert {name: cost for name, cost in costs.items() if cost > MOST_TOKENS_AN_AGENT} == {}


def test_schemas_contain_nothing_that_helps_no_model(tmp_path: Path) -> None:
    sent = b"".join(encode(_encode_tool(tool)) for tool in select_tools(tmp_path, tuple(MOST_TOKENS)))

    for noise in (b'"title"', b'"default"', b'"$defs"', b'"anyOf"', b"additionalProperties"):
        assert noise not in sent
