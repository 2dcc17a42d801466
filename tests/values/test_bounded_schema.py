"""Validating values against untrusted schemas takes a bounded time."""

from __future__ import annotations

import time

import pytest

from podium.mcp_client.tool_definition import TooComplex, iter_schema_errors


def test_errors_have_their_place_and_a_message() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
        "required": ["b"],
        "additionalProperties": False,
    }

    errors = dict(iter_schema_errors(schema, {"a": [1, "x"], "c": 1}))

    assert errors["a.1"] == "'x' is not of type 'integer'"
    assert len(errors) == 2
    assert not list(iter_schema_errors({"type": "object"}, {"a": 1}))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"propertyNames": {"pattern": "^(a+)+$"}},
    ],
)
def test_patterns_that_could_take_forever_are_left_to_the_server(schema: dict[str, object]) -> None:
    hostile = "a" * 60 + "!"

    assert not list(iter_schema_errors(schema, {"a": hostile, hostile: 1}))


def test_alternatives_that_take_exponential_time_are_given_up() -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(60):
        schema = {"anyOf": [schema, schema]}
    started = time.process_time()

    with pytest.raises(TooComplex):
        list(iter_schema_errors(schema, 5))

    assert time.process_time() - started < 10


def test_a_schema_that_refers_to_itself_is_given_up() -> None:
    with pytest.raises(TooComplex):
        list(iter_schema_errors({"$ref": "#"}, 5))
