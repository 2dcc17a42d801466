"""Python functions as tools."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from podium.core.gate import InvalidCall
from podium.tools.python_function import function_tool, repeatable
from podium.values.errors import Mistake

from .doing import call_tool, make_started_action, make_tool_use


@dataclass
class Point:
    x: int
    y: int = 0


def describe(
    name: Annotated[str, Meta(description="Whose.")],
    points: list[Point],
    unit: Literal["cm", "in"] = "cm",
    tags: list[str] = ["a"],  # noqa: B006 - that it is copied is what is shown
) -> dict[str, Any]:
    """Describe something.

    With several points.
    """
    tags.append("b")
    return {"name": name, "sum": sum(point.x + point.y for point in points), "unit": unit, "tags": tags}


def test_name_docstring_and_hints_describe_the_tool_to_the_model() -> None:
    tool = function_tool(describe)

    assert tool.name == "describe"
    assert tool.description == "Describe something.\n\nWith several points."
    assert tool.parameters["required"] == ["name", "points"]
    assert tool.parameters["properties"]["name"] == {"type": "string", "description": "Whose."}
    assert tool.parameters["properties"]["points"]["items"]["properties"]["x"] == {"type": "integer"}
    assert tool.parameters["properties"]["unit"]["enum"] == ["cm", "in"]


async def test_arguments_arrive_as_their_types_and_the_result_as_json() -> None:
    tool = function_tool(describe)

    for _ in range(2):
        answer = await call_tool(tool, name="n", points=[{"x": 1, "y": 2}, {"x": 3}])

        assert answer.text == '{"name":"n","sum":6,"unit":"cm","tags":["a","b"]}'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"points": []}, "describe was called without the required argument `name`"),
        ({"name": "n", "points": [{"x": "1"}]}, r"`points\[0\]\.x`: expected `int`, got `str`"),
        ({"name": "n", "points": [], "unit": "m"}, "got an invalid `unit`"),
        ({"name": "n", "points": [], "more": 1}, "has no argument `more`"),
    ],
)
async def test_arguments_of_another_kind_are_refused(arguments: dict[str, Any], said: str) -> None:
    tool = function_tool(describe)

    with pytest.raises(InvalidCall, match=said):
        await tool.prepare(make_tool_use(tool, **arguments))


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_here() -> None:
    def plain() -> str:
        return threading.current_thread().name

    async def waiting() -> str:
        return threading.current_thread().name

    assert (await call_tool(function_tool(plain))).text != threading.current_thread().name
    assert (await call_tool(function_tool(waiting))).text == threading.current_thread().name


async def test_an_exception_of_a_function_is_its_answer() -> None:
    def broken() -> None:
        raise KeyError("x")

    answer = await call_tool(function_tool(broken))

    assert answer.is_error
    assert answer.text == "broken failed: KeyError: 'x'"


async def test_only_a_repeatable_function_is_called_again_after_a_crash() -> None:
    def once() -> None: ...

    @repeatable
    def often() -> None: ...

    for function, is_repeated in ((once, False), (often, True)):
        tool = function_tool(function)
        answer = await tool.recover(make_started_action(tool, await tool.prepare(make_tool_use(tool))))

        assert (answer is None) is is_repeated


def test_a_function_whose_parameters_have_no_names_cannot_be_a_tool() -> None:
    def anything(*values: int) -> None: ...

    class Local: ...

    def unknown(value: Local) -> None: ...

    def odd(value: set[Point] | list[int]) -> None: ...

    with pytest.raises(Mistake, match=r"anything cannot be a tool, because its parameter \*values"):
        function_tool(anything)
    with pytest.raises(Mistake, match="odd cannot be a tool"):
        function_tool(odd)
    with pytest.raises(Mistake, match="its type hints cannot be resolved"):
        function_tool(unknown)
