"""What a person sees when a model does not do its part: the sentence and the exit code."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from anyio import to_thread

from podium.testing import ModelServer

from .conftest import Desk

ENDLESS = {"says": "You're right. " * 3_000, "pieces": 1_000, "pace": 0.001}
BROKEN = '{"name": "read_file", "arguments": {"path": '


@pytest.mark.parametrize(
    ("moves", "code", "said"),
    [
        (['{"name": "read_file", "arguments": {"path": "a.txt"}}', "It says a."], 0, ""),
        ([{"says": BROKEN, "stop": "stop"}] * 2, 1, "its model wrote a call to read_file that could not be read"),
        ([{"says": "half", "stop": "length"}] * 2, 5, "the answer was cut off at the model's token limit"),
        ([ENDLESS, ENDLESS], 1, "its model repeated the same text endlessly, even when asked again"),
        ([""], 1, "its reply was empty"),
        (
            ["[[REFLECTION_COMPLETE]]"] * 2,
            1,
            "it gave no answer, even when it was asked again: the reply contains only a marker",
        ),
    ],
)
async def test_each_fault_of_a_model_has_its_sentence_and_its_exit_code(
    desk: Desk, moves: list[Any], code: int, said: str
) -> None:
    (desk.repo / "a.txt").write_text("a\n")
    desk.write_agent("lead", engine="model")
    async with ModelServer({"m": moves}) as server:
        words = ("run", "lead", "go", "--quiet", "--model", "openai:m")
        environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "x"}
        ran = await to_thread.run_sync(partial(desk.run_podium, *words, **environ))

    assert (ran.returncode, said in ran.stderr) == (code, True), ran.stderr
    if code == 0:
        assert ran.stdout == "It says a.\n"
