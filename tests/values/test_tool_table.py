"""The table of tools describes the tools that exist."""

from __future__ import annotations

from pathlib import Path

from podium.tools.toolset import Toolbox
from podium.values.tool_table import OUTSIDE_TOOLS, PLAIN_TOOLS, TOOLS_BY_NAME


def test_every_tool_of_a_checkout_has_a_row_that_describes_its_arguments(tmp_path: Path) -> None:
    tools = Toolbox({tmp_path: {}}).select_acting_tools(OUTSIDE_TOOLS)

    assert [tool.name for tool in tools] == [*OUTSIDE_TOOLS]
    for tool in tools:
        row, arguments = TOOLS_BY_NAME[tool.name], {*tool.parameters["properties"]}
        assert {*row.paths} <= arguments
        assert row.arguments is None or arguments <= {*row.arguments}


def test_the_tools_that_need_no_checkout_are_those_of_the_table() -> None:
    assert {tool.name for tool in Toolbox({}).select_plain_tools(None)} == {*PLAIN_TOOLS}
