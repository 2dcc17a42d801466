"""Answers as JSON, validated against a schema."""

from __future__ import annotations

import pytest

from podium.patterns.json_output import SchemaMismatch, parse_output
from podium.values.errors import Mistake

from ..studio import Studio

SCHEMA = {
    "type": "object",
    "properties": {"score": {"type": "number"}, "why": {"type": "string"}},
    "required": ["score"],
    "additionalProperties": False,
}


async def test_an_answer_that_fits_comes_as_data(studio: Studio) -> None:
    studio.agent("judge", says=['{"score": 0.5}'], output=SCHEMA)

    result = await studio.run("judge", "how good?")

    assert result.data == {"score": 0.5}
    assert '"required"' in studio.heard("judge")[0]


async def test_an_answer_that_does_not_fit_may_be_given_again(studio: Studio) -> None:
    studio.agent("judge", says=["fine", '{"score": "high"}', '```json\n{"score": 1}\n```'], output=SCHEMA)

    result = await studio.run("judge", "how good?")

    assert result.data == {"score": 1}
    assert "it is not JSON" in studio.heard("judge")[1]
    assert "at $.score 'high' is not of type 'number'" in studio.heard("judge")[2]


async def test_an_agent_that_never_fits_fails_with_the_reason(studio: Studio) -> None:
    studio.agent("judge", says=["no", "no", "no"], output=SCHEMA)

    result = await studio.run("judge", "how good?")

    assert result.error == "judge: its answer does not match its output schema: it is not JSON"


@pytest.mark.parametrize("text", ['{"score": 1}', 'Here:\n```json\n{"score": 1}\n```\nbye', ' {"score":1}\n'])
def test_json_is_found_alone_or_in_a_fence(text: str) -> None:
    assert parse_output(text, SCHEMA) == {"score": 1}


def test_the_path_of_a_mismatch_is_named() -> None:
    with pytest.raises(SchemaMismatch, match=r"at \$ Additional properties"):
        parse_output('{"score": 1, "more": 2}', SCHEMA)


def test_a_schema_reference_to_another_place_is_not_fetched() -> None:
    with pytest.raises(SchemaMismatch, match=r"the schema refers to 'http://127.0.0.1:9/x', which is not in it"):
        parse_output("{}", {"$ref": "http://127.0.0.1:9/x"})


def test_excessively_nested_json_does_not_fit() -> None:
    with pytest.raises(SchemaMismatch):
        parse_output("[" * 100_000 + "]" * 100_000, SCHEMA)


async def test_an_invalid_schema_is_refused_before_the_model_is_called(studio: Studio) -> None:
    studio.agent("judge", output={"type": "nonsense"})

    with pytest.raises(Mistake, match=r"the output schema of judge is not a valid JSON Schema: \$.type"):
        await studio.run("judge", "how good?")

    assert studio.calls == []
