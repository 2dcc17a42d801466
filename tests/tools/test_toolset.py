"""Which tools an agent's file gives it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from podium.tools.toolset import Toolbox, function_tools
from podium.values.errors import Mistake
from podium.values.tool_table import CHECKOUT_TOOLS


def weather(city: str) -> str:
    """The weather."""
    return f"fine in {city}"


def list_tool_names(box: Toolbox, tool_names: Sequence[str] | None, without: Sequence[str] = ()) -> list[str]:
    acting = [*box.select_acting_tools(tool_names, without), *box.select_function_tools(tool_names, without)]
    return [tool.name for tool in acting] + [tool.name for tool in box.select_plain_tools(tool_names, without)]


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    return Toolbox({tmp_path: {}}, functions=function_tools([weather]))


def test_an_agent_that_lists_no_tools_may_read_and_talk_to_the_person(box: Toolbox) -> None:
    assert list_tool_names(box, None) == [
        "read_file",
        "glob",
        "grep",
        "git_diff",
        "weather",
        "ask_person",
        "report_status",
    ]


def test_other_programs_names_are_understood(box: Toolbox) -> None:
    tool_names = ["Read", "Write", "Edit", "MultiEdit", "Glob", "LS", "Grep", "Bash", "WebFetch"]

    assert list_tool_names(box, tool_names) == [
        "read_file",
        "write_file",
        "edit_file",
        "glob",
        "grep",
        "bash",
        "web_fetch",
    ]


def test_an_entry_with_a_specifier_means_its_tool(box: Toolbox) -> None:
    assert list_tool_names(box, ["Bash(git *)", "Bash(npm test)", "ask_person"]) == ["bash", "ask_person"]


def test_what_is_disallowed_is_left_out(box: Toolbox) -> None:
    assert list_tool_names(box, ["Read", "Bash"], ["bash"]) == ["read_file"]
    assert list_tool_names(box, None, ["Grep", "weather", "ask_person"]) == [
        "read_file",
        "glob",
        "git_diff",
        "report_status",
    ]


def test_an_empty_list_means_no_tools(box: Toolbox) -> None:
    assert list_tool_names(box, []) == []


def test_unknown_names_are_returned_and_those_of_agents_and_mcp_servers_are_not(box: Toolbox) -> None:
    tool_names = ["Read", "read", "Agent(reviewer)", "mcp__github__issues", "Frobnicate(x)", "weather"]

    assert box.find_unknown_tools(tool_names) == ["read", "Frobnicate(x)"]
    assert list_tool_names(box, tool_names) == ["read_file", "weather"]


def test_without_a_directory_there_are_no_file_tools() -> None:
    box = Toolbox({})

    assert list_tool_names(box, [*CHECKOUT_TOOLS, "web_fetch"]) == ["web_fetch"]
    assert list_tool_names(box, None) == ["ask_person", "report_status"]
    assert box.find_unknown_tools(CHECKOUT_TOOLS) == []


@pytest.mark.parametrize("name", ["bash", "ask_person", "web_fetch", "read", "LS", "load_skill"])
def test_a_function_cannot_replace_a_built_in_tool(name: str) -> None:
    def function(command: str) -> str:
        return command

    function.__name__ = name

    with pytest.raises(Mistake, match=f"the function {name} has the same name as another tool"):
        function_tools([function])


def test_two_functions_cannot_have_one_name() -> None:
    with pytest.raises(Mistake, match="the function weather has the same name as another tool"):
        function_tools([weather, weather])
